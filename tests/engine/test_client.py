import asyncio
import socket
import time
from contextlib import aclosing
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from argosy.engine.client import Client, PatchType
from argosy.engine.credentials import FileCredentials
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    LeaseExpired,
    NotFound,
    Throttled,
    Unauthorized,
    Unavailable,
)
from argosy.engine.kubeconfig import Connection
from argosy.engine.limiter import WriteLimits
from argosy.engine.metrics import Metrics
from argosy.kinds.kubernetes import ConfigMap, Namespace, Secret, SecretMetadata
from argosy.wire.messages import Request, Upgrade
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.fault_proxy import FaultProxy, Mischief
from tests.support.waiting import eventually


def config_map(name: str, **data: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "data": data}


async def test_create_get_patch_and_delete(client: Client) -> None:
    created = await client.create(ConfigMap, config_map("a", x="1"), "default")
    assert created.metadata.uid
    read = await client.get(ConfigMap, "a", "default")
    assert read == created
    changed = await client.patch(ConfigMap, "a", {"data": {"y": "2"}}, "default")
    assert changed.data == {"x": "1", "y": "2"}
    await client.delete(ConfigMap, "a", "default", uid=created.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "a", "default")


async def test_replace_with_an_old_version_raises_conflict(client: Client) -> None:
    created = await client.create(ConfigMap, config_map("a"), "default")
    body: dict[str, object] = {
        "metadata": {"name": "a", "resourceVersion": created.metadata.resource_version}
    }
    await client.replace(ConfigMap, {**body, "data": {"x": "1"}}, "default")
    with pytest.raises(Conflict):
        await client.replace(ConfigMap, {**body, "data": {"x": "2"}}, "default")


async def test_delete_with_another_uid_raises_conflict(client: Client) -> None:
    await client.create(ConfigMap, config_map("a"), "default")
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "a", "default", uid="another")


async def test_create_with_an_existing_name_raises_already_exists(client: Client) -> None:
    await client.create(ConfigMap, config_map("a"), "default")
    with pytest.raises(AlreadyExists):
        await client.create(ConfigMap, config_map("a"), "default")


async def test_list_fetches_all_pages(client: Client, server: FakeServer) -> None:
    for number in range(7):
        await client.create(ConfigMap, config_map(f"c{number}"), "default")
    listed = await client.list(ConfigMap, "default", limit=3)
    assert len(listed.items) == 7
    assert listed.resource_version == str(server.version)
    assert [request.query.get("continue") for request in server.requests[-3:]] == [None, "3", "6"]


async def test_list_with_an_expired_token_is_fetched_in_one_request(
    client: Client, server: FakeServer
) -> None:
    for number in range(5):
        await client.create(ConfigMap, config_map(f"c{number}"), "default")
    server.faults.append(Fault(410, match=lambda request: "continue" in request.query))
    listed = await client.list(ConfigMap, "default", limit=2)
    assert len(listed.items) == 5


async def test_create_requires_a_namespace_for_namespaced_kinds_only(client: Client) -> None:
    await client.create(Namespace, {"metadata": {"name": "work"}})
    assert (await client.get(Namespace, "work")).metadata.namespace == ""
    with pytest.raises(ValueError, match="namespace is required"):
        await client.create(ConfigMap, config_map("a"))


async def test_dynamic_kind_is_fetched_and_listed(client: Client) -> None:
    await client.create(ConfigMap, config_map("a", x="1"), "default")
    kind = dynamic_kind(ConfigMap.resource)
    assert (await client.get(kind, "a", "default")).raw["data"] == {"x": "1"}
    assert [item.metadata.name for item in (await client.list(kind)).items] == ["a"]


async def test_struct_with_metadata_only_requests_partial_object_metadata(
    client: Client, server: FakeServer
) -> None:
    await client.list(SecretMetadata)
    assert "PartialObjectMetadataList" in server.requests[-1].headers["Accept"]
    await client.list(ConfigMap)
    assert server.requests[-1].headers["Accept"] == "application/json"
    await client.create(Secret, {"metadata": {"name": "a"}}, "default")
    await client.get(SecretMetadata, "a", "default")
    assert "as=PartialObjectMetadata;" in server.requests[-1].headers["Accept"]
    await client.get(Secret, "a", "default")
    assert server.requests[-1].headers["Accept"] == "application/json"


