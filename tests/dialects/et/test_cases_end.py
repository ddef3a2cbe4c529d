"""Acceptance cases 13 to 20 of et-operator's specification: the end of a job, restarts and suspension."""

from datetime import timedelta

import pytest

from argosy.kinds.trainingjob import JOB_STATUS_ANNOTATION, MAX_WAIT_TIME_ANNOTATION, SUSPEND_ANNOTATION
from argosy.plan.children import owner_reference
from argosy.workload.children import job_owner
from argosy.workload.model import Workload
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, running_job, worker, workers
from tests.support.trainingjobs import REMOVED

W0, W1 = workers(0, 1)
STARTED = ["Created", "WorkersCreated", "WorkersReady", "LauncherCreated"]


@pytest.mark.parametrize("policy", ["Running", "All", REMOVED], ids=["Running", "All", "unset"])
def test_case_13_a_succeeded_launcher_ends_the_job_and_workers_and_services_are_deleted(
    policy: object,
) -> None:
    job = running_job({"cleanPodPolicy": policy})
    job.cluster.succeed(LAUNCHER)
    ended_at = job.now
    job.run(3)
    assert job.status.phase == "Succeeded"
    assert job.status.completion_time == ended_at
    assert job.condition("Succeeded")[:2] == ("True", "TrainingJobSucceeded")
    assert job.condition("Running")[0] == "False"
    assert job.reasons()[-1] == "TrainingJobSucceeded"
    assert sorted(job.pods) == [LAUNCHER]
    assert job.cluster.names("Service") == []
    launcher, worker_counts = job.status.replica_statuses["Launcher"], job.status.replica_statuses["Worker"]
    assert (launcher.active, launcher.succeeded, launcher.failed) == (0, 1, 0)
    assert (worker_counts.active, worker_counts.succeeded, worker_counts.failed) == (0, 0, 0)
    assert job.status.current_workers == []


@pytest.mark.parametrize("policy", ["None", ""])
def test_case_13_workers_and_services_are_kept_with_none(policy: str) -> None:
    job = running_job({"cleanPodPolicy": policy})
    job.cluster.succeed(LAUNCHER)
    job.run(3)
    assert job.status.phase == "Succeeded"
    assert sorted(job.pods) == [LAUNCHER, W0, W1]
    assert job.cluster.names("Service") == [W0, W1]
    assert job.status.current_workers == [W0, W1]


def test_case_13_the_other_children_stay_until_the_job_is_deleted() -> None:
    job = running_job({"cleanPodPolicy": "All"})
    job.cluster.succeed(LAUNCHER)
    job.run(3)
    kept = {kind for kind, _ in job.cluster.children}
    assert kept >= {"Secret", "ServiceAccount", "Role", "RoleBinding"}


@pytest.mark.parametrize(("policy", "kept"), [("Running", [LAUNCHER, W1]), ("All", [LAUNCHER])])
def test_case_14_of_a_failed_and_a_running_worker_running_deletes_one_and_all_both(
    policy: str, kept: list[str]
) -> None:
    job = running_job({"cleanPodPolicy": policy})
    job.cluster.fail(W1)
    job.run(2)
    job.cluster.succeed(LAUNCHER)
    job.run(3)
    assert sorted(job.pods) == kept
    assert job.cluster.names("Service") == []


def test_case_15_a_failed_launcher_fails_the_job_and_is_kept() -> None:
    job = running_job()
    job.cluster.fail(LAUNCHER, 3)
    ended_at = job.now
    job.run(3)
    assert job.status.phase == "Failed"
    status, reason, message = job.condition("Failed")
    assert (status, reason) == ("True", "TrainingJobFailed")
    assert f"job(default/{J}) has failed" in message
    assert "code 3" in message
    assert job.status.completion_time == ended_at
    assert job.condition("Running")[0] == "False"
    assert sorted(job.pods) == [LAUNCHER]
    assert job.cluster.names("Service") == []
    assert job.reasons("Warning") == ["TrainingJobFailed"]
    assert job.status.restart_count == 0


def test_case_15_the_reason_of_the_pod_is_the_reason_of_the_job() -> None:
    job = running_job()
    job.cluster.fail(LAUNCHER, None, reason="UnexpectedAdmissionError")
    job.run(3)
    assert job.condition("Failed")[:2] == ("True", "UnexpectedAdmissionError")
    assert job.status.completion_time is not None


