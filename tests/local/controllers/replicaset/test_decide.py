from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from argosy.kinds.labels import POD_DELETION_COST
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.local.controllers.api_types import LabelSelector, Pod, PodSpec, PodStatus
from argosy.local.controllers.replicaset.controller import build_pod
from argosy.local.controllers.replicaset.decide import (
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
    metadata: dict[str, object] = {"labels": LABELS, "creation_timestamp": NOW - timedelta(hours=1), **meta}
    return Pod(
        ObjectMeta(name=name, uid=name, **metadata),  # type: ignore[arg-type]
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
    "too few pods: missing ones created": Case(replica_set(3), [pod("a")], create=2, counts=(1, 1, 1, 0)),
    "2,000 missing: at most 500 created": Case(replica_set(2000), [], create=500),
    "failed pod: replaced": Case(replica_set(1), [pod("a", "Failed", ready=None)], create=1),
    "terminating pod: replaced and counted as terminating": Case(
        replica_set(1), [pod("a", deletion_timestamp=GONE)], create=1, counts=(0, 0, 0, 1)
    ),
    "deletion not confirmed by the watch yet: not counted": Case(
        replica_set(1), [pod("a"), pod("b")], {"a"}, counts=(1, 1, 1, 0)
    ),
    "enough pods: no change": Case(replica_set(2), [pod("a"), pod("b", ready=None)], counts=(2, 1, 1, 0)),
    "one pod too many: the unready one deleted": Case(
        replica_set(1), [pod("a"), pod("b", ready=None)], delete=["b"], counts=(2, 1, 1, 0)
    ),
    "ReplicaSet being deleted: no change": Case(
        ReplicaSet(ObjectMeta(deletion_timestamp=GONE), ReplicaSetSpec(replicas=3)), []
    ),
    "minReadySeconds: only pods ready for so long are available": Case(
        replica_set(2, min_ready_seconds=30),
        [pod("a", ready=60), pod("b", ready=10)],
        counts=(2, 2, 1, 0),
        wake=20.0,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decide(case: Case) -> None:
    plan = decide(case.owner, case.pods, case.pods, case.leaving, NOW)
    status = plan.status
    assert plan.create == case.create
    assert [pod.metadata.name for pod in plan.delete] == case.delete
    counts = (status.replicas, status.ready_replicas, status.available_replicas, status.terminating_replicas)
    assert counts == case.counts
    assert status.observed_generation == case.owner.metadata.generation
    assert plan.requeue_after == case.wake


SPARED = {
    "unscheduled: deleted first": (pod("a"), pod("b", "Pending", ready=None, node="")),
    "Pending: deleted first": (pod("a", ready=None), pod("b", "Pending", ready=None)),
    "unready: deleted first": (pod("a"), pod("b", ready=None)),
    "lower pod-deletion-cost: deleted first": (
        pod("a", annotations={POD_DELETION_COST: "5"}),
        pod("b", annotations={POD_DELETION_COST: "-1"}),
    ),
    "ready for a much shorter time: deleted first": (pod("a", ready=3000), pod("b", ready=2)),
    "much younger: deleted first": (
        pod("a", ready=None),
        pod("b", ready=None, creation_timestamp=NOW - timedelta(seconds=2)),
    ),
}


@pytest.mark.parametrize(("kept", "gone"), SPARED.values(), ids=SPARED)
def test_deletion_order(kept: Pod, gone: Pod) -> None:
    assert deletion_order([kept, gone], [], NOW) == [gone, kept]
    assert deletion_order([gone, kept], [], NOW) == [gone, kept]


def test_pods_on_a_node_with_more_related_pods_are_deleted_first() -> None:
    alone, crowded = pod("a", node="n1"), pod("b", node="n2")
    related = [alone, crowded, pod("c", node="n2")]
    assert deletion_order([alone, crowded], related, NOW) == [crowded, alone]


def test_replica_failure_is_set_until_pods_can_be_created() -> None:
    status = with_replica_failure(ReplicaSetStatus(), "FailedCreate", "exceeded quota", NOW)
    assert [(c.type, c.status, c.reason, c.message) for c in status.conditions] == [
        ("ReplicaFailure", "True", "FailedCreate", "exceeded quota")
    ]
    assert with_replica_failure(status, "FailedCreate", "exceeded quota again", NOW) == status
    assert with_replica_failure(status, "FailedCreate", None, NOW).conditions == []


def test_a_pod_is_built_from_the_template() -> None:
    owner = replica_set(1)
    owner.spec.template = {
        "metadata": {"labels": LABELS, "annotations": {"x": "y"}, "name": "ignored"},
        "spec": {"containers": [{"name": "c"}]},
    }
    body = build_pod(owner)
    assert body["spec"] == {"containers": [{"name": "c"}]}
    metadata = body["metadata"]
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
