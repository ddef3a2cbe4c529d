"""Tests what a job does when the end of a node or of a pod is announced."""

from collections.abc import Mapping, Sequence

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.ares.dialect import SEMANTICS as ARES
from argosy.workload.announcements import Announcement, NoticeCause
from argosy.workload.decide import decide
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Elastic, Phase, ResizeMode, RestartPolicy, RestartScope, Role, Rules
from argosy.workload.notice import MAX_NOTICES, OpenNotice
from argosy.workload.notice_response import deletion_grace, find_notices
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.plan import CreatePod, DeletePod, Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode
from tests.support import checkpointed_jobs
from tests.support.workloads import NOW, TEMPLATE, later, pod, role, role_record, workload

SPOT = Announcement("n3", "u3", NoticeCause.PREEMPTED, "spot", later(60))
HINT = replace(SPOT, cause=NoticeCause.CANDIDATE, deadline=None)
WORKERS = role(replicas=4, restart=RestartPolicy.ON_FAILURE, elastic=Elastic(2, 8))


def running(size: int = 4, **changes: object) -> Record:
    return checkpointed_jobs.running(size, **changes)


def workers(size: int = 4, **changes: Mapping[str, object]) -> tuple[ObservedPod, ...]:
    """One running pod on each of the nodes n0, n1, …; `w3={…}` changes the pod of index 3."""
    pods = (pod(index, node=f"n{index}") for index in range(size))
    return tuple(replace(one, **changes.get(f"w{one.index}", {})) for one in pods)


def observe(
    pods: Sequence[ObservedPod], *announced: Announcement, nodes_down: Sequence[str] = ()
) -> Observed:
    notices = find_notices(pods, {announcement.node: announcement for announcement in announced})
    return Observed(pods=tuple(pods), notices=notices, nodes_down=frozenset(nodes_down))


def replicas(plan: Plan) -> list[int]:
    """Return the replicas that the role has, or is about to have."""
    return list(plan.record.role("worker").wanted)


def created(plan: Plan) -> list[int]:
    return [action.index for action in plan.actions if isinstance(action, CreatePod)]


def deleted(plan: Plan) -> list[tuple[str, int | None]]:
    return [
        (action.name, action.grace_period_seconds) for action in plan.actions if isinstance(action, DeletePod)
    ]


LIVE = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),))


class Case(Struct):
    role: Role = WORKERS
    announced: Announcement = SPOT
    pods: tuple[ObservedPod, ...] = workers()
    record: Record = running()
    rules: Rules = LIVE
    want_replicas: tuple[int, ...] = (0, 1, 2, 3)
    want_response: str = "Restart"


CASES = {
    "elastic role that can spare the replica: another index takes its place": Case(
        want_replicas=(0, 1, 2, 4), want_response="ScaleIn"
    ),
    "two replicas on the node, and enough others: both are moved": Case(
        pods=workers(w2={"node": "n3"}), want_replicas=(0, 1, 4, 5), want_response="ScaleIn"
    ),
    "role at its maximum, without a spare index: the index is used again": Case(
        role=replace(WORKERS, elastic=Elastic(2, 4)), want_response="ScaleIn"
    ),
    "too few would be left: the pod is replaced when it is lost": Case(
        role=replace(WORKERS, elastic=Elastic(4, 8))
    ),
    "no allowed size would be left: replaced when lost": Case(
        role=replace(WORKERS, elastic=Elastic(2, 8, 2))
    ),
    "another replica does not run, so too few would be left: replaced when lost": Case(
        role=replace(WORKERS, elastic=Elastic(3, 8)), pods=workers(w1={"phase": "Pending"})
    ),
    "another replica is on a node that is down: replaced when lost": Case(
        role=replace(WORKERS, elastic=Elastic(3, 8))
    ),
    "role that is not elastic: replaced when lost": Case(role=replace(WORKERS, elastic=None)),
    "framework that cannot resize while it runs: replaced when lost": Case(
        rules=replace(LIVE, resize=ResizeMode.RESTART)
    ),
    "loss of a pod restarts the job: replaced when lost": Case(
        rules=replace(LIVE, restart_scope=RestartScope.JOB)
    ),
    "role whose pods are not replaced: nothing is moved": Case(
        role=replace(WORKERS, restart=RestartPolicy.NEVER)
    ),
    "replica that all others depend on: replaced when lost": Case(
        announced=replace(SPOT, node="n0"), rules=replace(LIVE, coordinators=("worker",))
    ),
    "replica 0 of a role without a coordinator: moved like any other": Case(
        announced=replace(SPOT, node="n0"), want_replicas=(1, 2, 3, 4), want_response="ScaleIn"
    ),
    "role that does not run yet: replaced when lost": Case(
        record=running(
            phase=Phase.STARTING, roles={"worker": role_record(Phase.STARTING, size=4, phase_since=NOW)}
        ),
        pods=workers(w0={"phase": "Pending"}, w1={"phase": "Pending"}, w2={"phase": "Pending"}),
    ),
    "node that may be removed: nothing": Case(announced=HINT, want_response="None"),
}


