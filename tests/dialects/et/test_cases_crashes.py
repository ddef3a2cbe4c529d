"""Acceptance case 44 of et-operator's specification: nothing is lost or done twice, whatever happens midway.

The operator is killed before each write of a status, each action and each change of an owner while a job is
scaled out and in, loses its leadership there, or loses the job or a scaler. By default the operator is killed
at every second step; the variants do so at every eighth, and at all of them in `--long`.
"""

import pytest
from msgspec.structs import replace

from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.kinds.trainingjob import TrainingJobStatus
from tests.support.et_executor import EtExecutor
from tests.support.et_simulator import LAUNCHER, EtSimulator, running_job, worker, workers
from tests.support.parameters import sampled

ROUNDS = 22
"""Enough for a ScaleOut and a ScaleIn, with one restart of the operator."""
STAYING = workers(0, 1, 2)


def scaled_job(**spec: object) -> EtSimulator:
    """Return a running job that is about to be scaled out by two workers, and then in by one."""
    job = running_job()
    job.steps.clear()
    job.scale_out("out", **spec)
    job.cluster.tick(1)
    job.scale_in("in", **spec)
    return job


def run_to_step(job: EtSimulator, step: int) -> None:
    """Run until the operator is killed before this step."""
    job.stop_at = step
    while len(job.steps) < step:
        job.run(1)
    job.stop_at = None


def steps(**spec: object) -> dict[str, int]:
    """Return the number of each step, by a title."""
    job = scaled_job(**spec)
    job.run(ROUNDS)
    return _numbered(job)


def job_with_a_lost_worker() -> EtSimulator:
    job = running_job({"worker.restartPolicy": "OnFailure"})
    job.steps.clear()
    job.cluster.fail(worker(1))
    return job


def loss_steps() -> dict[str, int]:
    job = job_with_a_lost_worker()
    job.run(ROUNDS)
    return _numbered(job)


def _numbered(job: EtSimulator) -> dict[str, int]:
    return {f"{number} {what}": number for number, what in enumerate(job.steps, 1)}


STEPS, SCRIPT_STEPS, LOSS_STEPS = steps(), steps(script="/hosts.sh"), loss_steps()


def check_end(job: EtSimulator) -> None:
    """Check that the job was scaled out by two workers and in by one, once."""
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    assert job.cluster.workers() == STAYING
    assert job.cluster.names("Service") == STAYING
    assert (job.hosts, job.status.target_workers, job.status.current_workers) == (STAYING,) * 3
    assert job.cluster.created == [*workers(0, 1), LAUNCHER, *workers(2, 3)], "nothing is created twice"
    assert [action.name for action in job.cluster.deleted] == workers(3)
    assert job.host_lists == [workers(0, 1), workers(0, 1, 2, 3), STAYING]
    scale_out, scale_in = job.scalers["out"], job.scalers["in"]
    assert isinstance(scale_out, ScaleOut)
    assert isinstance(scale_in, ScaleIn)
    assert scale_out.status.add_pods == workers(2, 3)
    assert scale_in.status.to_delete_pods == workers(3)
    for name in ("out", "in"):
        assert job.conditions(name) == ["Created", "ScriptExecuted", "ScaleSucceeded"]
        assert len(job.scalers[name].metadata.owner_references) == 1
    assert job.record.operation is None
    assert job.conditions()[-1] == "ScaleSucceeded"


@pytest.mark.parametrize("step", sampled(STEPS, 2))
def test_case_44_an_operator_killed_at_any_step_ends_in_the_same_state(step: int) -> None:
    job = scaled_job()
    run_to_step(job, step)
    job.run(ROUNDS)
    check_end(job)


@pytest.mark.parametrize("step", sampled(SCRIPT_STEPS, 8))
def test_case_44_an_operator_killed_at_any_step_calls_a_script_under_the_same_name(step: int) -> None:
    job = scaled_job(script="/hosts.sh")
    run_to_step(job, step)
    job.run(ROUNDS)
    check_end(job)
    calls = {call.command for call in job.called("script/")}
    assert len(calls) == 2, "one for each scaler, with the same marker if it is repeated"


