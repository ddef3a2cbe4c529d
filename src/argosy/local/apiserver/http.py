"""Requests and answers, between ASGI and the handlers.

A request's body is read whole and bounded; an answer is bytes, or a stream that ends when the client goes.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from typing import TypeAlias
from urllib.parse import parse_qs

import msgspec

from argosy.local.apiserver.status import StatusError, bad_request, too_large
from argosy.local.schema.model import Json

Message: TypeAlias = MutableMapping[str, object]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Scope: TypeAlias = Mapping[str, object]

BODY_LIMIT = 3 * 1024 * 1024


class User(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


ANONYMOUS = User("system:anonymous", "", ("system:unauthenticated",))


class Request:
    """One HTTP request; `user` is set once it is known who asks."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.method = str(scope.get("method", "GET"))
        self.path = str(scope["path"])
        raw_query = scope.get("query_string", b"")
        assert isinstance(raw_query, bytes)
        self.query: dict[str, list[str]] = (
            parse_qs(raw_query.decode("latin-1"), keep_blank_values=True) if raw_query else {}
        )
        headers = scope["headers"]
        assert isinstance(headers, list)
        self.raw_headers: list[tuple[bytes, bytes]] = headers
        self.headers: dict[bytes, bytes] = dict(headers)
        self.user = ANONYMOUS
        self.warnings: list[str] = []
        self.yaml = False  # whether the answer is wanted as YAML
        self._receive = receive
        self._body: bytes | None = None

    def parameter(self, name: str) -> str:
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        return self.parameter(name).lower() in ("true", "1", "t")

    def integer(self, name: str) -> int | None:
        value = self.parameter(name)
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self) -> bytes:
        """The whole body, at most `BODY_LIMIT`."""
        if self._body is None:
            parts: list[bytes] = []
            size, more = 0, True
            while more:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise DisconnectedError
                part = message.get("body", b"")
                assert isinstance(part, bytes)
                parts.append(part)
                size += len(part)
                if size > BODY_LIMIT:
                    raise too_large(BODY_LIMIT)
                more = bool(message.get("more_body", False))
            self._body = parts[0] if len(parts) == 1 else b"".join(parts)
        return self._body

    async def disconnected(self) -> None:
        """Return when the client has gone."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


class DisconnectedError(Exception):
    """The client went away before its request was whole."""


class Response(msgspec.Struct):
    body: bytes | AsyncIterator[bytes]
    status: int = 200
    content_type: bytes = b"application/json"
    headers: list[tuple[bytes, bytes]] = []


def reply(obj: Json, status: int = 200) -> Response:
    return Response(msgspec.json.encode(obj) + b"\n", status)


def reply_error(error: StatusError) -> Response:
    response = reply(error.body(), error.code)
    if error.retry_after:
        response.headers.append((b"retry-after", str(error.retry_after).encode()))
    return response


async def send_response(request: Request, response: Response, send: Send) -> None:
    headers = [
        (b"content-type", response.content_type),
        (b"cache-control", b"no-cache, private"),
        *response.headers,
    ]
    headers += [(b"warning", f'299 - "{_quoted(text)}"'.encode()) for text in request.warnings]
    body = response.body
    if request.yaml and isinstance(body, bytes) and response.content_type == b"application/json":
        headers[0], body = (b"content-type", b"application/yaml"), _yaml(body)
    if isinstance(body, bytes):
        if response.status == 204:
            headers = response.headers
        else:
            headers.append((b"content-length", str(len(body)).encode()))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})
        return
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    async for part in body:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


def _yaml(body: bytes) -> bytes:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(msgspec.json.decode(body), Dumper=dumper, sort_keys=True)
    return text.encode()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
