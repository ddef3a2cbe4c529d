from datetime import datetime

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.model import Escalation, Limits, Phase, RestartPolicy, RestartScope, Rules
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from argosy.workload.restarts.policy import plan_restarts
from argosy.workload.restarts.replacement import backoff_delay
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload

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
    "all pods running: nothing is replaced": Case((pod(0), pod(1))),
    "failed pod: replaced, uses a restart": Case((pod(0), KILLED), want_restarts=1, want_replaced={2: 1}),
    "two failed pods: both replaced, use two restarts": Case(
        (pod(0, "Failed", exit_code=1), KILLED),
        want_restarts=2,
        want_replaced={0: 1, 2: 1},
        want_causes=("NonZeroExit", "Signal"),
    ),
    "failed pod with restart Never: not replaced": Case((KILLED,), RestartPolicy.NEVER),
    "exit code 137 with restart ExitCode: replaced": Case(
        (KILLED,), RestartPolicy.EXIT_CODE, want_restarts=1, want_replaced={2: 1}
    ),
    "exit code 1 with restart ExitCode: not replaced": Case(
        (pod(2, "Failed", exit_code=1),), RestartPolicy.EXIT_CODE
    ),
    "exit code 128 with restart ExitCode: replaced": Case(
        (pod(2, "Failed", exit_code=128),), RestartPolicy.EXIT_CODE, want_restarts=1, want_replaced={2: 1}
    ),
    "exit code 127 with restart ExitCode: not replaced": Case(
        (pod(2, "Failed", exit_code=127),), RestartPolicy.EXIT_CODE
    ),
    "failed pod without exit code with restart ExitCode: replaced": Case(
        (pod(2, "Failed"),),
        RestartPolicy.EXIT_CODE,
        want_restarts=1,
        want_replaced={2: 1},
        want_causes=("Failed",),
    ),
    "disrupted pod and no restart left: replaced, uses none": Case(
        (pod(2, "Failed", disrupted=True),),
        used=3,
        want_restarts=3,
        want_replaced={2: 1},
        want_disruptions=1,
        want_causes=("Disrupted",),
    ),
    "preempted pod: replaced in a later reconcile, uses no restart": Case(
        (pod(2, terminating=True, disruption_reason="PreemptionByScheduler"),), want_causes=("Preempted",)
    ),
    "failed pod and one restart left: replaced": Case(
        (KILLED,), used=2, want_restarts=3, want_replaced={2: 1}
    ),
    "failed pod and no restart left: the job fails": Case(
        (KILLED,), used=3, want_restarts=3, want_ending="RestartsExhausted"
    ),
    "failed pod with restart limit 0: the job fails": Case(
        (KILLED,), limit=0, want_ending="RestartsExhausted"
    ),
    "failed pod without a restart limit: replaced": Case(
        (KILLED,), limit=None, used=1000, want_restarts=1001, want_replaced={2: 1}
    ),
    "two failed pods with restart scope Job: a new attempt, uses one restart": Case(
        (pod(0, "Failed", exit_code=1), KILLED),
        scope=RestartScope.JOB,
        want_restarts=1,
        want_attempt=2,
        want_causes=("Signal",),
    ),
    "failed pod with restart scope Role: all pods of the role replaced": Case(
        (pod(0), pod(1), KILLED), scope=RestartScope.ROLE, want_restarts=1, want_replaced={0: 1, 1: 1, 2: 1}
    ),
    "failed pod that was replaced before: not counted again": Case((replace(KILLED, replacement=-1),)),
    "failed pod of an earlier attempt: not counted": Case((replace(KILLED, attempt=0),)),
    "terminating pod: replaced in a later reconcile, uses no restart": Case(
        (pod(2, terminating=True),), want_causes=("Deleted",)
    ),
    "pod whose deletion was observed: recorded as Deleted": Case(
        (pod(0), pod(1)), departed=(pod(2, terminating=True),), want_causes=("Deleted",)
    ),
    "deleted pod that was replaced already: not recorded": Case(
        (pod(2),), departed=(pod(2, terminating=True),)
    ),
    "terminating pod with restart Never: not recorded": Case(
        (pod(2, terminating=True),), RestartPolicy.NEVER
    ),
    "terminating pod with restart scope Job: a new attempt, uses no restart": Case(
        (pod(2, terminating=True),), scope=RestartScope.JOB, want_attempt=2, want_disruptions=1
    ),
    "pod confirmed to be deleted with restart scope Job: a new attempt": Case(
        (pod(0), pod(1)),
        scope=RestartScope.JOB,
        absent=(("worker", 2),),
        want_attempt=2,
        want_disruptions=1,
        want_causes=("Deleted",),
    ),
    "evicted pod: replaced, uses no restart": Case(
        (pod(2, "Failed", reason="Evicted", disrupted=True),),
        want_replaced={2: 1},
        want_disruptions=1,
        want_causes=("Evicted",),
    ),
    "pod evicted because it exceeded its storage limit: uses a restart": Case(
        (replace(pod(2, "Failed", reason="Evicted"), over_limit=True),),
        want_replaced={2: 1},
        want_restarts=1,
        want_causes=("Evicted",),
    ),
    "pod evicted because it exceeded its storage limit and no restart left: the job fails": Case(
        (replace(pod(2, "Failed", reason="Evicted"), over_limit=True),),
        used=3,
        want_restarts=3,
        want_ending="RestartsExhausted",
    ),
    "pod confirmed to be deleted after an observed eviction: recorded as Evicted": Case(
        (pod(0), pod(1)),
        scope=RestartScope.JOB,
        absent=(("worker", 2),),
        departed=(pod(2, terminating=True, disruption_reason="EvictionByEvictionAPI"),),
        want_attempt=2,
        want_disruptions=1,
        want_causes=("Evicted",),
    ),
    "pod not observed and not confirmed to be deleted: no new attempt": Case(
        (pod(0), pod(1)), scope=RestartScope.JOB
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_lost_pods_are_replaced_within_the_limit(case: Case) -> None:
    job = workload(
        role(restart=case.restart), rules=Rules(restart_scope=case.scope), limits=Limits(restarts=case.limit)
    )
    last = role_record(phase=Phase.RUNNING, size=3, created=3)
    record = Record(restarts=case.used, attempt_started_at=NOW, roles={"worker": last})
    observed = observation(*case.pods, confirmed_absent=case.absent, recently_deleted=case.departed)
    repair = plan_restarts(job, record, observed, later(5))
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
    restarting = after.restarts - case.used + after.disruptions > 0
    assert restarting == (after.phase is Phase.RESTARTING)
    assert plan_restarts(job, after, observed, later(6)).record.restart_history == after.restart_history, (
        "each restart is recorded once"
    )


class EscalationCase(Struct):
    """A pod after some consecutive failures of its replica, in a role after some consecutive restarts."""

    escalation: Escalation
    pod: ObservedPod
    failures: int = 0
    role_restarts: int = 0
    running_seconds: float = 60
    used: int = 0
    want_scope: str = "Pod"
    want_failures: dict[int, int] = {}
    want_role_restarts: int = 0
    want_attempt: int = 1
    want_restarts: int = 1
    want_wait: float | None = None
    want_ending: str = ""


FAILED = pod(2, "Failed", exit_code=1)
STEPS = Escalation(container=2, pod=2, role=1)
ESCALATIONS = {
    "no escalation: the pod is replaced": EscalationCase(
        Escalation(), FAILED, failures=9, want_failures={2: 9}
    ),
    "as many failures as allowed: the pod is replaced": EscalationCase(
        STEPS, FAILED, failures=1, want_failures={2: 2}
    ),
    "one failure more than allowed: the role restarts": EscalationCase(
        STEPS, FAILED, failures=2, want_scope="Role", want_role_restarts=1
    ),
    "one role restart more than allowed: the job restarts": EscalationCase(
        STEPS, FAILED, failures=2, role_restarts=1, want_scope="Job", want_attempt=2
    ),
    "no restart left: the job fails without escalation": EscalationCase(
        STEPS,
        FAILED,
        failures=2,
        role_restarts=1,
        used=3,
        want_scope="",
        want_restarts=3,
        want_role_restarts=1,
        want_failures={2: 2},
        want_ending="RestartsExhausted",
    ),
    "third consecutive role restart: longer backoff": EscalationCase(
        Escalation(pod=0, role=5),
        FAILED,
        role_restarts=2,
        want_scope="Role",
        want_role_restarts=3,
        want_wait=20,
    ),
    "no limit of role restarts: the job is never restarted": EscalationCase(
        Escalation(pod=0), FAILED, role_restarts=7, want_scope="Role", want_role_restarts=8, want_wait=300
    ),
    "pod failed after running long: its failures count from one": EscalationCase(
        STEPS, replace(FAILED, created=later(-700)), failures=2, want_failures={2: 1}
    ),
    "role was running long: its restarts count from one": EscalationCase(
        STEPS,
        FAILED,
        failures=2,
        role_restarts=1,
        running_seconds=700,
        want_scope="Role",
        want_role_restarts=1,
    ),
    "disrupted pod: no escalation": EscalationCase(
        STEPS, pod(2, "Failed", disrupted=True), failures=2, want_failures={2: 2}, want_restarts=0
    ),
    "as many container restarts as allowed: the pod is kept": EscalationCase(
        STEPS, pod(2, container_restarts=2, last_exit_code=1), want_scope="", want_restarts=0
    ),
    "one container restart more than allowed: the pod is replaced without using a restart": EscalationCase(
        STEPS, pod(2, container_restarts=3, last_exit_code=1), want_failures={2: 1}, want_restarts=0
    ),
    "too many container restarts after failures: the role restarts": EscalationCase(
        STEPS,
        pod(2, container_restarts=3, last_exit_code=1),
        failures=2,
        want_scope="Role",
        want_role_restarts=1,
        want_restarts=0,
    ),
}


@pytest.mark.parametrize("case", ESCALATIONS.values(), ids=ESCALATIONS.keys())
def test_consecutive_failures_escalate(case: EscalationCase) -> None:
    job = workload(
        role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=3, escalation=case.escalation)
    )
    last = role_record(
        phase=Phase.RUNNING,
        phase_since=later(-case.running_seconds),
        size=3,
        created=3,
        failure_streaks={2: case.failures} if case.failures else {},
        role_restarts_in_a_row=case.role_restarts,
    )
    record = Record(restarts=case.used, attempt_started_at=NOW, roles={"worker": last})
    repair = plan_restarts(job, record, observation(pod(0), pod(1), case.pod), NOW)
    after, worker = repair.record, repair.record.role("worker")
    assert [entry.scope for entry in after.restart_history] == ([case.want_scope] if case.want_scope else [])
    assert (after.attempt, after.restarts) == (case.want_attempt, case.want_restarts)
    assert (worker.failure_streaks, worker.role_restarts_in_a_row) == (
        case.want_failures,
        case.want_role_restarts,
    )
    if case.want_scope == "Role":
        assert worker.replacements == {0: 1, 1: 1, 2: 1}
        assert worker.retry_at == (later(case.want_wait) if case.want_wait else None)
    assert (repair.result.reason if repair.result else "") == case.want_ending


