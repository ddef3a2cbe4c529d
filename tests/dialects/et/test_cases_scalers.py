"""Acceptance cases 39 to 43, 47 and 53 of et-operator's specification: scalers in general, and the rest.

Case 44 has a file of its own. Case 48 is tested with the metrics.
"""

import pytest
from msgspec.structs import replace

from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.plan.actions import Exec, ExecResult
from argosy.workload.operation import MAX_OPERATIONS
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, done, running_job, worker, workers

W0, W1, W2, W3 = workers(0, 1, 2, 3)
HOROVODRUN = "launcher.template.spec.containers"


def test_case_39_a_watched_scale_in_shows_its_steps_as_phase() -> None:
    job = running_job()
    job.scale_in("in")
    job.run(12)
    assert job.scaler_phases["in"] == ["Created", "Scaling", "ScriptExecuted", "ScaleSucceeded"]


def test_case_40_scalers_are_executed_one_at_a_time_and_the_older_first() -> None:
    job = running_job({"worker.replicas": 3})
    job.cluster.tick(1)
    job.scale_out("b-newer", toAdd={"count": 1})
    job.scale_in("a-newer", toDelete={"count": 1})
    job.cluster.now -= job.cluster.now - job.cluster.now.replace(second=0)
    job.scale_in("c-older", toDelete={"podNames": [W1]})
    running: list[str] = []
    for _ in range(40):
        job.run(1)
        if job.status.current_scaler and job.status.current_scaler not in running:
            running.append(job.status.current_scaler)
    assert running == ["ScaleIn:default/c-older", "ScaleOut:default/b-newer", "ScaleIn:default/a-newer"]
    assert job.host_lists == [workers(0, 1, 2), workers(0, 2), workers(0, 2, 3), workers(0, 2)]


def test_case_40_the_second_scaler_is_validated_against_the_new_size() -> None:
    job = running_job({"worker.replicas": 3})
    job.scale_in("first", toDelete={"count": 2})
    job.cluster.tick(1)
    job.scale_in("second", toDelete={"count": 2})
    job.run(20)
    assert job.scalers["first"].status.phase == "ScaleSucceeded"
    assert job.scalers["second"].status.phase == "ScaleFailed"
    assert "less than current replicas 1" in job.condition("ScaleFailed", "second")[2]
    assert job.status.target_workers == [W0]


def test_case_40_many_scalers_that_fail_are_each_executed_once() -> None:
    job = running_job()
    for index in range(3 * MAX_OPERATIONS):
        job.scale_in(f"in-{index:02}", toDelete={"count": 5})
        job.reconcile_scaler(f"in-{index:02}")
    scalers, picked = dict(job.scalers), list[str]()
    for _ in range(4 * MAX_OPERATIONS):
        job.reconcile()
        picked += [item.id for item in job.record.operations if item.id not in picked]
    assert len(picked) == MAX_OPERATIONS, "the job waits until the first ones show their result"
    job.run(40)
    assert {scaler.status.phase for scaler in job.scalers.values()} == {"ScaleFailed"}
    assert [event.reason for event in job.scaler_events] == ["ScalingInFailed"] * len(scalers)
    assert job.reasons().count("ScalingInFailed") == len(scalers)


def test_case_40_a_result_that_is_not_shown_yet_does_not_end_the_next_scaler() -> None:
    job = running_job()
    job.scale_out("first", toAdd={"count": 1})
    while job.conditions("first")[-1:] != ["Scaling"]:
        job.run(1)
    while job.status.phase == "Scaling":
        job.reconcile()
        job.cluster.tick(1)
    job.cluster.pending = {W3}
    job.scale_out("second", toAdd={"count": 1})
    job.reconcile_scaler("second")
    for _ in range(4):
        job.reconcile()
        job.reconcile_scaler("second")
        job.cluster.tick(1)
    assert [operation.name for operation in job.record.operations] == ["first", "second"]
    assert (job.status.phase, job.status.current_scaler) == ("Scaling", "ScaleOut:default/second")
    assert job.conditions()[-1] == "Scaling"


def test_case_41_a_scaler_waits_until_its_job_runs() -> None:
    job = EtSimulator()
    job.cluster.pending = {W1}
    job.scale_out("out")
    job.run(5)
    assert job.conditions("out") == ["Created"]
    assert job.scalers["out"].status.phase == ""
    job.cluster.pending = set()
    job.run(20)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert job.hosts == [W0, W1, W2, W3]


