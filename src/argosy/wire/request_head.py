"""Turns the parsed head of a request into a `Request`, and rejects invalid and oversized heads.

The parser rejects two lengths, and a length together with chunks. This module rejects what the parser accepts
although two servers in a row could understand it differently.
"""

from dataclasses import dataclass

from httptools import HttpRequestParser

from argosy.wire.messages import Headers, HttpError, Request
from argosy.wire.read_buffer import READ_BUFFER_BYTES
from argosy.wire.websocket import VERSION

_UNIQUE_HEADERS = (b"host", b"content-length", b"transfer-encoding", b"sec-websocket-key")


@dataclass(frozen=True)
class RequestLimits:
    """How much a client may send, and how long it may take."""

    head_bytes: int = 1 << 16
    head_lines: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 600.0
    read_bytes: int = READ_BUFFER_BYTES
    """Bytes of one connection that are read and parsed before other connections get their turn."""
    unread_bytes: int = 1 << 16
    """Bytes of a body that are buffered until its handler reads it."""
    max_pipelined: int | None = None
    """Requests that may wait while another is answered. More are rejected; if None, reading pauses."""


def read_head(parser: HttpRequestParser, url: bytes, headers: Headers, limits: RequestLimits) -> Request:
    """Return the request, with `keep_alive`, `accepts_chunks` and `wants_websocket` set from its head."""
    if len(headers) > limits.head_lines:
        raise HttpError(431, f"the request head has more than {limits.head_lines} lines")
    if len(url) + sum([len(name) + len(value) + 4 for name, value in headers]) > limits.head_bytes:
        raise HttpError(431, f"the request head is larger than {limits.head_bytes} bytes")
    method = parser.get_method().decode("ascii")
    if method == "CONNECT":
        raise HttpError(405, "CONNECT is not supported: this server is not a proxy")
    raw_path, _, raw_query = (url if url[:1] == b"/" else _origin_form(url)).partition(b"?")
    request = Request(method, raw_path.decode("ascii"), raw_query.decode("ascii"), headers)
    _read_version(parser, request)
    _check_fields(request)
    if parser.should_upgrade():
        _read_upgrade(request)
    return request


def _origin_form(url: bytes) -> bytes:
    """Return the path and query of an absolute URL, which is how requests to a proxy name their target."""
    scheme, separator, rest = url.partition(b"://")
    if not separator or scheme.lower() not in (b"http", b"https"):
        raise HttpError(400, "the request target must be a path or an HTTP URL")
    _, slash, path = rest.partition(b"/")
    return slash + path if slash else b"/"


def _read_version(parser: HttpRequestParser, request: Request) -> None:
    version = parser.get_http_version()
    if version == "1.1":
        request.keep_alive = parser.should_keep_alive()
        if b"host" not in request.headers:
            raise HttpError(400, "the Host header is required")
    elif version == "1.0":
        request.accepts_chunks = request.keep_alive = False
        if b"transfer-encoding" in request.headers:
            raise HttpError(400, "the Transfer-Encoding header is not supported with HTTP/1.0")
    else:
        raise HttpError(505, f"HTTP/{version} is not supported: must be HTTP/1.1 or HTTP/1.0")


def _check_fields(request: Request) -> None:
    fields = request.headers
    if len(fields) < len(request.raw_headers):
        names = [name for name, _ in request.raw_headers]
        for name in _UNIQUE_HEADERS:
            if names.count(name) > 1:
                raise HttpError(400, f"duplicate header {name.decode()}")
    if b"transfer-encoding" in fields and fields[b"transfer-encoding"].strip().lower() != b"chunked":
        raise HttpError(501, "the Transfer-Encoding header must be chunked")
    if b"expect" in fields and fields[b"expect"].strip().lower() != b"100-continue":
        raise HttpError(417, "the Expect header must be 100-continue")


def _read_upgrade(request: Request) -> None:
    """Check the handshake of a WebSocket. A request for any other protocol is answered with HTTP."""
    fields = request.headers
    request.keep_alive = False  # the bytes after the head are not parsed
    if fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields:
        raise HttpError(400, "a request with an Upgrade header must not have a body")
    if fields.get(b"upgrade", b"").strip().lower() != b"websocket":
        return
    if fields.get(b"sec-websocket-version") != VERSION.encode() or request.method != "GET":
        raise HttpError(400, f"a WebSocket must be opened with GET and Sec-WebSocket-Version {VERSION}")
    if b"sec-websocket-key" not in fields or not request.accepts_chunks:
        raise HttpError(400, "a WebSocket must be opened with Sec-WebSocket-Key and HTTP/1.1")
    request.wants_websocket = True
