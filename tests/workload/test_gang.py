import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.testing.workloads import NOW, later, pods, role, workload
from argosy.workload import gang
from argosy.workload.decide import decide
from argosy.workload.model import Gang, Phase
from argosy.workload.observed import Observed, ObservedGroup
from argosy.workload.phases import Ending
from argosy.workload.plan import CreatePod, EnsurePodGroup
from argosy.workload.record import Record

PLAIN, GATED = Gang(3, "research", "high"), Gang(3, gated=True)
ADMITTED = ObservedGroup(phase="Inqueue", min_member=3, queue="research", priority_class="high")


class Case(Struct):
    gang: Gang | None
    group: ObservedGroup | None = None
    served: bool = True
    begun: bool = False
    want_open: bool = True
    want_group: bool = False
    want_reason: str = ""


CASES = {
    "no gang": Case(None),
    "the group comes first": Case(PLAIN, want_group=True),
    "the group is there": Case(PLAIN, ADMITTED),
    "the group is of another size": Case(PLAIN, replace(ADMITTED, min_member=2), want_group=True),
    "the group is in another queue": Case(PLAIN, replace(ADMITTED, queue="default"), want_group=True),
    "the group has another priority": Case(PLAIN, replace(ADMITTED, priority_class=""), want_group=True),
    "a queue that is not named is the default one": Case(Gang(3), ObservedGroup(min_member=3)),
    "a queue that is not named any more is left": Case(
        Gang(3), replace(ADMITTED, priority_class=""), want_group=True
    ),
    "no scheduler that knows groups": Case(
        PLAIN, served=False, want_open=False, want_reason="GangSchedulerMissing"
    ),
    "a gated group waits in its queue": Case(
        GATED, ObservedGroup(phase="Pending", min_member=3), want_open=False, want_reason="Queued"
    ),
    "a gated group without a phase waits too": Case(
        GATED, want_open=False, want_group=True, want_reason="Queued"
    ),
    "a gated group that was let in": Case(GATED, ObservedGroup(phase="Inqueue", min_member=3)),
    "what has begun is not held back": Case(GATED, ObservedGroup(phase="Pending", min_member=3), begun=True),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gate(case: Case) -> None:
    record = Record(since=NOW, began=NOW if case.begun else None)
    observed = Observed(group=case.group, group_served=case.served)
    gate = gang.gate(workload(gang=case.gang), record, observed)
    assert (gate.open, gate.reason) == (case.want_open, case.want_reason)
    assert (gate.action is not None) is case.want_group


def test_the_group_is_made_before_the_pods() -> None:
    plan = decide(workload(gang=PLAIN), None, Observed(), NOW)
    kinds = [type(action) for action in plan.actions]
    assert kinds.index(EnsurePodGroup) < kinds.index(CreatePod)
    assert plan.actions[0] == EnsurePodGroup("job", 3, "research", "high")


def test_nothing_is_created_by_half() -> None:
    """An old pod in one place holds all of them back."""
    job = workload(role(replicas=3), gang=PLAIN)
    record = Record(since=NOW, attempt=2)
    plan = decide(job, record, Observed(pods=pods("T.."), group=ADMITTED), NOW)
    assert not [action for action in plan.actions if isinstance(action, CreatePod)]
    assert plan.record.waiting and plan.record.waiting.reason == "PodsStopping"


class EndCase(Struct):
    group: ObservedGroup | None
    seconds: float
    want: str
    ran: bool = False


ENDS = {
    "there is time": EndCase(None, 30, ""),
    "it is over": EndCase(None, 60, "GangTimeout"),
    "it was placed": EndCase(ObservedGroup(scheduled=True), 600, ""),
    "it ran once": EndCase(None, 600, "", ran=True),
    "it was evicted": EndCase(ObservedGroup(evicted=True), 1, "Preempted"),
}


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS.keys())
def test_ending(case: EndCase) -> None:
    record = Record(since=NOW, began=NOW, phase=Phase.STARTING, ran=NOW if case.ran else None)
    job = workload(gang=Gang(3, timeout=60))
    found = gang.ending(job, record, Observed(group=case.group), later(case.seconds))
    assert (found.reason if isinstance(found, Ending) else "") == case.want
