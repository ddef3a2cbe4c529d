"""Tests for the lifecycle of jobs, step by step, and for rules that span several policies."""

from msgspec.structs import replace

from argosy.kinds.kubernetes import Service
from argosy.plan.actions import ActionResult, ActionStatus, EmitEvent
from argosy.workload.decide import decide, plan_invalid
from argosy.workload.model import (
    CleanupPolicy,
    Limits,
    Phase,
    Problem,
    Problems,
    RestartPolicy,
    RestartScope,
    Rules,
)
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod, DeletePod
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from tests.support.fake_cluster import FakeCluster
from tests.support.workloads import NOW, later, observation, pod, pods, role, workload


def record_of(cluster: FakeCluster) -> Record:
    assert cluster.job
    record = decode(cluster.job.status)
    assert record
    return record


def test_a_job_without_failures_starts_runs_and_succeeds() -> None:
    cluster = FakeCluster(
        workload(role(replicas=2), rules=Rules(succeeded_when=(("worker",),), services=("worker",)))
    )
    cluster.sync()
    cluster.reconcile()
    assert record_of(cluster).phase is Phase.STARTING
    assert sorted(cluster.pods) == ["job-worker-0", "job-worker-1"]
    assert (Service, "job-worker") in cluster.children
    cluster.settle()
    assert record_of(cluster).phase is Phase.RUNNING
    for running in cluster.live_pods("Running"):
        cluster.update(replace(running, phase="Succeeded", exit_code=0))
    cluster.settle()
    record = record_of(cluster)
    assert (record.phase, record.reason, record.message) == (Phase.SUCCEEDED, "Completed", "in 0 s")
    assert [entry.reason for entry in record.history] == ["Running", "Succeeded"]


def test_a_killed_worker_is_replaced() -> None:
    cluster = FakeCluster(
        workload(role(replicas=3, restart=RestartPolicy.ON_FAILURE), limits=Limits(restarts=3))
    )
    cluster.settle()
    cluster.fail(cluster.pods["job-worker-2"], 137)
    cluster.sync()
    cluster.reconcile()
    record = record_of(cluster)
    assert record.phase is Phase.RESTARTING
    assert record.message.endswith("replacing it, 1 of 3 restarts used")
    cluster.settle()
    record = record_of(cluster)
    assert (record.phase, record.attempt, record.restarts) == (Phase.RUNNING, 1, 1)
    assert cluster.pods["job-worker-2"].replacement == 1


def test_a_replaced_disrupted_pod_adds_no_history() -> None:
    job = workload(role(replicas=2, restart=RestartPolicy.ON_FAILURE))
    record = decide(job, None, Observed(), NOW).record
    for number, letters in enumerate(("RR", "R.", "RR")):
        record = decide(job, record, Observed(pods=pods(letters)), later(number)).record
    assert record.phase is Phase.RUNNING
    assert [entry.reason for entry in record.history] == ["Running"]


def test_restart_scope_job_starts_a_new_attempt_and_counts_one_failure() -> None:
    roles = role("launcher", 1, RestartPolicy.ON_FAILURE), role("worker", 2, RestartPolicy.ON_FAILURE)
    rules = Rules(succeeded_when=(("launcher",),), failed_when=(("worker",),), restart_scope=RestartScope.JOB)
    cluster = FakeCluster(workload(*roles, rules=rules, limits=Limits(restarts=3)))
    cluster.settle()
    before = {existing.uid for existing in cluster.pods.values()}
    cluster.fail(cluster.pods["job-worker-1"], 137)
    cluster.sync()
    cluster.reconcile()
    cluster.fail(cluster.pods["job-launcher-0"], 1)
    cluster.settle()
    record = record_of(cluster)
    assert (record.phase, record.attempt, record.restarts) == (Phase.RUNNING, 2, 1)
    assert not before & {existing.uid for existing in cluster.pods.values()}


def test_restart_scope_job_does_not_succeed_while_a_lost_worker_is_unconfirmed() -> None:
    """Open MPI 5 ends with code 0 when a pod of its ranks is deleted by force; both are seen at once here."""
    roles = role("launcher", 1, RestartPolicy.ON_FAILURE), role("worker", 2, RestartPolicy.ON_FAILURE)
    rules = Rules(succeeded_when=(("launcher",),), failed_when=(("worker",),), restart_scope=RestartScope.JOB)
    cluster = FakeCluster(workload(*roles, rules=rules, limits=Limits(restarts=3)))
    cluster.settle()
    cluster.remove(cluster.pods["job-worker-1"])
    cluster.update(replace(cluster.pods["job-launcher-0"], phase="Succeeded", exit_code=0))
    cluster.settle()
    record = record_of(cluster)
    assert (record.phase, record.attempt, record.restarts, record.disruptions) == (Phase.RUNNING, 2, 0, 1)
    assert "worker-1 was deleted on node-1; starting attempt 2" in [entry.message for entry in record.history]
    cluster.update(replace(cluster.pods["job-launcher-0"], phase="Succeeded", exit_code=0))
    cluster.settle()
    assert record_of(cluster).phase is Phase.SUCCEEDED


