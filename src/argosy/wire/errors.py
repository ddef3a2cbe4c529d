"""Errors of requests that got no complete response.

All but a rejected WebSocket handshake are `OSError`s, as are failures of the system and timeouts
(`TimeoutError`). A caller that only needs to know that a request failed catches `OSError`.
"""

from collections.abc import Mapping


class IncompleteResponseError(ConnectionError):
    """The connection ended before the response was complete."""


class ProxyError(ConnectionError):
    """The proxy refused to connect to the server, or does not speak the expected protocol."""


class ProtocolError(ConnectionError):
    """The peer did not send valid HTTP, or exceeded a limit."""


class WebSocketHandshakeError(Exception):
    """The server did not accept a WebSocket; keeps its response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"rejected with status {status}")
        self.status = status
        self.headers = headers
        self.body = body
