"""Exec and attach over a WebSocket, in the framing of Kubernetes' `v4`/`v5.channel.k8s.io`.

The first byte of a message names the channel: 0 standard input, 1 output, 2 error, 3 the final Status, 4
terminal size; in v5 the byte 255 closes the channel named after it. How a command ended is the Status on
channel 3.
"""

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from aiohttp import WSMsgType, web

from argosy.local.node import container, control
from argosy.local.node.control import CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT
from argosy.local.node.kinds import Json
from argosy.local.node.pods import open_shim

_CHUNK = 1 << 15


class Session(NamedTuple):
    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


async def execute(
    client: web.WebSocketResponse, folder: Path, name: str, command: list[str], session: Session
) -> None:
    try:
        exec_process = await _Exec.start(folder, name, command, session)
    except (OSError, container.StartError) as error:
        await _send(client, ERROR, _failed_to_start(str(error)))
        return
    try:
        await exec_process.relay(client)
    finally:
        exec_process.close()


async def attach(client: web.WebSocketResponse, folder: Path, name: str) -> None:
    try:
        reader, writer = await open_shim(folder)
    except OSError as error:
        await _send(client, ERROR, _failed_to_start(f"container {name} is not running ({error})"))
        return
    writer.write(json.dumps({"op": "attach", "container": name}).encode() + b"\n")
    answer = json.loads(await reader.readline() or b'{"error": "the container has ended"}')
    if "error" in answer:
        await _send(client, ERROR, _failed_to_start(str(answer["error"])))
        return

    def stdin(data: bytes | None) -> None:
        writer.write(control.frame(STDIN, data) if data is not None else control.frame(CLOSE, b""))

    def size(width: int, height: int) -> None:
        writer.write(control.frame(RESIZE, json.dumps([width, height]).encode()))

    async def outputs() -> None:
        buffer = bytearray()
        while data := await reader.read(_CHUNK):
            buffer += data
            for stream, content in control.split_frames(buffer):
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


class _Exec:
    """A command under way: our ends of its streams, and the shim's connection that tells its exit."""

    def __init__(
        self, connection: socket.socket, streams: dict[int, int], stdin: int | None, terminal: int | None
    ) -> None:
        self._connection = connection
        self._streams = streams
        self._stdin = stdin
        self._terminal = terminal

    @staticmethod
    async def start(folder: Path, name: str, command: list[str], session: Session) -> "_Exec":
        connection = control.connect(folder)
        theirs: list[int] = []
        ours: dict[int, int] = {}
        stdin: int | None = None
        if not session.tty:
            stdin_read, stdin = os.pipe()
            out, out_write = os.pipe()
            error, error_write = os.pipe()
            theirs, ours = [stdin_read, out_write, error_write], {out: STDOUT, error: STDERR}
            if not session.stdin:
                os.close(stdin)
                stdin = None
        request = {"op": "exec", "container": name, "argv": command, "tty": session.tty}
        line = json.dumps(request).encode() + b"\n"
        if theirs:
            socket.send_fds(connection, [line], theirs)
        else:
            connection.sendall(line)
        for descriptor in theirs:
            os.close(descriptor)
        data, received, _, _ = await asyncio.to_thread(socket.recv_fds, connection, 65536, 1)
        answer = json.loads(data.split(b"\n")[0] or b'{"error": "the pod has ended"}')
        if "started" not in answer:
            for descriptor in [*ours, *([stdin] if stdin is not None else [])]:
                os.close(descriptor)
            connection.close()
            raise container.StartError(str(answer.get("failed") or answer.get("error")))
        terminal = received[0] if received else None
        if terminal is not None:
            os.set_inheritable(terminal, False)
            ours, stdin = {terminal: STDOUT}, terminal if session.stdin else None
        running = _Exec(connection, ours, stdin, terminal)
        running._early = data.split(b"\n", 1)[1]
        return running

    async def relay(self, client: web.WebSocketResponse) -> None:
        loop = asyncio.get_running_loop()
        outputs = [
            asyncio.create_task(_copy_out(descriptor, channel, client))
            for descriptor, channel in self._streams.items()
        ]
        incoming = asyncio.create_task(_incoming(client, self._write_stdin, self._resize))
        exit_line = loop.run_in_executor(None, self._wait_exit)
        try:
            code = await exit_line
            await asyncio.wait(outputs, timeout=1.0)
            await _send(client, ERROR, _success() if code == 0 else _exited(code))
        finally:
            await _cancel(incoming, *outputs)

    def close(self) -> None:
        self._connection.close()
        for descriptor in {*self._streams, *([self._stdin] if self._stdin is not None else [])}:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _wait_exit(self) -> int:
        data = self._early
        while b"\n" not in data:
            piece = self._connection.recv(4096)
            if not piece:
                return 137
            data += piece
        code = int(json.loads(data.split(b"\n")[0])["exit"])
        return code if code >= 0 else 128 - code

    def _write_stdin(self, data: bytes | None) -> None:
        if self._stdin is None:
            return
        if data is None:
            if self._terminal is None:
                os.close(self._stdin)
                self._stdin = None
            return
        with contextlib.suppress(OSError):
            view = memoryview(data)
            while view:
                view = view[os.write(self._stdin, view) :]

    def _resize(self, width: int, height: int) -> None:
        if self._terminal is not None:
            container.resize(self._terminal, width, height)

    _early = b""


async def _copy_out(descriptor: int, channel: int, client: web.WebSocketResponse) -> None:
    while True:
        try:
            data = await asyncio.to_thread(os.read, descriptor, _CHUNK)
        except OSError:
            return
        if not data:
            return
        await _send(client, channel, data)


async def _incoming(
    client: web.WebSocketResponse,
    stdin: Callable[[bytes | None], None],
    size: Callable[[int, int], None],
) -> None:
    async for message in client:
        if message.type is WSMsgType.TEXT:
            data = message.data.encode()
        elif message.type is WSMsgType.BINARY:
            data = message.data
        else:
            break
        if not data:
            continue
        if data[0] == STDIN:
            if len(data) > 1:
                await asyncio.to_thread(stdin, data[1:])
        elif data[0] == RESIZE and len(data) > 1:
            wanted = json.loads(data[1:])
            size(int(wanted.get("Width", 80)), int(wanted.get("Height", 24)))
        elif data[0] == CLOSE and data[1:2] == bytes([STDIN]):
            stdin(None)


async def _send(client: web.WebSocketResponse, channel: int, data: bytes) -> None:
    with contextlib.suppress(ConnectionError, RuntimeError):
        await client.send_bytes(bytes([channel]) + data)


async def _cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _success() -> bytes:
    return json.dumps({"metadata": {}, "status": "Success"}).encode()


def _exited(code: int) -> bytes:
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
