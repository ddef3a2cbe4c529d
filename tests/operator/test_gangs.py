"""Tests for gang schedulers against both API servers: pod groups, their updates, waiting and admission.

No scheduler runs here; tests write the statuses of groups and nodes.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import cast

import msgspec

from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import CustomResourceDefinition, Node, Pod
from argosy.kinds.pod_groups import CoschedulingPodGroup
from argosy.kinds.trainingrun import TrainingRun
from tests.support.builders import RunBuilder, pod_template, run
from tests.support.operator_harness import Scene

WORKERS = ("mnist-worker-0", "mnist-worker-1", "mnist-worker-2")

Json = dict[str, object]


@asynccontextmanager
async def defined(client: Client, group: str, version: str, kind: str, plural: str) -> AsyncIterator[None]:
    """A definition of somebody else's, as far as it matters here."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    note = {"api-approved.kubernetes.io": "unapproved, a test's"}
    name = f"{plural}.{group}"
    body = {
        "metadata": {"name": name, "annotations": note},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }
    await client.apply(CustomResourceDefinition, body, force=True)
    try:
        yield
    finally:
        await client.delete(CustomResourceDefinition, name)


def coscheduling(client: Client) -> AbstractAsyncContextManager[None]:
    resource = CoschedulingPodGroup.resource
    return defined(client, resource.group, resource.version, resource.kind, resource.plural)


async def group_of(scene: Scene) -> Json:
    path = CoschedulingPodGroup.resource.path("mnist", scene.namespace)
    return msgspec.json.decode(await scene.client.request("GET", path), type=Json)


async def until_reason(scene: Scene, reason: str, name: str = "mnist") -> TrainingRun:
    async def is_reported() -> bool:
        return (await scene.run(name)).status.reason == reason

    await scene.until(f"{name} waits for {reason}", is_reported)
    return await scene.run(name)


async def test_45_gang_scheduler_that_is_installed_later_is_used(scene: Scene) -> None:
    async with scene.operator(gang_backend="scheduler-plugins"):
        await scene.apply(run("plain").role("worker", 1))
        await scene.until_pods("plain-worker-0")
        await scene.apply(run().role("worker", 3).gang())
        waiting = await until_reason(scene, "GangSchedulerMissing")
        assert "install scheduler-plugins" in waiting.status.message
        assert "operator.gang.backend" in waiting.status.message
        async with coscheduling(scene.client):
            pods = await scene.until_pods(*WORKERS, "plain-worker-0")
            worker = pods["mnist-worker-0"]
            assert worker.metadata.labels["scheduling.x-k8s.io/pod-group"] == "mnist"
            assert cast("Json", (await group_of(scene))["spec"])["minMember"] == 3
            assert "scheduling.x-k8s.io/pod-group" not in pods["plain-worker-0"].metadata.labels


async def test_pod_group_follows_changes_of_the_job(scene: Scene) -> None:
    """Annotations by others stay; those that the job no longer has are removed."""
    async with coscheduling(scene.client), scene.operator(gang_backend="scheduler-plugins"):
        await scene.apply(run().role("worker", 3).gang())
        await scene.until_pods(*WORKERS)
        theirs = {"metadata": {"annotations": {"theirs": "1"}}}
        async with Client(scene.client.connection, field_manager="somebody") as somebody:
            await somebody.patch(CoschedulingPodGroup, "mnist", theirs, scene.namespace)
        noted: Json = {"metadata": {"annotations": {"team": "a", "note": "b"}}}
        await scene.client.patch(TrainingRun, "mnist", noted, scene.namespace)

        async def carried(**want: str) -> bool:
            metadata = cast("dict[str, Json]", (await group_of(scene))["metadata"])
            annotations = metadata["annotations"]
            return {key: value for key, value in annotations.items() if "/" not in key} == want

        await scene.until("the group has both", lambda: carried(team="a", note="b", theirs="1"))
        smaller: Json = {"metadata": {"annotations": {"note": None}}, "spec": {"gang": {"minAvailable": 2}}}
        await scene.client.patch(TrainingRun, "mnist", smaller, scene.namespace)
        await scene.until("one is gone", lambda: carried(team="a", theirs="1"))
        group = await group_of(scene)
        assert cast("Json", group["spec"])["minMember"] == 2


