"""Tests that a node on which pods fail repeatedly gets no new ones for a while."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import cast

import msgspec
import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Event, Node, Pod
from argosy.kinds.meta import Json
from argosy.kinds.trainingjob import TrainingJob
from argosy.operator import quarantine
from argosy.workload.quarantine import QuarantineRules
from tests.operator.test_metrics import scraped, value
from tests.support.aresjobs import template
from tests.support.builders import run
from tests.support.operator_harness import Scene, shown_at
from tests.support.servers import free_port
from tests.support.trainingjobs import job

Ares = dynamic_kind(AresJob.resource)
EtJob = dynamic_kind(TrainingJob.resource)
RULES = QuarantineRules(enabled=True, failures=2, replicas=2)


@pytest.fixture
async def nodes(scene: Scene) -> AsyncIterator[tuple[str, ...]]:
    async with scene.nodes(2) as names:
        yield names


async def until_quarantined(scene: Scene, node: str) -> dict[str, str]:
    async def annotated() -> bool:
        return labels.QUARANTINE_UNTIL in (await scene.client.get(Node, node)).metadata.annotations

    await scene.until("the node is in quarantine", annotated)
    return dict((await scene.client.get(Node, node)).metadata.annotations)


async def avoided_nodes(scene: Scene, pod: str) -> list[str]:
    """Return the nodes that a pod must not be placed on."""
    raw = msgspec.json.decode(await scene.client.request("GET", Pod.resource.path(pod, scene.namespace)))
    affinity = cast("Json", cast("Json", raw["spec"]).get("affinity", {}))
    required = cast("Json", affinity.get("nodeAffinity", {})).get(
        "requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": []}
    )
    terms = cast("list[Json]", cast("Json", required)["nodeSelectorTerms"])
    fields = [field for term in terms for field in cast("list[Json]", term["matchFields"])]
    return [cast("list[str]", field["values"])[0] for field in fields]


async def fail_twice(scene: Scene, node: str) -> None:
    await scene.apply(run().role(replicas=3, restart="OnFailure").limits(restarts=9))
    await scene.until_pods("mnist-worker-0", "mnist-worker-1", "mnist-worker-2")
    for index in range(2):
        await scene.run_on(f"mnist-worker-{index}", node)
    for index in range(2):
        await scene.report(f"mnist-worker-{index}", "Failed", 139)


async def test_new_pods_of_every_api_avoid_a_node_on_which_pods_failed(
    scene: Scene, nodes: tuple[str, ...]
) -> None:
    port = free_port()
    async with scene.operator(quarantine=RULES, **shown_at(port)):
        await fail_twice(scene, nodes[0])
        annotations = await until_quarantined(scene, nodes[0])
        until = annotations.pop(labels.QUARANTINE_UNTIL)
        assert annotations == {
            labels.QUARANTINE_NAMESPACES: scene.namespace,
            labels.QUARANTINE_REASON: f"namespace {scene.namespace}: 2 pods of 2 replicas failed there,"
            " and nowhere else, within 600 s",
            labels.QUARANTINE_SOURCE: "argosy",
        }
        assert datetime.fromisoformat(until) > datetime.now(UTC) + timedelta(minutes=55)
        await scene.apply(run("other").role())
        worker = {"template": template()}
        body = {
            "metadata": {"name": "job"},
            "spec": {"frameworkType": "custom", "roleSpecs": {"worker": worker}},
        }
        await scene.client.create(Ares, body, scene.namespace)
        await scene.client.create(EtJob, job("elastic"), scene.namespace)
        new = ("other-worker-0", "job-worker-0", "elastic-worker-0")

        async def created() -> bool:
            return set(new) <= set(await scene.pods())

        await scene.until("new pods exist", created)
        for pod in new:
            assert await avoided_nodes(scene, pod) == [nodes[0]]
        assert await avoided_nodes(scene, "mnist-worker-2") == [], "existing pods are left alone"

        async def event() -> bool:
            listed = await scene.client.list(Event, "default", fields=f"involvedObject.name={nodes[0]}")
            return [item.reason for item in listed.items] == ["NodeQuarantined"]

        await scene.until("there is an event of the node", event)
        metrics = await scraped(port)
        assert value(metrics, "argosy_nodes_quarantined") == 1
        assert value(metrics, "argosy_node_quarantines_total") == 1


async def test_quarantine_ends(scene: Scene, nodes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "CHECK_SECONDS", 0.1)
    past = {labels.QUARANTINE_UNTIL: "2020-01-01T00:00:00Z", labels.QUARANTINE_REASON: "tests"}
    await scene.client.patch(Node, nodes[0], {"metadata": {"annotations": past}})
    async with scene.operator(quarantine=RULES):

        async def ended() -> bool:
            return not (await scene.client.get(Node, nodes[0])).metadata.annotations

        await scene.until("the annotations are removed", ended)
        await scene.apply(run().role())
        await scene.until_pods("mnist-worker-0")
        assert await avoided_nodes(scene, "mnist-worker-0") == []


async def test_annotation_of_an_administrator_is_honoured_although_it_is_off(
    scene: Scene, nodes: tuple[str, ...]
) -> None:
    until = f"{datetime.now(UTC) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    await scene.client.patch(Node, nodes[0], {"metadata": {"annotations": {labels.QUARANTINE_UNTIL: until}}})
    async with scene.operator():
        await fail_twice(scene, nodes[1])
        assert await avoided_nodes(scene, "mnist-worker-2") == [nodes[0]]

        async def replaced() -> bool:
            return (await scene.run()).status.restarts == 2

        await scene.until("the failures were counted", replaced)
        assert not (await scene.client.get(Node, nodes[1])).metadata.annotations
