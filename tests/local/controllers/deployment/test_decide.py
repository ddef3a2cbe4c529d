"""Tests for single steps of a Deployment; `test_rollouts.py` tests whole rollouts."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.kinds.meta import ObjectMeta
from argosy.local.controllers.api_types import LabelSelector, StatusCondition
from argosy.local.controllers.deployment.decide import Plan, decide
from argosy.local.controllers.deployment.rollout_state import (
    DESIRED_ANNOTATION,
    HISTORY_ANNOTATION,
    MAX_ANNOTATION,
    REVISION_ANNOTATION,
)
from argosy.local.controllers.deployment.status import PROGRESSING, find_condition, new_condition
from argosy.local.controllers.workloads import (
    Deployment,
    DeploymentSpec,
    DeploymentStatus,
    ReplicaSet,
    ReplicaSetSpec,
    ReplicaSetStatus,
    RollingUpdate,
    Strategy,
)

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RECREATE = Strategy("Recreate")


def template(image: str) -> dict[str, object]:
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": image}]}}


def rolling(surge: int | str = "25%", unavailable: int | str = "25%") -> Strategy:
    return Strategy("RollingUpdate", RollingUpdate(surge, unavailable))


def deployment(replicas: int = 4, strategy: Strategy | None = None, **spec: object) -> Deployment:
    """One that wants image v2."""
    fields: dict[str, object] = {"progress_deadline_seconds": 600, "revision_history_limit": 10, **spec}
    return Deployment(
        ObjectMeta(name="web", namespace="ns", uid="d", generation=2),
        DeploymentSpec(
            replicas=replicas,
            selector=LabelSelector({"app": "a"}),
            strategy=strategy or rolling(),
            template=template("v2"),
            **fields,  # type: ignore[arg-type]
        ),
    )


def part(
    image: str, replicas: int, available: int | None = None, *, desired: int | None = 4, revision: int = 1
) -> ReplicaSet:
    """A ReplicaSet of so many pods, all there; named after its image."""
    labels = {"app": "a", "pod-template-hash": image}
    labelled = template(image)
    labelled["metadata"] = {"labels": labels}
    notes = {REVISION_ANNOTATION: str(revision)}
    if desired is not None:
        notes |= {DESIRED_ANNOTATION: str(desired), MAX_ANNOTATION: str(desired + 1)}
    ready = replicas if available is None else available
    return ReplicaSet(
        ObjectMeta(
            name=f"web-{image}",
            namespace="ns",
            uid=image,
            annotations=notes,
            creation_timestamp=NOW + timedelta(seconds=revision),
        ),
        ReplicaSetSpec(replicas=replicas, selector=LabelSelector(labels), template=labelled),
        ReplicaSetStatus(
            replicas=replicas, ready_replicas=ready, available_replicas=ready, terminating_replicas=0
        ),
    )


@dataclass
class Case:
    deployment: Deployment
    sets: list[ReplicaSet]
    created_size: int | None = None
    """The size of the set that is made, if one is."""
    sizes: dict[str, int] = field(default_factory=dict)
    """The sets that get another size."""
    old_pods: bool = False


V1, V2 = "web-v1", "web-v2"
CASES = {
    "new deployment: ReplicaSet of full size": Case(deployment(3), [], created_size=3),
    "new template: new ReplicaSet as large as maxSurge allows": Case(
        deployment(4), [part("v1", 4)], created_size=1, sizes={V1: 3}
    ),
    "maxSurge 0: old ReplicaSet is scaled down first": Case(
        deployment(4, rolling(0, 2)), [part("v1", 4)], created_size=0, sizes={V1: 2}
    ),
    "maxSurge 0, old ReplicaSet scaled down: new one is scaled up": Case(
        deployment(4, rolling(0, 2)), [part("v1", 2), part("v2", 0, revision=2)], sizes={V2: 2}
    ),
    "new pods not available: old ReplicaSet is kept": Case(
        deployment(4, rolling(1, 0)), [part("v1", 4), part("v2", 1, 0, revision=2)]
    ),
    "new pod available: old ReplicaSet is scaled down by one": Case(
        deployment(4, rolling(1, 0)), [part("v1", 4), part("v2", 1, revision=2)], sizes={V1: 3}
    ),
    "unhealthy old pods: scaled down first, in the oldest ReplicaSet": Case(
        deployment(4, rolling(1, 1)),
        [part("v0", 2, 0), part("v1", 2, revision=2), part("v2", 1, revision=3)],
        sizes={"web-v0": 0},
    ),
    "status of a scaled ReplicaSet outdated: not scaled down again": Case(
        deployment(3, rolling(1, 0)),
        [part("v1", 4, 12, desired=3), part("v2", 0, desired=3, revision=2)],
    ),
    "percentages: maxSurge rounded up, maxUnavailable rounded down": Case(
        deployment(10, rolling("25%", "25%")), [part("v1", 10, desired=10)], created_size=3, sizes={V1: 8}
    ),
    "both percentages round to zero: maxUnavailable is one": Case(
        deployment(1, rolling("0%", "10%")), [part("v1", 1, desired=1)], created_size=0, sizes={V1: 0}
    ),
    "scaled with one ReplicaSet: it gets the size": Case(deployment(6), [part("v2", 4)], sizes={V2: 6}),
    "scaled to zero: ReplicaSet is scaled to zero": Case(deployment(0), [part("v2", 4)], sizes={V2: 0}),
    "scaled up during a rollout: proportional sizes": Case(
        deployment(8, rolling(2, 1)),
        [part("v1", 3), part("v2", 2, 1, revision=2)],
        sizes={V1: 6, V2: 4},
    ),
    "scaled down during a rollout: proportional sizes": Case(
        deployment(2, rolling(1, 1)),
        [part("v1", 3), part("v2", 2, 1, revision=2)],
        sizes={V1: 2, V2: 1},
    ),
    "paused with a new template: no rollout": Case(deployment(4, paused=True), [part("v1", 4)]),
    "paused and scaled: ReplicaSet gets the size": Case(
        deployment(5, paused=True), [part("v1", 4)], sizes={V1: 5}
    ),
    "Recreate: old ReplicaSet is scaled to zero first": Case(
        deployment(4, RECREATE), [part("v1", 4)], sizes={V1: 0}
    ),
    "Recreate with old pods: new ReplicaSet is not scaled up": Case(
        deployment(4, RECREATE), [part("v1", 0)], old_pods=True
    ),
    "Recreate without old pods: new ReplicaSet of full size": Case(
        deployment(4, RECREATE), [part("v1", 0)], created_size=4
    ),
    "Recreate with a rollback: the old ReplicaSet gets the size": Case(
        deployment(4, RECREATE), [part("v1", 0, revision=2), part("v2", 0)], sizes={V2: 4}
    ),
    "rollout complete: no change": Case(deployment(4), [part("v1", 0), part("v2", 4, revision=2)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_next_step(case: Case) -> None:
    plan = decide(case.deployment, case.sets, NOW, old_pods=case.old_pods)
    assert (plan.create.replicas if plan.create else None) == case.created_size
    changed = {
        change.name: change.replicas
        for change in plan.changed
        if change.replicas != change.replica_set.spec.replicas
    }
    assert changed == case.sizes


def test_a_new_replica_set_has_a_template_hash() -> None:
    plan = decide(deployment(3), [], NOW)
    created = plan.create
    assert created is not None
    digest = created.replica_set.metadata.labels["pod-template-hash"]
    assert created.name == f"web-{digest}"
    assert created.replica_set.spec.selector.match_labels == {"app": "a", "pod-template-hash": digest}
    assert created.annotations == {REVISION_ANNOTATION: "1", DESIRED_ANNOTATION: "3", MAX_ANNOTATION: "4"}
    assert plan.revision == "1"
    again = deployment(3)
    again.status.collision_count = 1
    other = decide(again, [], NOW).create
    assert other is not None
    assert other.name != created.name


def test_a_rollback_gives_the_old_replica_set_a_new_revision() -> None:
    plan = decide(deployment(4), [part("v2", 0), part("v1", 4, revision=2)], NOW)
    assert plan.create is None
    assert plan.rollout.new is not None
    assert plan.rollout.new.annotations[REVISION_ANNOTATION] == "3"
    assert plan.rollout.new.annotations[HISTORY_ANNOTATION] == "1"
    assert plan.revision == "3"


def test_annotations_are_copied_from_the_deployment() -> None:
    wanted = deployment(4)
    wanted.metadata.annotations = {"kubernetes.io/change-cause": "why", REVISION_ANNOTATION: "7"}
    plan = decide(wanted, [part("v2", 4)], NOW)
    assert [(change.name, change.annotations["kubernetes.io/change-cause"]) for change in plan.changed] == [
        (V2, "why")
    ]
    assert plan.revision == "1"


def test_old_replica_sets_beyond_the_history_limit_are_deleted() -> None:
    wanted = deployment(1, revision_history_limit=2)
    wanted.status = DeploymentStatus(2, 1, 1, 1, 1)
    old = [part(f"v1{n}", 0, desired=1, revision=n) for n in range(1, 5)]
    plan = decide(wanted, [*old, part("v2", 1, desired=1, revision=9)], NOW)
    assert [deleted.metadata.name for deleted in plan.delete] == ["web-v11", "web-v12"]


def reason(plan: Plan) -> tuple[str, str]:
    condition = find_condition(plan.status, PROGRESSING)
    return (condition.status, condition.reason) if condition else ("", "")


def rolling_status(updated: int = 1) -> DeploymentStatus:
    """Four old pods that are there, and some new ones that are not ready."""
    return DeploymentStatus(0, 4 + updated, updated, 4, 4)


def progressing(
    seconds_ago: int, reason: str = "ReplicaSetUpdated", status: DeploymentStatus | None = None
) -> DeploymentStatus:
    """A status whose last progress was so long ago."""
    at = NOW - timedelta(seconds=seconds_ago)
    return replace(
        status or DeploymentStatus(), conditions=[new_condition(PROGRESSING, "True", reason, "", at)]
    )


ROLLED = [part("v1", 0), part("v2", 4, revision=2)]
STUCK = [part("v1", 4), part("v2", 1, 0, revision=2)]
PROGRESS: dict[str, tuple[Deployment, DeploymentStatus, list[ReplicaSet], tuple[str, str], float | None]] = {
    "ReplicaSet created: NewReplicaSetCreated": (
        deployment(4),
        DeploymentStatus(),
        [],
        ("True", "NewReplicaSetCreated"),
        601.0,
    ),
    "ReplicaSet found: FoundNewReplicaSet": (
        deployment(4, rolling(1, 0)),
        rolling_status(),
        STUCK,
        ("True", "FoundNewReplicaSet"),
        601.0,
    ),
    "pods become available: ReplicaSetUpdated": (
        deployment(4, rolling(1, 0)),
        progressing(100, status=rolling_status(0)),
        STUCK,
        ("True", "ReplicaSetUpdated"),
        601.0,
    ),
    "no progress before the deadline: unchanged": (
        deployment(4, rolling(1, 0)),
        progressing(100, status=rolling_status()),
        STUCK,
        ("True", "ReplicaSetUpdated"),
        501.0,
    ),
    "no progress after the deadline: ProgressDeadlineExceeded": (
        deployment(4, rolling(1, 0)),
        progressing(601, status=rolling_status()),
        STUCK,
        ("False", "ProgressDeadlineExceeded"),
        None,
    ),
    "rollout complete: NewReplicaSetAvailable": (
        deployment(4),
        progressing(10),
        ROLLED,
        ("True", "NewReplicaSetAvailable"),
        None,
    ),
    "paused: DeploymentPaused": (
        deployment(4, paused=True),
        progressing(10),
        STUCK,
        ("Unknown", "DeploymentPaused"),
        None,
    ),
    "resumed: DeploymentResumed": (
        deployment(4, rolling(1, 0)),
        progressing(1000, "DeploymentPaused", rolling_status()),
        STUCK,
        ("Unknown", "DeploymentResumed"),
        601.0,
    ),
    "no progressDeadlineSeconds: no condition": (
        deployment(4, progress_deadline_seconds=None),
        progressing(10),
        ROLLED,
        ("", ""),
        None,
    ),
}


@pytest.mark.parametrize(
    ("deployment", "status", "sets", "want", "want_requeue_after"), PROGRESS.values(), ids=PROGRESS
)
def test_progressing_condition(
    deployment: Deployment,
    status: DeploymentStatus,
    sets: list[ReplicaSet],
    want: tuple[str, str],
    want_requeue_after: float | None,
) -> None:
    deployment.status = status
    plan = decide(deployment, sets, NOW)
    assert reason(plan) == want
    assert plan.requeue_after == want_requeue_after


def test_status_counts() -> None:
    plan = decide(deployment(4), [part("v1", 3, 2), part("v2", 2, 1, revision=2)], NOW)
    status = plan.status
    assert (status.replicas, status.updated_replicas, status.ready_replicas) == (5, 2, 3)
    assert (status.available_replicas, status.unavailable_replicas) == (3, 2)
    assert status.terminating_replicas == 0
    assert status.observed_generation == 2
    assert [(c.type, c.status, c.reason) for c in status.conditions if c.type == "Available"] == [
        ("Available", "True", "MinimumReplicasAvailable")
    ]


def test_replica_failure_is_reported() -> None:
    failing = part("v2", 4, 0)
    failing.status.conditions = [StatusCondition("ReplicaFailure", "True", "FailedCreate", "quota", NOW)]
    plan = decide(deployment(4), [failing], NOW)
    assert ("ReplicaFailure", "True", "FailedCreate", "quota") in [
        (c.type, c.status, c.reason, c.message) for c in plan.status.conditions
    ]
