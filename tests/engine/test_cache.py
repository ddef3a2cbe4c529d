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
    """Run the cache; yield the list of its changes, each as a word and the object's name."""
    changes: list[tuple[str, str]] = []

    def record(change: Change[Pod]) -> None:
        obj = change.new or change.old
        assert obj is not None
        word = "modified" if change.old and change.new else "added" if change.new else "deleted"
        changes.append((word, obj.metadata.name))

    cache.subscribe(record)
    task = asyncio.create_task(cache.run())
    with captured_lines():
        try:
            yield changes
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_objects_are_returned_by_name_and_by_index(client: Client, server: FakeServer) -> None:
    for number in range(3):
        await server.put("pods", raw_pod(f"p{number}", "n1"))
    cache = new_cache(client)
    async with running(cache) as changes:
        await cache.wait_synced()
        assert len(cache) == 3
        assert names(cache, "n1") == {"p0", "p1", "p2"}
        await server.put("pods", raw_pod("p0", "n2"))
        await server.remove("pods", "default", "p1")
        await eventually(lambda: changes[-1:] == [("deleted", "p1")])
        assert (names(cache, "n1"), names(cache, "n2"), names(cache, "n3")) == ({"p2"}, {"p0"}, set())
        assert cache.get("default", "p1") is None


async def test_relist_reports_exactly_the_changes_since_the_watch_broke(
    client: Client, server: FakeServer
) -> None:
    for name in ("same", "modified", "deleted", "replaced"):
        await server.put("pods", raw_pod(name, "n1"))
    cache = new_cache(client)
    async with running(cache) as changes:
        await cache.wait_synced()
        changes.clear()
        server.faults.append(Fault(500, times=1000))
        server.drop_watches()
        await server.put("pods", raw_pod("modified", "n2"))
        await server.remove("pods", "default", "deleted")
        await server.remove("pods", "default", "replaced")
        await server.put("pods", raw_pod("replaced", "n3"))
        await server.put("pods", raw_pod("added", "n3"))
        server.forget_history()
        server.faults.clear()
        await eventually(lambda: len(changes) >= 5)
        assert sorted(changes) == [
            ("added", "added"),
            ("added", "replaced"),
            ("deleted", "deleted"),
            ("deleted", "replaced"),
            ("modified", "modified"),
        ]
        assert names(cache, "n3") == {"replaced", "added"}
        assert names(cache, "n1") == {"same"}


async def test_incomplete_relist_is_not_visible(client: Client) -> None:
    cache = new_cache(client)
    for event in (Init(), InitApply(pod("a", 1)), InitDone("5")):
        cache._handle(event)
    for event in (Init(), InitApply(pod("b", 6))):
        cache._handle(event)
    assert [obj.metadata.name for obj in cache] == ["a"]
    cache._handle(Init())
    cache._handle(InitApply(pod("c", 7)))
    cache._handle(InitDone("8"))
    assert [obj.metadata.name for obj in cache] == ["c"], "objects of the interrupted relist are dropped"


