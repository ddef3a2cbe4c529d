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
ROOM = Capacity((FreeNode("node-1", {"pods": 3}),))
NO_ROOM = Capacity((FreeNode("node-1", {"pods": 2}),))


def group_of(wanted: Gang, backend: str = "volcano") -> tuple[KubernetesObject, ...]:
    """The group that stands for a gang, as it is seen among a job's children."""
    record = Record(phase_since=NOW, gang_scheduler=backend)
    observed = Observed(available_gang_schedulers=EVERY)
    action = gang.admission(workload(gang=wanted), record, observed).action
    assert isinstance(action, Apply)
    return (existing_child(action.child),)


class Case(Struct):
    gang: Gang | None = PLAIN
    backend: str = "volcano"
    group: ObservedGroup | None = None
    there: Gang | None = None
    """What the group that is there was made for."""
    choice: str = "volcano"
    served: frozenset[str] = EVERY
    room: Capacity | None = None
    begun: bool = False
    want_open: bool = True
    want_group: type[Apply] | type[Remove] | None = None
    want_reason: str = ""


CASES = {
    "no gang": Case(None),
    "the group comes first, and is let in": Case(want_open=False, want_group=Apply, want_reason="Queued"),
    "the group is there": Case(group=ObservedGroup(), there=PLAIN),
    "the group is of another size": Case(
        group=ObservedGroup(), there=replace(PLAIN, min_available=2), want_group=Apply
    ),
    "the group is in another queue": Case(
        group=ObservedGroup(), there=replace(PLAIN, queue=""), want_group=Apply
    ),
    "the group has another priority": Case(
        group=ObservedGroup(), there=replace(PLAIN, priority_class=""), want_group=Apply
    ),
    "the group asks for other resources": Case(
        group=ObservedGroup(), there=replace(PLAIN, min_resources={"cpu": 1}), want_group=Apply
    ),
    "a queue that is not named is the default one": Case(
        Gang(3), group=ObservedGroup(), there=Gang(3, "default")
    ),
    "no scheduler that knows groups": Case(
        served=frozenset(), want_open=False, want_reason="GangSchedulerMissing"
    ),
    "a scheduler that went away after the job began": Case(
        served=frozenset(), begun=True, want_reason="GangSchedulerMissing"
    ),
    "a scheduler that was found, and went away after the job began": Case(
        choice="auto", served=frozenset({"builtin"}), begun=True, want_reason="GangSchedulerMissing"
    ),
    "Volcano's group waits in its queue": Case(
        group=ObservedGroup(queued=True), there=PLAIN, want_open=False, want_reason="Queued"
    ),
    "what has begun is not held back": Case(group=ObservedGroup(queued=True), there=PLAIN, begun=True),
    "Kubernetes waits for the pods, not they for it": Case(backend="kubernetes", want_group=Apply),
    "Kubernetes' group cannot be changed: another takes its place": Case(
        backend="kubernetes",
        group=ObservedGroup("kubernetes"),
        there=replace(PLAIN, min_available=2),
        want_open=False,
        want_group=Remove,
        want_reason="Queued",
    ),
    "and stays as it is once there are pods": Case(
        backend="kubernetes", there=replace(PLAIN, min_available=2), begun=True
    ),
    "the coscheduling plugin waits for the pods too": Case(backend="scheduler-plugins", want_group=Apply),
    "Kueue holds the pods by itself, and needs no object": Case(backend="kueue"),
    "by itself the operator waits until it knows what is free": Case(
        backend="builtin", want_open=False, want_reason="Queued"
    ),
    "by itself the operator waits for room": Case(
        backend="builtin", room=NO_ROOM, want_open=False, want_reason="Queued"
    ),
    "by itself the operator makes no object": Case(backend="builtin", room=ROOM),
    "room that is gone later matters no more": Case(backend="builtin", room=NO_ROOM, begun=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gate(case: Case) -> None:
    record = Record(
        phase_since=NOW, attempt_started_at=NOW if case.begun else None, gang_scheduler=case.backend
    )
    children = group_of(case.there, case.backend) if case.there else ()
    cluster = Observed(gang_scheduler_setting=case.choice, available_gang_schedulers=case.served)
    observed = replace(cluster, group=case.group, children=children, capacity=case.room)
    gate = gang.admission(workload(gang=case.gang), record, observed)
    assert (gate.allowed, gate.reason) == (case.want_open, case.want_reason)
    assert (type(gate.action) if gate.action else None) is case.want_group


class Choice(Struct):
    choice: str
    served: frozenset[str]
    want: str
    known: str = ""
    began: datetime | None = None
    group: ObservedGroup | None = None


CHOICES = {
    "what is chosen, if it is served": Choice("volcano", EVERY, "volcano"),
    "nothing else, if it is not": Choice("volcano", EVERY - {"volcano"}, ""),
    "auto takes Volcano first": Choice("auto", EVERY, "volcano"),
    "auto takes another that is served": Choice("auto", EVERY - {"volcano"}, "kubernetes"),
    "auto needs none": Choice("auto", frozenset({"builtin"}), "builtin"),
    "the choice holds when Volcano comes later": Choice("auto", EVERY, "builtin", known="builtin"),
    "it holds when the operator is set up anew": Choice("builtin", EVERY, "volcano", known="volcano"),
    "it holds for pods that are there": Choice(
        "builtin", frozenset({"builtin"}), "volcano", known="volcano", began=NOW
    ),
    "a job that has not begun is not bound to what went away": Choice(
        "builtin", frozenset({"builtin"}), "builtin", known="volcano"
    ),
    "a lost Record is told by the group": Choice(
        "auto", EVERY, "kubernetes", group=ObservedGroup("kubernetes")
    ),
    "none": Choice("none", frozenset(), ""),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES.keys())
def test_choice(case: Choice) -> None:
    record = Record(phase_since=NOW, gang_scheduler=case.known, attempt_started_at=case.began)
    seen = Observed(
        gang_scheduler_setting=case.choice, available_gang_schedulers=case.served, group=case.group
    )
    assert gang.choose_scheduler(workload(gang=PLAIN), record, seen).gang_scheduler == case.want
    assert gang.choose_scheduler(workload(), Record(), seen).gang_scheduler == "", "no gang, no back end"


def test_the_group_is_made_before_the_pods() -> None:
    seen = Observed(gang_scheduler_setting="kubernetes", available_gang_schedulers=frozenset({"kubernetes"}))
    plan = decide(workload(gang=PLAIN), None, seen, NOW)
    kinds = [type(action) for action in plan.actions]
    assert kinds.index(Apply) < kinds.index(CreatePod)
    assert KUBERNETES.group and isinstance(plan.actions[0], Apply)
    assert plan.actions[0].child.kind is KUBERNETES.group.kind


def test_nothing_is_created_by_half() -> None:
    """An old pod in one place holds all of them back."""
    job = workload(role(replicas=3), gang=PLAIN)
    record = Record(phase_since=NOW, attempt=2)
    plan = decide(job, record, Observed(pods=pods("T.."), group=ObservedGroup()), NOW)
    assert not [action for action in plan.actions if isinstance(action, CreatePod)]
    assert plan.record.waiting and plan.record.waiting.reason == "PodsTerminating"


def test_a_suspended_job_gives_its_group_back() -> None:
    job = workload(gang=PLAIN, suspended=True)
    children = (existing(GROUP.kind, "job"), existing(Service, "job-worker"))
    plan = decide(job, Record(phase_since=NOW, gang_scheduled_at=NOW), Observed(children=children), NOW)
    assert [one for one in plan.actions if isinstance(one, Remove)] == [remove(children[0])]
    assert plan.record.gang_scheduled_at is None


class Placing(Struct):
    backend: str
    group: ObservedGroup | None = None
    nodes: tuple[str, ...] = ()
    want: bool = True


PLACINGS = {
    "the scheduler says so": Placing("volcano", ObservedGroup(scheduled=True)),
    "the scheduler says nothing yet": Placing("volcano", ObservedGroup(), ("a", "b", "c"), want=False),
    "enough pods have a node": Placing("kueue", nodes=("a", "b", "b")),
    "too few pods have a node": Placing("kueue", nodes=("a", "b", ""), want=False),
    "the operator itself saw that there was room": Placing("builtin"),
}


@pytest.mark.parametrize("case", PLACINGS.values(), ids=PLACINGS.keys())
def test_placed(case: Placing) -> None:
    job = workload(gang=PLAIN)
    there = tuple(pod(index, "Pending", node=node) for index, node in enumerate(case.nodes))
    record = decide(
        job, Record(phase_since=NOW, attempt_started_at=NOW, gang_scheduler=case.backend), Observed(), NOW
    ).record
    record = replace(record, gang_scheduled_at=None)
    assert (
        bool(gang.mark_scheduled(job, record, Observed(pods=there, group=case.group), NOW).gang_scheduled_at)
        is case.want
    )


class EndCase(Struct):
    group: ObservedGroup | None
    seconds: float
    want: str
    ran: bool = False
    placed: bool = False


ENDS = {
    "there is time": EndCase(None, 30, ""),
    "it is over": EndCase(None, 60, "GangTimeout"),
    "it was placed": EndCase(ObservedGroup(scheduled=True), 600, ""),
    "it was placed once": EndCase(None, 600, "", placed=True),
    "it ran once": EndCase(None, 600, "", ran=True),
    "it was evicted": EndCase(ObservedGroup(evicted=True), 1, "Preempted"),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_ending(case: EndCase) -> None:
    times = {"first_running_at": NOW if case.ran else None, "gang_scheduled_at": NOW if case.placed else None}
    record = replace(Record(phase_since=NOW, attempt_started_at=NOW, phase=Phase.STARTING), **times)
    job = workload(gang=Gang(3, timeout=60))
    found = gang.gang_limit(job, record, Observed(group=case.group), later(case.seconds))
    assert (found.reason if isinstance(found, PhaseResult) else "") == case.want


class Pause(Struct):
    group: ObservedGroup | None = ObservedGroup()
    taken: bool = True
    seconds: float = 1.0
    want: str = "Running"
    want_reason: str = "Preempted"
    """For what the job waits."""
    restart: RestartPolicy = RestartPolicy.ON_FAILURE


PAUSES = {
    "a preempted pod of a group pauses the job": Pause(),
    "so it does where nothing is ever replaced": Pause(restart=RestartPolicy.NEVER),
    "for a minute at most": Pause(seconds=60, want="Restarting", want_reason="PodsTerminating"),
    "not if there is no group": Pause(None, want="Restarting", want_reason="PodsTerminating"),
    "not if the pod failed by itself": Pause(taken=False, want="Restarting", want_reason="PodsTerminating"),
    "if the whole group goes the job has failed": Pause(
        ObservedGroup(evicted=True), want="Failed", want_reason=""
    ),
    "where nothing is replaced the job fails after the pause": Pause(
        seconds=60, restart=RestartPolicy.NEVER, want="Failed", want_reason=""
    ),
}


@pytest.mark.parametrize("case", PAUSES.values(), ids=PAUSES.keys())
def test_pause(case: Pause) -> None:
    job = workload(role(replicas=2, restart=case.restart), gang=Gang(2))
    running = decide(job, None, Observed(pods=pods("RR"), group=ObservedGroup(scheduled=True)), NOW).record
    taken = replace(pod(0, "Failed", exit_code=143), preempted_at=NOW if case.taken else None)
    plan = decide(job, running, Observed(pods=(taken, pod(1)), group=case.group), later(case.seconds))
    waiting = plan.record.waiting
    assert (plan.record.phase.value, waiting.reason if waiting else "") == (case.want, case.want_reason)
    if case.want == "Failed":
        assert plan.record.reason == "Preempted"
    if case.want == "Running":
        assert not plan.actions and plan.requeue_at == later(60)


def test_the_reason_outlives_the_pod() -> None:
    """A pod that was preempted is soon deleted; that its role lost it to that is still known."""
    job = workload(role(replicas=2), gang=Gang(2))
    there = Observed(pods=pods("RR"), group=ObservedGroup(scheduled=True))
    running = decide(job, None, there, NOW).record
    taken = replace(pod(0, terminating=True), preempted_at=NOW)
    paused = decide(job, running, replace(there, pods=(taken, pod(1))), later(1)).record
    gone = replace(there, pods=(pod(1),), confirmed_absent=frozenset({("worker", 0)}))
    ended = decide(job, paused, gone, later(40)).record
    assert (ended.phase, ended.reason) == (Phase.FAILED, "Preempted")
