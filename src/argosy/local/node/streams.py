"""Exec and attach over WebSockets, with Kubernetes' `v4`/`v5.channel.k8s.io` framing.

The first byte of a message is the channel: 0 stdin, 1 stdout, 2 stderr, 3 the final Status, 4 terminal size;
in v5, byte 255 closes the channel that follows it. The exit code of a command is in the Status on channel 3.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from argosy.kinds.meta import Json
from argosy.local.node import container_process, descriptors, shim_socket, spawn
from argosy.local.node.shim_manager import open_connection
from argosy.local.node.shim_socket import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT
from argosy.wire.websocket import WebSocket

_CHUNK = 1 << 15


class StreamOptions(NamedTuple):
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


async def execute(
    client: WebSocket, folder: Path, name: str, command: list[str], session: StreamOptions
) -> None:
    try:
        exec_process = await _ExecSession.start(folder, name, command, session)
    except (OSError, spawn.StartError) as error:
        await _send(client, ERROR, _failed_to_start(str(error)))
        return
    try:
        await exec_process.relay(client)
    finally:
        exec_process.close()


async def attach(client: WebSocket, folder: Path, name: str) -> None:
    try:
        reader, writer = await open_connection(folder)
    except OSError as error:
        await _send(client, ERROR, _failed_to_start(f"container {name} is not running ({error})"))
        return
    writer.write(json.dumps({"op": "attach", "container": name}).encode() + b"\n")
    answer = json.loads(await reader.readline() or b'{"error": "the container has ended"}')
    if "error" in answer:
        await _send(client, ERROR, _failed_to_start(str(answer["error"])))
        return

    async def stdin(data: bytes | None) -> None:
        writer.write(
            shim_socket.encode_frame(STDIN, data)
            if data is not None
            else shim_socket.encode_frame(CLOSE, b"")
        )
        await writer.drain()

    def size(width: int, height: int) -> None:
        writer.write(shim_socket.encode_frame(RESIZE, json.dumps([width, height]).encode()))

    async def outputs() -> None:
        buffer = bytearray()
        while data := await reader.read(_CHUNK):
            buffer += data
            for stream, content in shim_socket.split_frames(buffer):
                await _send(client, stream, content)

    incoming = asyncio.create_task(_incoming(client, stdin, size))
    outgoing = asyncio.create_task(outputs())
    try:
        await asyncio.wait((incoming, outgoing), return_when=asyncio.FIRST_COMPLETED)
        if outgoing.done():
            await _send(client, ERROR, _success())
    finally:
        writer.close()
        await _cancel(incoming, outgoing)


class _ExecSession:
    """A running command: its streams, and the connection on which the shim reports its exit."""

    def __init__(
        self, connection: socket.socket, outputs: dict[int, int], stdin: int | None, terminal: int | None
    ) -> None:
        self._connection = connection
        self._outputs = outputs
        self._stdin = stdin
        self._terminal = terminal

    @staticmethod
    async def start(folder: Path, name: str, command: list[str], session: StreamOptions) -> "_ExecSession":
        connection = shim_socket.connect(folder)
        connection.setblocking(False)
        theirs: list[int] = []
        outputs: dict[int, int] = {}
        stdin: int | None = None
        if not session.tty:
            stdin_read, stdin = os.pipe()
            out, out_write = os.pipe()
            error, error_write = os.pipe()
            theirs, outputs = [stdin_read, out_write, error_write], {out: STDOUT, error: STDERR}
        request = {"op": "exec", "container": name, "argv": command, "tty": session.tty}
        line = json.dumps(request).encode() + b"\n"
        socket.send_fds(connection, [line], theirs)
        for descriptor in theirs:
            os.close(descriptor)
        running = _ExecSession(connection, outputs, stdin, None)
        data, received = await descriptors.receive_with_descriptors(connection)
        answer = json.loads(data.split(b"\n")[0] or b'{"error": "the pod has ended"}')
        if "started" not in answer:
            running.close()
            raise spawn.StartError(str(answer.get("failed") or answer.get("error")))
        running._early = data.split(b"\n", 1)[1]
        if received:
            running._take_terminal(received[0])
        elif not session.stdin:
            running._close_stdin()
        for descriptor in (*running._outputs, *([running._stdin] if running._stdin is not None else [])):
            os.set_blocking(descriptor, False)
        return running

    async def relay(self, client: WebSocket) -> None:
        """Relay until the command has ended and its output is sent, or the client disconnects."""
        outputs = [
            asyncio.create_task(_copy_out(descriptor, channel, client))
            for descriptor, channel in self._outputs.items()
        ]
        incoming = asyncio.create_task(_incoming(client, self._write_stdin, self._resize))
        exited = asyncio.create_task(self._exit_code())
        try:
            await asyncio.wait((incoming, exited), return_when=asyncio.FIRST_COMPLETED)
            if exited.done():
                # A process in the background may keep the streams open; the wait for it is short.
                await asyncio.wait(outputs, timeout=1.0)
                code = exited.result()
                await _send(client, ERROR, _success() if code == 0 else _exit_status(code))
        finally:
            await _cancel(incoming, *outputs)
            exited.cancel()
            await asyncio.gather(exited, return_exceptions=True)

    def close(self) -> None:
        self._connection.close()
        self._close_stdin()
        for descriptor in self._outputs:
            os.close(descriptor)
        self._outputs = {}

    async def _exit_code(self) -> int:
        data = self._early
        while b"\n" not in data:
            piece, _ = await descriptors.receive_with_descriptors(self._connection)
            if not piece:
                return 137
            data += piece
        code = int(json.loads(data.split(b"\n")[0])["exit"])
        return code if code >= 0 else 128 - code

    async def _write_stdin(self, data: bytes | None) -> None:
        target = self._terminal if self._terminal is not None else self._stdin
        if data is None:
            self._close_stdin()
        elif target is not None:
            with contextlib.suppress(OSError):
                await descriptors.write(target, data)

    def _resize(self, width: int, height: int) -> None:
        if self._terminal is not None:
            container_process.resize_terminal(self._terminal, width, height)

    def _take_terminal(self, terminal: int) -> None:
        self._terminal, self._outputs = terminal, {terminal: STDOUT}

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
            self._stdin = None

    _early = b""


async def _copy_out(descriptor: int, channel: int, client: WebSocket) -> None:
    while data := await descriptors.read(descriptor, _CHUNK):
        await _send(client, channel, data)


async def _incoming(
    client: WebSocket,
    stdin: Callable[[bytes | None], Awaitable[None]],
    size: Callable[[int, int], None],
) -> None:
    while (message := await client.receive()) is not None:
        data = message.encode() if isinstance(message, str) else message
        if not data:
            continue
        if data[0] == STDIN:
            if len(data) > 1:
                await stdin(data[1:])
        elif data[0] == RESIZE and len(data) > 1:
            wanted = json.loads(data[1:])
            size(int(wanted.get("Width", 80)), int(wanted.get("Height", 24)))
        elif data[0] == CLOSE and data[1:2] == bytes([STDIN]):
            await stdin(None)


async def _send(client: WebSocket, channel: int, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        await client.send(bytes([channel]) + data)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _success() -> bytes:
    return json.dumps({"metadata": {}, "status": "Success"}).encode()


def _exit_status(code: int) -> bytes:
    return _failure(
        f"command terminated with non-zero exit code: exit status {code}",
        "NonZeroExitCode",
        {"causes": [{"reason": "ExitCode", "message": str(code)}]},
        None,
    )


def _failed_to_start(why: str) -> bytes:
    message = f"Internal error occurred: error executing command in container: {why}"
    return _failure(message, "InternalError", {"causes": [{"message": message}]}, 500)


def _failure(message: str, reason: str, details: Json, code: int | None) -> bytes:
    status: Json = {
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
    }
    return json.dumps(status | ({"code": code} if code else {})).encode()
