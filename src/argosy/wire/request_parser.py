"""Parses the requests of one connection as their bytes arrive; it knows nothing of sockets.

The parser is httptools', in strict mode. What two servers in a row could understand differently (two lengths,
a length together with chunks, another transfer encoding, folded header lines) is an error, after which the
connection must not be read any further: what follows could be another client's request. Heads are limited in
size, and so is the framing around the chunks of a body.
"""

from collections import deque
from collections.abc import Callable

from httptools import HttpParserError, HttpParserInvalidMethodError, HttpParserUpgrade, HttpRequestParser

from argosy.wire.messages import Headers, HttpError, Request
from argosy.wire.request_head import RequestLimits, read_head

_MAX_FRAMING_BYTES = 1 << 16
"""Bytes of chunk sizes, extensions and trailers, in addition to some for each byte of the body."""
_FRAMING_BYTES_PER_BODY_BYTE = 16


class RequestParser:
    """Appends each request to `waiting` as soon as its head is complete, and feeds the body to it."""

    def __init__(
        self, limits: RequestLimits, waiting: deque[Request], on_body_wanted: Callable[[], None]
    ) -> None:
        self.receiving: Request | None = None
        """The request whose body is arriving."""
        self.begun = 0
        self.completed = 0
        self.in_head = False
        self.closed = False
        """Whether the last complete request is the last of its connection."""
        self.expects_continue = False
        """Whether the client waits for `100 Continue` before it sends the body."""
        self.has_large_body = False
        """Whether more of a body has arrived than may wait for its handler."""
        self.upgrade_data: bytes | None = None
        """After a request for another protocol: the bytes that followed its head."""
        self._limits = limits
        self._waiting = waiting
        self._on_body_wanted = on_body_wanted
        self._parser = HttpRequestParser(self)
        self._url = b""
        self._headers: Headers = []
        self._head_size = 0
        self._framing = 0

    def feed(self, data: memoryview) -> None:
        """Parse more bytes; raises HttpError if the request is invalid or too large."""
        begun, receiving = self.begun, self.receiving
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self.upgrade_data = bytes(data[upgrade.args[0] :])
        except HttpParserError as error:
            raise _http_error(error) from None
        else:
            if self.begun == begun and self.receiving is receiving:
                self._check_size(len(data))

    def discard(self) -> None:
        """Release the parser, which refers back to this object."""
        if self.receiving is not None:
            self.receiving.fail()
            self.receiving = None
        del self._parser

    def _check_size(self, size: int) -> None:
        """Limit heads and framing. All `size` bytes belong to one head or to one body."""
        if self.in_head:
            self._head_size += size
            if self._head_size > self._limits.head_bytes:
                raise HttpError(431, f"the request head is larger than {self._limits.head_bytes} bytes")
        elif self.receiving is not None:
            self._framing += size
            if self._framing > _MAX_FRAMING_BYTES:
                raise HttpError(400, "the chunks of the body have too much framing")

    # Called by the parser.

    def on_message_begin(self) -> None:
        self.begun += 1
        self._url, self._headers = b"", []
        self.in_head, self.expects_continue = True, False
        self._head_size = self._framing = 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # trailers are ignored
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        request = read_head(self._parser, self._url, self._headers, self._limits)
        fields = request.headers
        if b"content-length" in fields or b"transfer-encoding" in fields:
            self.expects_continue = b"expect" in fields
            request.expect_body(int(fields.get(b"content-length", 0)), self._on_body_wanted)
        self.in_head = False
        max_pipelined = self._limits.max_pipelined
        if max_pipelined is not None and len(self._waiting) > max_pipelined:
            raise HttpError(429, f"more than {max_pipelined} requests are waiting on this connection")
        self.receiving = request
        self._waiting.append(request)

    def on_body(self, body: bytes) -> None:
        assert self.receiving is not None
        self._framing -= len(body) * _FRAMING_BYTES_PER_BODY_BYTE
        if self.receiving.feed(body) > self._limits.unread_bytes:
            self.has_large_body = True

    def on_message_complete(self) -> None:
        request, self.receiving = self.receiving, None
        assert request is not None
        request.finish()
        self.completed += 1
        self.closed = not request.keep_alive


def _http_error(error: HttpParserError) -> HttpError:
    cause = error.__context__
    if isinstance(cause, HttpError):
        return HttpError(cause.status, str(cause))
    if isinstance(error, HttpParserInvalidMethodError):
        return HttpError(405, "unknown method")
    return HttpError(400, str(error))