@pytest.mark.parametrize("step", sampled(STEPS, 8))
def test_case_44_a_plan_of_an_earlier_leader_is_not_written(step: int) -> None:
    job = scaled_job()
    run_to_step(job, step)
    old_plan = job.plan()
    job.run(ROUNDS)
    written, before = len(job.steps), job.job
    if job.version != old_plan.version:
        assert not job.commit(old_plan)
    assert (len(job.steps), job.job) == (written, before)
    job.run(2)
    check_end(job)


@pytest.mark.parametrize("step", sampled(STEPS, 8))
def test_case_44_actions_of_an_earlier_leader_that_arrive_late_do_no_harm(step: int) -> None:
    """Its status was written, and then another replica became the leader and did everything."""
    job = scaled_job()
    run_to_step(job, step)
    old_plan = job.plan()
    job.run(ROUNDS)
    assert old_plan.workload is not None
    job.cluster.allow_late = True
    late = EtExecutor(job.api, job.cluster, job.executor.answer, lambda what: None)
    late.execute(old_plan.workload, old_plan.plan.actions)
    job.run(5)
    assert (job.hosts, job.cluster.workers(), job.cluster.names("Service")) == (STAYING,) * 3
    assert job.status.phase == "Running"


@pytest.mark.parametrize("deleted", ["out", "in"])
@pytest.mark.parametrize("step", sampled(STEPS, 8))
def test_case_44_a_scaler_that_is_deleted_at_any_step_leaves_nothing_half_done(
    step: int, deleted: str
) -> None:
    job = scaled_job()
    run_to_step(job, step)
    del job.scalers[deleted]
    job.run(ROUNDS)
    assert (job.status.phase, job.status.current_scaler) == ("Running", "")
    present = job.cluster.workers()
    assert (job.hosts, job.status.target_workers, job.cluster.names("Service")) == (present,) * 3
    assert job.record.operation is None
    [other] = job.scalers.values()
    assert other.status.phase == "ScaleSucceeded"


@pytest.mark.parametrize("step", sampled(STEPS, 8))
def test_case_44_a_job_that_is_deleted_while_it_is_scaled_is_left_alone(step: int) -> None:
    job = scaled_job()
    run_to_step(job, step)
    job.delete_job()
    written = len(job.steps)
    job.run(3)
    assert len(job.steps) == written, "the garbage collector deletes what it owns"


@pytest.mark.parametrize("step", sampled(LOSS_STEPS))
def test_a_lost_worker_is_replaced_and_reported_once_by_an_operator_killed_at_any_step(step: int) -> None:
    job = job_with_a_lost_worker()
    run_to_step(job, step)
    job.run(ROUNDS)
    assert job.hosts == job.status.target_workers == workers(0, 2)
    assert job.cluster.created == [*workers(0, 1), LAUNCHER, worker(2)]
    assert job.reasons().count("TrainingJobWorkerFailed") == 1
    assert job.record.role("worker").replacements_in_a_row == 1


@pytest.mark.parametrize("step", sampled(STEPS, 8))
def test_a_job_whose_status_is_lost_at_any_step_is_scaled_once(step: int) -> None:
    """The Record is rebuilt from the pods, and the scalers show what they were about to do."""
    job = scaled_job()
    run_to_step(job, step)
    uid = job.pods[LAUNCHER].uid
    job.job = replace(job.job, status=TrainingJobStatus())
    job.version += 1
    job.host_lists.clear()
    job.run(ROUNDS + 10)
    assert job.cluster.workers() == STAYING
    assert (job.hosts, job.status.target_workers, job.cluster.names("Service")) == (STAYING,) * 3
    assert {scaler.status.phase for scaler in job.scalers.values()} == {"ScaleSucceeded"}
    assert job.pods[LAUNCHER].uid == uid
    assert [] not in job.host_lists, "an empty list would end the training"
