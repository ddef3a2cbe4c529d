"""Tests for the pod groups, the membership of pods and the statuses of all gang schedulers."""

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
def test_the_spec_of_the_pod_group(name: str) -> None:
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
def test_pods_have_the_labels_of_their_gang_scheduler(name: str) -> None:
    assert GANG_SCHEDULERS[name].membership(JOB, "worker") == MEMBERSHIPS[name]


class Case(Struct):
    scheduler: str
    status: dict[str, object]
    want: ObservedGroup


def condition(kind: str, status: str, reason: str = "", message: str = "") -> dict[str, object]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


STATUSES = {
    "Volcano, new: queued": Case("volcano", {}, ObservedGroup("volcano", queued=True)),
    "Volcano, Pending: queued": Case("volcano", {"phase": "Pending"}, ObservedGroup("volcano", queued=True)),
    "Volcano, admitted but unschedulable: not scheduled, with the reason": Case(
        "volcano",
        {"phase": "Inqueue", "conditions": [condition("Unschedulable", "True", "NotEnough", "3/4")]},
        ObservedGroup("volcano", reason="NotEnough", message="3/4"),
    ),
    "Volcano, condition Scheduled: scheduled": Case(
        "volcano",
        {"phase": "Inqueue", "conditions": [condition("Scheduled", "True", "ready")]},
        ObservedGroup("volcano", scheduled=True, reason="ready"),
    ),
    "Volcano, Running: scheduled": Case(
        "volcano", {"phase": "Running"}, ObservedGroup("volcano", scheduled=True)
    ),
    "Volcano, condition Evicted: evicted": Case(
        "volcano",
        {"phase": "Unknown", "conditions": [condition("Evicted", "True", "reclaimed")]},
        ObservedGroup("volcano", evicted=True),
    ),
    "kube-scheduler, new: not scheduled": Case("kubernetes", {}, ObservedGroup("kubernetes")),
    "kube-scheduler, unschedulable: not scheduled, with the reason": Case(
        "kubernetes",
        {"conditions": [condition("PodGroupScheduled", "False", "Unschedulable", "0/2 nodes")]},
        ObservedGroup("kubernetes", reason="Unschedulable", message="0/2 nodes"),
    ),
    "kube-scheduler, scheduled: scheduled": Case(
        "kubernetes",
        {"conditions": [condition("PodGroupScheduled", "True", "Scheduled")]},
        ObservedGroup("kubernetes", scheduled=True, reason="Scheduled"),
    ),
    "kube-scheduler, preempted: evicted": Case(
        "kubernetes",
        {"conditions": [condition("DisruptionTarget", "True", "PreemptionByScheduler")]},
        ObservedGroup("kubernetes", evicted=True),
    ),
    "coscheduling plugin, Scheduling: not scheduled": Case(
        "scheduler-plugins", {"phase": "Scheduling"}, ObservedGroup("scheduler-plugins", reason="Scheduling")
    ),
    "coscheduling plugin, Running: scheduled": Case(
        "scheduler-plugins",
        {"phase": "Running"},
        ObservedGroup("scheduler-plugins", scheduled=True, reason="Running"),
    ),
}


@pytest.mark.parametrize("case", STATUSES.values(), ids=STATUSES.keys())
def test_the_status_of_the_pod_group_is_read(case: Case) -> None:
    group = GANG_SCHEDULERS[case.scheduler].group
    assert group and group.parse_status(msgspec.convert(case.status, PodGroupStatus)) == case.want


def test_the_setting_selects_the_candidates() -> None:
    assert (*GANG_SCHEDULERS, AUTO, NONE) == CHOICES
    assert [scheduler.name for scheduler in candidates(AUTO)] == list(GANG_SCHEDULERS)
    assert [scheduler.name for scheduler in candidates("builtin")] == ["builtin"]
    assert candidates(NONE) == ()


def test_pod_groups_of_different_apis_have_different_child_kinds() -> None:
    names = [scheduler.group.child_kind for scheduler in GANG_SCHEDULERS.values() if scheduler.group]
    assert len(set(names)) == len(names) == 3