class TestPut:
    """`put` of objects that our own writes returned."""

    async def test_put_object_is_visible_before_the_watch_event_and_not_replaced_by_older_ones(
        self, client: Client
    ) -> None:
        cache = self.cache(client, at=10)
        cache.put(pod("a", 12, "n1"))
        assert names(cache, "n1") == {"a"}
        cache._handle(Apply(pod("a", 11, "n0")))
        assert names(cache, "n1") == {"a"}, "an older version is ignored"
        cache._handle(Apply(pod("a", 12, "n1")))
        cache._handle(Apply(pod("a", 13, "n2")))
        assert names(cache, "n2") == {"a"}

    async def test_metadata_only_object_is_completed_by_the_event_of_the_same_version(
        self, client: Client
    ) -> None:
        cache = self.cache(client, at=10)
        cache.put(pod("a", 12), metadata_only=True)
        cache._handle(Apply(pod("a", 11, "n0")))
        assert names(cache, "n0") == set(), "an older version is ignored"
        cache._handle(Apply(pod("a", 12, "n1")))
        assert names(cache, "n1") == {"a"}
        cache.put(pod("a", 12), metadata_only=True)
        assert names(cache, "n1") == {"a"}, "a complete object is not replaced by metadata"
        cache._handle(Apply(pod("a", 12, "n2")))
        assert names(cache, "n1") == {"a"}, "a second event of the same version is ignored"

    async def test_metadata_only_object_put_during_a_relist_is_completed_afterwards(
        self, client: Client
    ) -> None:
        cache = self.cache(client, at=10)
        cache._handle(Init())
        cache.put(pod("a", 22), metadata_only=True)
        cache._handle(InitDone("20"))
        cache._handle(Apply(pod("a", 22, "n1")))
        assert names(cache, "n1") == {"a"}

    async def test_put_of_an_already_deleted_object_is_ignored(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._handle(Apply(pod("a", 12)))
        cache._handle(Delete(pod("a", 14)))
        cache.put(pod("a", 13))
        assert len(cache) == 0

    async def test_object_put_during_a_relist_and_newer_than_it_is_kept(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._handle(Init())
        cache._handle(InitApply(pod("b", 9)))
        cache.put(pod("a", 22))
        cache._handle(InitDone("20"))
        assert {obj.metadata.name for obj in cache} == {"a", "b"}

    async def test_object_put_during_a_relist_and_older_than_it_is_removed(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache._handle(Init())
        cache.put(pod("a", 12))
        cache._handle(InitDone("20"))
        assert len(cache) == 0

    async def test_delete_of_an_older_version_does_not_remove_a_newer_object(self, client: Client) -> None:
        cache = self.cache(client, at=10)
        cache.put(pod("a", 15, uid="second"))
        cache._handle(Delete(pod("a", 12, uid="first")))
        assert len(cache) == 1

    def cache(self, client: Client, at: int) -> Cache[Pod]:
        cache = new_cache(client)
        cache._handle(Init())
        cache._handle(InitDone(str(at)))
        return cache


async def test_relist_with_an_older_version_replaces_the_contents(client: Client) -> None:
    cache = new_cache(client)
    for event in (Init(), InitApply(pod("a", 900)), InitDone("1000")):
        cache._handle(event)
    for event in (Init(), InitApply(pod("b", 5)), InitDone("6")):
        cache._handle(event)
    cache._handle(Apply(pod("b", 7, "n1")))
    assert names(cache, "n1") == {"b"}
    assert len(cache) == 1


async def test_failing_listener_stops_neither_the_cache_nor_other_listeners(
    client: Client, server: FakeServer
) -> None:
    cache = new_cache(client)

    def fail(_change: Change[Pod]) -> None:
        raise RuntimeError("made up")

    cache.subscribe(fail)
    async with running(cache) as changes:
        await cache.wait_synced()
        await server.put("pods", raw_pod("a"))
        await eventually(lambda: changes == [("added", "a")])


async def test_transformed_object_is_cached(client: Client, server: FakeServer) -> None:
    def without_data(obj: ConfigMap) -> ConfigMap:
        return ConfigMap(metadata=obj.metadata)

    await server.put("configmaps", {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y"}})
    cache = Cache(client, ConfigMap, transform=without_data)
    task = asyncio.create_task(cache.run())
    await cache.wait_synced()
    cached = cache.get("default", "a")
    assert cached is not None
    assert cached.data == {}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_undecodable_version_is_reported_and_the_last_decodable_one_is_kept_until_deletion(
    client: Client, server: FakeServer
) -> None:
    cache = new_cache(client)
    problems: list[str] = []
    cache.on_undecodable(lambda bad: problems.append(f"{bad.path} {bad.deleted}"))
    await server.put("pods", raw_pod("a", node="n"))
    async with running(cache) as changes:
        await cache.wait_synced()
        await server.put("pods", {**raw_pod("a"), "spec": {"nodeName": 7}})
        await eventually(lambda: problems == ["spec.nodeName False"])
        assert names(cache, "n") == {"a"}
        await server.remove("pods", "default", "a")
        await eventually(lambda: changes == [("added", "a"), ("deleted", "a")])
        assert len(cache) == 0


async def test_metrics_show_size_sync_and_seconds_since_the_last_event(
    client: Client, server: FakeServer
) -> None:
    sample, labels = client.metrics.registry.get_sample_value, {"kind": "Pod"}
    cache = new_cache(client)
    assert sample("argosy_cache_synced", labels) is None, "the cache does not run yet"
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
