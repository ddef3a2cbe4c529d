"""What the engine's tests share: a fake server, a client of it, and waiting with a deadline."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.watch import WatchTimings
from argosy.testing.fakeserver import FakeServer

FAST = WatchTimings(
    silence=0.5, initial_silence=0.5, backoff=Backoff(first=0.01, most=0.05, chance=lambda: 0.5)
)


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[Client]:
    async with Client(server.connection()) as client:
        yield client


@pytest.fixture
def fast() -> WatchTimings:
    return FAST


@pytest.fixture
def eventually() -> Callable[..., object]:
    return wait_until


async def wait_until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Until the condition holds, or fail."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)