def test_case_15_an_evicted_launcher_leaves_no_completion_time() -> None:
    job = running_job({"ttlSecondsAfterFinished": 60})
    job.cluster.fail(LAUNCHER, None, reason="Evicted")
    job.run(3)
    assert job.status.phase == "Failed"
    assert job.condition("Failed")[:2] == ("True", "TrainingJobEvicted")
    assert job.status.completion_time is None
    assert job.reasons("Warning") == ["TrainingJobEvicted"]
    job.run(1, seconds=60)
    job.reconcile()
    assert job.executor.job_deleted, "the TTL counts from the condition Failed"


def test_case_16_a_failed_launcher_restarts_the_whole_job_as_often_as_allowed() -> None:
    job = running_job({"restartPolicy": "OnFailure", "backoffLimit": 2})
    for count in (1, 2):
        before = job.cluster.uids(job.pods)
        job.cluster.fail(LAUNCHER, 1)
        job.cluster.stuck = {W1}
        job.run(1)
        assert (job.status.phase, job.status.restart_count) == ("Created", count)
        assert job.conditions() == ["Restarting", "Created"]
        job.run(5)
        assert sorted(job.pods) == [W1], "the next start waits until every old pod is gone"
        assert job.cluster.names("Service") == []
        job.cluster.stuck = set()
        job.run(40)
        assert job.status.phase == "Running"
        assert job.conditions() == [*STARTED, "Running"]
        assert job.condition("Restarting")[0] == "False"
        assert sorted(job.pods) == [LAUNCHER, W0, W1]
        assert not set(before.values()) & set(job.cluster.uids(job.pods).values())
    job.cluster.fail(LAUNCHER, 1)
    job.run(5)
    assert (job.status.phase, job.status.restart_count) == ("Failed", 2)
    assert job.condition("Failed")[:2] == ("True", "TrainingJobFailed")
    assert job.phases == ["Created", "Running", "Created", "Running", "Created", "Running", "Failed"]
    assert job.reasons("Warning") == ["TrainingJobRestarting", "TrainingJobRestarting", "TrainingJobFailed"]


def test_case_16_a_restart_begins_with_the_declared_workers_and_ends_a_scaler() -> None:
    job = running_job({"restartPolicy": "OnFailure", "worker.restartPolicy": "Always"})
    job.cluster.fail(W1)
    job.run(12)
    assert job.status.target_workers == workers(0, 2)
    assert job.status.failed_workers == [W1]
    job.cluster.pending = {worker(3)}
    job.scale_out("out", toAdd={"count": 1})
    job.scale_in("in")
    job.run(4)
    assert job.status.phase == "Scaling"
    job.cluster.fail(LAUNCHER, 1)
    job.run(2)
    assert job.status.target_workers == [W0, W1]
    assert job.status.failed_workers == []
    assert job.status.current_scaler == ""
    assert job.scalers["out"].status.phase == "ScaleFailed"
    assert "job restarted" in job.condition("ScaleFailed", "out")[2]
    assert job.conditions("in") == ["Created"], "one that waits is validated again"
    job.cluster.pending = set()
    job.run(30)
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [W0]
    assert job.hosts == [W0]


def test_case_16_no_worker_is_kept_when_restarts_are_used_up_unless_the_policy_is_none() -> None:
    job = running_job({"restartPolicy": "OnFailure", "backoffLimit": 0, "cleanPodPolicy": "None"})
    job.cluster.fail(LAUNCHER, 1)
    job.run(3)
    assert job.status.phase == "Failed"
    assert sorted(job.pods) == [LAUNCHER, W0, W1]


def test_case_17_a_deleted_launcher_is_created_again_with_the_scaled_host_list() -> None:
    job = running_job({"launcher.restartPolicy": "Always"})
    job.scale_out()
    job.run(12)
    assert job.hosts == workers(0, 1, 2, 3)
    uid, kept = job.pods[LAUNCHER].uid, job.cluster.uids(workers(0, 1, 2, 3))
    job.cluster.delete(LAUNCHER)
    job.run(10)
    assert job.pods[LAUNCHER].uid != uid
    assert job.pods[LAUNCHER].phase == "Running"
    assert job.cluster.uids(workers(0, 1, 2, 3)) == kept
    assert job.host_lists == [workers(0, 1), workers(0, 1, 2, 3)]
    assert job.status.phase == "Running"
    assert job.status.restart_count == 0


