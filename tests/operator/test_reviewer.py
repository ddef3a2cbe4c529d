"""Tests for admission reviews from clients other than the API server: too large, too many, too slow."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from argosy.kinds.meta import Json
from argosy.operator import webhooks
from argosy.operator.bounds import REQUEST_LIMITS, RejectionReason
from argosy.operator.webhooks import (
    MAX_BODY_BYTES,
    MAX_REVIEWS,
    MAX_WAITING,
    AdmissionRequest,
    Reviewer,
    in_thread,
)
from argosy.wire.connection_limits import ConnectionLimits
from argosy.wire.messages import HttpError, Request, Response
from argosy.wire.server import Server
from tests.support.waiting import eventually

PATH, OTHER_PATH = "/validate", "/mutate"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Site:
    """A server for admission reviews and other requests."""

    def __init__(self) -> None:
        self.refused: Counter[RejectionReason] = Counter()
        self.threads: set[int] = set()
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        reviews = {PATH: in_thread(self.decide), OTHER_PATH: self.decide_later}
        self.reviewer = Reviewer(reviews, self.count)
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []

    def count(self, reason: RejectionReason) -> None:
        self.refused[reason] += 1

    def decide(self, request: AdmissionRequest) -> Json:
        del request
        self.threads.add(threading.get_ident())
        return {"allowed": True}

    async def decide_later(self, request: AdmissionRequest) -> Json:
        self.asked.set()
        await self.answers.wait()
        return {"allowed": True, "warnings": [request.namespace]}

    async def answer(self, request: Request) -> Response:
        if not self.reviewer.serves(request):
            return Response(b"here")
        try:
            return await self.reviewer.handle(request)
        except HttpError as error:
            return Response(str(error).encode(), error.status, close=True)

    async def send(self, data: bytes) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        writer.write(data)
        return reader, writer

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


async def status(connection: Connection) -> int:
    async with asyncio.timeout(20):
        return int((await connection[0].readline()).split()[1])


def head(length: int, path: str = PATH) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % (path.encode(), length)


REQUEST = {"uid": "1", "namespace": "research", "object": {"metadata": {"name": "job"}}}
REVIEW = msgspec.json.encode({"request": REQUEST})
WHOLE = head(len(REVIEW)) + REVIEW
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    site = Site()
    bounds = ConnectionLimits(total=1000, per_address=1000)
    server = Server(site.answer, request_limits=REQUEST_LIMITS, connection_limits=bounds)
    site.port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield site
    finally:
        site.close()
        await server.close(0.1)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with serving() as site:
        yield site


async def test_review_runs_in_a_thread(site: Site) -> None:
    reader, _ = connection = await site.send(WHOLE)
    assert await status(connection) == 200
    answer = await reader.read(4096)
    assert b'"response":{"uid":"1","allowed":true}' in answer
    assert threading.get_ident() not in site.threads


async def test_too_large_body_is_refused_before_it_is_read(site: Site) -> None:
    assert await status(await site.send(head(MAX_BODY_BYTES + 1))) == 413
    assert site.refused == {"too-large": 1}


async def test_too_large_chunked_body_is_refused(site: Site) -> None:
    start = b"POST %b HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n" % PATH.encode()
    chunk = b"%x\r\n%b\r\n" % (MAX_BODY_BYTES + 1, b"x" * (MAX_BODY_BYTES + 1))
    assert await status(await site.send(start + chunk)) == 413


async def test_body_that_is_not_a_review_is_refused(site: Site) -> None:
    assert await status(await site.send(head(2) + b"{}")) == 400


async def test_reviews_over_the_limit_wait_unread_and_further_ones_are_refused(site: Site) -> None:
    slow = [await site.send(head(MAX_BODY_BYTES) + b"{") for _ in range(MAX_REVIEWS)]
    await eventually(lambda: site.reviewer.in_flight(PATH) == MAX_REVIEWS)
    waiting = [await site.send(WHOLE) for _ in range(MAX_WAITING)]
    await eventually(lambda: site.reviewer.in_flight(PATH) == MAX_REVIEWS + MAX_WAITING)
    assert await status(await site.send(WHOLE)) == 429
    assert await status(await site.send(GET)) == 200, "others are answered meanwhile"
    assert site.refused == {"webhook-busy": 1}
    for _, writer in slow:
        writer.transport.abort()
    assert [await status(connection) for connection in waiting] == [200] * MAX_WAITING
    assert site.reviewer.in_flight(PATH) == 0


async def test_body_that_arrives_slowly_does_not_block_other_reviews(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "BODY_SECONDS", 0.1)
    slow = [await site.send(head(1000) + b"{") for _ in range(MAX_REVIEWS)]
    await eventually(lambda: site.reviewer.in_flight(PATH) == MAX_REVIEWS)
    assert await status(await site.send(WHOLE)) == 200
    assert [await status(connection) for connection in slow] == [408] * MAX_REVIEWS
    assert site.refused == {"webhook-slow": MAX_REVIEWS}


async def test_review_that_waits_for_something_does_not_block_those_of_another_webhook(site: Site) -> None:
    waiting = [await site.send(head(len(REVIEW), OTHER_PATH) + REVIEW) for _ in range(MAX_REVIEWS)]
    await site.asked.wait()
    assert await status(await site.send(WHOLE)) == 200
    site.answers.set()
    assert [await status(connection) for connection in waiting] == [200] * MAX_REVIEWS
    assert b'"warnings":["research"]' in await waiting[0][0].readuntil(b"}}")
