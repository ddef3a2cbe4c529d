"""Parses one response as its bytes arrive; it knows nothing of sockets.

The reader limits the size of the body. Everything else is limited here: heads, trailers, interim (1xx)
responses and chunk extensions that go on without a byte of the body are a `ProtocolError`.
"""

from collections.abc import Iterator, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from argosy.wire.errors import IncompleteResponseError, ProtocolError

MAX_OVERHEAD_BYTES = 1 << 18
"""Bytes that may arrive without any of the body among them."""


class Headers(Mapping[str, str]):
    """Headers of a response, by name in any case; decoded when they are read."""

    __slots__ = ("_raw",)

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1")
        values = [value for key, value in self._raw if key.lower() == wanted]
        if not values:
            raise KeyError(name)
        return b", ".join(values).decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower().decode("latin-1"): None for name, _ in self._raw})

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self._raw})


class ResponseParser:
    """`has_head` once the head is complete, `done` once all is; the body is in `parts` until it is taken."""

    __slots__ = (
        "_bodiless",
        "_overhead",
        "_parser",
        "_progress",
        "_raw",
        "_upgrade",
        "done",
        "has_head",
        "keep_alive",
        "limit",
        "parts",
        "size",
        "started",
        "status",
        "upgrade_data",
    )

    def __init__(self, *, bodiless: bool = False, upgrade: bool = False, limit: int | None = None) -> None:
        """Parse a response.

        `bodiless`: it has no body, whatever its head says, because it answers HEAD. `upgrade`: the request
        was to switch to another protocol. `limit`: how many bytes of the body may wait to be taken.
        """
        self._bodiless = bodiless
        self._upgrade = upgrade
        self._overhead = 0
        self._progress = False
        self._raw: list[tuple[bytes, bytes]] = []
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.started = False
        self.has_head = False
        self.done = False
        self.keep_alive = False
        """Once done: whether the connection can carry another request."""
        self.limit = limit
        self.parts: list[bytes] = []
        self.upgrade_data: bytes | None = None
        """After an upgrade: the bytes of the new protocol that have arrived already."""
        self.size = 0
        self.status = 0

    @property
    def headers(self) -> Headers:
        return Headers(self._raw)

    def take(self) -> bytes:
        """Return and forget the parts of the body that have arrived."""
        parts = self.parts
        self.parts, self.size = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_size(self) -> None:
        if self.limit is not None and self.size > self.limit:
            raise ProtocolError(f"the body is larger than {self.limit} bytes")

    def feed(self, data: bytes | memoryview) -> None:
        parser = self._parser
        assert parser is not None
        self.started = True
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self.upgrade_data = bytes(data[upgrade.args[0] :])
        except HttpParserError as error:
            # If the response is complete, only the bytes after it are invalid.
            self.keep_alive = False
            if not self.done:
                self._parser = None
                if isinstance(error.__context__, ProtocolError):
                    raise error.__context__ from None
                raise ProtocolError(f"the response is not HTTP/1.1: {error}") from error
        if self.done:
            self._parser = None  # it refers back to this object: a reference cycle
        else:
            self._check(len(data))

    def end(self) -> None:
        """Handle the end of the connection, which completes a body of no declared length."""
        if self.done:
            return
        self._parser = None
        if not self.has_head or self._has_length():
            raise IncompleteResponseError("connection closed before the response was complete")
        self.done = True

    def _check(self, received: int) -> None:
        if self._progress:
            self._progress, self._overhead = False, 0
        else:
            self._overhead += received
            if self._overhead > MAX_OVERHEAD_BYTES:
                raise ProtocolError(f"the response has more than {MAX_OVERHEAD_BYTES} bytes outside its body")

    def _has_length(self) -> bool:
        headers = self.headers
        return "content-length" in headers or headers.get("transfer-encoding", "").lower().endswith("chunked")

    def _complete(self) -> None:
        assert self._parser is not None
        self.done = True
        self.keep_alive = self._parser.should_keep_alive()

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.done:
            self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.has_head:  # trailers are not kept
            self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status == 101 and not (self._upgrade and self._parser.should_upgrade()):
            raise ProtocolError("the server switched to another protocol that was not requested")
        if status < 200 and status != 101:
            self._raw.clear()
            return
        self.status = status
        self.has_head = True
        self._progress = True
        if self._bodiless:
            self._complete()

    def on_body(self, body: bytes) -> None:
        if self.done:
            self.keep_alive = False
            return
        self.parts.append(body)
        self.size += len(body)
        self._progress = True
        self.check_size()

    def on_message_complete(self) -> None:
        if self.has_head and not self.done:
            self._complete()