@pytest.mark.parametrize("name", CASES)
def test_response_to_the_announced_end_of_a_node(name: str) -> None:
    case = CASES[name]
    down = ["n1"] if "node that is down" in name else []
    observed = observe(case.pods, case.announced, nodes_down=down)
    plan = decide(workload(case.role, rules=case.rules), case.record, observed, later(1))
    (notice,) = plan.record.notices
    assert (notice.response, notice.since) == (case.want_response, later(1))
    assert tuple(replicas(plan)) == case.want_replicas
    assert plan.record.restarts == 0


def test_moved_replicas_are_deleted_before_the_deadline_and_replaced_at_once() -> None:
    plan = decide(workload(WORKERS), running(), observe(workers(), SPOT), later(0))
    assert created(plan) == [4]
    assert deleted(plan) == [("job-worker-3", None)]
    event = plan.events[-1]
    assert (event.type, event.reason) == ("Warning", "DisruptionNotice")
    assert event.message == (
        "n3 is being preempted (spot) by 12:01:00 UTC; removing worker-3, creating worker-4"
    )
    (entry,) = plan.record.restart_history
    assert (entry.cause, entry.index, entry.detail) == ("Disrupted", 3, "n3 is being preempted (spot)")
    assert plan.restart_causes == ("Disrupted",)


def test_a_notice_is_answered_once_however_often_it_is_observed() -> None:
    job, observed = workload(WORKERS), observe(workers(), SPOT)
    first = decide(job, running(), observed, later(0))
    moved = replace(pod(4), node="n3")  # the scheduler has put it on the same node
    pods = (*workers(w3={"terminating": True}), moved)
    second = decide(job, first.record, observe(pods, SPOT), later(1))
    assert replicas(second) == [0, 1, 2, 4]
    assert [event.reason for event in second.events] == ["Resized"], "the new one has become a member"
    assert deleted(second) == []


def test_replicas_on_several_nodes_are_moved_until_too_few_would_be_left() -> None:
    announced = [replace(SPOT, node=f"n{index}", uid=f"u{index}") for index in (1, 2, 3)]
    plan = decide(workload(WORKERS), running(), observe(workers(), *announced), later(0))
    assert [notice.response for notice in plan.record.notices] == ["ScaleIn", "ScaleIn", "Restart"]
    assert replicas(plan) == [0, 3, 4, 5]


def test_hint_that_becomes_certain_is_answered() -> None:
    job = workload(WORKERS)
    hint = decide(job, running(), observe(workers(), HINT), later(0))
    assert replicas(hint) == [0, 1, 2, 3]
    certain = decide(job, hint.record, observe(workers(), SPOT), later(5))
    assert replicas(certain) == [0, 1, 2, 4]
    (notice,) = certain.record.notices
    assert (notice.response, notice.since, notice.deadline) == ("ScaleIn", later(0), later(60))