def test_case_41_a_scaler_without_a_job_is_bound_when_the_job_appears() -> None:
    job = EtSimulator()
    job.collected = True
    job.scale_out("out")
    job.run(3)
    assert job.conditions("out") == ["WaitingForJob"]
    assert job.condition("WaitingForJob", "out")[1] == "TrainingJobNotFound"
    assert job.scalers["out"].metadata.owner_references == []
    job.collected = False
    job.run(25)
    [owner] = job.scalers["out"].metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("TrainingJob", J, "job-uid", True)
    assert job.condition("WaitingForJob", "out")[0] == "False"
    assert job.scalers["out"].status.phase == "ScaleSucceeded"


@pytest.mark.parametrize("end", ["Succeeded", "Failed"])
def test_case_41_a_scaler_of_a_finished_job_fails(end: str) -> None:
    job = running_job()
    if end == "Succeeded":
        job.cluster.succeed(LAUNCHER)
    else:
        job.cluster.fail(LAUNCHER)
    job.run(3)
    job.scale_out("out")
    job.run(2)
    assert job.scalers["out"].status.phase == "ScaleFailed"
    assert "job finished" in job.condition("ScaleFailed", "out")[2]
    assert len(job.cluster.created) == 3
    assert job.status.phase == end


def test_case_41_a_scaler_that_is_executed_fails_when_its_job_ends() -> None:
    job = running_job()
    job.cluster.pending = {W3}
    job.scale_out("out")
    job.run(5)
    job.cluster.succeed(LAUNCHER)
    job.run(3)
    assert job.scalers["out"].status.phase == "ScaleFailed"
    assert "job finished" in job.condition("ScaleFailed", "out")[2]
    assert (job.status.phase, job.status.current_scaler) == ("Succeeded", "")
    assert job.conditions()[-1] == "Succeeded"
    assert sorted(job.pods) == [LAUNCHER]


def test_case_41_a_scaler_without_a_selector_fails() -> None:
    job = running_job()
    job.scale_out("out", selector={})
    job.run(2)
    assert job.condition("ScaleFailed", "out")[2] == ".spec.selector.name is required"


def test_case_42_a_finished_scaler_is_left_alone_and_vanishes_with_the_job() -> None:
    job = running_job()
    job.scale_in("in")
    job.run(12)
    finished = job.scalers["in"]
    assert isinstance(finished, ScaleIn)
    job.scalers["in"] = replace(finished, spec={**finished.spec, "toDelete": {"count": 5}})
    steps = len(job.steps)
    job.run(5)
    assert len(job.steps) == steps
    assert job.scalers["in"].status == finished.status
    job.delete_job()
    job.collect_garbage()
    assert job.scalers == {}


def test_case_42_a_scaler_of_a_job_that_is_being_deleted_stays_as_it_is() -> None:
    job = running_job()
    job.cluster.pending = {W3}
    job.scale_out("out")
    job.run(5)
    status = job.scalers["out"].status
    job.delete_job()
    job.run(5)
    assert job.scalers["out"].status == status
    job.collected = True
    job.run(2)
    assert job.scalers["out"].status == status, "the garbage collector deletes it"


def test_case_42_a_scaler_of_a_deleted_job_is_not_executed_by_a_new_job_of_that_name() -> None:
    job = running_job()
    job.scale_out("out")
    job.reconcile_scaler("out")
    old = job.scalers["out"]
    assert isinstance(old, ScaleOut)
    renewed = running_job()
    owners = [replace(owner, uid="uid-of-the-old-job") for owner in old.metadata.owner_references]
    renewed.scalers["out"] = replace(old, metadata=replace(old.metadata, owner_references=owners))
    renewed.run(10)
    assert renewed.hosts == [W0, W1]
    assert renewed.scalers["out"].status == old.status


