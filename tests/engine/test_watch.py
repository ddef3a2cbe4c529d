"""The watch machine against a server that speaks the real protocol, and through a proxy that breaks it."""

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
from tests.support.fake_apiserver import FakeServer, Fault, Seen
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
    """What a watcher told, as short words."""

    def __init__(self, watcher: Watcher[ConfigMap]) -> None:
        self.watcher = watcher
        self.told: list[str] = []

    def has_told(self, last: str) -> bool:
        return self.told[-1:] == [last]

    async def run(self) -> None:
        async for event in self.watcher:
            match event:
                case Init():
                    self.told.append("init")
                case InitDone():
                    self.told.append("done")
                case InitApply(obj):
                    self.told.append(f"has {obj.metadata.name}")
                case Apply(obj):
                    self.told.append(f"set {obj.metadata.name}={obj.data['x']}")
                case Delete(obj):
                    self.told.append(f"del {obj.metadata.name}")
                case Undecodable(meta, path, problem):
                    self.told.append(f"{meta.name} {path}: {problem}")
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


def watching(seen: Seen) -> bool:
    return seen.query.get("watch") == "true"


def listing(seen: Seen) -> bool:
    return seen.method == "GET" and not watching(seen)


async def test_everything_comes_first_and_then_changes(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.told == ["init", "has a", "done"])
        await server.put("configmaps", config_map("b", "1"))
        await server.put("configmaps", config_map("b", "2"))
        await server.remove("configmaps", "default", "a")
        await eventually(lambda: subject.told[3:] == ["set b=1", "set b=2", "del a"])
    assert not any(listing(seen) for seen in server.requests), "WatchList needs no list"


async def test_only_what_is_selected_comes(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", config_map("a", ours="yes"))
    await server.put("configmaps", config_map("b"))
    async with recording(client, "ours=yes") as subject:
        await eventually(lambda: subject.told == ["init", "has a", "done"])


async def test_a_server_that_refuses_watch_list_is_listed() -> None:
    async with FakeServer(watch_list=False) as server, Client(server.connection()) as client:
        await server.put("configmaps", config_map("a"))
        async with recording(client) as subject:
            await eventually(lambda: subject.told[-1:] == ["done"])
            await server.put("configmaps", config_map("b", "1"))
            await eventually(lambda: subject.told == ["init", "init", "has a", "done", "set b=1"])


async def test_a_server_that_ignores_watch_list_is_listed(client: Client, server: FakeServer) -> None:
    """Old servers send the objects and never the bookmark that completes them."""
    server.ignore_watch_list = True
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.told[-2:] == ["has a", "done"])
        assert [listing(seen) for seen in server.requests][:2] == [False, True]


async def test_a_version_too_old_leads_to_a_new_picture(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.told[-1:] == ["done"])
        await server.expire_watches()
        await eventually(lambda: subject.told[3:] == ["init", "has a", "done"])
        assert subject.watcher.last_error is None


async def test_a_version_too_old_at_the_start_of_a_watch_leads_to_a_new_picture(
    client: Client, server: FakeServer
) -> None:
    async with recording(client) as subject:
        await eventually(lambda: subject.told == ["init", "done"])
        server.faults.append(Fault(410, reason="Expired", match=watching))
        server.drop_watches()
        await eventually(lambda: subject.told[2:] == ["init", "done"])


async def test_a_dropped_watch_resumes_and_loses_and_repeats_nothing(
    client: Client, server: FakeServer
) -> None:
    async with recording(client) as subject:
        await eventually(lambda: server.watches == 1)
        for number in range(50):
            await server.put("configmaps", config_map("a", str(number)))
            if number % 10 == 0:
                server.drop_watches()
        await eventually(lambda: subject.told[-1:] == ["set a=49"])
    assert subject.told == ["init", "done"] + [f"set a={number}" for number in range(50)]


REFUSALS: dict[str, Fault] = {
    "a 500": Fault(500, times=3),
    "a 429 with Retry-After": Fault(429, {"Retry-After": "0.1"}, times=3),
    "a 503 with Retry-After": Fault(503, {"Retry-After": "0.1"}, times=2),
    "a kind that is not there yet": Fault(404, times=3),
    "a token that is not accepted for a while": Fault(401, times=2),
}


@pytest.mark.parametrize("sentence", REFUSALS)
async def test_refusals_are_waited_out(sentence: str, client: Client, server: FakeServer) -> None:
    fault = REFUSALS[sentence]
    server.faults.append(Fault(fault.status, fault.headers, fault.times))
    await server.put("configmaps", config_map("a"))
    async with recording(client) as subject:
        await eventually(lambda: subject.told[-2:] == ["has a", "done"])
        server.faults.append(Fault(fault.status, fault.headers, fault.times))
        server.drop_watches()
        await server.put("configmaps", config_map("b", "1"))
        await eventually(lambda: subject.told[-1:] == ["set b=1"])
        assert subject.told.count("done") == 1, "a broken watch resumes; it does not list again"


Harm = Callable[[FaultProxy], Awaitable[None]]


async def cut(proxy: FaultProxy) -> None:
    proxy.cut_all()


async def cut_within_an_event(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(after_bytes=100, then="cut"))


async def fall_silent(proxy: FaultProxy) -> None:
    proxy.stall_all()


async def fall_silent_within_an_event(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(after_bytes=100, then="stall"))


async def die_before_answering(proxy: FaultProxy) -> None:
    proxy.prepare(Mischief(after_bytes=0, then="stall"))
    proxy.cut_all()


async def trickle(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(delay=0.3, piece=5))


async def slow_down(proxy: FaultProxy) -> None:
    proxy.meddle_all(Mischief(delay=0.001, piece=50))