@pytest.mark.parametrize("policy", ["Never", "OnFailure", "ExitCode", None])
def test_case_17_a_deleted_launcher_fails_the_job_otherwise(policy: str | None) -> None:
    job = running_job({"launcher.restartPolicy": policy} if policy else {})
    job.cluster.delete(LAUNCHER)
    job.run(5)
    assert job.status.phase == "Failed"
    assert job.condition("Failed") == (
        "True",
        "TrainingJobFailed",
        f"launcher pod {LAUNCHER} is missing",
    )
    assert job.pods == {}


def test_case_17_a_deleted_launcher_restarts_a_job_that_restarts_on_failure() -> None:
    job = running_job({"restartPolicy": "OnFailure", "backoffLimit": 1})
    for want in ("Running", "Failed"):
        job.cluster.lose(LAUNCHER)
        job.run(12)
        assert (job.status.phase, job.status.restart_count) == (want, 1)
    assert job.condition("Failed")[1:] == ("TrainingJobFailed", f"launcher pod {LAUNCHER} is missing")


def test_case_18_a_finished_job_is_deleted_when_its_ttl_is_over() -> None:
    job = running_job({"ttlSecondsAfterFinished": 5})
    job.cluster.succeed(LAUNCHER)
    job.reconcile()
    job.run(4)
    assert not job.executor.job_deleted
    job.run(2)
    assert job.executor.job_deleted


def test_case_18_a_job_fails_when_its_deadline_is_over() -> None:
    job = EtSimulator({"activeDeadlineSeconds": 20})
    job.run(20)
    assert job.status.phase == "Running"
    job.run(3)
    assert job.status.phase == "Failed"
    assert job.condition("Failed")[:2] == ("True", "DeadlineExceeded")
    assert job.status.start_time is not None
    assert job.status.completion_time == job.status.start_time + timedelta(seconds=20)
    assert job.pods == {}, "the launcher is stopped too"
    assert "DeadlineExceeded" in job.reasons("Warning")


def test_case_18_without_both_a_job_neither_ends_nor_vanishes() -> None:
    job = running_job()
    job.run(2, seconds=10_000_000)
    assert job.status.phase == "Running"
    job.cluster.succeed(LAUNCHER)
    job.run(2, seconds=10_000_000)
    assert not job.executor.job_deleted


def test_case_19_every_child_is_owned_by_the_job_and_nothing_is_done_while_it_is_deleted() -> None:
    job = running_job()
    job.scale_out()
    job.run(12)
    workload = job.api.dialect.to_workload(job.job)
    assert isinstance(workload, Workload)
    owner = owner_reference(job_owner(workload))
    bodies = [*job.cluster.rendered.values(), *(child.body for child in job.cluster.children.values())]
    assert len(bodies) == 5 + 4 + 5
    for body in bodies:
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        assert metadata["ownerReferences"] == [owner]
    job.delete_job()
    steps = len(job.steps)
    job.run(3)
    assert len(job.steps) == steps, "the garbage collector deletes them"
    job.collect_garbage()
    assert not job.scalers, "the scaler is owned by the job too"


def suspend(job: EtSimulator, how: str, *, on: bool) -> None:
    if how == "annotation":
        job.annotate(SUSPEND_ANNOTATION, "true" if on else None)
    else:
        job.edit({"suspend": on})


REASONS = {"annotation": "WaitingResourceTimeout", "field": "TrainingJobSuspended"}


