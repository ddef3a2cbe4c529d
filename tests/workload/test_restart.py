from datetime import datetime

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload import restart
from argosy.workload.model import Escalation, Limits, Phase, RestartPolicy, RestartScope, Rules
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, pod, role, seen, workload

KILLED = pod(2, "Failed", exit_code=137, node="node-3")


class Case(Struct):
    pods: tuple[ObservedPod, ...]
    restart: RestartPolicy = RestartPolicy.ON_FAILURE
    scope: RestartScope = RestartScope.POD
    limit: int | None = 3
    used: int = 0
    absent: tuple[tuple[str, int], ...] = ()
    departed: tuple[ObservedPod, ...] = ()
    want_restarts: int = 0
    want_attempt: int = 1
    want_replaced: dict[int, int] = {}
    want_disruptions: int = 0
    want_ending: str = ""
    want_causes: tuple[str, ...] = ()


CASES = {
    "nothing happened": Case((pod(0), pod(1))),
    "a failed pod is replaced": Case((pod(0), KILLED), want_restarts=1, want_replaced={2: 1}),
    "two failures are two": Case(
        (pod(0, "Failed", exit_code=1), KILLED),
        want_restarts=2,
        want_replaced={0: 1, 2: 1},
        want_causes=("NonZeroExit", "Signal"),
    ),
    "a role that never restarts keeps its failures": Case((KILLED,), RestartPolicy.NEVER),
    "a signal is worth a restart": Case(
        (KILLED,), RestartPolicy.EXIT_CODE, want_restarts=1, want_replaced={2: 1}
    ),
    "giving up is not": Case((pod(2, "Failed", exit_code=1),), RestartPolicy.EXIT_CODE),
    "128 is": Case(
        (pod(2, "Failed", exit_code=128),), RestartPolicy.EXIT_CODE, want_restarts=1, want_replaced={2: 1}
    ),
    "127 is not": Case((pod(2, "Failed", exit_code=127),), RestartPolicy.EXIT_CODE),
    "what has no exit code was lost by the cluster": Case(
        (pod(2, "Failed"),),
        RestartPolicy.EXIT_CODE,
        want_restarts=1,
        want_replaced={2: 1},
        want_causes=("Failed",),
    ),
    "an eviction is replaced and uses up nothing": Case(
        (pod(2, "Failed", disrupted=True),),
        used=3,
        want_restarts=3,
        want_replaced={2: 1},
        want_disruptions=1,
        want_causes=("Disrupted",),
    ),
    "a pod that is preempted leaves a gap to fill": Case(
        (pod(2, terminating=True, disruption_reason="PreemptionByScheduler"),), want_causes=("Preempted",)
    ),
    "the last restart is used": Case((KILLED,), used=2, want_restarts=3, want_replaced={2: 1}),
    "no restart is left": Case((KILLED,), used=3, want_restarts=3, want_ending="RestartsExhausted"),
    "none is allowed": Case((KILLED,), limit=0, want_ending="RestartsExhausted"),
    "without a limit there is always one left": Case(
        (KILLED,), limit=None, used=1000, want_restarts=1001, want_replaced={2: 1}
    ),
    "a job that starts anew uses one restart for all its failures": Case(
        (pod(0, "Failed", exit_code=1), KILLED),
        scope=RestartScope.JOB,
        want_restarts=1,
        want_attempt=2,
        want_causes=("Signal",),
    ),
    "a role that starts anew replaces all its pods": Case(
        (pod(0), pod(1), KILLED), scope=RestartScope.ROLE, want_restarts=1, want_replaced={0: 1, 1: 1, 2: 1}
    ),
    "a pod that was counted already is not counted again": Case((replace(KILLED, replacement=-1),)),
    "a pod of an older attempt is not counted": Case((replace(KILLED, attempt=0),)),
    "a deleted pod leaves a gap to fill, not a failure": Case(
        (pod(2, terminating=True),), want_causes=("Deleted",)
    ),
    "so does one that was seen to go": Case(
        (pod(0), pod(1)), departed=(pod(2, terminating=True),), want_causes=("Deleted",)
    ),
    "one that went and is back leaves none": Case((pod(2),), departed=(pod(2, terminating=True),)),
    "a pod that is not to come back leaves no gap": Case((pod(2, terminating=True),), RestartPolicy.NEVER),
    "a pod being deleted starts a job anew, and uses up nothing": Case(
        (pod(2, terminating=True),), scope=RestartScope.JOB, want_attempt=2, want_disruptions=1
    ),
    "a pod certainly gone starts a job anew": Case(
        (pod(0), pod(1)),
        scope=RestartScope.JOB,
        absent=(("worker", 2),),
        want_attempt=2,
        want_disruptions=1,
        want_causes=("Deleted",),
    ),
    "a pod evicted by the cluster is replaced, and uses up nothing": Case(
        (pod(2, "Failed", reason="Evicted", disrupted=True),),
        want_replaced={2: 1},
        want_disruptions=1,
        want_causes=("Evicted",),
    ),
    "a pod evicted for its own storage uses up a restart": Case(
        (replace(pod(2, "Failed", reason="Evicted"), over_limit=True),),
        want_replaced={2: 1},
        want_restarts=1,
        want_causes=("Evicted",),
    ),
    "a pod evicted for its own storage again and again ends the job": Case(
        (replace(pod(2, "Failed", reason="Evicted"), over_limit=True),),
        used=3,
        want_restarts=3,
        want_ending="RestartsExhausted",
    ),
    "if it was seen to go, its cause is told": Case(
        (pod(0), pod(1)),
        scope=RestartScope.JOB,
        absent=(("worker", 2),),
        departed=(pod(2, terminating=True, disruption_reason="EvictionByEvictionAPI"),),
        want_attempt=2,
        want_disruptions=1,
        want_causes=("Evicted",),
    ),
    "a pod merely not seen does not": Case((pod(0), pod(1)), scope=RestartScope.JOB),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_repair(case: Case) -> None:
    job = workload(
        role(restart=case.restart), rules=Rules(restart_scope=case.scope), limits=Limits(restarts=case.limit)
    )
    last = RoleRecord(phase=Phase.RUNNING, size=3, created_below=3)
    record = Record(restarts=case.used, attempt_started_at=NOW, roles={"worker": last})
    view = seen(*case.pods, confirmed_absent=case.absent, recently_deleted=case.departed)
    repair = restart.plan_restarts(job, record, view, later(5))
    after = repair.record
    assert (repair.result.reason if repair.result else "") == case.want_ending
    assert (after.restarts, after.attempt, after.disruptions) == (
        case.want_restarts,
        case.want_attempt,
        case.want_disruptions,
    )
    assert after.role("worker").replacements == case.want_replaced
    if case.want_causes:
        assert repair.causes == case.want_causes
    assert bool(repair.causes) == bool(after.restart_history)
    begun_anew = after.restarts - case.used + after.disruptions > 0
    assert begun_anew == (after.phase is Phase.RESTARTING)
    assert (
        restart.plan_restarts(job, after, view, later(6)).record.restart_history == after.restart_history
    ), "told once"


class Climb(Struct):
    """A place that has failed so often in a row, in a role that was started anew so often."""

    ladder: Escalation
    pod: ObservedPod
    failures: int = 0
    climbed: int = 0
    ran: float = 60
    used: int = 0
    want_rung: str = "Pod"
    want_failures: dict[int, int] = {}
    want_climbed: int = 0
    want_attempt: int = 1
    want_restarts: int = 1
    want_wait: float | None = None
    want_ending: str = ""


FAILED = pod(2, "Failed", exit_code=1)
RUNGS = Escalation(container=2, pod=2, role=1)
CLIMBS = {
    "without a ladder nothing climbs": Climb(Escalation(), FAILED, failures=9, want_failures={2: 9}),
    "a rung bears as many failures as it says": Climb(RUNGS, FAILED, failures=1, want_failures={2: 2}),
    "one more starts the role anew": Climb(RUNGS, FAILED, failures=2, want_rung="Role", want_climbed=1),
    "a role that was started anew too often takes the job": Climb(
        RUNGS, FAILED, failures=2, climbed=1, want_rung="Job", want_attempt=2
    ),
    "a job that has no more restarts fails on any rung": Climb(
        RUNGS,
        FAILED,
        failures=2,
        climbed=1,
        used=3,
        want_rung="",
        want_restarts=3,
        want_climbed=1,
        want_failures={2: 2},
        want_ending="RestartsExhausted",
    ),
    "each time that a role is started anew there is a longer pause": Climb(
        Escalation(pod=0, role=5), FAILED, climbed=2, want_rung="Role", want_climbed=3, want_wait=20
    ),
    "without a number for roles the job is never reached": Climb(
        Escalation(pod=0), FAILED, climbed=7, want_rung="Role", want_climbed=8, want_wait=300
    ),
    "a pod that lived long begins at the bottom": Climb(
        RUNGS, replace(FAILED, created=later(-700)), failures=2, want_failures={2: 1}
    ),
    "so does a role that ran long": Climb(
        RUNGS, FAILED, failures=2, climbed=1, ran=700, want_rung="Role", want_climbed=1
    ),
    "an eviction climbs nothing": Climb(
        RUNGS, pod(2, "Failed", disrupted=True), failures=2, want_failures={2: 2}, want_restarts=0
    ),
    "a node may restart containers as often as the rung bears": Climb(
        RUNGS, pod(2, container_restarts=2, last_exit_code=1), want_rung="", want_restarts=0
    ),
    "a pod whose containers were restarted too often is replaced, and counted no second time": Climb(
        RUNGS, pod(2, container_restarts=3, last_exit_code=1), want_failures={2: 1}, want_restarts=0
    ),
    "pods whose containers crash climb on": Climb(
        RUNGS,
        pod(2, container_restarts=3, last_exit_code=1),
        failures=2,
        want_rung="Role",
        want_climbed=1,
        want_restarts=0,
    ),
}


@pytest.mark.parametrize("case", CLIMBS.values(), ids=CLIMBS.keys())
def test_climbing(case: Climb) -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=3, escalation=case.ladder))
    last = RoleRecord(
        phase=Phase.RUNNING,
        phase_since=later(-case.ran),
        size=3,
        created_below=3,
        failure_streaks={2: case.failures} if case.failures else {},
        role_restarts_in_a_row=case.climbed,
    )
    record = Record(restarts=case.used, attempt_started_at=NOW, roles={"worker": last})
    repair = restart.plan_restarts(job, record, seen(pod(0), pod(1), case.pod), NOW)
    after, worker = repair.record, repair.record.role("worker")
    assert [one.scope for one in after.restart_history] == ([case.want_rung] if case.want_rung else [])
    assert (after.attempt, after.restarts) == (case.want_attempt, case.want_restarts)
    assert (worker.failure_streaks, worker.role_restarts_in_a_row) == (case.want_failures, case.want_climbed)
    if case.want_rung == "Role":
        assert worker.replacements == {0: 1, 1: 1, 2: 1}
        assert worker.retry_at == (later(case.want_wait) if case.want_wait else None)
    assert (repair.result.reason if repair.result else "") == case.want_ending


