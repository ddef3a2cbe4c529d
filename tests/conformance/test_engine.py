"""The engine's client against an API server with real nodes behind it: streams, watches, preconditions."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.kinds.kubernetes import ConfigMap, Pod
from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import connections_closed, eventually, until

POD = "subject"
TWO_LINES = "echo one; echo two; exec sleep 600"


@pytest.fixture(scope="module")
def user_with_pod(user: User) -> User:
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", TWO_LINES]}
    user.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": POD},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
        }
    )
    user.kubectl("wait", "--for=condition=Ready", f"pod/{POD}", "--timeout=60s")
    return user


@pytest.fixture
async def client(user: User) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(user.target.kubeconfig)) as client:
        yield client
    await connections_closed()


async def test_exec_returns_stdout_stderr_and_exit_code(user_with_pod: User, client: Client) -> None:
    out: list[bytes] = []
    err: list[bytes] = []
    command = ["sh", "-c", "echo out; echo err >&2; exit 42"]
    code = await client.exec(
        POD, user_with_pod.namespace, command, on_stdout=out.append, on_stderr=err.append, container="main"
    )
    assert (code, b"".join(out), b"".join(err)) == (42, b"out\n", b"err\n")


async def test_exec_sends_a_megabyte_of_stdin_and_closes_it(user_with_pod: User, client: Client) -> None:
    out: list[bytes] = []
    data = b"x" * 1_000_000
    assert (
        await client.exec(POD, user_with_pod.namespace, ["wc", "-c"], stdin=data, on_stdout=out.append) == 0
    )
    assert b"".join(out).split() == [b"1000000"]


async def test_exec_of_a_missing_program_raises_or_returns_an_exit_code(
    user_with_pod: User, client: Client
) -> None:
    try:
        code = await client.exec(POD, user_with_pod.namespace, ["/no/such/program"])
    except ApiError as error:
        assert "no such file" in error.message
    else:
        assert code != 0


async def test_exec_in_a_missing_pod_raises_not_found(user_with_pod: User, client: Client) -> None:
    with pytest.raises(NotFound, match='pods "missing" not found'):
        await client.exec("missing", user_with_pod.namespace, ["true"])


async def test_logs_returns_all_lines_or_the_last_ones(user_with_pod: User, client: Client) -> None:
    async def read(tail: int | None) -> bytes:
        return b"".join([chunk async for chunk in client.logs(POD, user_with_pod.namespace, tail=tail)])

    async def complete() -> bool:
        return await read(None) == b"one\ntwo\n"

    await until(complete, "both lines are in the log")
    assert await read(1) == b"two\n"
    with pytest.raises(NotFound):
        await anext(client.logs("missing", user_with_pod.namespace))


async def test_cache_delivers_every_change_in_order(user: User, client: Client) -> None:
    changes: list[tuple[str, str]] = []

    def record(change: Change[ConfigMap]) -> None:
        if change.new is not None:
            changes.append((change.new.metadata.name, change.new.data.get("n", "")))
        elif change.old is not None:
            changes.append((change.old.metadata.name, "gone"))

    cache = Cache(client, ConfigMap, namespace=user.namespace, labels="watched=yes")
    cache.subscribe(record)
    watching = asyncio.create_task(cache.run())
    await cache.wait_synced()
    body = {"metadata": {"name": "a", "labels": {"watched": "yes"}}, "data": {"n": "1"}}
    await client.create(ConfigMap, body, user.namespace)
    for number in ("2", "3"):
        await client.patch(ConfigMap, "a", {"data": {"n": number}}, user.namespace)
    await client.delete(ConfigMap, "a", user.namespace)
    await eventually(lambda: ("a", "gone") in changes, 30)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert changes == [("a", "1"), ("a", "2"), ("a", "3"), ("a", "gone")]


async def test_delete_with_the_uid_of_another_object_raises_conflict(user: User, client: Client) -> None:
    await client.create(ConfigMap, {"metadata": {"name": "mine"}}, user.namespace)
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, "mine", user.namespace, uid="another")
    existing = await client.get(ConfigMap, "mine", user.namespace)
    await client.delete(ConfigMap, "mine", user.namespace, uid=existing.metadata.uid)
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "mine", user.namespace)


async def test_apply_of_a_field_owned_by_another_manager_raises_conflict(user: User, client: Client) -> None:
    connection = Connection.from_kubeconfig(user.target.kubeconfig)
    await client.apply(ConfigMap, {"metadata": {"name": "both"}, "data": {"key": "1"}}, user.namespace)
    async with Client(connection, field_manager="another") as another:
        body = {"metadata": {"name": "both"}, "data": {"key": "2"}}
        with pytest.raises(Conflict, match="argosy"):
            await another.apply(ConfigMap, body, user.namespace)
        applied = await another.apply(ConfigMap, body, user.namespace, force=True)
    assert applied.data == {"key": "2"}


async def test_list_in_pages_returns_all_objects(user: User, client: Client) -> None:
    names = {f"page-{number:02}" for number in range(25)}
    for name in sorted(names):
        body = {"metadata": {"name": name, "labels": {"pages": "yes"}}}
        await client.create(ConfigMap, body, user.namespace)
    listed = await client.list(ConfigMap, user.namespace, labels="pages=yes", limit=10)
    assert {item.metadata.name for item in listed.items} == names
    assert len(listed.items) == 25


async def test_second_candidate_leads_after_the_first_ends(user: User, client: Client) -> None:
    leading: list[str] = []

    async def contend(identity: str) -> None:
        async def work() -> None:
            leading.append(identity)
            await asyncio.Event().wait()

        await Leader(client, "work", user.namespace, identity, retry=0.5).run(work)

    first = asyncio.create_task(contend("first"))
    await eventually(lambda: leading == ["first"], 30)
    second = asyncio.create_task(contend("second"))
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await eventually(lambda: leading == ["first", "second"], 30)
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_cache_delivers_every_phase_of_a_pod(user: User, client: Client) -> None:
    phases: list[str] = []

    def record(change: Change[Pod]) -> None:
        phase = change.new.status.phase if change.new else "gone"
        if not phases or phases[-1] != phase:
            phases.append(phase)

    cache = Cache(client, Pod, namespace=user.namespace, fields="metadata.name=short")
    cache.subscribe(record)
    watching = asyncio.create_task(cache.run())
    await cache.wait_synced()
    container = {"name": "main", "image": IMAGE, "command": ["sleep", "3"]}
    spec = {"restartPolicy": "Never", "containers": [container]}
    await client.create(Pod, {"metadata": {"name": "short"}, "spec": spec}, user.namespace)
    await eventually(lambda: "Succeeded" in phases, 60)
    await client.delete(Pod, "short", user.namespace)
    await eventually(lambda: "gone" in phases, 60)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert phases == ["Pending", "Running", "Succeeded", "gone"]
