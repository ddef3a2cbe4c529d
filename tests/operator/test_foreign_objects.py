"""Tests for AresJobs next to foreign objects: name conflicts, forged labels, templates with reserved labels.

Foreign objects are not counted, adopted or deleted. A job whose name is taken reports it, and continues when
the name is free.
"""

from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from argosy.engine.dynamic import AnyObject, dynamic_kind
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Pod, PodDisruptionBudgetMetadata, Service
from tests.support.aresjobs import template
from tests.support.builders import pod_template, run
from tests.support.operator_harness import Scene

Json = dict[str, object]
Anything = dynamic_kind(AresJob.resource)
Budget = dynamic_kind(PodDisruptionBudgetMetadata.resource)


@pytest.fixture
async def stage(scene: Scene) -> AsyncIterator[Scene]:
    """A scene with an operator at work in it."""
    async with scene.operator(remote_exec=False):
        yield scene


async def create(
    scene: Scene, name: str, roles: Mapping[str, Json], framework: str = "custom", **fields_of_spec: object
) -> AnyObject:
    written = {role: {"template": template(), **fields} for role, fields in roles.items()}
    spec = {"frameworkType": framework, "roleSpecs": written, **fields_of_spec}
    body = {"metadata": {"name": name}, "spec": spec}
    return await scene.client.create(Anything, body, scene.namespace)


async def phase(scene: Scene, name: str) -> str:
    return (await scene.client.get(AresJob, name, scene.namespace)).status.phase


async def event_messages(scene: Scene, name: str, reason: str) -> list[str]:
    events = [event for event in await scene.events() if event.reason == reason]
    return [event.message for event in events if event.involved_object.name == name]


COLLISIONS = {
    "both need a Service: the second job waits": (
        "custom",
        "Service a-b-worker exists and does not belong to this job",
    ),
    "both need a pod: the second job waits": (
        "standalone",
        "Pod a-b-worker-0 exists and does not belong to this job",
    ),
}


@pytest.mark.parametrize(("framework", "want"), COLLISIONS.values(), ids=COLLISIONS.keys())
async def test_two_jobs_that_need_an_object_of_the_same_name(stage: Scene, framework: str, want: str) -> None:
    """Role b-worker of job a, and role worker of job a-b."""
    await create(stage, "a", {"b-worker": {}})
    (first,) = (await stage.until_pods("a-b-worker-0")).values()
    await create(stage, "a-b", {"worker": {}}, framework)

    async def conflict() -> bool:
        return any(want in message for message in await event_messages(stage, "a-b", "NameConflict"))

    await stage.until("the second says that a name is taken", conflict)
    assert await phase(stage, "a-b") in ("Pending", "Starting")
    (remaining,) = (await stage.pods()).values()
    assert remaining.metadata.uid == first.metadata.uid
    await stage.client.delete(AresJob, "a", stage.namespace)
    for kind, name in ((Pod, "a-b-worker-0"), (Service, "a-b-worker")):
        await stage.client.delete(kind, name, stage.namespace, grace_seconds=0)

    async def taken_over() -> bool:
        return [pod.metadata.labels[labels.JOB] for pod in (await stage.pods()).values()] == ["a-b"]

    await stage.until("the second goes on when the name is free", taken_over)


async def test_training_run_and_ares_job_of_the_same_name(stage: Scene) -> None:
    await stage.apply(run("twin").role("worker", 1))
    first = (await stage.until_pods("twin-worker-0"))["twin-worker-0"]
    await create(stage, "twin", {"worker": {}})

    async def conflict() -> bool:
        return bool(await event_messages(stage, "twin", "NameConflict"))

    await stage.until("the job says that a name is taken", conflict)
    await stage.report("twin-worker-0", "Running")
    await stage.until_phase("Running", "twin")
    assert await phase(stage, "twin") in ("Pending", "Starting"), "the run's pod is none of the job's"
    pods = await stage.pods()
    assert [pod.metadata.uid for pod in pods.values()] == [first.metadata.uid]