async def test_writes_have_field_manager_and_no_accept_encoding(client: Client, server: FakeServer) -> None:
    await client.create(ConfigMap, config_map("a"), "default")
    request = server.requests[-1]
    assert "Accept-Encoding" not in request.headers
    assert request.headers["User-Agent"] == "argosy"
    assert request.query == {"fieldManager": "argosy"}


async def test_names_are_quoted_in_the_path(client: Client) -> None:
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "../../x?y=", "default")


async def test_apply_sends_apply_patch_with_kind_and_force(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(409, reason="Conflict", match=lambda request: request.method == "PATCH"))
    with pytest.raises(Conflict):
        await client.apply(ConfigMap, config_map("a"), "default", force=True)
    request = server.requests[-1]
    assert request.headers["Content-Type"] == PatchType.APPLY.value
    assert request.query["force"] == "true"
    assert b'"kind":"ConfigMap"' in request.body


async def test_429_is_retried_after_retry_after(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(429, {"Retry-After": "0.1"}, times=2))
    before = time.monotonic()
    await client.create(ConfigMap, config_map("a"), "default")
    assert time.monotonic() - before >= 0.2
    assert len(server.requests) == 3


async def test_429_with_long_retry_after_or_repeated_too_often_is_raised(
    client: Client, server: FakeServer
) -> None:
    server.faults.append(Fault(429, {"Retry-After": "60"}, times=1))
    with pytest.raises(Throttled) as caught:
        await client.get(ConfigMap, "a", "default")
    assert caught.value.retry_after == 60
    server.faults.append(Fault(429, {"Retry-After": "0"}, times=100))
    with pytest.raises(Throttled):
        await client.get(ConfigMap, "a", "default")


async def test_500_is_raised_and_not_retried(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(500))
    with pytest.raises(Unavailable):
        await client.create(ConfigMap, config_map("a"), "default")
    assert len(server.requests) == 1


async def test_403_raises_forbidden(client: Client, server: FakeServer) -> None:
    server.faults.append(Fault(403))
    with pytest.raises(Forbidden):
        await client.get(ConfigMap, "a", "default")


async def test_refused_connection_raises_unavailable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    async with Client(Connection(f"http://127.0.0.1:{port}")) as client:
        with pytest.raises(Unavailable, match="Unreachable"):
            await client.get(ConfigMap, "a", "default")


FAULTS = {
    "connection cut within the response: unavailable": Mischief(after_bytes=150, then="cut"),
    "peer stalls within the response: unavailable": Mischief(after_bytes=150, then="stall"),
    "peer stalls before the response: unavailable": Mischief(after_bytes=0, then="stall"),
    "body slower than the timeout: unavailable": Mischief(delay=0.2, piece=20),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_incomplete_response(case: str, server: FakeServer) -> None:
    await server.put(
        "configmaps", {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y" * 500}}
    )
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        Client(server.connection(port=proxy.port), timeout=0.5) as client,
    ):
        proxy.mischief = FAULTS[case]
        with pytest.raises(Unavailable):
            await client.get(ConfigMap, "a", "default")
        proxy.mischief = Mischief()
        proxy.cut_all()
        assert (await client.get(ConfigMap, "a", "default")).data["x"] == "y" * 500


async def test_slow_body_within_the_timeout_is_returned(server: FakeServer) -> None:
    await server.put(
        "configmaps", {"metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y" * 500}}
    )
    async with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.mischief = Mischief(delay=0.002, piece=30)
        async with Client(server.connection(port=proxy.port)) as client:
            assert (await client.get(ConfigMap, "a", "default")).data["x"] == "y" * 500


