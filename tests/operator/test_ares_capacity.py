"""An AresJob with elastic workers and checkpoints loses a pod's capacity, and then a node by notice."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import ApiError
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJob, AresJobStatus
from argosy.kinds.kubernetes import Node, Pod
from tests.support.aresjobs import template
from tests.support.operator_harness import Scene

Ares = dynamic_kind(AresJob.resource)
ELASTIC = {"min": 1, "max": 3, "stabilizationWindow": "1s"}
JOB = {
    "metadata": {"name": "job"},
    "spec": {
        "frameworkType": "custom",
        "roleSpecs": {"worker": {"replicas": 2, "elastic": ELASTIC, "template": template()}},
        "checkpoint": {"store": "pvc://checkpoints", "onDrain": "Save"},
    },
}


@pytest.fixture
async def nodes(scene: Scene) -> AsyncIterator[tuple[str, ...]]:
    async with scene.nodes(3) as names:
        yield names


class Job:
    """The job, with the actions of its user, of the scheduler and of its pods."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    async def status(self) -> AresJobStatus:
        return (await self.scene.client.get(AresJob, "job", self.scene.namespace)).status

    async def until_size(self, current: int) -> AresJobStatus:
        """Wait until the job runs with so many pods; 0: all of them."""

        async def reached() -> bool:
            status = await self.status()
            worker = status.role_statuses.get("worker")
            return bool(worker and status.phase == "Running" and worker.current_replicas == current)

        await self.scene.until(f"the job runs with {current} pods", reached)
        return await self.status()

    async def cannot_be_placed(self, pod: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
        await self._patch(pod, {"status": {"conditions": [condition]}}, "status")

    async def acknowledge(self, pod: str, step: int, epoch: int) -> None:
        """Report a complete checkpoint, as the pod's sidecar does."""
        created = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        ack = {"step": step, "digest": f"sha256:{step:064x}", "created": created, "epoch": epoch}
        await self._patch(pod, {"metadata": {"annotations": {labels.CHECKPOINT_ACK: json.dumps(ack)}}})

    async def scale(self, replicas: int) -> None:
        path = AresJob.resource.path("job", self.scene.namespace, "scale")
        body = {"spec": {"replicas": replicas}}
        headers = {"Content-Type": "application/merge-patch+json"}
        await self.scene.client.request("PATCH", path, body=body, headers=headers)

    async def _patch(self, pod: str, patch: dict[str, object], subresource: str = "") -> None:
        namespace = self.scene.namespace
        await self.scene.client.patch(Pod, pod, patch, namespace, subresource=subresource)


async def announce(scene: Scene, node: str, seconds: int) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=seconds)
    annotations = {labels.TERMINATION_DEADLINE: f"{deadline:%Y-%m-%dT%H:%M:%SZ}"}
    await scene.client.patch(Node, node, {"metadata": {"annotations": annotations}})


async def test_job_shrinks_grows_and_saves_before_a_node_ends(scene: Scene, nodes: tuple[str, ...]) -> None:
    job = Job(scene)
    async with scene.operator():
        await scene.client.create(Ares, JOB, scene.namespace)
        await scene.until_pods("job-worker-0", "job-worker-1")
        await scene.run_on("job-worker-0", nodes[0])
        await job.cannot_be_placed("job-worker-1")
        small = await job.until_size(1)
        assert small.message == "worker runs with 1 of 2 pods, and grows when there is capacity"
        with pytest.raises(ApiError, match=r"replicas 4 is greater than elastic.max 3"):
            await job.scale(4)
        await scene.run_on("job-worker-1", nodes[1])
        whole = await job.until_size(0)
        assert (whole.replicas, whole.checkpoint is not None) == (2, True)
        await job.acknowledge("job-worker-0", 7, 0)
        await announce(scene, nodes[1], seconds=120)

        async def ordered() -> bool:
            checkpoint = (await job.status()).checkpoint
            return checkpoint is not None and "(Preempted)" in checkpoint.message

        await scene.until("a checkpoint is ordered", ordered)
        assert not (await scene.pods())["job-worker-1"].metadata.deletion_timestamp, "it is waited for"
        order = (await job.status()).argosy["order"]
        assert isinstance(order, dict)
        await job.acknowledge("job-worker-0", 9, order["epoch"])
        await scene.until_pods("job-worker-0", "job-worker-2")
        status = await job.status()
        assert status.checkpoint and status.checkpoint.last_step == 9
        (notice,) = status.notices
        assert (notice.response, notice.replicas) == ("ScaleIn", ["worker-1"])
        await scene.client.delete(Pod, "job-worker-1", scene.namespace, grace_seconds=0)
        await scene.run_on("job-worker-2", nodes[2])
        assert (await job.until_size(0)).recoveries[-1].action == "ScaleIn"
        budgets = f"/apis/policy/v1/namespaces/{scene.namespace}/poddisruptionbudgets/job-aresjob-checkpoint"
        await scene.client.request("GET", budgets)