def test_the_message_of_a_replaced_running_pod_has_its_container_restarts() -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=5, escalation=STEPS))
    record = Record(restarts=3, roles={"worker": role_record(phase=Phase.RUNNING, size=3, created=3)})
    crashing = pod(2, container_restarts=3, last_exit_code=1, node="node-3")
    after = plan_restarts(job, record, observation(crashing), NOW).record
    assert after.message == (
        "worker-2 failed (exit 1) on node-3; replacing it after 3 container restarts, 3 of 5 restarts used"
    )


def test_the_message_has_pod_cause_node_and_used_restarts() -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=3))
    record = Record(roles={"worker": role_record(phase=Phase.RUNNING, size=3, created=3)})
    after = plan_restarts(job, record, observation(KILLED), NOW).record
    message = "worker-2 was killed (SIGKILL, exit 137) on node-3; replacing it, 1 of 3 restarts used"
    assert (after.phase, after.message) == (Phase.RESTARTING, message)
    assert after.history[-1].message == message


DELAYS = {1: 0.0, 2: 10.0, 3: 20.0, 4: 40.0, 6: 160.0, 7: 300.0, 5000: 300.0}


@pytest.mark.parametrize(("times", "want"), DELAYS.items())
def test_the_backoff_doubles_after_the_first_delay(times: int, want: float) -> None:
    assert backoff_delay(Limits(), times) == want


