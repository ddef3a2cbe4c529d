from datetime import datetime

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Service
from argosy.plan.actions import Apply, Remove
from argosy.plan.children import KubernetesObject
from argosy.plan.diff import remove
from argosy.workload import gang
from argosy.workload.capacity import Capacity, FreeNode
from argosy.workload.decide import decide
from argosy.workload.gang_schedulers.kubernetes import KUBERNETES
from argosy.workload.gang_schedulers.volcano import GROUP
from argosy.workload.model import Gang, Phase, RestartPolicy
from argosy.workload.observed import Observed, ObservedGroup
from argosy.workload.phases import PhaseResult
from argosy.workload.plan import CreatePod
from argosy.workload.record import Record
from tests.support.workloads import NOW, existing, existing_child, later, pod, pods, role, workload

PLAIN = Gang(3, "research", "high")
EVERY = frozenset({"volcano", "kubernetes", "scheduler-plugins", "kueue", "builtin"})
ENOUGH = Capacity((FreeNode("node-1", {"pods": 3}),))
TOO_LITTLE = Capacity((FreeNode("node-1", {"pods": 2}),))


def group_of(wanted: Gang, backend: str = "volcano") -> tuple[KubernetesObject, ...]:
    """Return the pod group of a gang as an existing child of the job."""
    record = Record(phase_since=NOW, gang_scheduler=backend)
    observed = Observed(available_gang_schedulers=EVERY)
    action = gang.admission(workload(gang=wanted), record, observed).action
    assert isinstance(action, Apply)
    return (existing_child(action.child),)


class Case(Struct):
    gang: Gang | None = PLAIN
    backend: str = "volcano"
    group: ObservedGroup | None = None
    existing: Gang | None = None
    """The gang for which the existing pod group was created."""
    setting: str = "volcano"
    served: frozenset[str] = EVERY
    capacity: Capacity | None = None
    started: bool = False
    want_allowed: bool = True
    want_group: type[Apply] | type[Remove] | None = None
    want_reason: str = ""


