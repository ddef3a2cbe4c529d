"""Answers the execs of simulated nodes: a kubelet's HTTPS server that runs nothing.

kube-apiserver translates the WebSocket of an exec to SPDY/3.1 and dials the port in the node's
`daemonEndpoints`. Every command reads its stdin to the end, prints nothing and ends with exit code 0.

Two facts spare it the decompression of headers: clients open the streams in the order error, stdin, stdout,
stderr, and the query says which of them there are. Its own header blocks are empty.
"""

import asyncio
import ssl
import struct
import tempfile
import zlib
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.support.certificates import LOOPBACK, Authority

HOST = "127.0.0.1"
SUCCESS = b'{"metadata":{},"status":"Success"}'

_SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n"
)
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CONTROL, _VERSION = 0x8000, 3
_SYN_STREAM, _SYN_REPLY, _RST_STREAM, _PING, _GOAWAY = 1, 2, 3, 6, 7
_FIN = 1
_ID_MASK = 0x7FFFFFFF
_HEAD_BYTES = 8


class ExecServer:
    """Serves on a port of loopback, for any number of nodes."""

    def __init__(self) -> None:
        self.port = 0
        self.commands = 0
        """Number of commands that have ended."""
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "ExecServer":
        self._server = await asyncio.start_server(self._serve, HOST, 0, ssl=_tls(), backlog=1024)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            streams = _streams(await reader.readuntil(b"\r\n\r\n"))
            writer.write(_SWITCH if streams else _NOT_FOUND)
            if streams:
                await _Session(reader, writer, streams).run()
                self.commands += 1
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


class _Session:
    """The SPDY connection of one command."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: tuple[str, ...]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._names = names
        self._compressor = zlib.compressobj()
        self._ids: list[int] = []
        self._stdin_open = "stdin" in names

    async def run(self) -> None:
        """Answer until all streams are open and stdin has ended; then report success."""
        while len(self._ids) < len(self._names) or self._stdin_open:
            await self._handle(*await self._read_frame())
        error, *others = self._ids
        for stream, name in zip(others, self._names[1:], strict=True):
            if name != "stdin":
                self._send_data(stream, b"")
        self._send_data(error, SUCCESS)
        await self._writer.drain()
        while await self._reader.read(1 << 16):
            pass  # until the client has read the streams and closes the connection

    async def _read_frame(self) -> tuple[int, int, bytes]:
        first, length = struct.unpack("!II", await self._reader.readexactly(_HEAD_BYTES))
        return first, length >> 24, await self._reader.readexactly(length & 0xFFFFFF)

    async def _handle(self, first: int, flags: int, body: bytes) -> None:
        if first >> 16 != _CONTROL | _VERSION:
            self._end_stdin(first & _ID_MASK, flags)
            return
        kind = first & 0xFFFF
        if kind == _PING:
            self._send_control(_PING, body)
        elif kind == _SYN_STREAM:
            stream = struct.unpack("!I", body[:4])[0] & _ID_MASK
            self._ids.append(stream)
            block = self._compressor.compress(struct.pack("!I", 0))
            block += self._compressor.flush(zlib.Z_SYNC_FLUSH)
            self._send_control(_SYN_REPLY, struct.pack("!I", stream) + block)
            self._end_stdin(stream, flags)
        elif kind == _RST_STREAM:
            self._end_stdin(struct.unpack("!I", body[:4])[0] & _ID_MASK, _FIN)
        elif kind == _GOAWAY:
            raise ConnectionResetError("the client has left")

    def _end_stdin(self, stream: int, flags: int) -> None:
        if flags & _FIN and "stdin" in self._names and self._ids[1:2] == [stream]:
            self._stdin_open = False

    def _send_control(self, kind: int, body: bytes) -> None:
        head = struct.pack("!II", (_CONTROL | _VERSION) << 16 | kind, len(body))
        self._writer.write(head + body)

    def _send_data(self, stream: int, data: bytes) -> None:
        """Send the whole content of a stream."""
        self._writer.write(struct.pack("!II", stream, _FIN << 24 | len(data)) + data)


def _streams(head: bytes) -> tuple[str, ...]:
    """Return the streams that the client opens, in their order; none if this is no exec over SPDY."""
    line, *headers = head.decode("latin-1").split("\r\n")
    target = urlsplit(line.split(" ")[1])
    if not target.path.startswith("/exec/") or "upgrade: spdy/3.1" not in map(str.lower, headers):
        return ()
    query = parse_qs(target.query)
    words = {"stdin": "input", "stdout": "output", "stderr": "error"}
    return ("error", *(name for name, word in words.items() if query.get(word) == ["1"]))


def _tls() -> ssl.SSLContext:
    """Return a context with a certificate of its own; kube-apiserver does not verify it by default."""
    certificate = Authority().issue("simulated-node", LOOPBACK)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "node.pem"
        file.write_bytes(certificate.key + certificate.certificate)
        context.load_cert_chain(file)
    return context
