"""Tests that jobs which et-operator started continue from their stored status."""

import msgspec
import pytest
from msgspec.structs import replace

from argosy.dialects.et.adoption import adopted_record, adopted_replica
from argosy.kinds.scalers import ScaleInStatus, ScaleOutStatus
from argosy.kinds.trainingjob import JobCondition, TrainingJobStatus
from argosy.workload.observed import ObservedPod
from tests.support.et_simulator import LAUNCHER, EtSimulator, worker
from tests.support.workloads import NOW

AT = "2029-12-31T12:00:00Z"
STARTED = ("Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running")


def stored_conditions(*kinds: str) -> list[dict[str, str]]:
    times = {"lastUpdateTime": AT, "lastTransitionTime": AT}
    return [{"type": kind, "status": "True", "reason": f"TrainingJob{kind}", **times} for kind in kinds]


def left(phase: str, *conditions: str, workers: tuple[int, ...] = (0, 1), **fields: object) -> EtSimulator:
    """Return the job of the README with this status, as et-operator stored it, and without pods."""
    names = [worker(index) for index in workers]
    written = {
        "phase": phase,
        "conditions": stored_conditions(*conditions),
        "replicaStatuses": {},
        "restartCount": 0,
        "startTime": AT,
        "targetWorkers": names,
        "currentWorkers": names,
        **fields,
    }
    job = EtSimulator()
    job.job = replace(job.job, status=msgspec.convert(written, TrainingJobStatus))
    return job


def add_pods(job: EtSimulator, *indexes: int, launcher: bool = True, phase: str = "Running") -> None:
    """Add pods of et-operator, with the labels that adoption gives to them."""
    made = [(worker(index), "worker", index) for index in indexes]
    made += [(LAUNCHER, "launcher", 0)] if launcher else []
    for name, role, index in made:
        uid = f"original-{name}"
        job.pods[name] = ObservedPod(name, uid, role, index, phase=phase, created=NOW, node="node-1")


def uids(job: EtSimulator) -> dict[str, str]:
    return {name: pod.uid for name, pod in job.pods.items()}


def test_running_job_continues_with_its_pods() -> None:
    job = left("Running", *STARTED)
    add_pods(job, 0, 1)
    before = uids(job)
    job.run(8)
    assert (uids(job), job.cluster.created, job.phases) == (before, [], ["Running"])
    assert job.conditions() == list(STARTED)
    assert not job.events
    assert job.status.start_time == job.status.conditions[0].last_transition_time
    job.cluster.succeed(LAUNCHER)
    job.run(3)
    assert job.status.phase == "Succeeded"


def test_workers_are_those_of_the_status_and_not_of_the_spec() -> None:
    """Scalers have changed the number, and a replacement has changed a name."""
    job = left("Running", *STARTED, workers=(0, 2, 3))
    add_pods(job, 0, 2, 3)
    job.run(8)
    assert job.status.target_workers == [worker(0), worker(2), worker(3)]
    assert (job.cluster.created, job.status.phase) == ([], "Running")
    assert tuple(job.record.role("worker").listed) == (0, 2, 3)


def test_running_workers_stay_in_the_host_list_before_any_check() -> None:
    """A list that is shorter for a moment would end training processes."""
    job = left("Running", *STARTED)
    job.executor.answer = lambda _call: None
    add_pods(job, 0, 1)
    job.run(3)
    assert tuple(job.record.role("worker").listed) == (0, 1)


def test_files_of_a_launcher_without_sidecar_are_written_by_a_command() -> None:
    job = left("Running", *STARTED)
    add_pods(job, 0, 1)
    job.run(8)
    assert [call.pod for call in job.called("hosts/")] == [LAUNCHER]


def test_worker_that_failed_meanwhile_leaves_the_list() -> None:
    job = left("Running", *STARTED)
    add_pods(job, 0, 1)
    job.cluster.fail(worker(1))
    job.run(3)
    assert (job.status.phase, job.status.current_workers) == ("Running", [worker(0)])
    assert tuple(job.record.role("worker").listed) == (0,)


def test_starting_job_gets_its_launcher() -> None:
    job = left("Created", "Created", "WorkersCreated")
    add_pods(job, 0, 1, launcher=False, phase="Pending")
    job.run(8)
    assert (job.cluster.created, job.status.phase) == ([LAUNCHER], "Running")
    assert job.conditions() == list(STARTED)


def test_job_without_pods_yet_is_started() -> None:
    job = left("Created", "Created", workers=())
    job.run(8)
    assert (sorted(job.cluster.created), job.status.phase) == ([LAUNCHER, worker(0), worker(1)], "Running")


def test_restarts_of_et_operator_count() -> None:
    job = left("Running", *STARTED, restartCount=2)
    job.edit({"restartPolicy": "OnFailure", "backoffLimit": 3})
    add_pods(job, 0, 1)
    job.run(2)
    assert job.status.restart_count == 2
    for restarts, phase in ((3, "Running"), (3, "Failed")):
        job.cluster.fail(LAUNCHER)
        job.run(12)
        assert (job.status.restart_count, job.status.phase) == (restarts, phase)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_job_keeps_its_status_and_does_not_run_again(phase: str) -> None:
    job = left(phase, *STARTED[:4], phase, completionTime=AT)
    before = job.status
    job.run(4)
    assert (job.cluster.created, job.events, job.status.phase) == ([], [], phase)
    assert [(item.type, item.reason) for item in job.status.conditions] == [
        (item.type, item.reason) for item in before.conditions
    ]
    assert job.status.completion_time == before.completion_time
    assert job.status.target_workers == before.target_workers


