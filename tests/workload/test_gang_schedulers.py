"""What each back end makes, what pods carry for it, and how it reads what its scheduler tells."""

import msgspec
import pytest
from msgspec import Struct

from argosy.kinds.pod_groups import PodGroupStatus
from argosy.workload.gang_schedulers.base import Membership
from argosy.workload.gang_schedulers.registry import AUTO, CHOICES, GANG_SCHEDULERS, NONE, candidates
from argosy.workload.model import Gang
from argosy.workload.observed import ObservedGroup
from tests.support.workloads import role, workload

JOB = workload(role(replicas=4), gang=Gang(3, "research", "high", min_resources={"cpu": 2}))
BARE = workload(role(replicas=4), gang=Gang(3))

SPECS: dict[str, tuple[str, object, object]] = {
    "volcano": (
        "scheduling.volcano.sh/v1beta1",
        {"minMember": 3, "queue": "research", "priorityClassName": "high", "minResources": {"cpu": 2}},
        {"minMember": 3, "queue": "default", "priorityClassName": ""},
    ),
    "kubernetes": (
        "scheduling.k8s.io/v1alpha2",
        {"schedulingPolicy": {"gang": {"minCount": 3}}, "priorityClassName": "high"},
        {"schedulingPolicy": {"gang": {"minCount": 3}}},
    ),
    "scheduler-plugins": (
        "scheduling.x-k8s.io/v1alpha1",
        {"minMember": 3, "minResources": {"cpu": 2}},
        {"minMember": 3},
    ),
}


@pytest.mark.parametrize("name", GANG_SCHEDULERS)
def test_the_object_before_the_pods(name: str) -> None:
    group = GANG_SCHEDULERS[name].group
    if name not in SPECS:
        assert group is None
        return
    assert group is not None
    want_version, want, want_bare = SPECS[name]
    assert (group.kind.resource.api_version, group.kind.resource.kind) == (want_version, "PodGroup")
    assert (group.spec(JOB), group.spec(BARE)) == (want, want_bare)


MEMBERSHIPS = {
    "volcano": Membership(
        annotations={"scheduling.k8s.io/group-name": "job", "volcano.sh/task-spec": "worker"},
        scheduler_name="volcano",
    ),
    "kubernetes": Membership(fields={"schedulingGroup": {"podGroupName": "job"}}),
    "scheduler-plugins": Membership(
        labels={"scheduling.x-k8s.io/pod-group": "job"}, scheduler_name="scheduler-plugins-scheduler"
    ),
    "kueue": Membership(
        labels={"kueue.x-k8s.io/queue-name": "research", "kueue.x-k8s.io/pod-group-name": "job"},
        annotations={"kueue.x-k8s.io/pod-group-total-count": "4"},
    ),
    "builtin": Membership(),
}


@pytest.mark.parametrize("name", GANG_SCHEDULERS)
def test_what_pods_carry(name: str) -> None:
    assert GANG_SCHEDULERS[name].membership(JOB, "worker") == MEMBERSHIPS[name]


class Case(Struct):
    backend: str
    status: dict[str, object]
    want: ObservedGroup


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, object]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


READINGS = {
    "a new group of Volcano's": Case("volcano", {}, ObservedGroup("volcano", queued=True)),
    "in its queue": Case("volcano", {"phase": "Pending"}, ObservedGroup("volcano", queued=True)),
    "let in, without room": Case(
        "volcano",
        {"phase": "Inqueue", "conditions": [condition("Unschedulable", "True", "NotEnough", "3/4")]},
        ObservedGroup("volcano", reason="NotEnough", message="3/4"),
    ),
    "placed": Case(
        "volcano",
        {"phase": "Inqueue", "conditions": [condition("Scheduled", "True", "ready")]},
        ObservedGroup("volcano", scheduled=True, reason="ready"),
    ),
    "running": Case("volcano", {"phase": "Running"}, ObservedGroup("volcano", scheduled=True)),
    "evicted": Case(
        "volcano",
        {"phase": "Unknown", "conditions": [condition("Evicted", "True", "reclaimed")]},
        ObservedGroup("volcano", evicted=True),
    ),
    "a new group of Kubernetes'": Case("kubernetes", {}, ObservedGroup("kubernetes")),
    "a group that Kubernetes cannot place": Case(
        "kubernetes",
        {"conditions": [condition("PodGroupScheduled", "False", "Unschedulable", "0/2 nodes")]},
        ObservedGroup("kubernetes", reason="Unschedulable", message="0/2 nodes"),
    ),
    "a group that Kubernetes placed": Case(
        "kubernetes",
        {"conditions": [condition("PodGroupScheduled", "True", "Scheduled")]},
        ObservedGroup("kubernetes", scheduled=True, reason="Scheduled"),
    ),
    "a group that Kubernetes takes away": Case(
        "kubernetes",
        {"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler")]},
        ObservedGroup("kubernetes", evicted=True),
    ),
    "the plugin is at it": Case(
        "scheduler-plugins", {"phase": "Scheduling"}, ObservedGroup("scheduler-plugins", reason="Scheduling")
    ),
    "the plugin has placed it": Case(
        "scheduler-plugins",
        {"phase": "Running"},
        ObservedGroup("scheduler-plugins", scheduled=True, reason="Running"),
    ),
}


@pytest.mark.parametrize("case", READINGS.values(), ids=READINGS.keys())
def test_what_the_scheduler_tells(case: Case) -> None:
    group = GANG_SCHEDULERS[case.backend].group
    assert group and group.parse_status(msgspec.convert(case.status, PodGroupStatus)) == case.want


def test_choices() -> None:
    assert (*GANG_SCHEDULERS, AUTO, NONE) == CHOICES
    assert [one.name for one in candidates(AUTO)] == list(GANG_SCHEDULERS)
    assert [one.name for one in candidates("builtin")] == ["builtin"]
    assert candidates(NONE) == ()


def test_children_are_told_apart() -> None:
    """All three schedulers call it PodGroup."""
    names = [one.group.child_kind for one in GANG_SCHEDULERS.values() if one.group]
    assert len(set(names)) == len(names) == 3
