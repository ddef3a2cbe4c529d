"""Versions that a server no longer has: 410, and how clients resume.

The reference drops its history when etcd is compacted, and only for kinds without a watch cache, such as
events. The local server drops it beyond a limit, which the test sets low.
"""

import http.client
import json
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.differential import Step, act, difference, get, post, watch
from tests.support.field_paths import Json
from tests.support.manifests import CONFIG_MAPS, config_map
from tests.support.servers import Server
from tests.support.servers import local_apiserver as start_local

EVENTS = "/api/v1/namespaces/$ns/events"
FIRST = "$first.metadata.resourceVersion"


def event(name: str) -> Json:
    about = {"kind": "Pod", "name": "x", "namespace": "$ns"}
    return {"metadata": {"name": name}, "involvedObject": about, "reason": "Test", "message": "for a test"}


class _Etcd(http.client.HTTPConnection):
    """The JSON gateway of etcd on its Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))

    def ask(self, path: str, **body: object) -> dict[str, dict[str, str]]:
        self.request("POST", path, json.dumps(body))
        answer: dict[str, dict[str, str]] = json.load(self.getresponse())
        return answer


def compact(server: Server) -> None:
    """Compact the history of the reference; the local server does that by itself."""
    if server.name != "kubernetes":
        return
    etcd = _Etcd(server.folder / "localhost:2379")
    try:
        now = etcd.ask("/v3/kv/range", key="eA==")["header"]["revision"]
        assert "header" in etcd.ask("/v3/kv/compaction", revision=now, physical=True)
    finally:
        etcd.close()


MADE = (
    post(EVENTS, event("a"), save="first", shown=False),
    post(EVENTS, event("b"), shown=False),
    post(EVENTS, event("c"), shown=False),
    get(f"{EVENTS}?limit=1", save="page", shown=False),
    *(post(CONFIG_MAPS, config_map(f"m{number}"), shown=False) for number in range(30)),
    act(compact),
    get(f"{EVENTS}?resourceVersion={FIRST}&resourceVersionMatch=Exact", until_code=410, shown=False),
)

CASES: dict[str, list[Step]] = {
    "page of a compacted version: 410 with a new continue token": [
        *MADE,
        get(f"{EVENTS}?limit=1&continue=$page.metadata.continue", save="gone"),
        get(f"{EVENTS}?limit=1&continue=$gone.metadata.continue", save="page"),
        get(f"{EVENTS}?limit=1&continue=$page.metadata.continue"),
    ],
    "list at exactly a compacted version: 410": [
        *MADE,
        get(f"{EVENTS}?resourceVersion={FIRST}&resourceVersionMatch=Exact"),
        get(f"{EVENTS}?resourceVersion={FIRST}&resourceVersionMatch=Exact&limit=1"),
        get(f"{EVENTS}?resourceVersion={FIRST}&limit=1"),
    ],
    "list not older than a compacted version: the current objects": [
        *MADE,
        get(f"{EVENTS}?resourceVersion={FIRST}", hide=("items",)),
        get(f"{EVENTS}?resourceVersion={FIRST}&resourceVersionMatch=NotOlderThan", hide=("items",)),
        get(f"{EVENTS}?resourceVersion={FIRST}&resourceVersionMatch=NotOlderThan&limit=1", hide=("items",)),
        get(f"{EVENTS}/a?resourceVersion={FIRST}", only=("metadata.name",)),
    ],
    "watch from a compacted version: ends with an error": [
        *MADE,
        watch(f"{EVENTS}?resourceVersion={FIRST}&timeoutSeconds=5", 2),
    ],
}


@pytest.fixture(scope="module")
def forgetful(short_folder: Path) -> Iterator[Server]:
    with start_local(short_folder / "forgetful-lists", "--history-count", "5") as server:
        yield server


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_gone(real_apiserver: Server, forgetful: Server, steps: list[Step]) -> None:
    if diff := difference(real_apiserver, forgetful, f"t{secrets.token_hex(4)}", steps):
        pytest.fail(f"\n{diff}", pytrace=False)
