"""A real API server that a test may hurt: etcd and kube-apiserver, killed and started again one by one.

What every request did to it stands in the audit log: who, what, when and with which answer.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct, field

from tests.support import servers
from tests.support.servers import Server

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


class _User(Struct):
    username: str = ""


class _Object(Struct):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Answer(Struct):
    code: int = 0


class Audited(Struct, rename="camel"):
    """One answered request."""

    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User = field(default_factory=_User)
    object_ref: _Object = field(default_factory=_Object)
    response_status: _Answer = field(default_factory=_Answer)

    @property
    def changed(self) -> bool:
        """Whether something is another since."""
        return self.verb in WRITES and self.response_status.code < 300


class HurtServer:
    """`server` is how to reach it, always the same."""

    def __init__(self, folder: Path) -> None:
        (folder / "logs").mkdir(parents=True)
        port = servers.free_port()
        servers.prepare_real(folder)
        self._folder = folder
        self._commands = servers.real_commands(folder, port)
        self._commands["kube-apiserver"] += self._audit_flags()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.server: Server = servers.describe("kubernetes", folder, "127.0.0.1", port)

    def start(self) -> None:
        """Start what does not run, and wait until it serves."""
        self._begin()
        self._wait()

    async def revive(self) -> None:
        """The same, while other tasks go on."""
        self._begin()  # not in a thread: what is tethered ends with the thread that started it
        await asyncio.to_thread(self._wait)

    def _begin(self) -> None:
        for name, command in self._commands.items():
            if name not in self._running:
                self._running[name] = servers.start_tethered(command, self._folder, name)

    def _wait(self) -> None:
        log = self._folder / "logs" / "kube-apiserver.log"
        servers.wait_ready(self.server, list(self._running.values()), log)

    def kill(self, name: str) -> None:
        """End `etcd` or `kube-apiserver` as a crash does."""
        process = self._running.pop(name)
        process.kill()
        process.wait()

    def stop(self) -> None:
        for name in reversed(list(self._running)):
            self.kill(name)

    def audited(self) -> Iterator[Audited]:
        """All requests so far that were answered, in the order of their answers."""
        decoder = msgspec.json.Decoder(Audited)
        with (self._folder / "logs" / "audit.log").open("rb") as log:
            for line in log:
                if line.endswith(b"\n"):
                    yield decoder.decode(line)

    def _audit_flags(self) -> tuple[str, ...]:
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                {"level": "None", "verbs": ["get", "list", "watch"]},
                {"level": "Metadata"},
            ],
        }
        file = self._folder / "audit-policy.json"
        file.write_bytes(msgspec.json.encode(policy))
        return f"--audit-policy-file={file}", f"--audit-log-path={self._folder}/logs/audit.log"


@contextlib.contextmanager
def hurt_server(folder: Path) -> Iterator[HurtServer]:
    """One that runs, for the duration of a with block."""
    server = HurtServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
