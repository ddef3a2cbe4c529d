"""Acceptance cases 21 to 24 of et-operator's specification: workers of a running job are lost."""

import pytest

from argosy.dialects.et.settings import EtSettings
from argosy.workload.model import ReplacementBudget
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, done, running_job, worker, workers

W0, W1, W2 = workers(0, 1, 2)
LOST = "TrainingJobWorkerFailed"


def test_case_21_a_failed_worker_leaves_the_list_and_is_not_replaced_without_a_policy() -> None:
    job = running_job()
    created = len(job.cluster.created)
    job.cluster.fail(W1)
    job.reconcile()
    assert job.status.current_workers == [W0]
    assert job.hosts == [W0]
    job.run(20)
    assert job.status.phase == "Running"
    assert job.status.current_workers == [W0]
    assert job.status.target_workers == [W0, W1]
    assert job.status.failed_workers == [W1]
    assert job.event_messages(LOST) == [f"trainingjob(default/{J}): worker {W1} phase is Failed."]
    assert len(job.cluster.created) == created
    counts = job.status.replica_statuses["Worker"]
    assert (counts.active, counts.failed) == (1, 1)


def test_case_21_a_worker_that_is_missing_is_reported_once() -> None:
    job = running_job()
    job.cluster.delete(W1)
    job.run(10)
    assert W1 not in job.pods
    assert (job.hosts, job.status.current_workers) == ([W0], [W0])
    assert job.event_messages(LOST) == [f"trainingjob(default/{J}): worker {W1} phase is Deleted."]
    assert job.status.phase == "Running"


def test_case_21_a_failed_worker_whose_pod_is_deleted_later_is_not_reported_again() -> None:
    job = running_job()
    job.cluster.fail(W1)
    job.run(3)
    job.cluster.delete(W1)
    job.run(5)
    assert job.status.failed_workers == [W1]
    assert job.reasons("Warning") == [LOST]


def test_case_21_an_evicted_worker_is_reported_as_evicted() -> None:
    job = running_job()
    job.cluster.fail(W1, None, reason="Evicted")
    job.run(3)
    assert job.event_messages(LOST) == [f"trainingjob(default/{J}): worker {W1} are evicted."]


def test_case_21_a_succeeded_worker_is_lost_too() -> None:
    job = running_job()
    job.cluster.succeed(W1)
    job.run(3)
    assert (job.hosts, job.status.current_workers) == ([W0], [W0])
    assert job.event_messages(LOST) == [f"trainingjob(default/{J}): worker {W1} phase is Succeeded."]
    assert job.status.phase == "Running"


def test_case_22_a_failed_worker_is_replaced_under_a_new_name_on_failure() -> None:
    job = running_job({"worker.restartPolicy": "OnFailure"})
    kept = job.cluster.uids([W0, LAUNCHER])
    job.cluster.pending = {W2}
    job.cluster.fail(W1)
    job.run(2)
    assert job.status.target_workers == [W0, W2]
    assert job.cluster.workers() == [W0, W1, W2], "the failed pod stays"
    assert job.hosts == [W0]
    job.run(10)
    assert job.hosts == [W0], "a worker that does not run is not listed"
    job.cluster.pending = set()
    job.run(10)
    assert job.hosts == [W0, W2]
    assert job.status.current_workers == [W0, W2]
    assert job.status.failed_workers == [W1]
    assert job.cluster.created.count(W1) == 1
    assert job.cluster.uids([W0, LAUNCHER]) == kept
    assert job.reasons()[-2:] == [LOST, "TrainingJobWorkerCreated"]
    assert job.event_messages("TrainingJobWorkerCreated") == [
        f"trainingjob(default/{J}): recreate workers [{W2}] for failed workers"
    ]
    assert job.status.phase == "Running"


def test_case_22_a_deleted_worker_is_not_replaced_on_failure() -> None:
    job = running_job({"worker.restartPolicy": "OnFailure"})
    job.cluster.delete(W1)
    job.run(10)
    assert job.status.target_workers == [W0, W1]
    assert job.cluster.workers() == [W0]