async def test_pods_of_a_kueue_gang_have_its_labels(scene: Scene) -> None:
    kueue = defined(scene.client, "kueue.x-k8s.io", "v1beta1", "Workload", "workloads")
    async with kueue, scene.operator(gang_backend="kueue"):
        await scene.apply(run().role("worker", 3).gang(queue="research"))
        worker = (await scene.until_pods(*WORKERS))["mnist-worker-0"].metadata
        labels = {key: value for key, value in worker.labels.items() if "kueue" in key}
        assert labels == {
            "kueue.x-k8s.io/queue-name": "research",
            "kueue.x-k8s.io/pod-group-name": "mnist",
        }
        assert worker.annotations["kueue.x-k8s.io/pod-group-total-count"] == "3"
        suspended: Json = {"spec": {"suspend": True}}
        await scene.client.patch(TrainingRun, "mnist", suspended, scene.namespace)
        await scene.until_pods()


async def test_gang_waits_while_the_api_of_kubernetes_pod_groups_is_disabled(scene: Scene) -> None:
    async with scene.operator(gang_backend="kubernetes"):
        await scene.apply(run().role("worker", 3).gang())
        waiting = await until_reason(scene, "GangSchedulerMissing")
        assert "GenericWorkload" in waiting.status.message


async def test_auto_uses_the_first_gang_scheduler_that_is_installed(scene: Scene) -> None:
    """The CRD of Volcano's PodGroup is installed here."""
    async with scene.operator(gang_backend="auto"):
        await scene.apply(run().role("worker", 3).gang())
        waiting = await until_reason(scene, "Queued")
        assert waiting.status.argosy["gangScheduler"] == "volcano"


@asynccontextmanager
async def node(scene: Scene, cpu: int) -> AsyncIterator[None]:
    """Create a node with this many processors, for pods of this namespace."""
    name = f"node-{scene.namespace}"
    await scene.client.create(Node, {"metadata": {"name": name, "labels": {"for": scene.namespace}}})
    await offer(scene, cpu)
    try:
        yield
    finally:
        await scene.client.delete(Node, name)


async def offer(scene: Scene, cpu: int) -> None:
    amounts = {"cpu": str(cpu), "pods": "1000"}
    condition = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status: Json = {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}
    await scene.client.patch(Node, f"node-{scene.namespace}", {"status": status}, subresource="status")
    untainted: Json = {"spec": {"taints": None}}
    await scene.client.patch(Node, f"node-{scene.namespace}", untainted)


def asking(scene: Scene, name: str = "mnist") -> RunBuilder:
    """Return a gang of three pods that request one processor each."""
    template = pod_template()
    spec = cast("dict[str, object]", template["spec"])
    spec["nodeSelector"] = {"for": scene.namespace}
    main = cast("list[Json]", spec["containers"])[0]
    main["resources"] = {"requests": {"cpu": "1"}}
    return run(name).role("worker", 3, template=template).gang()


async def test_53_builtin_gang_scheduler_holds_a_gang_until_it_fits(scene: Scene) -> None:
    """Capacity for 2 of 3 pods: no pods. Capacity for 3: all pods at once."""
    async with node(scene, cpu=2), scene.operator(gang_backend="builtin"):
        await scene.apply(asking(scene))
        waiting = await until_reason(scene, "Queued")
        assert "3 pods must fit on ready nodes" in waiting.status.message
        assert not await scene.pods()
        await offer(scene, 3)
        await scene.until_pods(*WORKERS)
        assert (await scene.run()).status.argosy["gangScheduler"] == "builtin"


async def test_two_gangs_are_not_admitted_for_the_same_capacity(scene: Scene) -> None:
    async with node(scene, cpu=5), scene.operator(gang_backend="builtin"):
        await asyncio.gather(*(scene.apply(asking(scene, name)) for name in ("one", "two")))

        async def one_waits() -> bool:
            reasons = [(await scene.run(name)).status.reason for name in ("one", "two")]
            return len(await scene.pods()) == 3 and reasons.count("Queued") == 1

        await scene.until("three pods are there and the other gang waits", one_waits)
        first = next(iter(await scene.pods())).split("-")[0]
        await scene.client.delete(TrainingRun, first, scene.namespace)
        for name in await scene.pods():  # where no garbage is collected
            with suppress(NotFound):
                await scene.client.delete(Pod, name, scene.namespace, grace_seconds=0)
        other = "two" if first == "one" else "one"
        await scene.until_pods(*(f"{other}-worker-{index}" for index in range(3)))
