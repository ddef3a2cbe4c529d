"""All connections of a thread share a read buffer, and none reads the bytes of another."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from argosy.wire.client import Client
from argosy.wire.messages import Request, Response
from argosy.wire.origin import Origin
from argosy.wire.read_buffer import READ_BUFFER_BYTES, SharedBufferProtocol
from argosy.wire.server import Server

LARGE = READ_BUFFER_BYTES * 2 + 1


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_concurrent_bodies_larger_than_the_buffer_are_not_mixed_up(loop: object) -> None:
    """Requests and responses are larger than the buffer; every connection sends another byte."""

    async def echo(request: Request) -> Response:
        return Response(body=await request.body(LARGE))

    async def post(client: Client, letter: int) -> bytes:
        return (await client.send("POST", "/", {}, bytes([letter]) * LARGE, timeout=30)).body

    async def all_at_once() -> list[bytes]:
        server = Server(echo)
        port = await server.listen_tcp("127.0.0.1", 0)
        client = Client(Origin.from_url(f"http://127.0.0.1:{port}"))
        try:
            return await asyncio.gather(*(post(client, letter) for letter in range(20)))
        finally:
            await client.close()
            await server.close(1.0)

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]  # both are factories of loops
        answers = runner.run(all_at_once())
    assert [(set(body), len(body)) for body in answers] == [({letter}, LARGE) for letter in range(20)]


def test_every_thread_has_its_own_buffer() -> None:
    def buffers() -> tuple[memoryview, memoryview]:
        return SharedBufferProtocol().get_buffer(-1), SharedBufferProtocol().get_buffer(-1)

    ours, same = buffers()
    with ThreadPoolExecutor(1) as other_thread:
        theirs, _ = other_thread.submit(buffers).result()
    ours[0], theirs[0] = 1, 2
    assert (ours[0], same[0]) == (1, 1)
