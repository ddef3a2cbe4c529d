"""All connections of a thread read into the same room, and none reads what came for another."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
import uvloop

from argosy.wire.client import Client
from argosy.wire.messages import Request, Response
from argosy.wire.origin import Origin
from argosy.wire.read_buffer import SIZE, SharedBufferProtocol
from argosy.wire.server import Server

LARGE = SIZE * 2 + 1


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_bodies_that_come_in_pieces_at_the_same_time_stay_apart(loop: object) -> None:
    """Larger than the room, both ways, and every connection with a byte of its own."""

    async def echo(request: Request) -> Response:
        return Response(body=await request.body(LARGE))

    async def ask(client: Client, letter: int) -> bytes:
        return (await client.send("POST", "/", {}, bytes([letter]) * LARGE, timeout=30)).body

    async def all_at_once() -> list[bytes]:
        server = Server(echo)
        port = await server.listen_tcp("127.0.0.1", 0)
        client = Client(Origin.from_url(f"http://127.0.0.1:{port}"))
        try:
            return await asyncio.gather(*(ask(client, letter) for letter in range(20)))
        finally:
            await client.close()
            await server.close(1.0)

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]  # two ways to say a loop
        answers = runner.run(all_at_once())
    assert [(set(body), len(body)) for body in answers] == [({letter}, LARGE) for letter in range(20)]


def test_every_thread_has_room_of_its_own() -> None:
    def room() -> tuple[memoryview, memoryview]:
        return SharedBufferProtocol().get_buffer(-1), SharedBufferProtocol().get_buffer(-1)

    here, again = room()
    with ThreadPoolExecutor(1) as elsewhere:
        there, _ = elsewhere.submit(room).result()
    here[0], there[0] = 1, 2
    assert (here[0], again[0]) == (1, 1)
