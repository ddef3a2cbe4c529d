"""One answer, parsed as its bytes come; it knows nothing of sockets.

A peer may send as much body as the reader allows, and not endlessly of anything else: heads, trailers,
interim (1xx) answers and chunk extensions that go on without a byte of the body are a `ProtocolError`.
"""

from collections.abc import Iterator, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from argosy.wire.errors import IncompleteResponseError, ProtocolError

LARGEST_HEAD = 1 << 18
"""Bytes that may come without any of the body among them."""


class Headers(Mapping[str, str]):
    """Headers of an answer, whatever the case of their names; decoded when they are asked for."""

    __slots__ = ("_raw",)

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        wanted = name.lower().encode("latin-1")
        values = [value for given, value in self._raw if given.lower() == wanted]
        if not values:
            raise KeyError(name)
        return b", ".join(values).decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower().decode("latin-1"): None for name, _ in self._raw})

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self._raw})


class ResponseParser:
    """`headed` once the head is there, `done` once all is; the body is in `parts` until it is taken."""

    __slots__ = (
        "_bodiless",
        "_overhead",
        "_parser",
        "_progress",
        "_raw",
        "_upgrade",
        "began",
        "done",
        "headed",
        "keep_alive",
        "limit",
        "parts",
        "rest",
        "size",
        "status",
    )

    def __init__(self, *, bodiless: bool = False, upgrade: bool = False, limit: int | None = None) -> None:
        """How the answer is to be read.

        `bodiless`: it has no body, whatever its head says: an answer to HEAD. `upgrade`: another protocol was
        asked for. `limit`: so many bytes of the body may wait to be taken.
        """
        self._bodiless = bodiless
        self._upgrade = upgrade
        self._overhead = 0
        self._progress = False
        self._raw: list[tuple[bytes, bytes]] = []
        self._parser: HttpResponseParser | None = HttpResponseParser(self)
        self.began = False
        self.headed = False
        self.done = False
        self.keep_alive = False
        """Once done: the connection can carry another answer."""
        self.limit = limit
        self.parts: list[bytes] = []
        self.rest: bytes | None = None
        """After an upgrade: what has come in the new protocol already."""
        self.size = 0
        self.status = 0

    @property
    def headers(self) -> Headers:
        return Headers(self._raw)

    def take(self) -> bytes:
        """What has come of the body since the last time."""
        parts = self.parts
        self.parts, self.size = [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def check_size(self) -> None:
        if self.limit is not None and self.size > self.limit:
            raise ProtocolError(f"the body is larger than {self.limit} bytes")

    def feed(self, data: bytes | memoryview) -> None:
        parser = self._parser
        assert parser is not None
        self.began = True
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as upgrade:
            self.rest = bytes(data[upgrade.args[0] :])
        except HttpParserError as error:
            # What comes after the answer belongs to nobody; the answer itself is whole.
            self.keep_alive = False
            if not self.done:
                self._parser = None
                if isinstance(error.__context__, ProtocolError):
                    raise error.__context__ from None
                raise ProtocolError(f"the answer is not HTTP/1.1: {error}") from error
        if self.done:
            self._parser = None  # it refers back to us: a circle that would wait for the garbage collector
        else:
            self._check(len(data))

    def end(self) -> None:
        """The peer sends no more: the end of a body of no declared length, too early for any other."""
        if self.done:
            return
        self._parser = None
        if not self.headed or self._has_length():
            raise IncompleteResponseError("connection closed before the response was complete")
        self.done = True

    def _check(self, received: int) -> None:
        if self._progress:
            self._progress, self._overhead = False, 0
        else:
            self._overhead += received
            if self._overhead > LARGEST_HEAD:
                raise ProtocolError(f"more than {LARGEST_HEAD} bytes came without any body in them")

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
        if not self.headed:  # trailers are not kept
            self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        status = self._parser.get_status_code()
        if status == 101 and not (self._upgrade and self._parser.should_upgrade()):
            raise ProtocolError("the answer switches to another protocol, unasked or without saying to which")
        if status < 200 and status != 101:
            self._raw.clear()
            return
        self.status = status
        self.headed = True
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
        if self.headed and not self.done:
            self._complete()