def test_case_22_a_failed_worker_is_never_used_again_after_a_scale_in() -> None:
    job = running_job({"worker.replicas": 3})
    job.cluster.fail(W2)
    job.run(3)
    job.scale_in("in", toDelete={"podNames": [W2]})
    job.run(10)
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [W0, W1]
    assert W2 not in job.pods
    assert job.status.failed_workers == [W2]
    job.scale_out("out", toAdd={"count": 1})
    job.run(12)
    assert job.status.target_workers == workers(0, 1, 3)


def test_case_22_a_worker_that_is_scaled_in_is_not_replaced() -> None:
    job = running_job(
        {"worker.replicas": 3, "worker.restartPolicy": "Always"},
        answer=lambda call: None if call.key.startswith("drain/") else done(call),
    )
    job.scale_in("in")
    job.run(4)
    assert job.hosts == [W0, W1]
    job.cluster.fail(W2)
    job.run(3)
    job.executor.answer = done
    job.run(8)
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [W0, W1]
    assert job.cluster.workers() == [W0, W1]


REPLACED: dict[str, tuple[str, str, int | None, bool]] = {
    **{f"ExitCode, exit {code}: replaced": ("ExitCode", "Failed", code, True) for code in (137, 128, 255)},
    **{f"ExitCode, exit {code}: not": ("ExitCode", "Failed", code, False) for code in (1, 0, 127, 256)},
    "ExitCode, failed without an exit code: replaced": ("ExitCode", "Failed", None, True),
    "ExitCode, deleted: not": ("ExitCode", "Deleted", None, False),
    "ExitCode, succeeded: not": ("ExitCode", "Succeeded", 0, False),
    **{f"Never, {phase}: not": ("Never", phase, 137, False) for phase in ("Failed", "Deleted", "Succeeded")},
    **{
        f"Always, {phase}: replaced": ("Always", phase, 0, True)
        for phase in ("Failed", "Unknown", "Succeeded", "Deleted")
    },
    "OnFailure, failed: replaced": ("OnFailure", "Failed", 1, True),
    "OnFailure, Unknown: not": ("OnFailure", "Unknown", None, False),
    "OnFailure, succeeded: not": ("OnFailure", "Succeeded", 0, False),
}


@pytest.mark.parametrize(("policy", "phase", "code", "want"), REPLACED.values(), ids=REPLACED)
def test_case_23_whether_a_lost_worker_is_replaced_by_its_restart_policy(
    policy: str, phase: str, code: int | None, want: bool
) -> None:
    job = running_job({"worker.restartPolicy": policy})
    if phase == "Deleted":
        job.cluster.lose(W1)
    else:
        # A container that ended later and with another code does not count.
        job.cluster.change(W1, phase=phase, first_exit_code=code, exit_code=code or 1)
    job.run(12)
    assert job.status.target_workers == ([W0, W2] if want else [W0, W1])
    assert job.hosts == ([W0, W2] if want else [W0])


def test_case_24_replacements_that_fail_at_once_are_delayed_and_stop_at_the_limit() -> None:
    budget = ReplacementBudget(limit=4)
    job = running_job(
        {"worker.restartPolicy": "OnFailure", "worker.minReplicas": 2},
        settings=EtSettings(worker_budget=budget, below_min_timeout=600.0),
    )
    delays: list[float] = []
    for index in (1, 2, 3, 4):
        job.cluster.fail(worker(index))
        failed_at = job.now
        while worker(index + 1) not in job.pods:
            job.run(1)
        created = job.pods[worker(index + 1)].created
        assert created is not None
        delays.append((created - failed_at).total_seconds())
        while job.status.current_workers != [W0, worker(index + 1)]:
            job.run(1)
    assert delays == [0, 10, 20, 40]
    job.cluster.fail(worker(5))
    lost_at = job.now
    job.run(5)
    assert job.reasons("Warning")[-2:] == [LOST, "WorkerReplacementLimitReached"]
    assert job.status.failed_workers == workers(1, 2, 3, 4, 5)
    job.run(120, seconds=4.5)
    assert worker(6) not in job.pods
    assert job.status.phase == "Running"
    assert job.status.target_workers == workers(0, 5)
    job.run(20, seconds=5)
    assert job.status.phase == "Failed"
    assert job.condition("Failed")[:2] == ("True", "BelowMinReplicas")
    assert job.status.completion_time is not None
    assert (job.status.completion_time - lost_at).total_seconds() >= 600
    assert job.status.restart_count == 0