def test_the_message_says_why_a_pod_that_runs_is_replaced() -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=5, escalation=RUNGS))
    record = Record(restarts=3, roles={"worker": RoleRecord(phase=Phase.RUNNING, size=3, created_below=3)})
    crashing = pod(2, container_restarts=3, last_exit_code=1, node="node-3")
    after = restart.plan_restarts(job, record, seen(crashing), NOW).record
    assert after.message == (
        "worker-2 failed (exit 1) on node-3; replacing it after 3 restarts in its place, 3 of 5 restarts used"
    )


def test_the_message_says_who_how_where_and_what_is_left() -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=3))
    record = Record(roles={"worker": RoleRecord(phase=Phase.RUNNING, size=3, created_below=3)})
    after = restart.plan_restarts(job, record, seen(KILLED), NOW).record
    said = "worker-2 was killed (SIGKILL, exit 137) on node-3; replacing it, 1 of 3 restarts used"
    assert (after.phase, after.message) == (Phase.RESTARTING, said)
    assert after.history[-1].message == said


DELAYS = {1: 0.0, 2: 10.0, 3: 20.0, 4: 40.0, 6: 160.0, 7: 300.0, 5000: 300.0}


@pytest.mark.parametrize(("times", "want"), DELAYS.items())
def test_delay_doubles_after_the_first(times: int, want: float) -> None:
    assert restart.backoff_delay(Limits(), times) == want