def test_earlier_deadline_is_followed() -> None:
    job = workload(WORKERS)
    first = decide(job, running(), observe(workers(), SPOT), later(0))
    sooner = replace(SPOT, deadline=later(20))
    second = decide(job, first.record, observe(workers(), sooner), later(1))
    assert second.record.notices[0].deadline == later(20)
    assert deleted(second) == [("job-worker-3", 14)]


NO_DEADLINE = {
    "preempted node: half a minute": (NoticeCause.PREEMPTED, 30),
    "drained node: ten minutes": (NoticeCause.DRAINED, 600),
    "node out of service: at once": (NoticeCause.OUT_OF_SERVICE, 0),
}


@pytest.mark.parametrize(("cause", "seconds"), NO_DEADLINE.values(), ids=NO_DEADLINE.keys())
def test_deadline_is_estimated_if_none_is_announced(cause: NoticeCause, seconds: int) -> None:
    announced = replace(SPOT, cause=cause, deadline=None)
    plan = decide(workload(WORKERS), running(), observe(workers(), announced), later(0))
    assert plan.record.notices[0].deadline == later(seconds)


def test_withdrawn_notice_is_kept_until_its_deadline() -> None:
    job = workload(WORKERS)
    first = decide(job, running(), observe(workers(), SPOT), later(0))
    left = (*workers(3), pod(4, node="n4"))
    withdrawn = decide(job, first.record, observe(left), later(10))
    assert [notice.observed for notice in withdrawn.record.notices] == [False]
    assert withdrawn.requeue_at == later(60)
    assert decide(job, withdrawn.record, observe(left), later(60)).record.notices == ()


def test_notice_whose_node_stays_is_kept_after_its_deadline() -> None:
    job = workload(WORKERS)
    first = decide(job, running(), observe(workers(), SPOT), later(0))
    assert len(decide(job, first.record, observe(workers(3), SPOT), later(300)).record.notices) == 1


def test_new_node_of_the_same_name_is_another_notice() -> None:
    job = workload(WORKERS)
    first = decide(job, running(), observe(workers(), SPOT), later(0))
    again = (*workers(3), pod(4, node="n3"))
    second = decide(job, first.record, observe(again, replace(SPOT, uid="other")), later(5))
    assert [notice.id for notice in second.record.notices] == ["node/u3", "node/other"]
    assert replicas(second) == [0, 1, 2, 3]


EVICTED = {"terminating": True, "disrupted": True, "disruption_reason": "EvictionByEvictionAPI"}


def test_evicted_pod_of_an_elastic_role_is_replaced_while_it_terminates() -> None:
    pods = workers(w3={**EVICTED, "deletion_time": later(30)})
    plan = decide(workload(WORKERS), running(), observe(pods), later(0))
    assert created(plan) == [4]
    (notice,) = plan.record.notices
    assert (notice.id, notice.cause, notice.deadline) == ("pod/worker-3-1-0", "Evicted", later(30))
    assert [entry.cause for entry in plan.record.restart_history] == ["Evicted"]
    gone = decide(workload(WORKERS), plan.record, observe((*workers(3), pod(4))), later(31))
    assert gone.record.notices == ()


CUT_OFF = {"node that works": (), "node that is cut off": ("n3",)}


@pytest.mark.parametrize("nodes_down", CUT_OFF.values(), ids=CUT_OFF.keys())
def test_evicted_pod_whose_index_comes_back_while_it_still_ends_is_recorded_once(
    nodes_down: Sequence[str],
) -> None:
    """New pods of AresJobs do not wait for the end of old ones."""
    [evicted] = workers(w3={**EVICTED, "deletion_time": later(30)})[3:]
    job = replace(workload(WORKERS), semantics=ARES)
    moved = decide(job, running(), observe((*workers(3), evicted)), later(0))
    pods = (*workers(3), evicted, pod(4, node="n4"))
    joined = decide(job, moved.record, observe(pods, nodes_down=nodes_down), later(2))
    assert replicas(joined) == [0, 1, 2, 4]
    larger = replace(job, roles={"worker": replace(WORKERS, replicas=5)}, generation=2)
    plan = decide(larger, joined.record, observe(pods, nodes_down=nodes_down), later(40))
    assert (replicas(plan), created(plan)) == ([0, 1, 2, 3, 4], [3])
    assert [entry.cause for entry in plan.record.restart_history] == ["Evicted"]
    assert plan.restart_causes == ()


