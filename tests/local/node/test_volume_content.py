"""Tokens are renewed in time, whatever the clocks of the machines say."""

import json
from pathlib import Path
from typing import cast

import msgspec
import pytest

from argosy.engine.client import Client
from argosy.local.node.environment import Sources
from argosy.local.node.pod_types import Pod
from argosy.local.node.volume_content import VolumeContent

POD = msgspec.convert(
    {
        "metadata": {"name": "a", "namespace": "ns", "uid": "u"},
        "spec": {
            "volumes": [
                {
                    "name": "token",
                    "projected": {
                        "sources": [{"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}]
                    },
                }
            ]
        },
    },
    Pod,
)
SOURCES = Sources(
    config_map=lambda name: None,
    secret=lambda name: None,
    services=(),
    node_name="node-0",
    host_ip="",
    pod_ip="",
    node_allocatable={},
)


class Api:
    """Hands out tokens that live for 1000 seconds by a clock that is far away from any other."""

    def __init__(self, ends: str) -> None:
        self.ends = ends
        self.requests = 0

    async def request(self, method: str, path: str, *, body: object) -> bytes:
        assert (method, path) == ("POST", "/api/v1/namespaces/ns/serviceaccounts/default/token")
        self.requests += 1
        status = {"token": f"token-{self.requests}", "expirationTimestamp": self.ends}
        return json.dumps({"spec": {"expirationSeconds": 1000}, "status": status}).encode()


CLOCKS = {"a clock long past": "2001-01-01T00:00:00Z", "a clock far ahead": "2190-01-01T00:00:00Z"}


@pytest.mark.parametrize("ends", CLOCKS.values(), ids=CLOCKS.keys())
async def test_a_token_is_renewed_before_it_expires(ends: str, tmp_path: Path) -> None:
    api = Api(ends)
    content = VolumeContent(cast("Client", api), None, None, tmp_path / "ca")  # type: ignore[arg-type]  # not asked
    assert await content.write_volumes(POD, tmp_path, SOURCES) == pytest.approx(800, abs=5)
    assert await content.write_volumes(POD, tmp_path, SOURCES) == pytest.approx(800, abs=5)
    assert api.requests == 1
    assert (tmp_path / "volumes/token/token").read_text() == "token-1"