class DelayCase(Struct):
    replaced: int
    created: datetime
    want: datetime | None


WAITS = {
    "the first replacement comes at once": DelayCase(0, NOW, None),
    "the second waits": DelayCase(1, NOW, later(10)),
    "the third waits twice as long": DelayCase(2, NOW, later(20)),
    "a pod that lived long is replaced at once": DelayCase(5, later(-601), None),
}


@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS.keys())
def test_delay_of_a_place(case: DelayCase) -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE))
    last = RoleRecord(phase=Phase.RUNNING, size=3, created_below=3, replacements={0: case.replaced})
    failed = pod(0, "Failed", exit_code=1, replacement=case.replaced, created=case.created)
    after = restart.plan_restarts(job, Record(roles={"worker": last}), seen(failed), NOW).record
    assert after.role("worker").retry_at == case.want


def test_containers_that_fail_in_place_use_up_restarts() -> None:
    job = workload(role(restart=RestartPolicy.ALWAYS), limits=Limits(restarts=3))
    record = Record(restarts=4, roles={"worker": RoleRecord(size=3)})
    ending = restart.plan_restarts(job, record, Observed(), NOW).result
    assert ending and ending.reason == "RestartsExhausted"


LIMITS_REACHED = {
    "2 of 3 restarts used and 2 pods fail: both numbers are in the message": (
        (3, 2, (pod(0, "Failed", exit_code=1), pod(1, "Failed", exit_code=1))),
        "restart limit reached: 2 of 3 restarts used, 2 more needed (limits.restarts)",
    ),
    "3 of 3 restarts used and 1 pod fails: one more is needed": (
        (3, 3, (pod(0, "Failed", exit_code=1),)),
        "restart limit reached: 3 of 3 restarts used, 1 more needed (limits.restarts)",
    ),
    "limit 1: the noun is singular": (
        (1, 1, (pod(0, "Failed", exit_code=1),)),
        "restart limit reached: 1 of 1 restart used, 1 more needed (limits.restarts)",
    ),
    "limit 0: no restarts are allowed": (
        (0, 0, (pod(0, "Failed", exit_code=1),)),
        "no restarts are allowed (limits.restarts is 0)",
    ),
}


@pytest.mark.parametrize(("case", "want"), LIMITS_REACHED.values(), ids=LIMITS_REACHED.keys())
def test_message_when_the_restart_limit_is_reached(
    case: tuple[int, int, tuple[ObservedPod, ...]], want: str
) -> None:
    limit, used, failed = case
    job = workload(role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=limit))
    record = Record(restarts=used, roles={"worker": RoleRecord(phase=Phase.RUNNING, size=3, created_below=3)})
    ending = restart.plan_restarts(job, record, seen(*failed), NOW).result
    assert ending is not None
    assert ending.message.endswith(f"; {want}")


def test_a_killed_pod_is_named_before_one_that_gave_up_because_of_it() -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), rules=Rules(restart_scope=RestartScope.JOB))
    record = Record(
        attempt_started_at=NOW, roles={"worker": RoleRecord(phase=Phase.RUNNING, size=3, created_below=3)}
    )
    found = restart.plan_restarts(job, record, seen(pod(0, "Failed", exit_code=1), KILLED), NOW)
    assert found.record.message.startswith(
        "worker-2 was killed (SIGKILL, exit 137) on node-3 (and 1 other pod);"
    )
