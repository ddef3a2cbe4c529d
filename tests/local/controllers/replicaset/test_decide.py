from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from argosy.kinds.meta import Condition, ObjectMeta
from argosy.local.controllers.kinds import LabelSelector, Pod, PodSpec, PodStatus
from argosy.local.controllers.replicaset.controller import build_pod
from argosy.local.controllers.replicaset.decide import (
    DELETION_COST_ANNOTATION,
    decide,
    deletion_order,
    with_replica_failure,
)
from argosy.local.controllers.workloads import ReplicaSet, ReplicaSetSpec, ReplicaSetStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
LABELS = {"app": "a"}


def pod(
    name: str, phase: str = "Running", *, ready: float | None = 60, node: str = "n1", **meta: object
) -> Pod:
    """A pod that has been ready for so many seconds, or is not."""
    since = NOW - timedelta(seconds=ready or 0)
    conditions = [Condition("Ready", "True", last_transition_time=since)] if ready is not None else []
    given: dict[str, object] = {"labels": LABELS, "creation_timestamp": NOW - timedelta(hours=1), **meta}
    return Pod(
        ObjectMeta(name=name, uid=name, **given),  # type: ignore[arg-type]
        PodSpec(node_name=node),
        PodStatus(phase=phase, conditions=conditions),
    )


def replica_set(replicas: int, **spec: object) -> ReplicaSet:
    template: dict[str, object] = {"metadata": {"labels": LABELS}, "spec": {"containers": []}}
    return ReplicaSet(
        ObjectMeta(name="rs", namespace="ns", uid="u", generation=3),
        ReplicaSetSpec(replicas=replicas, selector=LabelSelector(LABELS), template=template, **spec),  # type: ignore[arg-type]
    )


GONE = NOW - timedelta(seconds=1)


@dataclass
class Case:
    owner: ReplicaSet
    pods: list[Pod]
    leaving: set[str] = field(default_factory=set)
    create: int = 0
    delete: list[str] = field(default_factory=list)
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    """replicas, ready, available, terminating"""
    wake: float | None = None


CASES = {
    "pods that are missing are made": Case(replica_set(3), [pod("a")], create=2, counts=(1, 1, 1, 0)),
    "at most 500 at once": Case(replica_set(2000), [], create=500),
    "one that ended is replaced": Case(replica_set(1), [pod("a", "Failed", ready=None)], create=1),
    "one that is being deleted is replaced, and counted apart": Case(
        replica_set(1), [pod("a", deletion_timestamp=GONE)], create=1, counts=(0, 0, 0, 1)
    ),
    "one whose deletion was asked for counts no more": Case(
        replica_set(1), [pod("a"), pod("b")], {"a"}, counts=(1, 1, 1, 0)
    ),
    "enough is enough": Case(replica_set(2), [pod("a"), pod("b", ready=None)], counts=(2, 1, 1, 0)),
    "one too many goes: the one that is not ready": Case(
        replica_set(1), [pod("a"), pod("b", ready=None)], delete=["b"], counts=(2, 1, 1, 0)
    ),
    "a set that is being deleted makes and deletes nothing": Case(
        ReplicaSet(ObjectMeta(deletion_timestamp=GONE), ReplicaSetSpec(replicas=3)), []
    ),
    "available is who has been ready for long enough": Case(
        replica_set(2, min_ready_seconds=30),
        [pod("a", ready=60), pod("b", ready=10)],
        counts=(2, 2, 1, 0),
        wake=20.0,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_replica_set_decides(case: Case) -> None:
    plan = decide(case.owner, case.pods, case.pods, case.leaving, NOW)
    status = plan.status
    assert plan.create == case.create
    assert [each.metadata.name for each in plan.delete] == case.delete
    counts = (status.replicas, status.ready_replicas, status.available_replicas, status.terminating_replicas)
    assert counts == case.counts
    assert status.observed_generation == case.owner.metadata.generation
    assert plan.requeue_after == case.wake


SPARED = {
    "without a node": (pod("a"), pod("b", "Pending", ready=None, node="")),
    "not yet running": (pod("a", ready=None), pod("b", "Pending", ready=None)),
    "not ready": (pod("a"), pod("b", ready=None)),
    "cheap to delete": (
        pod("a", annotations={DELETION_COST_ANNOTATION: "5"}),
        pod("b", annotations={DELETION_COST_ANNOTATION: "-1"}),
    ),
    "ready for a much shorter time": (pod("a", ready=3000), pod("b", ready=2)),
    "much younger": (
        pod("a", ready=None),
        pod("b", ready=None, creation_timestamp=NOW - timedelta(seconds=2)),
    ),
}


@pytest.mark.parametrize(("kept", "gone"), SPARED.values(), ids=SPARED)
def test_who_goes_first(kept: Pod, gone: Pod) -> None:
    assert deletion_order([kept, gone], [], NOW) == [gone, kept]
    assert deletion_order([gone, kept], [], NOW) == [gone, kept]


def test_who_shares_a_node_goes_first() -> None:
    alone, crowded = pod("a", node="n1"), pod("b", node="n2")
    related = [alone, crowded, pod("c", node="n2")]
    assert deletion_order([alone, crowded], related, NOW) == [crowded, alone]


def test_a_refusal_is_told_until_it_is_over() -> None:
    told = with_replica_failure(ReplicaSetStatus(), "FailedCreate", "exceeded quota", NOW)
    assert [(c.type, c.status, c.reason, c.message) for c in told.conditions] == [
        ("ReplicaFailure", "True", "FailedCreate", "exceeded quota")
    ]
    assert with_replica_failure(told, "FailedCreate", "exceeded quota again", NOW) == told
    assert with_replica_failure(told, "FailedCreate", None, NOW).conditions == []


def test_a_pod_is_made_from_the_template() -> None:
    owner = replica_set(1)
    owner.spec.template = {
        "metadata": {"labels": LABELS, "annotations": {"x": "y"}, "name": "ignored"},
        "spec": {"containers": [{"name": "c"}]},
    }
    made = build_pod(owner)
    assert made["spec"] == {"containers": [{"name": "c"}]}
    metadata = made["metadata"]
    assert isinstance(metadata, dict)
    owners = metadata.pop("ownerReferences")
    assert metadata == {
        "labels": LABELS,
        "annotations": {"x": "y"},
        "generateName": "rs-",
        "namespace": "ns",
    }
    assert [(o["kind"], o["name"], o["uid"], o["controller"]) for o in owners] == [
        ("ReplicaSet", "rs", "u", True)
    ]
