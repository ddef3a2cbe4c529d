"""Tests for nodes that the node watch has not shown: pods on them keep running.

The node watch goes through a proxy that falls silent; every other request reaches the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import pytest

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.engine.kubeconfig import Connection
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.trainingrun import TrainingRun
from argosy.reconcile import caches
from tests.support.aresjobs import template
from tests.support.builders import run
from tests.support.fault_proxy import FaultProxy
from tests.support.operator_harness import Scene

HELD_SECONDS = 8.0
"""How long a job is looked at whose nodes are not known."""

PODS = ("job-launcher-0", "job-worker-0", "job-worker-1")
Ares = dynamic_kind(AresJob.resource)


@pytest.fixture
async def node_watch(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FaultProxy]:
    """Return the proxy for the node watches of operators."""
    direct = Connection.from_kubeconfig(scene.server.kubeconfig)
    async with FaultProxy("127.0.0.1", scene.server.port) as proxy:
        watched = Connection(
            f"https://127.0.0.1:{proxy.port}",
            credentials=direct.credentials,
            certificate_authority=direct.certificate_authority,
        )
        async with Client(watched) as client:

            def cache_through_proxy(own: Client, kind: type, **options: object) -> object:
                return Cache(client if kind is Node else own, kind, **options)  # type: ignore[arg-type]

            monkeypatch.setattr(caches, "Cache", cache_through_proxy)
            yield proxy


@pytest.fixture
async def node(scene: Scene) -> AsyncIterator[str]:
    """Return the name of a node that a test may create."""
    name = f"new-{scene.namespace}"
    yield name
    with suppress(NotFound):
        await scene.client.delete(Node, name)


async def create_training_run(scene: Scene) -> None:
    await scene.apply(run("job", framework="mpi").role("launcher").role("worker", 2))


async def create_ares_job(scene: Scene) -> None:
    roles = {"launcher": {"template": template()}, "worker": {"template": template(), "replicas": 2}}
    body = {"metadata": {"name": "job"}, "spec": {"frameworkType": "mpi", "roleSpecs": roles}}
    await scene.client.create(Ares, body, scene.namespace)


Create = Callable[[Scene], Awaitable[None]]


async def create_restarting_ares_job(scene: Scene) -> None:
    policy = {"nodeDownAsFailed": True}
    worker = {"template": template(), "restartPolicy": "OnFailure", "rolePhasePolicy": policy}
    body = {
        "metadata": {"name": "job"},
        "spec": {"frameworkType": "custom", "roleSpecs": {"worker": worker}},
    }
    await scene.client.create(Ares, body, scene.namespace)


async def run_on(scene: Scene, node: str) -> set[str]:
    """Place all pods on the node and report them as running; return their uids."""
    pods = await scene.pods()
    for name in pods:
        path = f"{Pod.resource.path(name, scene.namespace)}/binding"
        body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": node}}
        await scene.client.request("POST", path, body={**body, "metadata": {"name": name}})
    await scene.report_all("Running")
    return {pod.metadata.uid for pod in pods.values()}


@pytest.mark.parametrize(
    ("create", "kind"),
    [
        pytest.param(create_training_run, TrainingRun, id="TrainingRun"),
        pytest.param(create_ares_job, AresJob, id="AresJob", marks=pytest.mark.long),
    ],
)
async def test_pods_on_a_node_missing_from_a_stalled_cache_are_not_replaced(
    scene: Scene,
    node_watch: FaultProxy,
    node: str,
    create: Create,
    kind: type[TrainingRun] | type[AresJob],
) -> None:
    async with scene.operator():
        await create(scene)
        await scene.until_pods(*PODS)
        node_watch.stall_all()
        await scene.client.create(Node, {"metadata": {"name": node}})
        uids = await run_on(scene, node)

        async def phase() -> str:
            return (await scene.client.get(kind, "job", scene.namespace)).status.phase

        async def runs() -> bool:
            return await phase() == "Running"

        await scene.until("the job runs", runs)
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS):
                while True:
                    assert await phase() == "Running"
                    pods = (await scene.pods()).values()
                    assert {pod.metadata.uid for pod in pods} == uids
                    assert not any(pod.metadata.deletion_timestamp for pod in pods)
                    await asyncio.sleep(0.2)
        assert (await scene.client.get(kind, "job", scene.namespace)).status.message.count("confirm") == 0


async def test_deleted_node_counts_as_down(scene: Scene, node_watch: FaultProxy, node: str) -> None:
    """The watch shows nothing; a GET that returns 404 decides."""
    async with scene.operator():
        await create_ares_job(scene)
        await scene.until_pods(*PODS)
        node_watch.stall_all()
        await run_on(scene, node)

        async def failed() -> bool:
            status = (await scene.client.get(AresJob, "job", scene.namespace)).status
            return any(role.reason == "PossibleNodeDown" for role in status.role_statuses.values())

        await scene.until("the job has failed", failed)


async def test_healthy_pods_on_a_node_with_an_unknown_condition_are_not_replaced(
    scene: Scene, node: str
) -> None:
    """Such a pod counts as failed (3.2), but only a pod whose phase is Failed is replaced (3.4)."""
    await scene.client.create(Node, {"metadata": {"name": node}})
    async with scene.operator():
        await create_restarting_ares_job(scene)

        async def has(active: int, failed: int) -> bool:
            role = (await scene.client.get(AresJob, "job", scene.namespace)).status.role_statuses.get(
                "worker"
            )
            return role is not None and (role.active, role.failed) == (active, failed)

        await scene.until("there is a pod", lambda: has_pods(scene, 1))
        uids = await run_on(scene, node)
        await scene.until("the pod runs", lambda: has(1, 0))
        unknown = {"status": {"conditions": [{"type": "GpuHealth", "status": "Unknown"}]}}
        await scene.client.patch(Node, node, unknown, subresource="status")
        await scene.until("the pod counts as failed", lambda: has(0, 1))
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS):
                while True:
                    pods = (await scene.pods()).values()
                    assert {pod.metadata.uid for pod in pods} == uids
                    assert not any(pod.metadata.deletion_timestamp for pod in pods)
                    await asyncio.sleep(0.2)
        healthy = {"status": {"conditions": [{"type": "GpuHealth", "status": "True"}]}}
        await scene.client.patch(Node, node, healthy, subresource="status")
        await scene.until("the pod counts as running again", lambda: has(1, 0))


async def has_pods(scene: Scene, number: int) -> bool:
    return len(await scene.pods()) == number
