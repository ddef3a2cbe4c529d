"""Why no whole answer came. All but a refused handshake are `OSError`s, as are the system's own failures.

So whoever needs no more than "it did not work" catches `OSError`; what has run out of time is a
`TimeoutError`, which is one too.
"""

from collections.abc import Mapping


class IncompleteResponseError(ConnectionError):
    """The connection ended before the answer did."""


class ProxyError(ConnectionError):
    """The proxy refused to connect to the server, or does not speak the expected protocol."""


class ProtocolError(ConnectionError):
    """What came is not HTTP, or more of it than anybody can mean."""


class WebSocketHandshakeError(Exception):
    """The server answered the handshake of a WebSocket with something else; what it says is kept."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"refused with status {status}")
        self.status = status
        self.headers = headers
        self.body = body
