import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.watch import Apply, Delete, Init, InitApply, InitDone, WatchTimings
from argosy.kinds.kubernetes import ConfigMap, Pod
from tests.support.captured_logs import captured_lines
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.waiting import eventually

TIMINGS = WatchTimings(
    idle_timeout=0.4,
    initial_idle_timeout=0.4,
    backoff=Backoff(initial=0.01, maximum=0.05, jitter=lambda: 0.5),
)


def raw_pod(name: str, node: str = "") -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"nodeName": node}}


def pod(name: str, version: int, node: str = "", uid: str = "u") -> Pod:
    meta = {"name": name, "namespace": "default", "resourceVersion": str(version), "uid": uid}
    return msgspec.convert({"metadata": meta, "spec": {"nodeName": node}}, Pod)


def by_node(obj: Pod) -> tuple[str, ...]:
    return (obj.spec.node_name,) if obj.spec.node_name else ()


def new_cache(client: Client) -> Cache[Pod]:
    return Cache(client, Pod, indexes={"node": by_node}, timings=TIMINGS)


def names(cache: Cache[Pod], node: str) -> set[str]:
    return {obj.metadata.name for obj in cache.by("node", node)}


@asynccontextmanager
async def running(cache: Cache[Pod]) -> AsyncIterator[list[tuple[str, str]]]:
    """The cache kept current, and what it tells as (old version or none, new version or none) per name."""
    told: list[tuple[str, str]] = []

    def note(change: Change[Pod]) -> None:
        obj = change.new or change.old
        assert obj is not None
        word = "changed" if change.old and change.new else "new" if change.new else "gone"
        told.append((word, obj.metadata.name))

    cache.subscribe(note)
    task = asyncio.create_task(cache.run())
    with captured_lines():
        try:
            yield told
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_objects_are_found_by_name_and_by_index(client: Client, server: FakeServer) -> None:
    for number in range(3):
        await server.put("pods", raw_pod(f"p{number}", "n1"))
    cache = new_cache(client)
    async with running(cache) as told:
        await cache.wait_synced()
        assert len(cache) == 3
        assert names(cache, "n1") == {"p0", "p1", "p2"}
        await server.put("pods", raw_pod("p0", "n2"))
        await server.remove("pods", "default", "p1")
        await eventually(lambda: told[-1:] == [("gone", "p1")])
        assert (names(cache, "n1"), names(cache, "n2"), names(cache, "n3")) == ({"p2"}, {"p0"}, set())
        assert cache.get("default", "p1") is None


async def test_a_relist_tells_exactly_what_changed_meanwhile(client: Client, server: FakeServer) -> None:
    for name in ("same", "changed", "deleted", "replaced"):
        await server.put("pods", raw_pod(name, "n1"))
    cache = new_cache(client)
    async with running(cache) as told:
        await cache.wait_synced()
        told.clear()
        server.faults.append(Fault(500, times=1000))
        server.drop_watches()
        await server.put("pods", raw_pod("changed", "n2"))
        await server.remove("pods", "default", "deleted")
        await server.remove("pods", "default", "replaced")
        await server.put("pods", raw_pod("replaced", "n3"))
        await server.put("pods", raw_pod("added", "n3"))
        server.forget_history()
        server.faults.clear()
        await eventually(lambda: len(told) >= 5)
        assert sorted(told) == [
            ("changed", "changed"),
            ("gone", "deleted"),
            ("gone", "replaced"),
            ("new", "added"),
            ("new", "replaced"),
        ]
        assert names(cache, "n3") == {"replaced", "added"}
        assert names(cache, "n1") == {"same"}


async def test_nobody_sees_half_a_list(client: Client) -> None:
    cache = new_cache(client)
    for event in (Init(), InitApply(pod("a", 1)), InitDone("5")):
        cache._take(event)
    for event in (Init(), InitApply(pod("b", 6))):
        cache._take(event)
    assert [obj.metadata.name for obj in cache] == ["a"]
    cache._take(Init())
    cache._take(InitApply(pod("c", 7)))
    cache._take(InitDone("8"))
    assert [obj.metadata.name for obj in cache] == ["c"], "an attempt that broke off leaves nothing"