def test_time_to_live_of_a_finished_job_counts_from_its_end() -> None:
    job = left("Succeeded", *STARTED, "Succeeded", completionTime=AT)
    job.edit({"ttlSecondsAfterFinished": 30})
    job.run(1)
    assert job.executor.job_deleted


def test_suspended_job_is_resumed_when_nothing_suspends_it() -> None:
    job = left("Suspended", *STARTED, "Suspended")
    job.edit({"suspend": True})
    add_pods(job, 0, launcher=False)
    job.run(2)
    assert (job.pods, job.status.phase) == ({}, "Suspended")
    job.edit({"suspend": False})
    job.run(10)
    assert (sorted(job.pods), job.status.phase) == ([LAUNCHER, worker(0), worker(1)], "Running")


def test_pods_left_by_a_suspension_are_replaced() -> None:
    """Nothing suspends the job any more when it is adopted."""
    job = left("Suspended", *STARTED, "Suspended")
    add_pods(job, 0, launcher=False)
    before = uids(job)
    job.run(10)
    assert job.status.phase == "Running"
    assert uids(job)[worker(0)] != before[worker(0)]


def scaling(kind: str, workers: tuple[int, ...], pods: list[str]) -> EtSimulator:
    """Return a job during a ScaleIn of one worker, or a ScaleOut of two, that et-operator has begun."""
    job = left("Scaling", *STARTED, "Scaling", workers=workers, currentScaler=f"{kind}:default/s")
    if kind == "ScaleIn":
        job.scale_in("s")
    else:
        job.scale_out("s")
    written = {
        "phase": "Scaling",
        "conditions": stored_conditions("Created", "Scaling"),
        "replicaStatuses": {},
        "restartCount": 0,
        "toDeletePods" if kind == "ScaleIn" else "addPods": pods,
    }
    status = ScaleInStatus if kind == "ScaleIn" else ScaleOutStatus
    job.scalers["s"] = replace(job.scalers["s"], status=msgspec.convert(written, status))
    return job


def test_scale_in_that_has_deleted_its_worker_removes_no_other() -> None:
    for listed in ((0, 1, 2), (0, 1)):  # before and after the status of the job was written
        job = scaling("ScaleIn", listed, [worker(2)])
        add_pods(job, 0, 1)
        before = uids(job)
        job.run(10)
        assert job.scalers["s"].status.phase == "ScaleSucceeded"
        assert (uids(job), job.cluster.created) == (before, [])
        assert (job.status.target_workers, job.status.phase) == ([worker(0), worker(1)], "Running")


def test_choice_that_leaves_fewer_workers_than_the_minimum_is_made_again() -> None:
    """et-operator may have chosen all workers, if none of the names in the spec was known."""
    job = scaling("ScaleIn", (0, 1), [worker(0), worker(1)])
    add_pods(job, 0, 1)
    job.run(20)
    assert job.scalers["s"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [worker(0)]


def test_scale_out_ends_with_the_workers_that_et_operator_chose() -> None:
    job = scaling("ScaleOut", (0, 1), [worker(2), worker(3)])
    add_pods(job, 0, 1, 2)
    before = {name: uid for name, uid in uids(job).items() if name != worker(2)}
    job.run(20)
    assert job.scalers["s"].status.phase == "ScaleSucceeded"
    assert job.status.target_workers == [worker(index) for index in range(4)]
    assert before.items() <= uids(job).items(), "training is not interrupted"


def test_finished_scaler_stays_a_record() -> None:
    job = left("Running", *STARTED)
    add_pods(job, 0, 1)
    job.scale_in("old")
    ended = ScaleInStatus(
        phase="ScaleSucceeded",
        conditions=[JobCondition("ScaleSucceeded", "True")],
        to_delete_pods=[worker(2)],
    )
    job.scalers["old"] = replace(job.scalers["old"], status=ended)
    job.run(5)
    assert job.scalers["old"].status == ended
    assert job.status.target_workers == [worker(0), worker(1)]


def test_own_or_empty_status_is_not_adopted() -> None:
    job = EtSimulator()
    assert adopted_record(job.job) is None
    job.run(1)
    assert adopted_record(job.job) is None


REPLICAS = {
    "labels of a worker: used": ({"training-job-role": "worker", "replica-index": "3"}, ("worker", 3)),
    "launcher, which has no index: the only one": ({"training-job-role": "launcher"}, ("launcher", 0)),
    "worker without an index: no replica": ({"training-job-role": "worker"}, None),
    "index is not a number: no replica": ({"training-job-role": "worker", "replica-index": "x"}, None),
    "index with digits of another script: no replica": (
        {"training-job-role": "worker", "replica-index": "\u0663"},
        None,
    ),
    "unknown role: no replica": ({"training-job-role": "ps", "replica-index": "0"}, None),
    "no labels: no replica": ({}, None),
}


@pytest.mark.parametrize(("labels", "want"), REPLICAS.values(), ids=REPLICAS.keys())
def test_replica_of_an_adopted_pod(labels: dict[str, str], want: tuple[str, int] | None) -> None:
    assert adopted_replica(labels) == want
