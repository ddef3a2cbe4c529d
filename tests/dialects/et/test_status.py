"""Tests the size of a large job's Record, and statuses that no case of the specification is about."""

import msgspec
import pytest
from msgspec.structs import replace

from argosy.dialects.base import StatusInput
from argosy.dialects.et.api import training_job_api
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.trainingjob import TrainingJob, TrainingJobCrd, TrainingJobStatus
from argosy.workload.decide import decide
from argosy.workload.model import Workload
from argosy.workload.observed import Observed, ObservedPod
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode, encode
from tests.support import invariants, trainingjobs
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, running_job, worker, workers
from tests.support.workloads import NOW, later

MAX_RECORD_BYTES = 32_000
WORKERS = 2000
API = training_job_api()


def large_job(policy: str) -> TrainingJob:
    changes = {"worker.replicas": WORKERS, "worker.maxReplicas": 9999, "worker.restartPolicy": policy}
    spec = trainingjobs.job(J, changes)["spec"]
    assert isinstance(spec, dict)
    return TrainingJob(ObjectMeta(name=J, namespace="default", uid="u", generation=1), spec)


def pod(role: str, index: int, phase: str = "Running") -> ObservedPod:
    name = worker(index) if role == "worker" else LAUNCHER
    ended: dict[str, object] = {"reason": "Evicted", "disrupted": True} if phase == "Failed" else {}
    running = ObservedPod(name, f"{role}-{index}", role, index, phase=phase, node="node-1")
    return replace(running, **ended)


@pytest.mark.parametrize("policy", ["Never", "Always"])
def test_the_record_of_a_large_job_of_which_half_was_lost_fits_into_its_limit(policy: str) -> None:
    job = large_job(policy)
    workload = API.dialect.to_workload(job)
    assert isinstance(workload, Workload)
    launcher = pod("launcher", 0)
    healthy = Observed(pods=(launcher, *(pod("worker", index) for index in range(WORKERS))))
    record: Record | None = None
    for seconds in range(3):
        record = decide(workload, record, healthy, later(seconds)).record
    assert record is not None
    listed = replace(record.role("worker"), listed=record.role("worker").members)
    record = record.with_role("worker", listed)
    mixed = (pod("worker", index, "Failed" if index % 2 else "Running") for index in range(WORKERS))
    lost = Observed(pods=(launcher, *mixed))
    record = decide(workload, record, lost, later(4)).record
    added = tuple(pod("worker", index) for index in record.role("worker").members if index >= WORKERS)
    record = decide(workload, record, replace(lost, pods=(*lost.pods, *added)), later(5)).record
    record = record.with_role("worker", replace(record.role("worker"), listed=record.role("worker").members))
    assert len(record.role("worker").retired) == WORKERS // 2
    assert bool(added) == (policy == "Always")
    assert len(msgspec.json.encode(encode(record))) <= MAX_RECORD_BYTES
    status = API.dialect.to_status(job, StatusInput(workload, record, lost))
    invariants.check_status(TrainingJobCrd, status)
    assert isinstance(status, TrainingJobStatus)
    assert decode(status.argosy) == record


def test_a_job_with_an_unknown_phase_is_repaired_and_reported() -> None:
    job = running_job()
    job.job = replace(job.job, status=replace(job.status, phase="Dancing"))
    job.run(2)
    assert job.status.phase == "Running"
    assert job.reasons("Warning") == ["UnknownPhase"]


def test_a_running_job_that_is_edited_to_an_invalid_spec_keeps_its_pods_and_goes_on_when_it_is_repaired() -> (
    None
):
    job = running_job()
    pods = job.cluster.uids(job.pods)
    job.edit({"launcherAttachMode": "carrier pigeon"})
    job.run(3)
    assert job.status.phase == "Failed"
    assert job.condition("Failed")[1] == "InvalidSpec"
    job.edit({"launcherAttachMode": "ssh"})
    job.run(3)
    assert job.status.phase == "Running"
    assert job.cluster.uids(job.pods) == pods


def test_a_status_that_is_lost_is_rebuilt_from_the_pods() -> None:
    job = running_job({"worker.restartPolicy": "Always"})
    job.cluster.fail(worker(1))
    job.run(12)
    pods = job.cluster.uids(job.pods)
    job.job = replace(job.job, status=TrainingJobStatus())
    job.run(10)
    assert job.status.phase == "Running"
    assert job.status.target_workers == workers(0, 2)
    assert job.hosts == workers(0, 2)
    assert job.cluster.uids(job.pods) == pods


def test_a_pass_that_changes_nothing_writes_nothing() -> None:
    job = EtSimulator()
    job.run(20)
    written = len(job.steps)
    job.run(10)
    assert len(job.steps) == written


def test_times_of_the_status_are_those_of_the_job() -> None:
    job = EtSimulator()
    job.run(8)
    assert job.status.start_time == NOW
    times = [item.last_transition_time for item in job.status.conditions]
    assert None not in times
    assert times == sorted(time for time in times if time)
