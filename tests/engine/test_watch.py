"""The watcher against a fake API server with the real protocol, and through a proxy that injects faults."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

import pytest
from msgspec.structs import replace

from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.codec import Undecodable
from argosy.engine.errors import ApiError
from argosy.engine.watch import (
    Apply,
    Delete,
    Init,
    InitApply,
    InitDone,
    Progress,
    Start,
    Waiting,
    Watcher,
    Watching,
    WatchTimings,
)
from argosy.kinds.kubernetes import ConfigMap
from argosy.wire.connection import Connection
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault, ReceivedRequest
from tests.support.fault_proxy import HONEST, FaultProxy, Mischief
from tests.support.gc_leaks import reference_cycles
from tests.support.waiting import eventually

TIMINGS = WatchTimings(
    idle_timeout=0.4,
    initial_idle_timeout=0.4,
    backoff=Backoff(initial=0.01, maximum=0.05, jitter=lambda: 0.5),
)


def config_map(name: str, value: str = "", **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}, "data": {"x": value}}


class Recording:
    """The events of a watcher, as short strings."""

    def __init__(self, watcher: Watcher[ConfigMap]) -> None:
        self.watcher = watcher
        self.events: list[str] = []

    def ends_with(self, last: str) -> bool:
        return self.events[-1:] == [last]

    async def run(self) -> None:
        async for event in self.watcher:
            match event:
                case Init():
                    self.events.append("init")
                case InitDone():
                    self.events.append("done")
                case InitApply(obj):
                    self.events.append(f"has {obj.metadata.name}")
                case Apply(obj):
                    self.events.append(f"set {obj.metadata.name}={obj.data['x']}")
                case Delete(obj):
                    self.events.append(f"del {obj.metadata.name}")
                case Undecodable(meta, path, problem):
                    self.events.append(f"{meta.name} {path}: {problem}")
                case Progress():
                    pass


@asynccontextmanager
async def recording(client: Client, labels: str = "") -> AsyncIterator[Recording]:
    subject = Recording(Watcher(client, ConfigMap, "default", labels, timings=TIMINGS))
    task = asyncio.create_task(subject.run())
    with captured_lines():
        try:
            yield subject
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def is_watch(request: ReceivedRequest) -> bool:
    return request.query.get("watch") == "true"


def is_list(request: ReceivedRequest) -> bool:
    return request.method == "GET" and not is_watch(request)


async def test_all_objects_are_delivered_first_and_then_changes(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.events == ["init", "has a", "done"])
        await server.put("configmaps", config_map("b", "1"))
        await server.put("configmaps", config_map("b", "2"))
        await server.remove("configmaps", "default", "a")
        await eventually(lambda: subject.events[3:] == ["set b=1", "set b=2", "del a"])
    assert not any(is_list(request) for request in server.requests), "WatchList needs no list"


async def test_only_objects_that_match_the_selector_are_delivered(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", config_map("a", ours="yes"))
    await server.put("configmaps", config_map("b"))
    async with recording(client, "ours=yes") as subject:
        await eventually(lambda: subject.events == ["init", "has a", "done"])


async def test_server_that_rejects_watch_list_is_listed() -> None:
    async with FakeServer(watch_list=False) as server, Client(server.connection()) as client:
        await server.put("configmaps", config_map("a"))
        async with recording(client) as subject:
            await eventually(lambda: subject.events[-1:] == ["done"])
            await server.put("configmaps", config_map("b", "1"))
            await eventually(lambda: subject.events == ["init", "init", "has a", "done", "set b=1"])


async def test_server_that_ignores_watch_list_is_listed(client: Client, server: FakeServer) -> None:
    """Old servers send the objects, but not the bookmark that ends the initial events."""
    server.ignore_watch_list = True
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.events[-2:] == ["has a", "done"])
        assert [is_list(request) for request in server.requests][:2] == [False, True]


async def test_expired_version_during_a_watch_causes_a_relist(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.events[-1:] == ["done"])
        await server.expire_watches()
        await eventually(lambda: subject.events[3:] == ["init", "has a", "done"])
        assert subject.watcher.last_error is None


async def test_expired_version_at_the_start_of_a_watch_causes_a_relist(
    client: Client, server: FakeServer
) -> None:
    async with recording(client) as subject:
        await eventually(lambda: subject.events == ["init", "done"])
        server.faults.append(Fault(410, reason="Expired", match=is_watch))
        server.drop_watches()
        await eventually(lambda: subject.events[2:] == ["init", "done"])


async def test_dropped_watch_resumes_without_losing_or_repeating_events(
    client: Client, server: FakeServer
) -> None:
    async with recording(client) as subject:
        await eventually(lambda: server.watches == 1)
        for number in range(50):
            await server.put("configmaps", config_map("a", str(number)))
            if number % 10 == 0:
                server.drop_watches()
        await eventually(lambda: subject.events[-1:] == ["set a=49"])
    assert subject.events == ["init", "done"] + [f"set a={number}" for number in range(50)]


ERRORS: dict[str, Fault] = {
    "500: retried": Fault(500, times=3),
    "429 with Retry-After: retried": Fault(429, {"Retry-After": "0.1"}, times=3),
    "503 with Retry-After: retried": Fault(503, {"Retry-After": "0.1"}, times=2),
    "404 of a kind that is not installed yet: retried": Fault(404, times=3),
    "401 for a while: retried": Fault(401, times=2),
}


@pytest.mark.parametrize("case", ERRORS)
async def test_errors_are_retried_without_a_relist(case: str, client: Client, server: FakeServer) -> None:
    fault = ERRORS[case]
    server.faults.append(Fault(fault.status, fault.headers, fault.times))
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.events[-2:] == ["has a", "done"])
        server.faults.append(Fault(fault.status, fault.headers, fault.times))
        server.drop_watches()
        await server.put("configmaps", config_map("b", "1"))
        await eventually(lambda: subject.events[-1:] == ["set b=1"])
        assert subject.events.count("done") == 1, "a broken watch resumes without a relist"


Injection = Callable[[FaultProxy], Awaitable[None]]


async def cut(proxy: FaultProxy) -> None:
    proxy.cut_all()


async def cut_within_event(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(after_bytes=100, then="cut"))


async def stall(proxy: FaultProxy) -> None:
    proxy.stall_all()


async def stall_within_event(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(after_bytes=100, then="stall"))


async def stall_before_response(proxy: FaultProxy) -> None:
    proxy.prepare(Mischief(after_bytes=0, then="stall"))
    proxy.cut_all()


async def trickle(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(delay=0.3, piece=5))


async def slow_down(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(delay=0.001, piece=50))


FAULTS: dict[str, Injection] = {
    "connection cut between events: no change lost": cut,
    "connection cut within an event: no change lost": cut_within_event,
    "peer stalls between events: no change lost": stall,
    "peer stalls within an event: no change lost": stall_within_event,
    "peer stalls before its response: no change lost": stall_before_response,
    "bytes arrive too slowly for a whole event: no change lost": trickle,
    "bytes arrive slowly: no change lost": slow_down,
}


@pytest.mark.parametrize("case", FAULTS)
async def test_connection_faults(case: str, server: FakeServer) -> None:
    server.bookmark_every = 0.1
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        Client(server.connection(port=proxy.port)) as client,
        recording(client) as subject,
    ):
        await eventually(lambda: subject.events == ["init", "done"])
        for number in range(3):
            await FAULTS[case](proxy)
            await server.put("configmaps", config_map("a", f"{number}" * 50))
            await server.put("configmaps", config_map("b", f"{number}" * 50))
            last = f"set b={number}" + f"{number}" * 49
            await eventually(partial(subject.ends_with, last))
    changes = [f"set {name}=" + f"{number}" * 50 for number in range(3) for name in "ab"]
    assert subject.events == ["init", "done", *changes]


async def test_incomplete_line_is_fetched_again_from_the_last_version(
    client: Client, server: FakeServer
) -> None:
    async with recording(client) as subject:
        await eventually(lambda: subject.events == ["init", "done"])
        server.garble_next = True
        await server.put("configmaps", config_map("a", "1"))
        await eventually(lambda: subject.events == ["init", "done", "set a=1"])


async def test_bookmarks_advance_the_version_to_resume_from(client: Client, server: FakeServer) -> None:
    server.bookmark_every = 0.05
    async with recording(client) as subject:
        await eventually(lambda: subject.events == ["init", "done"])
        await server.put("secrets", {"metadata": {"name": "other", "namespace": "default"}})
        version = str(server.version)
        await eventually(lambda: subject.watcher.state == Watching(version))
        server.forget_history()
        server.drop_watches()
        await server.put("configmaps", config_map("a", "1"))
        await eventually(lambda: subject.events == ["init", "done", "set a=1"])


async def test_undecodable_object_does_not_stop_the_watch(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", {"metadata": {"name": "bad", "namespace": "default"}, "data": {"x": 1}})
    await server.put("configmaps", config_map("good"))
    async with recording(client) as subject:
        await eventually(
            lambda: subject.events == ["init", "bad data.x: Expected `str`, got `int`", "has good", "done"]
        )
        await server.put("configmaps", config_map("bad", "fixed"))
        await eventually(lambda: subject.events[-1] == "set bad=fixed")
    sample = client.metrics.registry.get_sample_value
    assert sample("argosy_undecodable_objects_total", {"kind": "ConfigMap"}) == 1


async def test_repeated_410_is_retried_with_backoff(client: Client, server: FakeServer) -> None:
    server.watch_list = False
    server.faults.append(Fault(410, reason="Expired", times=10**6, match=is_watch))
    async with recording(client) as subject:
        await eventually(lambda: subject.events.count("done") >= 3)
        await eventually(lambda: isinstance(subject.watcher.state, Waiting))


async def test_watches_that_end_at_once_are_retried_with_backoff(client: Client, server: FakeServer) -> None:
    server.bookmark_every = 0.01
    async with recording(client) as subject:
        await eventually(lambda: subject.events == ["init", "done"])
        server.end_watches = True
        server.drop_watches()
        await eventually(lambda: getattr(subject.watcher.last_error, "reason", "") == "Ended")
        server.end_watches = False
        await eventually(lambda: subject.watcher.last_error is None)


async def test_repeated_error_is_logged_as_a_warning_once(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(404, times=10**6))
    task = asyncio.create_task(Recording(Watcher(client, ConfigMap, timings=TIMINGS)).run())
    with captured_lines() as logs:
        await eventually(lambda: len(server.requests) > 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [entry["log_level"] for entry in logs if entry["log_level"] != "debug"] == ["warning"]


async def test_states_from_start_over_waiting_to_watching(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(500, times=1000))
    async with recording(client) as subject:
        assert subject.watcher.state == Start()
        await eventually(lambda: isinstance(subject.watcher.state, Waiting))
        assert subject.watcher.last_error is not None
        server.faults.clear()
        await eventually(lambda: isinstance(subject.watcher.state, Watching))
        assert subject.watcher.last_error is None


async def test_single_events_are_batched_within_the_batch_window(client: Client, server: FakeServer) -> None:
    watcher = Watcher(
        client, ConfigMap, "default", timings=replace(TIMINGS, batch_window=0.3, idle_timeout=5.0)
    )
    async with aclosing(watcher.batches()) as batches:
        while not isinstance(watcher.state, Watching):
            await anext(batches)
        names = [str(number) for number in range(6)]
        sizes: list[int] = []
        reading = asyncio.create_task(_sizes(batches, sizes, len(names)))
        for name in names:
            await server.put("configmaps", config_map(name))
            await asyncio.sleep(0.02)
        async with asyncio.timeout(60):
            await reading
    assert sum(sizes) == len(names)
    assert len(sizes) <= 3, f"batches of {sizes}"


async def _sizes(batches: AsyncIterator[Sequence[object]], sizes: list[int], until: int) -> None:
    while sum(sizes) < until:
        sizes.append(len(await anext(batches)))


async def test_repeated_failures_leave_no_reference_cycles(server: FakeServer) -> None:
    """The stored error has neither traceback nor cause."""
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        Client(server.connection(port=proxy.port)) as client,
    ):
        watcher = Watcher(client, ConfigMap, timings=TIMINGS)
        recording = Recording(watcher)
        with captured_lines(), reference_cycles(ApiError, Connection) as left:
            task = asyncio.create_task(recording.run())
            await eventually(lambda: isinstance(watcher.state, Watching))
            proxy.mischief = Mischief(after_bytes=0)
            proxy.cut_all()
            await eventually(lambda: proxy.accepted > 20)
            assert watcher.last_error is not None
            assert watcher.last_error.__traceback__ is None
            assert watcher.last_error.__cause__ is None
            proxy.mischief = HONEST
            await server.put("configmaps", config_map("a"))
            await eventually(lambda: watcher.last_error is None)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del task
    assert left == []
