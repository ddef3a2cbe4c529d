import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from argosy.engine.client import Client
from argosy.engine.leader import Leader
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault, ReceivedRequest
from tests.support.waiting import eventually


def leader(client: Client, identity: str = "a", duration: float = 1.0) -> Leader:
    return Leader(
        client,
        "work",
        "default",
        identity,
        duration=duration,
        renew_deadline=duration * 0.6,
        retry=duration * 0.1,
    )


class Work:
    """Work that runs until cancelled."""

    def __init__(self) -> None:
        self.running = False
        self.started = 0

    async def __call__(self) -> None:
        self.running, self.started = True, self.started + 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running = False


@asynccontextmanager
async def competing(subject: Leader) -> AsyncIterator[Work]:
    work = Work()
    task = asyncio.create_task(subject.run(work))
    with captured_lines():
        try:
            yield work
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def lease(server: FakeServer) -> dict[str, object]:
    spec = server.objects("leases")[0]["spec"]
    assert isinstance(spec, dict)
    return spec


async def test_standby_takes_over_at_once_when_the_leader_releases_the_lease(
    client: Client, server: FakeServer
) -> None:
    second = leader(client, "b", duration=600)
    async with competing(leader(client, "a", duration=600)) as work_a:
        await eventually(lambda: work_a.running)
        async with competing(second) as work_b:
            await eventually(lambda: second.holder == "a")
            assert not work_b.running
    assert lease(server)["holderIdentity"] == ""
    async with competing(second) as work_b:
        await eventually(lambda: work_b.running)
        assert lease(server)["leaseTransitions"] == 1


@pytest.mark.parametrize("method", ["create", "patch"])
async def test_lease_is_released_by_a_process_that_ends_before_its_write_is_answered(
    client: Client, server: FakeServer, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    real, done = getattr(client, method), asyncio.Event()

    async def write_without_answer(*arguments: object) -> None:
        await real(*arguments)
        monkeypatch.setattr(client, method, real)
        done.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(client, method, write_without_answer)
    async with competing(leader(client, duration=600 if method == "create" else 1.0)):
        await asyncio.wait_for(done.wait(), 60)
        assert lease(server)["holderIdentity"] == "a"
    assert lease(server)["holderIdentity"] == ""


async def test_lease_that_is_not_renewed_is_acquired_after_its_duration(
    client: Client, server: FakeServer
) -> None:
    spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1, "leaseTransitions": 4}
    await server.put("leases", {"metadata": {"name": "work", "namespace": "default"}, "spec": spec})
    before = asyncio.get_running_loop().time()
    async with competing(leader(client)) as work:
        await eventually(lambda: work.running)
        assert asyncio.get_running_loop().time() - before >= 1.0
        assert lease(server)["leaseTransitions"] == 5


async def test_lease_renewed_by_a_machine_with_a_wrong_clock_is_respected(
    client: Client, server: FakeServer
) -> None:
    other = {"metadata": {"name": "work", "namespace": "default"}}
    async with competing(leader(client, duration=1.0)) as work:
        for number in range(12):
            spec = {
                "holderIdentity": "other",
                "leaseDurationSeconds": 1,
                "renewTime": f"1999-01-01T00:00:{number:02}.000000Z",
            }
            await server.put("leases", {**other, "spec": spec})
            await asyncio.sleep(0.2)
            assert not work.running


async def test_work_stops_before_a_lease_that_cannot_be_renewed_expires(
    client: Client, server: FakeServer
) -> None:
    duration = 5.0
    subject = leader(client, duration=duration)
    async with competing(subject) as work:
        await eventually(lambda: work.running)
        server.faults.append(Fault(500, times=10**6, match=lambda request: "leases" in request.path))
        before = asyncio.get_running_loop().time()
        await eventually(lambda: not work.running)
        assert asyncio.get_running_loop().time() - before < duration, (
            "before another process can acquire the lease"
        )
        assert not subject.is_leader
        server.faults.clear()
        await eventually(lambda: work.running)
        assert work.started == 2


async def test_work_stops_when_another_process_holds_the_lease(client: Client, server: FakeServer) -> None:
    async with competing(leader(client)) as work:
        await eventually(lambda: work.running)
        spec = {"holderIdentity": "other", "leaseDurationSeconds": 1}
        await server.put("leases", {"metadata": {"name": "work", "namespace": "default"}, "spec": spec})
        await eventually(lambda: not work.running)


async def test_deleted_lease_is_created_again(client: Client, server: FakeServer) -> None:
    async with competing(leader(client)) as work:
        await eventually(lambda: work.running)
        await server.remove("leases", "default", "work")
        await eventually(lambda: bool(server.objects("leases")))
        assert (work.running, work.started) == (True, 1)


async def test_run_ends_with_the_work_and_raises_its_exception(client: Client, server: FakeServer) -> None:
    async def fail() -> None:
        raise RuntimeError("made up")

    with captured_lines(), pytest.raises(RuntimeError, match="made up"):
        await leader(client).run(fail)
    assert lease(server)["holderIdentity"] == ""


async def test_renew_deadline_longer_than_the_lease_is_rejected(client: Client) -> None:
    with pytest.raises(ValueError, match="shorter"):
        Leader(client, "work", "default", "a", duration=5, renew_deadline=6)


@asynccontextmanager
async def process(
    server: FakeServer, identity: str, duration: float
) -> AsyncIterator[asyncio.subprocess.Process]:
    script = Path(__file__).with_name("leader_process.py")
    arguments = (str(script), f"http://127.0.0.1:{server.port}", identity, str(duration))
    started = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.wait()


async def check_suspended_leader(server: FakeServer, duration: float, suspended: float) -> None:
    """Suspend a leader between its writes until another leads; when it resumes, it changes nothing.

    At most the request between its check of the deadline and the socket may still be sent; its
    precondition then makes it fail.
    """
    await server.put("configmaps", {"metadata": {"name": "work", "namespace": "default"}, "data": {}})

    def requests(identity: str) -> list[ReceivedRequest]:
        return [request for request in server.requests if request.headers["User-Agent"] == identity]

    def writes(identity: str) -> int:
        return sum(request.method != "GET" for request in requests(identity))

    def count_of(identity: str) -> int:
        data = server.objects("configmaps")[0]["data"]
        assert isinstance(data, dict)
        return int(data.get(identity, "0"))

    async with process(server, "a", duration) as a:
        await eventually(lambda: count_of("a") > 20, 30)
        async with process(server, "b", duration):
            await eventually(lambda: requests("b-lease"), 30)
            a.send_signal(signal.SIGSTOP)
            started = asyncio.get_running_loop().time()
            await eventually(lambda: count_of("b") > 20, duration * 3 + 30)
            await asyncio.sleep(max(started + suspended - asyncio.get_running_loop().time(), 0))
            count, sent, lease_requests = count_of("a"), writes("a"), len(requests("a-lease"))
            a.send_signal(signal.SIGCONT)
            await eventually(lambda: len(requests("a-lease")) >= lease_requests + 3, duration * 3 + 10)
            assert count_of("a") == count
            assert writes("a") <= sent + 1
            assert lease(server)["holderIdentity"] == "b"


async def test_suspended_leader_changes_nothing_when_it_resumes(server: FakeServer) -> None:
    await check_suspended_leader(server, duration=1.5, suspended=4.0)


@pytest.mark.long
async def test_leader_suspended_for_30_seconds_changes_nothing_when_it_resumes(server: FakeServer) -> None:
    await check_suspended_leader(server, duration=10.0, suspended=30.0)
