"""Tests that the announced end of a node reaches the jobs with pods there, by the watch alone."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Node, Pod
from argosy.workload.announcements import NoticeRules
from tests.support.aresjobs import template
from tests.support.builders import run
from tests.support.operator_harness import Scene

Ares = dynamic_kind(AresJob.resource)


@pytest.fixture
async def nodes(scene: Scene) -> AsyncIterator[tuple[str, ...]]:
    async with scene.nodes(3) as names:
        yield names


async def announce(scene: Scene, node: str, seconds: int) -> None:
    deadline = datetime.now(UTC) + timedelta(seconds=seconds)
    annotations = {labels.TERMINATION_DEADLINE: f"{deadline:%Y-%m-%dT%H:%M:%SZ}"}
    await scene.client.patch(Node, node, {"metadata": {"annotations": annotations}})


async def notice_event(scene: Scene) -> str:
    """Return the message of the only event about a notice; events are written after the status."""
    messages: list[str] = []

    async def found() -> bool:
        messages[:] = [event.message for event in await scene.events() if event.reason == "DisruptionNotice"]
        return bool(messages)

    await scene.until("there is an event", found)
    (message,) = messages
    return message


async def test_elastic_run_leaves_a_node_before_it_ends(scene: Scene, nodes: tuple[str, ...]) -> None:
    elastic = {"min": 1, "max": 4}
    async with scene.operator():
        await scene.apply(run().role(replicas=3, elastic=elastic))
        await scene.until_pods("mnist-worker-0", "mnist-worker-1", "mnist-worker-2")
        for index, node in enumerate(nodes):
            await scene.run_on(f"mnist-worker-{index}", node)
        await scene.until_phase("Running")
        before = await scene.pods()
        await announce(scene, nodes[2], seconds=20)
        await scene.until_pods("mnist-worker-0", "mnist-worker-1", "mnist-worker-3")
        pods = await scene.pods()
        leaving = pods["mnist-worker-2"].metadata
        assert leaving.deletion_grace_period_seconds is not None
        assert 1 <= leaving.deletion_grace_period_seconds <= 15
        assert pods["mnist-worker-0"].metadata.uid == before["mnist-worker-0"].metadata.uid
        status = (await scene.run()).status
        (notice,) = status.notices
        assert (notice.cause, notice.response, notice.replicas) == ("Preempted", "ScaleIn", ["worker-2"])
        assert status.restarts == 0
        await scene.client.delete(Pod, "mnist-worker-2", scene.namespace, grace_seconds=0)
        await scene.run_on("mnist-worker-3", nodes[0])
        await scene.client.delete(Node, nodes[2])

        async def all_run() -> bool:
            return (await scene.run()).status.workers == "3/3"

        await scene.until("all workers run again", all_run)
        message = await notice_event(scene)
        assert message.endswith("; removing worker-2, creating worker-3")


async def test_job_that_is_not_elastic_reports_the_end_and_keeps_its_pods(
    scene: Scene, nodes: tuple[str, ...]
) -> None:
    worker = {"template": template(), "replicas": 1, "restartPolicy": "OnFailure"}
    body = {
        "metadata": {"name": "job"},
        "spec": {"frameworkType": "custom", "roleSpecs": {"worker": worker}},
    }
    async with scene.operator():
        await scene.client.create(Ares, body, scene.namespace)

        async def has_pod() -> bool:
            return len(await scene.pods()) == 1

        await scene.until("there is a pod", has_pod)
        (pod,) = await scene.pods()
        await scene.run_on(pod, nodes[0])
        taint = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule", "value": "1"}
        await scene.client.patch(Node, nodes[0], {"spec": {"taints": [taint]}})

        async def noticed() -> bool:
            status = (await scene.client.get(AresJob, "job", scene.namespace)).status
            return [(notice.cause, notice.response) for notice in status.notices] == [("Drained", "Restart")]

        await scene.until("the notice is shown", noticed)
        (kept,) = (await scene.pods()).values()
        assert kept.metadata.deletion_timestamp is None
        message = await notice_event(scene)
        assert message.endswith("; worker-0 will be replaced when lost")


async def test_cordon_is_a_notice_only_if_switched_on(scene: Scene, nodes: tuple[str, ...]) -> None:
    async with scene.operator(notices=NoticeRules(cordon=True)):
        await scene.apply(run().role(replicas=2, elastic={"min": 1, "max": 4}))
        await scene.until_pods("mnist-worker-0", "mnist-worker-1")
        for index in range(2):
            await scene.run_on(f"mnist-worker-{index}", nodes[index])
        await scene.until_phase("Running")
        await scene.client.patch(Node, nodes[1], {"spec": {"unschedulable": True}})
        await scene.until_pods("mnist-worker-0", "mnist-worker-2")
