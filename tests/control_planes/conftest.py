"""Fixtures that run the same kubectl commands with the real controllers and with ours."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import assets, control_planes
from tests.support.servers import Server

HERE = f"{Path(__file__).parent}/"
KUBECTL = Path(sys.executable).with_name("kubectl")
SECONDS = 90.0
Json = dict[str, object]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They need programs that only the stage of that name builds."""
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker(pytest.mark.cluster)


@dataclass(frozen=True)
class Planes:
    """Both control planes; a command's namespace is `namespace`."""

    servers: tuple[Server, ...]
    namespace: str

    def say(self, *words: str, stdin: str = "", code: int | None = 0) -> None:
        """Run a command on both, and compare nothing but how it ended."""
        for server in self.servers:
            done = self.run(server, words, stdin)
            if code is not None and done.returncode != code:
                pytest.fail(
                    f"{server.name}: {' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}"
                )

    def same(self, *words: str, stdin: str = "", code: int | None = 0, ordered: bool = True) -> str:
        """Run a command on both; the outputs must be equal, in any order if need be; returns the output."""
        outputs = []
        for server in self.servers:
            done = self.run(server, words, stdin)
            lines = normal(done.stdout).splitlines()
            shown = "\n".join(lines if ordered else sorted(lines))
            outputs.append(f"{shown}\n{normal(done.stderr)}(ended with {done.returncode})")
            assert code in (None, done.returncode), f"{server.name}: {outputs[-1]}"
        assert outputs[1] == outputs[0]
        return outputs[0]

    def until(self, *words: str) -> None:
        """Run a command on both until it ends well: what was granted takes effect a moment later."""
        deadline = time.monotonic() + SECONDS
        for server in self.servers:
            while (done := self.run(server, words, "")).returncode != 0:
                assert time.monotonic() < deadline, f"{server.name}: {done.stdout}{done.stderr}"
                time.sleep(0.1)

    def rolled_out(self, name: str, code: int = 0) -> None:
        self.say("rollout", "status", f"deployment/{name}", f"--timeout={SECONDS:.0f}s", code=code)

    def settled(self, *selection: str, shown: Callable[[list[Json]], object]) -> object:
        """What is shown of the objects selected, once it is the same on both and stays so for a moment."""
        deadline = time.monotonic() + SECONDS
        before: object = None
        while True:
            want, got = (shown(self._items(server, selection)) for server in self.servers)
            if want == got == before:
                return want
            if time.monotonic() > deadline:
                assert got == want
            before = want
            time.sleep(0.3)

    def eventually(self, *selection: str, shown: Callable[[list[Json]], object], want: object) -> None:
        """Wait until both show what is wanted."""
        deadline = time.monotonic() + SECONDS
        for server in self.servers:
            while (got := shown(self._items(server, selection))) != want:
                if time.monotonic() > deadline:
                    assert got == want, server.name
                time.sleep(0.1)

    def names(self, server: Server, *selection: str) -> list[str]:
        """The names of the objects selected, on one of the two."""
        return [str(item["metadata"]["name"]) for item in self._items(server, selection)]  # type: ignore[index]

    def only(self, server: Server, *words: str) -> None:
        """Run a command on one of the two."""
        done = self.run(server, words, "")
        assert done.returncode == 0, done.stderr

    def _items(self, server: Server, selection: tuple[str, ...]) -> list[Json]:
        done = self.run(server, ("get", *selection, "-o", "json"), "")
        assert done.returncode == 0, done.stderr
        items: list[Json] = json.loads(done.stdout)["items"]
        return items

    def run(self, server: Server, words: tuple[str, ...], stdin: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(KUBECTL), f"--namespace={self.namespace}", *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "KUBECONFIG": str(server.kubeconfig), "HOME": str(server.folder)},
            check=False,
        )


_NAMED = re.compile(r"\b([a-z]+)-([bcdf-hj-np-tv-xz2456789]{6,10})(-[bcdf-hj-np-tv-xz2456789]{5})?\b")


def normal(text: str) -> str:
    """A text without hashes of templates and ends of names that were drawn by lot."""
    text = re.sub(r"pod-template-hash=\w+", "pod-template-hash=<hash>", text)
    return _NAMED.sub(lambda match: f"{match[1]}-<hash>{'-<5>' if match[3] else ''}", text)


@pytest.fixture(scope="session")
def both(short_folder: Path) -> Iterator[tuple[Server, Server]]:
    try:
        for program in ("etcd", "kube-apiserver", "kube-controller-manager"):
            assets.find(program)
    except assets.MissingAsset as error:
        if os.environ.get("ARGOSY_REQUIRE_ALL") == "1":
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))
    with (
        control_planes.real_control_plane(short_folder / "real-plane") as real,
        control_planes.local_control_plane(short_folder / "local-plane") as local,
    ):
        yield real, local


@pytest.fixture
def planes(both: tuple[Server, Server], request: pytest.FixtureRequest) -> Iterator[Planes]:
    """Both control planes, with a new namespace in which pods can be created."""
    namespace = f"t{time.monotonic_ns()}"
    planes = Planes(both, namespace)
    planes.say("create", "namespace", namespace)
    planes.eventually(
        "serviceaccounts",
        shown=lambda items: [item["metadata"]["name"] for item in items],  # type: ignore[index]
        want=["default"],
    )
    yield planes
    planes.say("delete", "namespace", namespace, "--wait=false")
