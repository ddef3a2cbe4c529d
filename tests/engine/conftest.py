"""Fixtures of the engine tests: a fake API server and a client for it."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from argosy.engine.client import Client
from argosy.engine.metrics import Metrics
from tests.support.fake_apiserver import FakeServer


@pytest.fixture
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer() as server:
        yield server


@pytest.fixture
async def client(server: FakeServer) -> AsyncIterator[Client]:
    async with Client(server.connection(), metrics=Metrics(CollectorRegistry())) as client:
        yield client