HARMS: dict[str, Harm] = {
    "the connection is cut between events": cut,
    "the connection is cut in the middle of an event": cut_within_an_event,
    "the peer dies and the connection stays": fall_silent,
    "the peer dies in the middle of an event and the connection stays": fall_silent_within_an_event,
    "the peer dies before it answers": die_before_answering,
    "bytes trickle in that never make an event": trickle,
    "bytes come slowly": slow_down,
}


@pytest.mark.parametrize("sentence", HARMS)
async def test_whatever_happens_to_the_connection_no_change_is_lost(
    sentence: str, server: FakeServer
) -> None:
    server.bookmark_every = 0.1
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        Client(server.connection(port=proxy.port)) as client,
        recording(client) as subject,
    ):
        await eventually(lambda: subject.told == ["init", "done"])
        for number in range(3):
            await HARMS[sentence](proxy)
            await server.put("configmaps", config_map("a", f"{number}" * 50))
            await server.put("configmaps", config_map("b", f"{number}" * 50))
            last = f"set b={number}" + f"{number}" * 49
            await eventually(partial(subject.has_told, last))
    changes = [f"set {name}=" + f"{number}" * 50 for number in range(3) for name in "ab"]
    assert subject.told == ["init", "done", *changes]


async def test_half_a_line_is_read_again_from_the_last_good_version(
    client: Client, server: FakeServer
) -> None:
    async with recording(client) as subject:
        await eventually(lambda: subject.told == ["init", "done"])
        server.garble_next = True
        await server.put("configmaps", config_map("a", "1"))
        await eventually(lambda: subject.told == ["init", "done", "set a=1"])


async def test_bookmarks_keep_the_version_current(client: Client, server: FakeServer) -> None:
    server.bookmark_every = 0.05
    async with recording(client) as subject:
        await eventually(lambda: subject.told == ["init", "done"])
        await server.put("secrets", {"metadata": {"name": "other", "namespace": "default"}})
        version = str(server.version)
        await eventually(lambda: subject.watcher.state == Watching(version))
        server.forget_history()
        server.drop_watches()
        await server.put("configmaps", config_map("a", "1"))
        await eventually(lambda: subject.told == ["init", "done", "set a=1"])


async def test_an_object_that_does_not_fit_its_type_stops_nothing(client: Client, server: FakeServer) -> None:
    await server.put("configmaps", {"metadata": {"name": "bad", "namespace": "default"}, "data": {"x": 1}})
    await server.put("configmaps", config_map("good"))
    async with recording(client) as subject:
        await eventually(
            lambda: subject.told == ["init", "bad data.x: Expected `str`, got `int`", "has good", "done"]
        )
        await server.put("configmaps", config_map("bad", "cured"))
        await eventually(lambda: subject.told[-1] == "set bad=cured")
    sample = client.metrics.registry.get_sample_value
    assert sample("argosy_undecodable_objects_total", {"kind": "ConfigMap"}) == 1


async def test_a_server_that_always_says_too_old_is_not_asked_without_pause(
    client: Client, server: FakeServer
) -> None:
    server.watch_list = False
    server.faults.append(Fault(410, reason="Expired", times=10**6, match=watching))
    async with recording(client) as subject:
        await eventually(lambda: subject.told.count("done") >= 3)
        await eventually(lambda: isinstance(subject.watcher.state, Waiting))


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_without_pause(
    client: Client, server: FakeServer
) -> None:
    server.bookmark_every = 0.01
    async with recording(client) as subject:
        await eventually(lambda: subject.told == ["init", "done"])
        server.end_watches = True
        server.drop_watches()
        await eventually(lambda: getattr(subject.watcher.last_error, "reason", "") == "Ended")
        server.end_watches = False
        await eventually(lambda: subject.watcher.last_error is None)


async def test_a_kind_that_is_not_there_is_complained_of_once(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(404, times=10**6))
    task = asyncio.create_task(Recording(Watcher(client, ConfigMap, timings=TIMINGS)).run())
    with captured_lines() as logs:
        await eventually(lambda: len(server.requests) > 5)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert [entry["log_level"] for entry in logs if entry["log_level"] != "debug"] == ["warning"]


async def test_the_state_tells_where_the_machine_is(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(500, times=1000))
    async with recording(client) as subject:
        assert subject.watcher.state == Start()
        await eventually(lambda: isinstance(subject.watcher.state, Waiting))
        assert subject.watcher.last_error is not None
        server.faults.clear()
        await eventually(lambda: isinstance(subject.watcher.state, Watching))
        assert subject.watcher.last_error is None


async def test_events_that_come_one_by_one_are_gathered(client: Client, server: FakeServer) -> None:
    watcher = Watcher(
        client, ConfigMap, "default", timings=replace(TIMINGS, batch_window=0.3, idle_timeout=5.0)
    )
    async with aclosing(watcher.batches()) as batches:
        while not isinstance(watcher.state, Watching):
            await anext(batches)
        names = [str(number) for number in range(6)]
        sizes: list[int] = []
        took = asyncio.create_task(_sizes(batches, sizes, len(names)))
        for name in names:
            await server.put("configmaps", config_map(name))
            await asyncio.sleep(0.02)
        async with asyncio.timeout(60):
            await took
    assert sum(sizes) == len(names)
    assert len(sizes) <= 3, f"taken in pieces of {sizes}"


async def _sizes(batches: AsyncIterator[Sequence[object]], sizes: list[int], until: int) -> None:
    while sum(sizes) < until:
        sizes.append(len(await anext(batches)))


async def test_a_watch_that_breaks_again_and_again_leaves_no_circles(server: FakeServer) -> None:
    """Of what it failed with only the words are kept."""
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
