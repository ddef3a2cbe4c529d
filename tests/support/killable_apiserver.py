"""A real kube-apiserver and etcd that a test can kill and start again, with an audit log of all writes."""

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
    """A request in the audit log."""

    verb: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User = field(default_factory=_User)
    object_ref: _Object = field(default_factory=_Object)
    response_status: _Answer = field(default_factory=_Answer)

    @property
    def changed(self) -> bool:
        """True if the request changed something."""
        return self.verb in WRITES and self.response_status.code < 300


class KillableApiServer:
    """etcd and kube-apiserver. `server`, the address and credentials, survives a restart."""

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
        """Start the stopped programs, and wait until the server is ready."""
        self._begin()
        self._wait()

    async def revive(self) -> None:
        """Like `start`, without blocking the event loop."""
        self._begin()  # not in a thread: a tethered process ends with the thread that started it
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
        """All write requests so far, in the order of their responses."""
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
def running_killable_apiserver(folder: Path) -> Iterator[KillableApiServer]:
    """A running server for the duration of a with block."""
    server = KillableApiServer(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