def test_case_43_a_changed_number_of_workers_is_scaled_like_a_scaler_would() -> None:
    job = running_job()
    job.edit({"worker.replicas": 3})
    job.run(2)
    assert (job.status.phase, job.status.current_scaler) == ("Scaling", f"ScaleOut:default/{J}")
    job.run(10)
    assert (job.status.phase, job.status.replicas) == ("Running", 3)
    assert job.hosts == [W0, W1, W2]
    assert job.condition("ScaleSucceeded")[1] == "ScalingOutSucceeded"
    job.edit({"worker.replicas": 2})
    job.run(12)
    assert job.cluster.workers() == [W0, W1]
    assert job.host_lists == [workers(0, 1), workers(0, 1, 2), workers(0, 1)]
    assert job.called("drain/")[0].command[-1] == W2
    assert job.conditions()[-1] == "ScaleSucceeded"
    assert job.condition("ScaleSucceeded")[1] == "ScalingInSucceeded"


def test_case_43_scalers_do_not_change_the_declared_number() -> None:
    job = running_job()
    job.scale_out("out")
    job.run(12)
    job.edit({"slotsPerWorker": 2})
    job.run(5)
    assert job.hosts == [W0, W1, W2, W3]
    job.edit({"worker.replicas": 3})
    job.run(12)
    assert job.hosts == [W0, W1, W2]


@pytest.mark.parametrize("replicas", [0, 10])
def test_case_43_a_number_out_of_range_is_ignored_and_reported_once(replicas: int) -> None:
    job = running_job()
    job.scale_out("out", toAdd={"count": 1})
    job.run(12)
    job.edit({"worker.replicas": replicas})
    job.run(10)
    assert job.status.phase == "Running"
    assert job.hosts == [W0, W1, W2]
    [message] = job.event_messages("ReplicasOutOfRange")
    assert f"spec.etReplicaSpecs.worker.replicas: invalid value {replicas}" in message


def horovodrun(command: list[str], args: list[str] | None = None) -> dict[str, object]:
    return {HOROVODRUN: [{"name": "main", "image": "x", "command": command, "args": args or []}]}


SINGLE: dict[str, tuple[int, dict[str, object], bool]] = {
    "1 worker, horovodrun in a shell: warned": (1, {}, True),
    "1 worker, horovodrun as the program: warned": (1, horovodrun(["/usr/bin/horovodrun", "-np", "1"]), True),
    "1 worker, horovodrun in the arguments: warned": (
        1,
        horovodrun(["sh", "-c"], ["horovodrun -np 1"]),
        True,
    ),
    "2 workers: not warned": (2, {}, False),
    "1 worker, named interfaces: not warned": (
        1,
        horovodrun(["sh", "-c", "horovodrun --network-interfaces eth0 -np 1 x"]),
        False,
    ),
    "1 worker, another driver: not warned": (1, horovodrun(["mpirun", "-np", "1"]), False),
    "1 worker, a word that contains horovodrun: not warned": (1, horovodrun(["my-horovodrunner"]), False),
}


@pytest.mark.parametrize(("replicas", "changes", "want"), SINGLE.values(), ids=SINGLE)
def test_case_47_a_horovod_job_that_starts_with_one_worker_is_warned_about(
    replicas: int, changes: dict[str, object], want: bool
) -> None:
    job = running_job({"worker.replicas": replicas, **changes})
    job.edit({"slotsPerWorker": 2})
    job.run(3)
    assert job.reasons("Warning").count("SingleWorkerElastic") == (1 if want else 0)
    assert job.status.phase == "Running"


def test_case_53_a_launcher_that_polls_the_list_sees_it_grow_and_shrink() -> None:
    job = running_job()
    job.scale_out("out")
    job.cluster.tick(1)
    job.scale_in("in")
    job.run(30)
    assert [len(hosts) for hosts in job.host_lists] == [2, 4, 3]


def test_case_53_a_script_is_called_once_per_scaler_with_the_pods_added_or_removed() -> None:
    calls: list[tuple[str, ...]] = []

    def answer(call: Exec) -> ExecResult:
        if call.key.startswith("script/"):
            calls.append(call.command[-2:])
        return done(call)

    job = running_job(answer=answer)
    job.scale_out("out", script="/hosts.sh")
    job.cluster.tick(1)
    job.scale_in("in", script="/hosts.sh")
    job.run(30)
    assert calls == [("/hosts.sh", f"{W2}:1,{W3}:1"), ("/hosts.sh", f"{worker(3)}:1")]
    assert job.hosts == [W0, W1, W2]