CASES = {
    "no gang: admitted": Case(None),
    "Volcano without a pod group: it is created, and the job is queued": Case(
        want_allowed=False, want_group=Apply, want_reason="Queued"
    ),
    "Volcano has admitted the pod group: pods are created": Case(group=ObservedGroup(), existing=PLAIN),
    "pod group of another size: updated": Case(
        group=ObservedGroup(), existing=replace(PLAIN, min_available=2), want_group=Apply
    ),
    "pod group in another queue: updated": Case(
        group=ObservedGroup(), existing=replace(PLAIN, queue=""), want_group=Apply
    ),
    "pod group of another priority: updated": Case(
        group=ObservedGroup(), existing=replace(PLAIN, priority_class=""), want_group=Apply
    ),
    "pod group with other resources: updated": Case(
        group=ObservedGroup(), existing=replace(PLAIN, min_resources={"cpu": 1}), want_group=Apply
    ),
    "gang without a queue, pod group in the default queue: unchanged": Case(
        Gang(3), group=ObservedGroup(), existing=Gang(3, "default")
    ),
    "gang scheduler not installed: not admitted": Case(
        served=frozenset(), want_allowed=False, want_reason="GangSchedulerMissing"
    ),
    "gang scheduler uninstalled after the job started: pods are still created": Case(
        served=frozenset(), started=True, want_reason="GangSchedulerMissing"
    ),
    "automatically chosen gang scheduler uninstalled after the job started: pods are still created": Case(
        setting="auto", served=frozenset({"builtin"}), started=True, want_reason="GangSchedulerMissing"
    ),
    "Volcano has the pod group in its queue: not admitted": Case(
        group=ObservedGroup(queued=True), existing=PLAIN, want_allowed=False, want_reason="Queued"
    ),
    "pod group queued again after the job started: pods are still created": Case(
        group=ObservedGroup(queued=True), existing=PLAIN, started=True
    ),
    "kube-scheduler without a pod group: it is created together with the pods": Case(
        backend="kubernetes", want_group=Apply
    ),
    "kube-scheduler with an immutable pod group of another size: deleted and recreated": Case(
        backend="kubernetes",
        group=ObservedGroup("kubernetes"),
        existing=replace(PLAIN, min_available=2),
        want_allowed=False,
        want_group=Remove,
        want_reason="Queued",
    ),
    "kube-scheduler with a pod group of another size after the job started: unchanged": Case(
        backend="kubernetes", existing=replace(PLAIN, min_available=2), started=True
    ),
    "coscheduling plugin without a pod group: it is created together with the pods": Case(
        backend="scheduler-plugins", want_group=Apply
    ),
    "Kueue: pods are created without a pod group": Case(backend="kueue"),
    "builtin scheduler before the capacity is known: not admitted": Case(
        backend="builtin", want_allowed=False, want_reason="Queued"
    ),
    "builtin scheduler without enough capacity: not admitted": Case(
        backend="builtin", capacity=TOO_LITTLE, want_allowed=False, want_reason="Queued"
    ),
    "builtin scheduler with enough capacity: admitted without a pod group": Case(
        backend="builtin", capacity=ENOUGH
    ),
    "builtin scheduler without enough capacity after the job started: pods are still created": Case(
        backend="builtin", capacity=TOO_LITTLE, started=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pods_are_created_once_the_gang_is_admitted(case: Case) -> None:
    record = Record(
        phase_since=NOW, attempt_started_at=NOW if case.started else None, gang_scheduler=case.backend
    )
    children = group_of(case.existing, case.backend) if case.existing else ()
    cluster = Observed(gang_scheduler_setting=case.setting, available_gang_schedulers=case.served)
    observed = replace(cluster, group=case.group, children=children, capacity=case.capacity)
    gate = gang.admission(workload(gang=case.gang), record, observed)
    assert (gate.allowed, gate.reason) == (case.want_allowed, case.want_reason)
    assert (type(gate.action) if gate.action else None) is case.want_group


class Choice(Struct):
    setting: str
    served: frozenset[str]
    want: str
    recorded: str = ""
    started_at: datetime | None = None
    group: ObservedGroup | None = None


CHOICES = {
    "configured scheduler is installed: chosen": Choice("volcano", EVERY, "volcano"),
    "configured scheduler is not installed: none": Choice("volcano", EVERY - {"volcano"}, ""),
    "auto with all schedulers: Volcano": Choice("auto", EVERY, "volcano"),
    "auto without Volcano: the next one that is installed": Choice("auto", EVERY - {"volcano"}, "kubernetes"),
    "auto without other schedulers: builtin": Choice("auto", frozenset({"builtin"}), "builtin"),
    "Volcano installed after the choice: the choice stays": Choice(
        "auto", EVERY, "builtin", recorded="builtin"
    ),
    "setting changed after the choice: the choice stays": Choice(
        "builtin", EVERY, "volcano", recorded="volcano"
    ),
    "chosen scheduler uninstalled after the job started: the choice stays": Choice(
        "builtin", frozenset({"builtin"}), "volcano", recorded="volcano", started_at=NOW
    ),
    "chosen scheduler uninstalled before the job started: chosen again": Choice(
        "builtin", frozenset({"builtin"}), "builtin", recorded="volcano"
    ),
    "Record lost: the scheduler of the existing pod group": Choice(
        "auto", EVERY, "kubernetes", group=ObservedGroup("kubernetes")
    ),
    "setting none: none": Choice("none", frozenset(), ""),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES.keys())
def test_the_gang_scheduler_is_chosen_once(case: Choice) -> None:
    record = Record(phase_since=NOW, gang_scheduler=case.recorded, attempt_started_at=case.started_at)
    observed = Observed(
        gang_scheduler_setting=case.setting, available_gang_schedulers=case.served, group=case.group
    )
    assert gang.choose_scheduler(workload(gang=PLAIN), record, observed).gang_scheduler == case.want
    assert gang.choose_scheduler(workload(), Record(), observed).gang_scheduler == "", "a job without a gang"


def test_the_pod_group_is_created_before_the_pods() -> None:
    observed = Observed(
        gang_scheduler_setting="kubernetes", available_gang_schedulers=frozenset({"kubernetes"})
    )
    plan = decide(workload(gang=PLAIN), None, observed, NOW)
    kinds = [type(action) for action in plan.actions]
    assert kinds.index(Apply) < kinds.index(CreatePod)
    assert KUBERNETES.group and isinstance(plan.actions[0], Apply)
    assert plan.actions[0].child.kind is KUBERNETES.group.kind


def test_no_pod_of_a_gang_is_created_while_one_old_pod_terminates() -> None:
    job = workload(role(replicas=3), gang=PLAIN)
    record = Record(phase_since=NOW, attempt=2)
    plan = decide(job, record, Observed(pods=pods("T.."), group=ObservedGroup()), NOW)
    assert not [action for action in plan.actions if isinstance(action, CreatePod)]
    assert plan.record.waiting and plan.record.waiting.reason == "PodsTerminating"


def test_suspending_a_job_deletes_its_pod_group() -> None:
    job = workload(gang=PLAIN, suspended=True)
    children = (existing(GROUP.kind, "job"), existing(Service, "job-worker"))
    plan = decide(job, Record(phase_since=NOW, gang_scheduled_at=NOW), Observed(children=children), NOW)
    assert [action for action in plan.actions if isinstance(action, Remove)] == [remove(children[0])]
    assert plan.record.gang_scheduled_at is None


class ScheduledCase(Struct):
    backend: str
    group: ObservedGroup | None = None
    nodes: tuple[str, ...] = ()
    want: bool = True


SCHEDULED = {
    "pod group is scheduled: gang_scheduled_at is set": ScheduledCase(
        "volcano", ObservedGroup(scheduled=True)
    ),
    "pods have nodes, but the pod group is not scheduled: gang_scheduled_at is not set": ScheduledCase(
        "volcano", ObservedGroup(), ("a", "b", "c"), want=False
    ),
    "no pod group, and enough pods have a node: gang_scheduled_at is set": ScheduledCase(
        "kueue", nodes=("a", "b", "b")
    ),
    "no pod group, and too few pods have a node: gang_scheduled_at is not set": ScheduledCase(
        "kueue", nodes=("a", "b", ""), want=False
    ),
    "builtin scheduler has admitted the gang: gang_scheduled_at is set": ScheduledCase("builtin"),
}


@pytest.mark.parametrize("case", SCHEDULED.values(), ids=SCHEDULED.keys())
def test_gang_scheduled_at_is_set_when_the_gang_is_scheduled(case: ScheduledCase) -> None:
    job = workload(gang=PLAIN)
    existing_pods = tuple(pod(index, "Pending", node=node) for index, node in enumerate(case.nodes))
    record = decide(
        job, Record(phase_since=NOW, attempt_started_at=NOW, gang_scheduler=case.backend), Observed(), NOW
    ).record
    record = replace(record, gang_scheduled_at=None)
    assert (
        bool(
            gang.mark_scheduled(
                job, record, Observed(pods=existing_pods, group=case.group), NOW
            ).gang_scheduled_at
        )
        is case.want
    )


class LimitCase(Struct):
    group: ObservedGroup | None
    seconds: float
    want: str
    ran: bool = False
    scheduled: bool = False


LIMITS = {
    "not scheduled before the timeout: no failure": LimitCase(None, 30, ""),
    "not scheduled within the timeout: GangTimeout": LimitCase(None, 60, "GangTimeout"),
    "scheduled, long after the timeout: no failure": LimitCase(ObservedGroup(scheduled=True), 600, ""),
    "scheduled before, pod group not observed: no failure": LimitCase(None, 600, "", scheduled=True),
    "running before, pod group not observed: no failure": LimitCase(None, 600, "", ran=True),
    "evicted: Preempted": LimitCase(ObservedGroup(evicted=True), 1, "Preempted"),
}


@pytest.mark.parametrize("case", LIMITS.values(), ids=LIMITS.keys())
def test_a_gang_fails_if_evicted_or_not_scheduled_in_time(case: LimitCase) -> None:
    times = {
        "first_running_at": NOW if case.ran else None,
        "gang_scheduled_at": NOW if case.scheduled else None,
    }
    record = replace(Record(phase_since=NOW, attempt_started_at=NOW, phase=Phase.STARTING), **times)
    job = workload(gang=Gang(3, timeout=60))
    result = gang.gang_limit(job, record, Observed(group=case.group), later(case.seconds))
    assert (result.reason if isinstance(result, PhaseResult) else "") == case.want


class HoldCase(Struct):
    group: ObservedGroup | None = ObservedGroup()
    preempted: bool = True
    seconds: float = 1.0
    want: str = "Running"
    want_reason: str = "Preempted"
    """What the job waits for."""
    restart: RestartPolicy = RestartPolicy.ON_FAILURE


HOLDS = {
    "preempted pod of a pod group: the job is held": HoldCase(),
    "preempted pod with restart policy Never: the job is held": HoldCase(restart=RestartPolicy.NEVER),
    "a minute after the preemption: the pod is replaced": HoldCase(
        seconds=60, want="Restarting", want_reason="PodsTerminating"
    ),
    "preempted pod without a pod group: replaced at once": HoldCase(
        None, want="Restarting", want_reason="PodsTerminating"
    ),
    "pod failed without preemption: replaced at once": HoldCase(
        preempted=False, want="Restarting", want_reason="PodsTerminating"
    ),
    "whole pod group evicted: the job fails": HoldCase(
        ObservedGroup(evicted=True), want="Failed", want_reason=""
    ),
    "a minute after the preemption, with restart policy Never: the job fails": HoldCase(
        seconds=60, restart=RestartPolicy.NEVER, want="Failed", want_reason=""
    ),
}


@pytest.mark.parametrize("case", HOLDS.values(), ids=HOLDS.keys())
def test_a_preempted_pod_holds_its_job_for_a_minute(case: HoldCase) -> None:
    job = workload(role(replicas=2, restart=case.restart), gang=Gang(2))
    running = decide(job, None, Observed(pods=pods("RR"), group=ObservedGroup(scheduled=True)), NOW).record
    preempted = replace(pod(0, "Failed", exit_code=143), preempted_at=NOW if case.preempted else None)
    plan = decide(job, running, Observed(pods=(preempted, pod(1)), group=case.group), later(case.seconds))
    waiting = plan.record.waiting
    assert (plan.record.phase.value, waiting.reason if waiting else "") == (case.want, case.want_reason)
    if case.want == "Failed":
        assert plan.record.reason == "Preempted"
    if case.want == "Running":
        assert not plan.actions and plan.requeue_at == later(60)


def test_a_job_fails_with_preempted_although_the_pod_was_deleted_meanwhile() -> None:
    job = workload(role(replicas=2), gang=Gang(2))
    observed = Observed(pods=pods("RR"), group=ObservedGroup(scheduled=True))
    running = decide(job, None, observed, NOW).record
    preempted = replace(pod(0, terminating=True), preempted_at=NOW)
    held = decide(job, running, replace(observed, pods=(preempted, pod(1))), later(1)).record
    deleted = replace(observed, pods=(pod(1),), confirmed_absent=frozenset({("worker", 0)}))
    ended = decide(job, held, deleted, later(40)).record
    assert (ended.phase, ended.reason) == (Phase.FAILED, "Preempted")