@pytest.mark.parametrize("how", REASONS)
def test_case_20_a_suspended_job_has_no_pods_and_starts_again_when_it_is_resumed(how: str) -> None:
    job = running_job({"restartPolicy": "OnFailure"})
    job.cluster.fail(LAUNCHER, 1)
    job.run(12)
    started = job.status.start_time
    assert started is not None
    suspend(job, how, on=True)
    job.run(3)
    assert job.status.phase == "Suspended"
    assert job.condition("Suspended")[:2] == ("True", REASONS[how])
    assert job.condition("Running")[0] == "False"
    assert job.pods == {}
    assert job.cluster.names("Service") == []
    assert job.status.current_workers == []
    suspend(job, how, on=False)
    resumed_at = job.now
    job.run(1)
    assert job.status.phase == "Created"
    assert job.conditions() == ["Created", "WorkersCreated"]
    assert job.condition("Suspended")[:2] == ("False", "TrainingJobResumed")
    job.run(8)
    assert job.status.phase == "Running"
    assert job.conditions() == [*STARTED, "Running"]
    assert (job.status.start_time, job.status.restart_count) == (resumed_at, 1)
    assert job.reasons()[-4:] == [
        REASONS[how],
        "TrainingJobResumed",
        "TrainingJobCreated",
        "TrainingJobRunning",
    ]


def test_case_20_a_job_may_be_created_suspended() -> None:
    job = EtSimulator({"suspend": True})
    job.run(3)
    assert job.status.phase == "Suspended"
    assert job.conditions() == ["Suspended"]
    assert not job.pods
    assert not job.cluster.children
    suspend(job, "field", on=False)
    job.run(8)
    assert job.status.phase == "Running"
    assert job.conditions() == [*STARTED, "Running"]


def test_case_20_a_resumed_job_waits_until_the_old_pods_are_gone() -> None:
    job = running_job()
    job.cluster.stuck = {W1}
    suspend(job, "field", on=True)
    job.run(3)
    suspend(job, "field", on=False)
    job.run(5)
    assert sorted(job.pods) == [W1]
    job.cluster.stuck = set()
    job.run(8)
    assert job.status.phase == "Running"


def test_case_20_a_scaler_that_is_executed_fails_and_one_that_waits_goes_on_waiting() -> None:
    job = running_job()
    job.cluster.pending = {worker(2)}
    job.scale_out("out", toAdd={"count": 1})
    job.scale_in("in")
    job.run(4)
    suspend(job, "field", on=True)
    job.run(3)
    assert "job suspended" in job.condition("ScaleFailed", "out")[2]
    assert job.conditions("in") == ["Created"]
    assert job.pods == {}
    suspend(job, "field", on=False)
    job.run(30)
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [W0]


@pytest.mark.parametrize("how", REASONS)
@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_case_20_a_finished_job_is_not_suspended(how: str, end: str) -> None:
    job = running_job()
    if end == "Succeeded":
        job.cluster.succeed(LAUNCHER)
    else:
        job.cluster.fail(LAUNCHER)
    job.run(3)
    suspend(job, how, on=True)
    job.run(3)
    assert job.status.phase == end
    assert job.conditions()[-1] == end


@pytest.mark.parametrize("limit", ["30", "30s", "0.5m"])
def test_a_job_whose_workers_wait_for_too_long_is_suspended_and_can_be_resumed(limit: str) -> None:
    job = EtSimulator(annotations={MAX_WAIT_TIME_ANNOTATION: limit})
    job.cluster.pending = {W1}
    job.run(29)
    assert job.status.phase == "Created"
    job.run(4)
    assert job.status.phase == "Suspended"
    assert job.condition("Suspended")[:2] == ("True", "WaitingResourceTimeout")
    annotations = job.job.metadata.annotations
    assert (annotations[SUSPEND_ANNOTATION], annotations[JOB_STATUS_ANNOTATION]) == ("true", "timeout")
    assert job.pods == {}
    job.annotate(SUSPEND_ANNOTATION, None)
    job.run(20)
    assert job.status.phase == "Created", "the time counts from the new start"
    assert JOB_STATUS_ANNOTATION not in job.job.metadata.annotations
    job.cluster.pending = set()
    job.run(40)
    assert job.status.phase == "Running"
    assert SUSPEND_ANNOTATION not in job.job.metadata.annotations


@pytest.mark.parametrize("limit", ["soon", "-1", "", "9" * 400])
def test_a_time_limit_that_is_none_is_ignored(limit: str) -> None:
    job = EtSimulator(annotations={MAX_WAIT_TIME_ANNOTATION: limit})
    job.cluster.pending = {W1}
    job.run(3, seconds=100_000)
    assert job.status.phase == "Created"