class DelayCase(Struct):
    replaced: int
    created: datetime
    want: datetime | None


WAITS = {
    "first replacement: no delay": DelayCase(0, NOW, None),
    "second replacement: 10 s": DelayCase(1, NOW, later(10)),
    "third replacement: 20 s": DelayCase(2, NOW, later(20)),
    "pod failed after running long: no delay": DelayCase(5, later(-601), None),
}


@pytest.mark.parametrize("case", WAITS.values(), ids=WAITS.keys())
def test_consecutive_replacements_are_delayed(case: DelayCase) -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE))
    last = role_record(phase=Phase.RUNNING, size=3, created=3, replacements={0: case.replaced})
    failed = pod(0, "Failed", exit_code=1, replacement=case.replaced, created=case.created)
    after = plan_restarts(job, Record(roles={"worker": last}), observation(failed), NOW).record
    assert after.role("worker").retry_at == case.want


def test_more_container_restarts_than_the_limit_fail_the_job() -> None:
    job = workload(role(restart=RestartPolicy.ALWAYS), limits=Limits(restarts=3))
    record = Record(restarts=4, roles={"worker": role_record(size=3)})
    result = plan_restarts(job, record, Observed(), NOW).result
    assert result and result.reason == "RestartsExhausted"


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
    record = Record(restarts=used, roles={"worker": role_record(phase=Phase.RUNNING, size=3, created=3)})
    result = plan_restarts(job, record, observation(*failed), NOW).result
    assert result is not None
    assert result.message.endswith(f"; {want}")


def test_the_message_names_a_killed_pod_rather_than_one_that_exited() -> None:
    job = workload(role(restart=RestartPolicy.ON_FAILURE), rules=Rules(restart_scope=RestartScope.JOB))
    record = Record(
        attempt_started_at=NOW, roles={"worker": role_record(phase=Phase.RUNNING, size=3, created=3)}
    )
    plan = plan_restarts(job, record, observation(pod(0, "Failed", exit_code=1), KILLED), NOW)
    assert plan.record.message.startswith(
        "worker-2 was killed (SIGKILL, exit 137) on node-3 (and 1 other pod);"
    )
