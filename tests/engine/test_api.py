"""Tests for the engine against whole API servers: a real one and the local one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import pytest

from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client, PatchType
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import AlreadyExists, Conflict, Gone, Invalid, NotFound, Unauthorized
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.engine.urls import accept_header
from argosy.engine.watch import WatchTimings
from argosy.kinds.kubernetes import ConfigMap, Event, Lease, Pod, Secret, SecretMetadata, ServiceAccount
from tests.support.captured_logs import captured_lines
from tests.support.fault_proxy import FaultProxy, Mischief
from tests.support.servers import Server
from tests.support.waiting import eventually

TIMINGS = WatchTimings(idle_timeout=1.0, initial_idle_timeout=2.0, backoff=Backoff(initial=0.02, maximum=0.2))


@pytest.fixture
async def client(api: Server) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(api.kubeconfig)) as client:
        yield client


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": {"app": "engine"}}, "data": data}


async def test_a_secret_requested_as_metadata_has_no_data(client: Client, namespace: str) -> None:
    await client.create(Secret, {"metadata": {"name": "a"}, "stringData": {"key": "hidden"}}, namespace)
    assert (await client.get(SecretMetadata, "a", namespace)).metadata.name == "a"
    path = f"/api/v1/namespaces/{namespace}/secrets/a"
    answer = await client.request("GET", path, headers={"Accept": accept_header(SecretMetadata)})
    assert b'"data"' not in answer


POD: dict[str, object] = {
    "metadata": {"name": "p", "labels": {"app": "engine"}},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


async def test_objects_are_created_read_changed_and_deleted(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap, config_map("a", x="1"), namespace)
    assert await client.get(ConfigMap, "a", namespace) == created
    with pytest.raises(AlreadyExists):
        await client.create(ConfigMap, config_map("a"), namespace)
    changed = await client.patch(ConfigMap, "a", {"data": {"y": "2"}}, namespace)
    assert changed.data == {"x": "1", "y": "2"}
    with pytest.raises(Conflict):
        await client.replace(
            ConfigMap,
            {"metadata": {"name": "a", "resourceVersion": created.metadata.resource_version}},
            namespace,
        )
    with pytest.raises(Conflict):
        patch = {"metadata": {"resourceVersion": created.metadata.resource_version}, "data": {"z": "3"}}
        await client.patch(ConfigMap, "a", patch, namespace)
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", namespace, uid="00000000-0000-0000-0000-000000000000")
    await client.delete(ConfigMap, "a", namespace, uid=created.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", namespace)


async def test_create_with_metadata_only_returns_no_spec(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap, config_map("a", x="1"), namespace, metadata_only=True)
    stored = await client.get(ConfigMap, "a", namespace)
    assert (created.metadata, created.data, stored.data) == (stored.metadata, {}, {"x": "1"})
    with pytest.raises(AlreadyExists):
        await client.create(ConfigMap, config_map("a"), namespace, metadata_only=True)
    with pytest.raises(Invalid, match="name"):
        await client.create(ConfigMap, config_map("A b"), namespace, metadata_only=True)


async def test_a_pod_cached_with_metadata_only_is_completed_by_the_watch(
    client: Client, namespace: str
) -> None:
    """A pod with a scheduling gate gets its condition when it is created, and may not change for hours."""
    spec = {"containers": [{"name": "main", "image": "none"}], "schedulingGates": [{"name": "a.b/c"}]}
    cache = Cache(client, Pod, namespace=namespace, timings=TIMINGS)
    async with running(cache):
        await cache.wait_synced()
        created = await client.create(
            Pod, {"metadata": {"name": "p"}, "spec": spec}, namespace, metadata_only=True
        )
        cache.put(created, metadata_only=True)
        assert cache.get(namespace, "p") is not None
        await eventually(lambda: _waits_for(cache.get(namespace, "p")) == ["SchedulingGated"])


def _waits_for(pod: Pod | None) -> list[str]:
    return [condition.reason for condition in pod.status.conditions] if pod is not None else []


async def test_all_four_types_of_patches(client: Client, namespace: str) -> None:
    await client.create(Pod, POD, namespace)
    strategic = {"spec": {"containers": [{"name": "main", "image": "other"}]}}
    await client.patch(Pod, "p", strategic, namespace, type=PatchType.STRATEGIC)
    operations = [{"op": "add", "path": "/metadata/labels/step", "value": "json"}]
    patched = await client.patch(Pod, "p", operations, namespace, type=PatchType.JSON)
    assert patched.metadata.labels["step"] == "json"
    applied = await client.apply(ConfigMap, {"metadata": {"name": "c"}, "data": {"x": "1"}}, namespace)
    assert applied.data == {"x": "1"}
    async with Client(client.connection, field_manager="another-manager") as other:
        with pytest.raises(Conflict):
            await other.apply(ConfigMap, {"metadata": {"name": "c"}, "data": {"x": "2"}}, namespace)
        forced = await other.apply(
            ConfigMap, {"metadata": {"name": "c"}, "data": {"x": "2"}}, namespace, force=True
        )
        assert forced.data == {"x": "2"}


async def test_status_is_written_by_its_subresource_only(client: Client, namespace: str) -> None:
    await client.create(Pod, POD, namespace)
    status = {"status": {"phase": "Running"}}
    assert (await client.patch(Pod, "p", status, namespace)).status.phase == "Pending"
    patched = await client.patch(Pod, "p", status, namespace, subresource="status")
    assert patched.status.phase == "Running"


async def test_a_dry_run_creates_nothing(client: Client, namespace: str) -> None:
    await client.create(ConfigMap, config_map("a"), namespace, dry_run=True)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", namespace)


async def test_creating_an_invalid_object_raises_invalid(client: Client, namespace: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(Pod, {"metadata": {"name": "p"}, "spec": {"containers": []}}, namespace)
    assert "spec.containers" in caught.value.message


async def test_an_unknown_token_raises_unauthorized(api: Server, client: Client) -> None:
    connection = Connection(api.url, certificate_authority=api.ca_file.read_bytes())
    async with Client(connection) as stranger:
        with pytest.raises((Unauthorized, Exception)) as caught:
            await stranger.list(ConfigMap)
    assert getattr(caught.value, "status", 0) in (401, 403)


async def test_lists_are_paged_and_selected(client: Client, namespace: str) -> None:
    bodies = [config_map(f"c{number}") for number in range(12)]
    await asyncio.gather(*(client.create(ConfigMap, body, namespace) for body in bodies))
    await client.create(ConfigMap, {"metadata": {"name": "foreign"}}, namespace)
    listed = await client.list(ConfigMap, namespace, labels="app=engine", limit=5)
    assert {item.metadata.name for item in listed.items} == {f"c{number}" for number in range(12)}
    selected = await client.list(ConfigMap, namespace, fields="metadata.name=foreign")
    assert len(selected.items) == 1
    kind = dynamic_kind(ConfigMap.resource)
    (whole,) = (await client.list(kind, namespace, fields="metadata.name=c1")).items
    assert whole.raw["kind"] == "ConfigMap"


async def test_metadata_can_be_listed_and_watched(client: Client, namespace: str) -> None:
    cache = Cache(client, ServiceAccount, namespace=namespace, timings=TIMINGS)
    async with running(cache):
        await cache.wait_synced()
        await client.create(ServiceAccount, {"metadata": {"name": "new"}}, namespace)
        await eventually(lambda: cache.get(namespace, "new"))


async def test_a_watch_from_a_version_delivers_later_changes(client: Client, namespace: str) -> None:
    created = await client.create(ConfigMap, config_map("a"), namespace)
    await client.patch(ConfigMap, "a", {"data": {"x": "1"}}, namespace)
    await client.delete(ConfigMap, "a", namespace)
    watch = client.watch(
        ConfigMap, namespace, resource_version=created.metadata.resource_version, timeout_seconds=5
    )
    types = []
    async with aclosing(watch):
        async for event in watch:
            types.append(event.type)
            if event.type == "DELETED":
                break
    assert types == ["MODIFIED", "DELETED"]


@pytest.mark.parametrize("version", ["1"])
async def test_a_watch_from_the_oldest_version_is_served_or_raises_gone(
    client: Client, namespace: str, version: str
) -> None:
    """A server may still have the history; if it has not, it says 410 and nothing else."""
    try:
        async with asyncio.timeout(60):
            watch = client.watch(ConfigMap, namespace, resource_version=version, timeout_seconds=1)
            async with aclosing(watch):
                async for _ in watch:
                    break
    except Gone:
        pass


@asynccontextmanager
async def running(cache: Cache[ConfigMap] | Cache[Pod] | Cache[ServiceAccount]) -> AsyncIterator[None]:
    task = asyncio.create_task(cache.run())
    with captured_lines():
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


HARMS = {
    "cut": Mischief(after_bytes=6000, then="cut"),
    "silent": Mischief(after_bytes=6000, then="stall"),
    "slow": Mischief(delay=0.001, piece=300),
}


@pytest.mark.parametrize("harm", HARMS)
async def test_a_cache_behind_a_faulty_connection_converges(
    harm: str, api: Server, client: Client, namespace: str
) -> None:
    changes: dict[str, list[str]] = {}

    def note(change: Change[ConfigMap]) -> None:
        obj = change.new or change.old
        assert obj is not None
        changes.setdefault(obj.metadata.name, []).append("present" if change.new else "deleted")

    connection = Connection.from_kubeconfig(api.kubeconfig)
    async with FaultProxy("127.0.0.1", api.port) as proxy:
        # A stall costs the timeout of the client, so there are fewer of them.
        proxy.prepare(*[HARMS[harm]] * (2 if harm == "silent" else 6))
        bad = Connection(
            f"https://127.0.0.1:{proxy.port}",
            credentials=connection.credentials,
            certificate_authority=connection.certificate_authority,
        )
        async with Client(bad, timeout=2) as bad_client:
            cache = Cache(bad_client, ConfigMap, namespace=namespace, labels="app=engine", timings=TIMINGS)
            cache.subscribe(note)
            async with running(cache):
                for number in range(30):
                    await client.create(ConfigMap, config_map(f"c{number}", x="y" * 200), namespace)
                for number in range(0, 30, 2):
                    await client.delete(ConfigMap, f"c{number}", namespace)
                want = {f"c{number}" for number in range(1, 30, 2)}
                await eventually(lambda: {obj.metadata.name for obj in cache} == want, 60)
    assert {name for name, words in changes.items() if words[-1] == "present"} == want


async def test_one_of_two_candidates_becomes_leader(client: Client, namespace: str) -> None:
    first, second = (
        Leader(client, "work", namespace, name, duration=3, renew_deadline=2, retry=0.2) for name in "ab"
    )
    led: list[str] = []

    async def lead(name: str) -> None:
        led.append(name)
        await asyncio.Event().wait()

    with captured_lines():
        first_task = asyncio.create_task(first.run(lambda: lead("a")))
        await eventually(lambda: led == ["a"])
        two = asyncio.create_task(second.run(lambda: lead("b")))
        await eventually(lambda: second.holder == "a")
        first_task.cancel()
        await asyncio.gather(first_task, return_exceptions=True)
        await eventually(lambda: led == ["a", "b"])
        lease = await client.get(Lease, "work", namespace)
        assert (lease.spec.holder_identity, lease.spec.lease_transitions) == ("b", 1)
        two.cancel()
        await asyncio.gather(two, return_exceptions=True)


async def test_events_are_accepted_and_counted(client: Client, namespace: str) -> None:
    pod = await client.create(Pod, POD, namespace)
    recorder = Recorder(client, "test")
    recorder.event(pod, "Normal", "Started", "once")
    await recorder.close()
    for _ in range(2):
        recorder.event(pod, "Normal", "Started", "once")
    await recorder.close()
    (event,) = (await client.list(Event, namespace, fields=f"involvedObject.uid={pod.metadata.uid}")).items
    assert (event.count, event.reason, event.involved_object.name) == (3, "Started", "p")