def test_evicted_pod_of_another_role_is_no_notice_once_it_terminates() -> None:
    rigid = replace(WORKERS, elastic=None)
    plan = decide(workload(rigid), running(), observe(workers(w3=EVICTED)), later(0))
    assert plan.record.notices == ()
    announced = decide(
        workload(rigid), running(), observe(workers(w3={**EVICTED, "terminating": False})), later(0)
    )
    assert [notice.response for notice in announced.record.notices] == ["Restart"]


def test_pods_that_have_ended_or_are_stale_are_no_concern_of_a_notice() -> None:
    job = workload(WORKERS)
    ended = decide(
        job, running(), observe(workers(w3={"phase": "Succeeded", "exit_code": 0}), SPOT), later(0)
    )
    assert ended.record.notices == ()
    stale = decide(job, running(), observe((*workers(3), pod(3, attempt=0, node="n3")), SPOT), later(0))
    assert stale.record.notices == ()


def test_at_most_so_many_notices_are_answered() -> None:
    size = MAX_NOTICES + 8
    large = role(replicas=size, restart=RestartPolicy.ON_FAILURE, elastic=Elastic(1, 100))
    announced = [replace(SPOT, node=f"n{index}", uid=f"u{index}") for index in range(size)]
    plan = decide(workload(large), running(size), observe(workers(size), *announced), later(0))
    assert len(plan.record.notices) == MAX_NOTICES
    assert len(set(replicas(plan)) & set(range(size))) == 8


def test_next_attempt_and_the_end_of_the_job_forget_notices() -> None:
    job = workload(replace(WORKERS, elastic=None))
    noticed = decide(job, running(), observe(workers(), SPOT), later(0)).record
    assert noticed.notices
    suspended = decide(replace(job, suspended=True), noticed, observe(workers(), SPOT), later(1))
    assert suspended.record.notices == ()
    done = tuple(replace(one, phase="Succeeded", exit_code=0) for one in workers())
    assert decide(job, noticed, observe(done, SPOT), later(1)).record.notices == ()


GRACE = {
    "own grace period ends before the deadline: unchanged": (60, 30, None),
    "own grace period is too long: shortened": (20, 30, 15),
    "hardly any time left: one second, so that the pod is not force-deleted": (3, 30, 1),
    "deadline has passed: unchanged": (0, 30, None),
    "long grace period: shortened": (120, 600, 115),
}


@pytest.mark.parametrize(("left", "own", "want"), GRACE.values(), ids=GRACE.keys())
def test_grace_period_ends_before_the_deadline(left: int, own: int, want: int | None) -> None:
    spec = {"containers": [], "terminationGracePeriodSeconds": own}
    job = workload(replace(WORKERS, template={**TEMPLATE, "spec": spec}))
    notice = OpenNotice("node/u3", "Preempted", "spot", "n3", NOW, later(left), "ScaleIn")
    record = running(notices=(notice,))
    assert deletion_grace(job, record, pod(3, node="n3"), NOW) == want
    assert deletion_grace(job, record, pod(2, node="n2"), NOW) is None


def test_record_with_notices_is_read_as_it_was_written() -> None:
    record = decide(workload(WORKERS), running(), observe(workers(), SPOT), later(0)).record
    assert decode(encode(record)) == record
    assert IndexSet.decode(record.notices[0].replicas["worker"]) == IndexSet.of((3,))