def test_pods_of_a_suspended_job_are_deleted_even_if_its_record_was_lost() -> None:
    job = workload(role(replicas=2))
    cluster = FakeCluster(job)
    cluster.settle()
    cluster.edit(replace(job, suspended=True))
    cluster.lose_record()
    cluster.leader.cached_job, cluster.leader.cached_pods = cluster.job, {}
    cluster.reconcile()
    cluster.settle()
    assert not cluster.pods


def test_suspending_deletes_pods_and_resuming_starts_a_new_attempt() -> None:
    job = workload(role(replicas=2), limits=Limits(active_deadline=86400))
    cluster = FakeCluster(job)
    cluster.settle()
    cluster.now = later(50)
    cluster.edit(replace(job, suspended=True))
    cluster.settle()
    record = record_of(cluster)
    assert not cluster.pods
    assert (record.phase, record.started_at) == (Phase.SUSPENDED, None)
    assert record.waiting and record.waiting.since == later(50)
    cluster.now = later(500)
    cluster.edit(job)
    cluster.settle()
    record = record_of(cluster)
    assert (record.phase, record.attempt, record.restarts) == (Phase.RUNNING, 2, 0)
    assert record.started_at == later(500), "the deadline starts again"


def test_a_deleted_status_is_restored_without_replacing_pods() -> None:
    cluster = FakeCluster(workload(role(replicas=3, restart=RestartPolicy.ON_FAILURE)))
    cluster.settle()
    cluster.fail(cluster.pods["job-worker-1"], 1)
    cluster.settle()
    uids = {existing.uid for existing in cluster.pods.values()}
    cluster.lose_record()
    cluster.settle()
    record = record_of(cluster)
    assert {existing.uid for existing in cluster.pods.values()} == uids
    assert (record.phase, record.restarts, record.replacement("worker", 1)) == (Phase.RUNNING, 1, 1)


def test_success_wins_over_a_limit_exceeded_in_the_same_reconcile() -> None:
    job = workload(role(replicas=1), limits=Limits(active_deadline=10))
    plan = decide(
        job,
        Record(phase_since=NOW, started_at=NOW, attempt_started_at=NOW),
        observation(*pods("S")),
        later(10),
    )
    assert plan.record.phase is Phase.SUCCEEDED


def test_a_deleted_succeeded_pod_is_not_created_again() -> None:
    cluster = FakeCluster(workload(role(replicas=2, restart=RestartPolicy.ON_FAILURE)))
    cluster.settle()
    done = cluster.pods["job-worker-0"]
    cluster.update(replace(done, phase="Succeeded"))
    cluster.settle()
    cluster.remove(cluster.pods["job-worker-0"])
    cluster.settle()
    assert sorted(cluster.pods) == ["job-worker-1"]
    assert record_of(cluster).phase is Phase.RUNNING


def test_a_terminating_pod_on_a_deleted_node_is_force_deleted_after_its_grace_period() -> None:
    job = workload(role(replicas=1, restart=RestartPolicy.ON_FAILURE))
    stuck = pod(0, terminating=True, node="a", deletion_time=later(30))
    observed = Observed(pods=(stuck,), nodes_down=frozenset({"a"}), nodes_released=frozenset({"a"}))
    record = decide(job, None, observation(pod(0, node="a")), NOW).record
    assert decide(job, record, observed, later(40)).requeue_at == later(60)
    plan = decide(job, record, observed, later(60))
    assert [action for action in plan.actions if isinstance(action, DeletePod)] == [
        DeletePod("job-worker-0", stuck.uid, grace_period_seconds=0, reason="a is out of service")
    ]