class TestPut:
    """What our own writes returned."""

    async def test_it_is_there_before_the_watch_brings_it_and_stays_when_it_does(
        self, client: Client
    ) -> None:
        cache = self.cache(client, at=10)
        cache.put(pod("a", 12, "n1"))
        assert names(cache, "n1") == {"a"}
        cache._take(Apply(pod("a", 11, "n0")))
        assert names(cache, "n1") == {"a"}, "an older version does not come back"
        cache._take(Apply(pod("a", 12, "n1")))
        cache._take(Apply(pod("a", 13, "n2")))
        assert names(cache, "n2") == {"a"}

    async def test_what_was_returned_in_brief_the_watch_completes_at_the_same_version(
        self, client: Client
    ) -> None:
        cache = self.cache(client, at=10)
        cache.put(pod("a", 12), metadata_only=True)
        cache._take(Apply(pod("a", 11, "n0")))
        assert names(cache, "n0") == set(), "an older version does not come back"
        cache._take(Apply(pod("a", 12, "n1")))
        assert names(cache, "n1") == {"a"}
        cache.put(pod("a", 12), metadata_only=True)
        assert names(cache, "n1") == {"a"}, "what is whole stays whole"
        cache._take(Apply(pod("a", 12, "n2")))
        assert names(cache, "n1") == {"a"}, "the same version comes once"

    async def test_and_a_list_that_was_under_way_does_not_keep_it_from_that(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._take(Init())
        cache.put(pod("a", 22), metadata_only=True)
        cache._take(InitDone("20"))
        cache._take(Apply(pod("a", 22, "n1")))
        assert names(cache, "n1") == {"a"}

    async def test_an_object_that_the_watch_already_saw_deleted_is_not_revived(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._take(Apply(pod("a", 12)))
        cache._take(Delete(pod("a", 14)))
        cache.put(pod("a", 13))
        assert len(cache) == 0

    async def test_what_was_written_while_a_list_was_under_way_survives_it(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._take(Init())
        cache._take(InitApply(pod("b", 9)))
        cache.put(pod("a", 22))
        cache._take(InitDone("20"))
        assert {obj.metadata.name for obj in cache} == {"a", "b"}

    async def test_what_the_list_knows_to_be_gone_does_not(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._take(Init())
        cache.put(pod("a", 12))
        cache._take(InitDone("20"))
        assert len(cache) == 0

    async def test_a_delete_of_an_older_version_does_not_remove_a_newer_object(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache.put(pod("a", 15, uid="second"))
        cache._take(Delete(pod("a", 12, uid="first")))
        assert len(cache) == 1

    def cache(self, client: Client, at: int) -> Cache[Pod]:
        cache = new_cache(client)
        cache._take(Init())
        cache._take(InitDone(str(at)))
        return cache


async def test_a_server_set_back_to_an_earlier_state_is_believed(client: Client) -> None:
    cache = new_cache(client)
    for event in (Init(), InitApply(pod("a", 900)), InitDone("1000")):
        cache._take(event)
    for event in (Init(), InitApply(pod("b", 5)), InitDone("6")):
        cache._take(event)
    cache._take(Apply(pod("b", 7, "n1")))
    assert names(cache, "n1") == {"b"}
    assert len(cache) == 1


async def test_a_listener_that_fails_stops_neither_the_cache_nor_others(
    client: Client, server: FakeServer
) -> None:
    cache = new_cache(client)

    def fail(_change: Change[Pod]) -> None:
        raise RuntimeError("made up")

    cache.subscribe(fail)
    async with running(cache) as told:
        await cache.wait_synced()
        await server.put("pods", raw_pod("a"))
        await eventually(lambda: told == [("new", "a")])


async def test_what_a_transform_drops_is_not_kept(client: Client, server: FakeServer) -> None:
    def without_data(obj: ConfigMap) -> ConfigMap:
        return ConfigMap(metadata=obj.metadata)

    await server.put("configmaps", {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y"}})
    cache = Cache(client, ConfigMap, transform=without_data)
    task = asyncio.create_task(cache.run())
    await cache.wait_synced()
    held = cache.get("default", "a")
    assert held is not None
    assert held.data == {}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_an_object_that_no_longer_fits_its_type_is_kept_as_it_last_did_and_told(
    client: Client, server: FakeServer
) -> None:
    cache = new_cache(client)
    problems: list[str] = []
    cache.on_undecodable(lambda bad: problems.append(f"{bad.path} {bad.deleted}"))
    await server.put("pods", raw_pod("a", node="n"))
    async with running(cache) as told:
        await cache.wait_synced()
        await server.put("pods", {**raw_pod("a"), "spec": {"nodeName": 7}})
        await eventually(lambda: problems == ["spec.nodeName False"])
        assert names(cache, "n") == {"a"}
        await server.remove("pods", "default", "a")
        await eventually(lambda: told == [("new", "a"), ("gone", "a")])
        assert len(cache) == 0


async def test_size_and_age_of_a_cache_are_told(client: Client, server: FakeServer) -> None:
    sample, labels = client.metrics.registry.get_sample_value, {"kind": "Pod"}
    cache = new_cache(client)
    assert sample("argosy_cache_synced", labels) is None, "it is not run"
    assert cache.seconds_since_event == 0
    await server.put("pods", raw_pod("a"))
    async with running(cache):
        await cache.wait_synced()
        assert sample("argosy_cache_objects", labels) == 1
        assert sample("argosy_cache_synced", labels) == 1
        quiet = cache.seconds_since_event
        await asyncio.sleep(0.05)
        assert cache.seconds_since_event >= quiet + 0.04
        sent = asyncio.get_running_loop().time()
        await server.put("pods", raw_pod("b"))
        await eventually(lambda: len(cache) == 2)
        assert cache.seconds_since_event <= asyncio.get_running_loop().time() - sent
        assert sample("argosy_cache_seconds_since_event", labels) is not None
