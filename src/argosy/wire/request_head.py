"""From the head of a request as it was parsed to a `Request`, or to a refusal.

The parser refuses lengths given twice and lengths beside chunks. Here is refused what it lets pass though two
servers in a row could understand it differently, and what is larger than a head may be.
"""

from dataclasses import dataclass

from httptools import HttpRequestParser

from argosy.wire.messages import Headers, HttpError, Request
from argosy.wire.read_buffer import SIZE
from argosy.wire.websocket import VERSION

_ONCE = (b"host", b"content-length", b"transfer-encoding", b"sec-websocket-key")


@dataclass(frozen=True)
class RequestLimits:
    """How long and how much a server bears with a client."""

    head_bytes: int = 1 << 16
    head_lines: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 600.0
    read_bytes: int = SIZE
    """Bytes that are read, and parsed, of one connection before others get their turn."""
    unread_bytes: int = 1 << 16
    """Bytes of a body that wait here until its handler asks for it."""
    max_pipelined: int | None = None
    """Requests that may wait while another is answered; more are refused. Without it the client has to wait
    with what was not read yet."""


def read_head(parser: HttpRequestParser, url: bytes, headers: Headers, limits: RequestLimits) -> Request:
    """The request, with `keep_alive`, `streamable` and `wants_websocket` as its head says."""
    if len(headers) > limits.head_lines:
        raise HttpError(431, "the head has too many lines")
    if len(url) + sum([len(name) + len(value) + 4 for name, value in headers]) > limits.head_bytes:
        raise HttpError(431, "the head is too large")
    method = parser.get_method().decode("ascii")
    if method == "CONNECT":
        raise HttpError(405, "this is not a proxy")
    raw_path, _, raw_query = (url if url[:1] == b"/" else _origin_form(url)).partition(b"?")
    request = Request(method, raw_path.decode("ascii"), raw_query.decode("ascii"), headers)
    _read_version(parser, request)
    _check_fields(request)
    if parser.should_upgrade():
        _read_upgrade(request)
    return request


def _origin_form(url: bytes) -> bytes:
    """A target as a proxy is sent it, as a server is sent it."""
    scheme, found, rest = url.partition(b"://")
    if not found or scheme.lower() not in (b"http", b"https"):
        raise HttpError(400, "the target is not a path")
    _, slash, path = rest.partition(b"/")
    return slash + path if slash else b"/"


def _read_version(parser: HttpRequestParser, request: Request) -> None:
    version = parser.get_http_version()
    if version == "1.1":
        request.keep_alive = parser.should_keep_alive()
        if b"host" not in request.headers:
            raise HttpError(400, "the head names no host")
    elif version == "1.0":
        request.streamable = request.keep_alive = False
        if b"transfer-encoding" in request.headers:
            raise HttpError(400, "HTTP/1.0 has no chunks")
    else:
        raise HttpError(505, "HTTP/1.1 is spoken here")


def _check_fields(request: Request) -> None:
    fields = request.headers
    if len(fields) < len(request.raw_headers):
        names = [name for name, _ in request.raw_headers]
        for name in _ONCE:
            if names.count(name) > 1:
                raise HttpError(400, f"{name.decode()} is there twice")
    if b"transfer-encoding" in fields and fields[b"transfer-encoding"].strip().lower() != b"chunked":
        raise HttpError(501, "the only transfer encoding is chunked")
    if b"expect" in fields and fields[b"expect"].strip().lower() != b"100-continue":
        raise HttpError(417, "the only expectation is 100-continue")


def _read_upgrade(request: Request) -> None:
    """WebSockets are known; any other protocol is not spoken, and the request is answered in this one."""
    fields = request.headers
    request.keep_alive = False  # what follows is not parsed
    if fields.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in fields:
        raise HttpError(400, "a request for another protocol has a body")
    if fields.get(b"upgrade", b"").strip().lower() != b"websocket":
        return
    if fields.get(b"sec-websocket-version") != VERSION.encode() or request.method != "GET":
        raise HttpError(400, "a WebSocket is opened by GET, in version 13")
    if b"sec-websocket-key" not in fields or not request.streamable:
        raise HttpError(400, "a WebSocket is opened with a key, in HTTP/1.1")
    request.wants_websocket = True
