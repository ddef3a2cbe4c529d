"""An HTTP client of an API server with a bearer token, which uses nothing of the engine."""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple
from urllib.parse import urlencode

from argosy.wire.client import Client, StreamedResponse
from argosy.wire.origin import Origin
from tests.support.servers import Server

Json = dict[str, object]


class Reply(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Json:
        parsed: Json = json.loads(self.body)
        return parsed


class Stream:
    """A response that is still being received."""

    def __init__(self, streamed: StreamedResponse) -> None:
        self.status = streamed.status
        self._streamed = streamed
        self._rest = b""

    async def chunk(self) -> bytes:
        """The next bytes; empty at the end."""
        return await self._streamed.chunk()

    async def line(self) -> bytes:
        """The next line without its line break; at the end the incomplete last line."""
        while b"\n" not in self._rest:
            chunk = await self.chunk()
            if not chunk:
                break
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


class Plain:
    def __init__(self, client: Client, context: ssl.SSLContext, token: str) -> None:
        self._client, self._context = client, context
        self._headers = {"Authorization": f"Bearer {token}"}

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Reply:
        """Send a request and read the whole response; a body that is not bytes is sent as JSON."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {**self._headers, "Content-Type": content_type} if sent is not None else self._headers
        answer = await self._client.send(
            method, _target(path, query), headers, sent, context=self._context, timeout=60
        )
        return Reply(answer.status, answer.body)

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str] | None = None) -> AsyncIterator[Stream]:
        target = _target(path, query)
        async with self._client.stream("GET", target, self._headers, context=self._context) as streamed:
            yield Stream(streamed)


@asynccontextmanager
async def plain_client(server: Server) -> AsyncIterator[Plain]:
    """A client of a server for the duration of the block."""
    client = Client(Origin.from_url(server.url))
    try:
        yield Plain(client, ssl.create_default_context(cafile=str(server.ca_file)), server.token)
    finally:
        await client.close()


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
