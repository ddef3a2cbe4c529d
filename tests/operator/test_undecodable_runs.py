"""Tests for undecodable TrainingRuns, stored under a CRD without validation, against both API servers."""

from collections.abc import AsyncIterator

import pytest

from argosy.engine.client import PatchType
from argosy.engine.dynamic import AnyObject, dynamic_kind
from argosy.engine.errors import ApiError
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.trainingrun import TrainingRun
from tests.support.builders import pod_template, run
from tests.support.operator_harness import Scene

Anything = dynamic_kind(TrainingRun.resource)
LAX: dict[str, object] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture
async def lax(scene: Scene) -> AsyncIterator[Scene]:
    """Yield a scene whose CRD validates neither spec nor status."""
    definition = crd_for(TrainingRun)
    spec = definition["spec"]
    assert isinstance(spec, dict)
    (version,) = spec["versions"]
    version["schema"] = {"openAPIV3Schema": {"type": "object", "properties": {"spec": LAX, "status": LAX}}}
    await scene.client.apply(CustomResourceDefinition, definition, force=True)

    async def in_force() -> bool:
        try:
            await scene.client.create(Anything, wrong("probe"), scene.namespace, dry_run=True)
        except ApiError:
            return False
        return True

    await scene.until("the lax definition is in force", in_force)
    yield scene
    await scene.client.apply(CustomResourceDefinition, crd_for(TrainingRun), force=True)


def wrong(name: str) -> dict[str, object]:
    role = {"slots": "two", "template": pod_template()}
    return {"metadata": {"name": name}, "spec": {"framework": "custom", "roles": {"worker": role}}}


async def stored(scene: Scene, name: str) -> AnyObject:
    return await scene.client.get(Anything, name, scene.namespace)


async def until_reported(scene: Scene, name: str, path: str) -> AnyObject:
    async def is_reported() -> bool:
        status = (await stored(scene, name)).raw.get("status")
        return isinstance(status, dict) and path in status.get("message", "")

    await scene.until(f"the status of {name} names {path}", is_reported)
    return await stored(scene, name)


async def test_undecodable_run_is_reported_once_and_cured_by_an_edit(lax: Scene) -> None:
    await lax.client.create(Anything, wrong("mnist"), lax.namespace)
    async with lax.operator():
        bad = await until_reported(lax, "mnist", "spec.roles.worker.slots")
        status = bad.raw["status"]
        assert isinstance(status, dict)
        assert (status["phase"], status["reason"], status["observedGeneration"]) == (
            "Pending",
            "InvalidSpec",
            1,
        )
        await lax.apply(run(name="other").role("worker", 1))
        await lax.until_pods("other-worker-0")
        assert (await stored(lax, "mnist")).metadata.resource_version == bad.metadata.resource_version
        cure = {"spec": {"roles": {"worker": {"replicas": 2, "slots": 1}}}}
        await lax.client.patch(Anything, "mnist", cure, lax.namespace, type=PatchType.MERGE)
        await lax.until_pods("other-worker-0", "mnist-worker-0", "mnist-worker-1")
        problems = [event for event in await lax.events() if event.reason == "InvalidSpec"]
        assert [(event.involved_object.name, event.count) for event in problems] == [("mnist", 1)]


async def test_restarted_operator_does_not_report_an_undecodable_run_again(lax: Scene) -> None:
    await lax.client.create(Anything, wrong("mnist"), lax.namespace)
    async with lax.operator():
        bad = await until_reported(lax, "mnist", "spec.roles.worker.slots")
    async with lax.operator():
        await lax.apply(run(name="other").role("worker", 1))
        await lax.until_pods("other-worker-0")
    assert (await stored(lax, "mnist")).metadata.resource_version == bad.metadata.resource_version


async def test_run_that_becomes_undecodable_keeps_its_pods(lax: Scene) -> None:
    async with lax.operator():
        await lax.apply(run().role("worker", 2))
        before = await lax.until_pods("mnist-worker-0", "mnist-worker-1")
        await lax.report_all("Running")
        await lax.until_phase("Running")
        breaking = {"spec": {"limits": {"restarts": "many"}}}
        await lax.client.patch(Anything, "mnist", breaking, lax.namespace)
        await until_reported(lax, "mnist", "spec.limits.restarts")
        mending = {"spec": {"limits": {"restarts": 5}}}
        await lax.client.patch(Anything, "mnist", mending, lax.namespace)
        await lax.report_all("Succeeded")
        await lax.until_phase("Succeeded")
        after = await lax.pods()
        assert {pod.metadata.uid for pod in after.values()} == {pod.metadata.uid for pod in before.values()}


async def test_undecodable_status_is_rebuilt(lax: Scene) -> None:
    await lax.apply(run().role("worker", 1))
    bad = {"status": {"attempt": "first", "conditions": 3}}
    await lax.client.patch(Anything, "mnist", bad, lax.namespace, subresource="status")
    async with lax.operator():
        await lax.until_pods("mnist-worker-0")
        assert (await lax.run()).status.attempt == 1


async def test_undecodable_run_can_be_deleted(lax: Scene) -> None:
    await lax.client.create(Anything, wrong("mnist"), lax.namespace)
    async with lax.operator():
        await until_reported(lax, "mnist", "spec.roles.worker.slots")
        await lax.client.delete(Anything, "mnist", lax.namespace)
        await lax.apply(run().role("worker", 1))
        await lax.until_pods("mnist-worker-0")


async def test_run_stored_under_a_weaker_crd_is_reported(lax: Scene) -> None:
    await lax.client.create(Anything, wrong("mnist"), lax.namespace)
    await lax.client.apply(CustomResourceDefinition, crd_for(TrainingRun), force=True)

    async def refused() -> bool:
        try:
            await lax.client.create(Anything, wrong("probe"), lax.namespace, dry_run=True)
        except ApiError:
            return True
        return False

    await lax.until("the strict definition is in force", refused)
    async with lax.operator():
        await until_reported(lax, "mnist", "spec.roles.worker.slots")
        cure = {"spec": {"roles": {"worker": {"replicas": 1, "slots": 1}}}}
        await lax.client.patch(Anything, "mnist", cure, lax.namespace)
        await lax.until_pods("mnist-worker-0")