def test_case_24_a_job_that_restarts_on_failure_is_restarted_below_min_replicas() -> None:
    job = running_job({"worker.minReplicas": 2, "restartPolicy": "OnFailure", "backoffLimit": 1})
    for want in ("Running", "Failed"):
        job.cluster.fail(W1)
        job.run(3)
        job.run(2, seconds=600)
        job.run(20)
        assert (job.status.phase, job.status.restart_count) == (want, 1)
    assert job.condition("Failed")[:2] == ("True", "BelowMinReplicas")


def test_case_24_a_job_that_recovers_in_time_goes_on() -> None:
    job = running_job({"worker.minReplicas": 2, "worker.restartPolicy": "Always"})
    job.cluster.pending = {W2}
    job.cluster.fail(W1)
    job.run(2, seconds=250)
    job.cluster.pending = set()
    job.run(12)
    job.cluster.pending = {worker(3)}
    job.cluster.fail(W2)
    job.run(3, seconds=250)
    assert job.status.phase == "Running"


def test_case_24_workers_that_succeeded_do_not_count_as_running() -> None:
    job = running_job({"worker.minReplicas": 2})
    job.cluster.succeed(W1)
    job.run(3)
    job.run(2, seconds=600)
    assert job.condition("Failed")[:2] == ("True", "BelowMinReplicas")


def test_case_24_evictions_and_deletions_use_no_budget() -> None:
    job = running_job(
        {"worker.restartPolicy": "Always"}, settings=EtSettings(worker_budget=ReplacementBudget(limit=1))
    )
    for index in (1, 2, 3):
        if index == 2:
            job.cluster.delete(worker(index))
        else:
            job.cluster.fail(worker(index), None, reason="Evicted")
        job.run(12)
        assert job.hosts == workers(0, index + 1)


def test_a_worker_on_a_node_that_is_lost_leaves_the_list_and_is_replaced() -> None:
    job = EtSimulator({"worker.restartPolicy": "OnFailure"})
    job.cluster.node_of = lambda name: "node-2" if name == W1 else "node-1"
    job.run(8)
    job.cluster.nodes_down = frozenset({"node-2"})
    job.reconcile()
    assert job.hosts == [W0]
    job.run(10)
    assert job.hosts == [W0, W2]
    assert job.status.phase == "Running"


def test_workers_lost_before_all_of_them_run_are_replaced() -> None:
    job = EtSimulator({"worker.restartPolicy": "OnFailure"})
    job.cluster.pending = {W0}
    job.run(2)
    job.cluster.fail(W1)
    job.run(5)
    assert job.status.target_workers == [W0, W2]
    assert job.event_messages(LOST) == [f"trainingjob(default/{J}): worker {W1} phase is Failed."]
    assert LAUNCHER not in job.pods
    job.cluster.pending = set()
    job.run(8)
    assert job.status.phase == "Running"
    assert job.hosts == [W0, W2]


def test_workers_are_replaced_while_the_job_is_scaled() -> None:
    job = running_job({"worker.restartPolicy": "Always"})
    job.cluster.pending = {worker(3)}
    job.scale_out()
    job.run(4)
    job.cluster.fail(W1)
    job.run(2)
    assert job.status.phase == "Scaling"
    assert job.status.target_workers == workers(0, 4), "the index follows those of the ScaleOut"
    job.cluster.pending = set()
    job.run(12)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert job.hosts == workers(0, 2, 3, 4)
