"""Logs and commands over the protocols of the Kubernetes API."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec
import pytest

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, NotFound, Unavailable
from argosy.wire.messages import Request, Upgrade
from argosy.wire.websocket import WebSocket
from tests.support.fake_apiserver import FakeServer, Fault

SUCCESS: Mapping[str, object] = {"status": "Success"}


def failure(code: str) -> dict[str, object]:
    cause = {"reason": "ExitCode", "message": code}
    return {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": [cause]}}


class Shell:
    """The server's side of a command: sends a greeting, echoes stdin, and ends with a given Status."""

    def __init__(self, status: Mapping[str, object] | None, protocols: tuple[str, ...]) -> None:
        self.status = status
        self.protocols = protocols
        self.stdin = b""
        self.query: list[tuple[str, str]] = []

    async def __call__(self, request: Request) -> Upgrade:
        self.query = [(name, value) for name, values in request.query.items() for value in values]
        chosen = next(name for name in request.subprotocols if name in self.protocols)
        return Upgrade(chosen, self._converse)

    async def _converse(self, socket: WebSocket) -> None:
        await socket.send(b"\x01")
        await socket.send(b"\x01hello")
        await socket.send(b"\x02oops")
        if ("stdin", "true") in self.query:
            while isinstance(message := await socket.receive(), bytes) and message[0] != 255:
                self.stdin += message[1:]
                if socket.subprotocol != "v5.channel.k8s.io" and self.stdin.endswith(b"end"):
                    break
        if self.status is not None:
            await socket.send(b"\x03" + msgspec.json.encode(self.status))


V5 = ("v5.channel.k8s.io", "v4.channel.k8s.io")
V4 = ("v4.channel.k8s.io",)


async def test_exec_returns_output_and_exit_code(client: Client, server: FakeServer) -> None:
    shell = server.exec_handler = Shell(failure("42"), V5)
    out: list[bytes] = []
    err: list[bytes] = []
    code = await client.exec(
        "p", "default", ["sh", "-c", "a b"], container="c", on_stdout=out.append, on_stderr=err.append
    )
    assert (code, out, err) == (42, [b"hello"], [b"oops"])
    assert [value for name, value in shell.query if name == "command"] == ["sh", "-c", "a b"]
    assert ("container", "c") in shell.query
    assert ("stdin", "true") not in shell.query


@pytest.mark.parametrize("protocols", [V5, V4])
async def test_stdin_is_sent_and_closed(
    client: Client, server: FakeServer, protocols: tuple[str, ...]
) -> None:
    shell = server.exec_handler = Shell(SUCCESS, protocols)
    data = b"x" * 100_000 + b"end"
    assert await client.exec("p", "default", ["cat"], stdin=data) == 0
    assert shell.stdin == data


async def test_stdin_may_be_an_iterator(client: Client, server: FakeServer) -> None:
    async def bits() -> AsyncIterator[bytes]:
        for bit in (b"a", b"b"):
            yield bit

    shell = server.exec_handler = Shell(SUCCESS, V5)
    assert await client.exec("p", "default", ["cat"], stdin=bits()) == 0
    assert shell.stdin == b"ab"


async def test_output_is_not_received_while_pace_waits(client: Client, server: FakeServer) -> None:
    server.exec_handler = Shell(SUCCESS, V5)
    events: list[str] = []

    async def pace(size: int) -> None:
        await asyncio.sleep(0)
        events.append(f"paced {size}")

    def note(chunk: bytes) -> None:
        events.append(chunk.decode())

    assert await client.exec("p", "default", ["sh"], on_stdout=note, on_stderr=note, pace=pace) == 0
    assert events == ["paced 0", "hello", "paced 5", "oops", "paced 4"]


async def test_a_terminal_has_no_stderr(client: Client, server: FakeServer) -> None:
    shell = server.exec_handler = Shell(SUCCESS, V5)
    await client.exec("p", "default", ["sh"], tty=True)
    assert ("tty", "true") in shell.query
    assert ("stderr", "true") not in shell.query


async def test_a_connection_that_ends_before_the_command_raises(client: Client, server: FakeServer) -> None:
    server.exec_handler = Shell(None, V5)
    with pytest.raises(Unavailable, match="before the command"):
        await client.exec("p", "default", ["sh"])


async def test_a_command_that_cannot_be_started_raises(client: Client, server: FakeServer) -> None:
    status = {"status": "Failure", "reason": "InternalError", "message": "no such file", "code": 500}
    server.exec_handler = Shell(status, V5)
    with pytest.raises(ApiError, match="no such file"):
        await client.exec("p", "default", ["nothing"])


async def test_exec_in_a_missing_pod_raises_not_found_with_the_servers_message(
    client: Client, server: FakeServer
) -> None:
    server.faults.append(Fault(404, reason="NotFound", message='pods "p" not found'))
    with pytest.raises(NotFound, match='pods "p" not found'):
        await client.exec("p", "default", ["sh"])


async def test_logs_are_streamed_with_the_requested_options(client: Client, server: FakeServer) -> None:
    server.log_chunks = [b"one\n", b"two\n"]
    text = b"".join(
        [chunk async for chunk in client.logs("p", "default", container="c", follow=True, tail=5)]
    )
    assert text == b"one\ntwo\n"
    assert server.requests[-1].path == "/api/v1/namespaces/default/pods/p/log"
    assert server.requests[-1].query == {"container": "c", "follow": "true", "tailLines": "5"}


async def test_logs_of_a_missing_pod_raise_not_found(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(404))
    with pytest.raises(NotFound):
        await anext(client.logs("p", "default"))
