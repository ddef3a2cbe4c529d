"""Requests and responses of handlers: with a user, warnings, and typed query parameters.

The size of request bodies is limited. A response is bytes, or a stream that ends when the client disconnects.
"""

import msgspec

from argosy.local.apiserver.status import StatusError, bad_request, too_large
from argosy.local.schema.model import Json
from argosy.wire import messages
from argosy.wire.messages import TooLargeError

Response = messages.Response

BODY_LIMIT = 3 * 1024 * 1024

_CACHE_CONTROL = (b"cache-control", b"no-cache, private")


class User(msgspec.Struct, frozen=True):
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


ANONYMOUS = User("system:anonymous", "", ("system:unauthenticated",))


class Request:
    """An HTTP request; `user` is set by authentication."""

    __slots__ = ("headers", "method", "path", "user", "warnings", "wire", "yaml")

    def __init__(self, wire: messages.Request) -> None:
        self.wire = wire
        self.method = wire.method
        self.path = wire.path
        self.headers = wire.headers
        self.user = ANONYMOUS
        self.warnings: list[str] = []
        self.yaml = False  # whether the response is to be YAML

    @property
    def raw_headers(self) -> messages.Headers:
        return self.wire.raw_headers

    @property
    def query(self) -> dict[str, list[str]]:
        return self.wire.query

    def parameter(self, name: str) -> str:
        values = self.query.get(name)
        return values[0] if values else ""

    def flag(self, name: str) -> bool:
        """Return True if a parameter is set, even to an empty value, and is not `false` or `0`."""
        return name in self.query and self.parameter(name).lower() not in ("false", "0")

    def integer(self, name: str) -> int | None:
        value = self.parameter(name)
        if not value:
            return None
        try:
            return int(value)
        except ValueError:
            raise bad_request(f'{name}: invalid value "{value}": must be an integer') from None

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    async def body(self) -> bytes:
        """Return the whole body, at most `BODY_LIMIT`."""
        try:
            return await self.wire.body(BODY_LIMIT)
        except TooLargeError:
            raise too_large(BODY_LIMIT) from None


def reply(obj: Json, status: int = 200) -> Response:
    return Response(msgspec.json.encode(obj) + b"\n", status)


def reply_error(error: StatusError) -> Response:
    response = reply(error.body(), error.code)
    if error.retry_after:
        response.headers.append((b"retry-after", str(error.retry_after).encode()))
    return response


def finished(request: Request, response: Response) -> Response:
    """Return the response with common headers and warnings, and in YAML if the client accepts that."""
    if response.status == 204:
        return response
    response.headers = [_CACHE_CONTROL, *response.headers] if response.headers else [_CACHE_CONTROL]
    if request.warnings:
        response.headers += [(b"warning", f'299 - "{_quote(text)}"'.encode()) for text in request.warnings]
    if request.yaml and isinstance(response.body, bytes) and response.content_type == b"application/json":
        response.content_type, response.body = b"application/yaml", _yaml(response.body)
    return response


def _yaml(body: bytes) -> bytes:
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(msgspec.json.decode(body), Dumper=dumper, sort_keys=True)
    return text.encode()


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