async def test_after_401_the_token_file_is_read_again_and_the_request_retried(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    async with (
        FakeServer(tokens={"old"}) as server,
        Client(server.connection(FileCredentials(token=path))) as client,
    ):
        await client.list(ConfigMap)
        server.tokens = {"new"}
        path.write_text("new")
        await client.create(ConfigMap, config_map("a"), "default")
        server.tokens = {"newest"}
        with pytest.raises(Unauthorized):
            await client.get(ConfigMap, "a", "default")


async def test_after_401_the_token_file_is_read_again_and_the_watch_retried(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("new")
    async with FakeServer(tokens={"new"}) as server:
        credentials = FileCredentials(token=path)
        await credentials.current()
        server.tokens = {"newer"}
        path.write_text("newer")
        async with Client(server.connection(credentials)) as client:
            events = client.watch(ConfigMap, resource_version=str(server.version))
            first = asyncio.ensure_future(anext(events))
            await server.put("configmaps", {"metadata": {"name": "a", "namespace": "default"}})
            async with asyncio.timeout(60):
                assert (await first).object.metadata.name == "a"
            await events.aclose()


async def test_writes_after_the_deadline_raise_and_reads_continue(server: FakeServer) -> None:
    deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + 60
    async with Client(server.connection(), deadline=lambda: deadline) as client:
        await client.create(ConfigMap, config_map("a"), "default")
        deadline = 0
        for write in (
            client.create(ConfigMap, config_map("b"), "default"),
            client.patch(ConfigMap, "a", {}, "default"),
            client.delete(ConfigMap, "a", "default"),
            client.replace(ConfigMap, config_map("a"), "default"),
            client.exec("pod", "default", ["true"]),
        ):
            with pytest.raises(LeaseExpired):
                await write
        assert (await client.get(ConfigMap, "a", "default")).metadata.name == "a"
    assert [request.method for request in server.requests] == ["POST", "GET"]


async def test_write_times_out_before_the_deadline(server: FakeServer) -> None:
    async with FaultProxy("127.0.0.1", server.port) as proxy:
        proxy.mischief = Mischief(after_bytes=0, then="stall")
        deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + 0.3
        connection = server.connection(port=proxy.port)
        async with Client(connection, timeout=600, deadline=lambda: deadline) as client, asyncio.timeout(60):
            with pytest.raises(Unavailable, match="timed out"):
                await client.create(ConfigMap, config_map("a"), "default")


async def test_start_of_a_command_times_out_before_the_deadline(server: FakeServer) -> None:
    async def never(_request: Request) -> Upgrade:
        await asyncio.Event().wait()
        raise AssertionError

    server.exec_handler = never
    deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + 0.3
    connection = server.connection()
    async with Client(connection, timeout=600, deadline=lambda: deadline) as client, asyncio.timeout(60):
        with pytest.raises(Unavailable, match="timed out"):
            await client.exec("pod", "default", ["true"])


async def test_cancellation_at_the_moment_of_a_timeout_is_not_lost(server: FakeServer) -> None:
    """After a suspended process resumes, its timers fire at once."""
    async with (
        FaultProxy("127.0.0.1", server.port) as proxy,
        Client(server.connection(port=proxy.port), timeout=0.05) as client,
    ):
        proxy.mischief = Mischief(after_bytes=0, then="stall")
        request = asyncio.create_task(client.get(ConfigMap, "a", "default"))
        await eventually(lambda: proxy.open == 1)
        asyncio.get_running_loop().call_later(0.06, request.cancel)
        time.sleep(0.2)  # noqa: ASYNC251  (blocks the loop like a suspended process)
        await asyncio.wait((request,))
        assert request.cancelled()


async def test_writes_in_flight_stay_within_the_limit(server: FakeServer) -> None:
    metrics = Metrics(CollectorRegistry())
    limits = WriteLimits(in_flight=4)
    async with Client(server.connection(), limits=limits, metrics=metrics) as client:
        busy = 0

        async def create(number: int) -> None:
            nonlocal busy
            await client.create(ConfigMap, config_map(f"c{number}"), "default")
            value = client.metrics.registry.get_sample_value("argosy_writes_in_flight")
            busy = max(busy, int(value or 0))

        await asyncio.gather(*(create(number) for number in range(40)))
        assert busy <= 4


async def test_requests_are_counted_by_method_and_code(client: Client) -> None:
    await client.create(ConfigMap, config_map("a"), "default")
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "b", "default")
    sample = client.metrics.registry.get_sample_value
    async with aclosing(client.watch_batches(ConfigMap, "default", send_initial_events=True)) as watch:
        await anext(watch)
    assert sample("argosy_api_requests_total", {"method": "POST", "code": "201"}) == 1
    assert sample("argosy_api_requests_total", {"method": "GET", "code": "404"}) == 1
    assert sample("argosy_api_requests_total", {"method": "WATCH", "code": "200"}) == 1
    assert sample("argosy_api_request_duration_seconds_count", {"method": "POST"}) == 1
    async with Client(Connection("http://127.0.0.1:1"), metrics=client.metrics) as nowhere:
        with pytest.raises(Unavailable):
            await nowhere.get(ConfigMap, "b", "default")
    assert sample("argosy_api_requests_total", {"method": "GET", "code": "error"}) == 1