def test_a_terminating_pod_on_an_unreachable_node_is_waited_for_and_the_status_names_the_command() -> None:
    job = workload(role(replicas=1, restart=RestartPolicy.ON_FAILURE))
    stuck = pod(0, terminating=True, node="a", deletion_time=later(30))
    observed = Observed(pods=(stuck,), nodes_down=frozenset({"a"}))
    record = decide(job, None, observation(pod(0, node="a")), NOW).record
    first = decide(job, record, observed, later(40))
    plan = decide(job, first.record, observed, later(100_000))
    assert not [action for action in plan.actions if isinstance(action, CreatePod | DeletePod)]
    waiting = plan.record.waiting
    assert waiting
    assert (waiting.reason, waiting.since) == ("NodeUnreachable", later(40))
    assert waiting.message == (
        "waiting for job-worker-0 to terminate on a, which is unreachable; if the node is certainly off,"
        " run: kubectl taint nodes a node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )


def test_a_forbidden_pod_is_reported_and_retried() -> None:
    job = workload(role(replicas=1))
    forbidden = ActionResult("Pod", "job-worker-0", ActionStatus.FORBIDDEN, "exceeded quota: team")
    plan = decide(job, None, Observed(failed_actions=(forbidden,)), NOW)
    waiting = plan.record.waiting
    assert waiting
    assert (waiting.reason, waiting.message) == ("PodForbidden", "job-worker-0: exceeded quota: team")
    assert any(isinstance(action, CreatePod) for action in plan.actions)


def test_a_rejected_spec_is_reported_by_one_event() -> None:
    job = workload(role(replicas=1))
    seen_so = Observed(
        failed_actions=(ActionResult("Pod", "job-worker-0", ActionStatus.SPEC_REJECTED, "spec.a: no"),)
    )
    first = decide(job, None, seen_so, NOW)
    assert EmitEvent("Warning", "InvalidSpec", "spec.a: no") in first.events
    second = decide(job, first.record, seen_so, later(1))
    assert not second.events
    assert second.record == first.record


def test_the_time_of_a_wait_reason_stays_while_the_reason_stays() -> None:
    job = workload(role(replicas=1))
    first = decide(job, None, Observed(), NOW).record
    second = decide(
        job, first, observation(pod(0, "Pending", waiting_reason="Unschedulable")), later(5)
    ).record
    third = decide(
        job, second, observation(pod(0, "Pending", waiting_reason="Unschedulable")), later(9)
    ).record
    assert second.waiting and second.waiting.reason == "Unschedulable"
    assert third.waiting and third.waiting.since == later(5)
    assert decide(job, third, observation(pod(0)), later(10)).record.waiting is None


def test_each_history_entry_is_one_event_once() -> None:
    job = workload(role(replicas=1, restart=RestartPolicy.ON_FAILURE))
    running = decide(job, decide(job, None, Observed(), NOW).record, observation(pod(0)), NOW)
    assert running.events == (EmitEvent("Normal", "Running", "attempt 1 is running"),)
    again = decide(job, running.record, observation(pod(0)), later(1))
    assert (again.actions, again.events) == ((), ())
    assert again.record == running.record
    failed = decide(job, running.record, observation(pod(0, "Failed", exit_code=1)), later(2))
    assert [event.type for event in failed.events] == ["Warning"]


def test_an_invalid_edit_is_reported_once_and_changes_nothing() -> None:
    problems = Problems((Problem("spec.roles.worker.replicas", "0 pods are none; write 1 or more"),))
    running = Record(phase_since=NOW, phase=Phase.RUNNING, generation=1)
    plan = plan_invalid(running, problems, 2, later(1))
    assert plan.record.phase is Phase.RUNNING
    assert plan.record.generation == 2
    assert plan.record.waiting and plan.record.waiting.reason == "InvalidSpec"
    assert (plan.actions, len(plan.events)) == ((), 1)
    again = plan_invalid(plan.record, problems, 2, later(2))
    assert (again.record, again.actions, again.events) == (plan.record, (), ())
    cured = decide(workload(role(replicas=1), generation=3), again.record, observation(pod(0)), later(3))
    assert cured.record.waiting is None


def test_nothing_is_done_for_a_job_that_is_being_deleted() -> None:
    job = replace(workload(role(replicas=2)), deleting=True)
    assert decide(job, None, Observed(), NOW).actions == ()


def test_a_finished_job_never_changes_its_phase() -> None:
    job = workload(role(replicas=1), cleanup=CleanupPolicy.NONE, suspended=True, generation=9)
    record = Record(phase_since=NOW, phase=Phase.FAILED, finished_at=NOW, reason="PodFailed")
    plan = decide(job, record, Observed(), later(100))
    assert (plan.record, plan.actions) == (record, ())