async def test_training_run_and_ares_job_of_the_same_name_hold_back_evictions_of_their_own_pods(
    stage: Scene,
) -> None:
    checkpoint: Json = {"store": "file:///checkpoints", "onDrain": "Save"}
    await stage.apply(run("twin").role("worker", 1).having(checkpoint=checkpoint))
    await create(stage, "twin", {"server": {}}, checkpoint=checkpoint)
    pods = await stage.until_pods("twin-worker-0", "twin-server-0")
    budgets = await stage.client.list(Budget, stage.namespace)
    selected = {
        budget.metadata.name: [name for name, pod in pods.items() if selects(budget, pod)]
        for budget in budgets.items
    }
    assert selected == {
        "twin-trainingrun-checkpoint": ["twin-worker-0"],
        "twin-aresjob-checkpoint": ["twin-server-0"],
    }


def selects(budget: AnyObject, pod: Pod) -> bool:
    """Return True if the budget is for this pod. Its expressions all have the operator In."""
    selector = cast("dict[str, Any]", budget.raw["spec"])["selector"]
    values = pod.metadata.labels
    by_label = all(values.get(key) == value for key, value in selector["matchLabels"].items())
    return by_label and all(
        values.get(rule["key"]) in rule["values"] for rule in selector["matchExpressions"]
    )


async def test_pods_with_forged_labels_are_ignored(stage: Scene) -> None:
    """A stranger's pod with all of our labels, owned by another or by nobody, is neither counted nor
    deleted."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "11111111", "controller": True}
    for name, owners in (("forged", [owner]), ("orphan", [])):
        lies = {
            labels.MANAGED_BY: labels.MANAGER,
            labels.JOB: "job",
            labels.ROLE: "worker",
            labels.INDEX: "0",
            labels.ATTEMPT: "1",
            labels.REPLACEMENT: "0",
            "ares.io/job-name": "job",
            "ares.io/replica-type": "worker",
            "ares.io/replica-index": "0",
        }
        body = {"metadata": {"name": name, "labels": lies, "ownerReferences": owners}, **pod_template()}
        await stage.client.create(Pod, body, stage.namespace)
        await stage.report(name, "Failed", 1)
    await create(stage, "job", {"worker": {"replicas": 2}})
    await stage.until_pods("forged", "orphan", "job-worker-0", "job-worker-1")
    for pod in ("job-worker-0", "job-worker-1"):
        await stage.report(pod, "Running")

    async def running() -> bool:
        return await phase(stage, "job") == "Running"

    await stage.until("the job runs, whatever the others' pods did", running)
    patch = {"spec": {"runPolicy": {"suspend": True}}}
    await stage.client.patch(Anything, "job", patch, stage.namespace)
    await stage.until_pods("forged", "orphan")


async def test_labels_of_the_template_do_not_override_those_of_the_operator(stage: Scene) -> None:
    """Owner, name, namespace and our labels are the operator's; what else it names is its user's own."""
    claims = {
        "name": "stranger",
        "namespace": "kube-system",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u", "controller": True}],
        "finalizers": ["example.com/stay"],
        "labels": {labels.JOB: "rival", labels.INDEX: "7", "ares.io/job-name": "rival", "team": "blue"},
    }
    created = await create(stage, "job", {"worker": {"template": {**template(), "metadata": claims}}})
    (pod,) = (await stage.until_pods("job-worker-0")).values()
    meta = pod.metadata
    assert [owner.uid for owner in meta.owner_references] == [created.metadata.uid]
    assert (meta.namespace, meta.finalizers) == (stage.namespace, [])
    wanted = {labels.JOB: "job", labels.INDEX: "0", "ares.io/job-name": "job", "team": "blue"}
    assert wanted.items() <= meta.labels.items()


async def test_foreign_service_is_kept_when_the_job_is_deleted(stage: Scene) -> None:
    body: Json = {"metadata": {"name": "job-worker"}, "spec": {"ports": [{"port": 80}]}}
    stranger = await stage.client.create(Service, body, stage.namespace)
    await create(stage, "job", {"worker": {}})

    async def conflict() -> bool:
        return bool(await event_messages(stage, "job", "NameConflict"))

    await stage.until("the job says that a name is taken", conflict)
    edit = {"spec": {"roleSpecs": {"worker": {"replicas": 0}}}}
    await stage.client.patch(Anything, "job", edit, stage.namespace)

    async def failed() -> bool:
        return await phase(stage, "job") == "Failed"

    await stage.until("the job is invalid, and what was made for it goes", failed)
    service = await stage.client.get(Service, "job-worker", stage.namespace)
    assert service.metadata.uid == stranger.metadata.uid
    assert not await stage.pods()
