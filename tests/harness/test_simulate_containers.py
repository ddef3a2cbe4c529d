"""Tests for the sidecars of simulated launchers, with an endpoint that records what it is asked."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from argosy.kinds.labels import HOSTS_CONTAINER
from argosy.wire.messages import Request, Response
from argosy.wire.server import Server
from tests.support.simulate_containers import LauncherPod, Sidecar
from tests.support.waiting import eventually


class FakeEndpoint:
    """Answers with the ETags that a test has put, and rejects the first acknowledgement."""

    def __init__(self) -> None:
        self.etags: asyncio.Queue[str] = asyncio.Queue()
        self.asked: list[str] = []
        self.acks: list[dict[str, str]] = []

    async def answer(self, request: Request) -> Response:
        assert request.header(b"authorization") == "Bearer secret"
        if request.method == "POST":
            assert request.path == "/v1/jobs/ns/j/hosts/ack"
            self.acks.append(msgspec.json.decode(await request.body(1000)))
            return Response(b"{}", 200 if len(self.acks) > 1 else 503)
        self.asked.append(request.parameter("etag"))
        return Response(msgspec.json.encode({"etag": await self.etags.get()}))


@pytest.fixture
async def endpoint() -> AsyncIterator[tuple[FakeEndpoint, int]]:
    fake = FakeEndpoint()
    server = Server(fake.answer)
    port = await server.listen_tcp("127.0.0.1", 0)
    yield fake, port
    await server.close(0.0)


async def test_every_list_is_asked_for_and_acknowledged(endpoint: tuple[FakeEndpoint, int]) -> None:
    fake, port = endpoint
    values = {
        "ARGOSY_URL": f"http://127.0.0.1:{port}",
        "ARGOSY_TOKEN": "secret",
        "ARGOSY_NAMESPACE": "ns",
        "ARGOSY_JOB": "j",
    }
    env = [{"name": name, "value": value} for name, value in values.items()]
    spec = {"initContainers": [{"name": "other"}, {"name": HOSTS_CONTAINER, "env": env}]}
    pod = msgspec.convert({"metadata": {"name": "j-launcher", "uid": "u"}, "spec": spec}, LauncherPod)
    sidecar = asyncio.create_task(Sidecar(pod).run())
    fake.etags.put_nowait("1-a")
    await eventually(lambda: len(fake.acks) == 1)
    fake.etags.put_nowait("1-a")
    await eventually(lambda: len(fake.acks) == 2)
    fake.etags.put_nowait("2-b")
    await eventually(lambda: len(fake.acks) == 3)
    sidecar.cancel()
    await asyncio.gather(sidecar, return_exceptions=True)
    acknowledged = [ack["etag"] for ack in fake.acks]
    assert acknowledged == ["1-a", "1-a", "2-b"], "the rejected one is repeated"
    assert fake.acks[-1] == {"pod": "j-launcher", "uid": "u", "etag": "2-b"}
    assert fake.asked[:3] == ["", "1-a", "1-a"]
