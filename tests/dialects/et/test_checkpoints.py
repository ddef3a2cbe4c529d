"""TrainingJobs with checkpoints save one before workers leave, are released or are suspended."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec import Struct

from argosy.dialects.et.validation import load_job
from argosy.kinds.trainingjob import TrainingJob
from argosy.plan.actions import Exec, ExecResult
from argosy.workload.announcements import NoticeCause
from argosy.workload.checkpoint_record import SavedCheckpoint
from argosy.workload.model import Problems
from argosy.workload.operation import ScaleStep
from tests.support.et_simulator import LAUNCHER, EtSimulator, J, done, worker, workers
from tests.support.parameters import sampled
from tests.support.trainingjobs import job as manifest

W0, W1, W2, W3 = workers(0, 1, 2, 3)
POLICY: dict[str, object] = {"store": "file:///store", "suspendGrace": "60s"}
FOLDER = "file:///store/default/elastic-training-job-uid"


def running(**checkpoint: object) -> EtSimulator:
    """Return a running job of three workers with checkpoints, each pod on a node of its own."""
    job = EtSimulator({"worker.replicas": 3, "checkpoint": {**POLICY, **checkpoint}})
    job.cluster.node_of = lambda name: f"node-{name.removeprefix(f'{J}-')}"
    job.run(8)
    assert job.status.phase == "Running", job.status
    return job


CONDITIONS = {"CheckpointReady", "ProgressLost"}


def checkpoint_conditions(job: EtSimulator) -> list[tuple[str, str]]:
    """Return status and reason of CheckpointReady and of ProgressLost, which are first in the list."""
    ready, lost = job.status.conditions[:2]
    assert [ready.type, lost.type] == ["CheckpointReady", "ProgressLost"]
    return [(ready.status, ready.reason), (lost.status, lost.reason)]


def recoveries(job: EtSimulator) -> list[tuple[str, str, str, str]]:
    return [(it.cause, it.action, it.source, it.outcome) for it in job.status.recoveries]


def test_launcher_and_workers_get_the_folder_the_orders_and_the_sidecar() -> None:
    job = running()
    for name in (LAUNCHER, W0):
        spec = job.cluster.rendered[name]["spec"]
        assert isinstance(spec, dict)
        [first] = spec["containers"]
        env = {item["name"]: item.get("value") for item in first["env"]}
        assert env["ARGOSY_CHECKPOINT_URI"] == FOLDER
        assert env["ARGOSY_ORDERS"] == "/run/argosy/orders/orders.json"
        assert {"argosy-checkpoint-init", "argosy-checkpoint"} <= {
            container["name"] for container in spec["initContainers"]
        }
        assert "/argosy/checkpoints" in {mount["mountPath"] for mount in first["volumeMounts"]}


def test_job_without_the_field_has_none_of_it() -> None:
    job = EtSimulator()
    job.run(8)
    assert "argosy-checkpoint" not in str(job.cluster.rendered)
    assert job.status.checkpoint is None
    assert not CONDITIONS & {item.type for item in job.status.conditions}


def test_conditions_show_the_last_checkpoint_and_what_a_restart_has_undone() -> None:
    job = running()
    job.edit({"restartPolicy": "OnFailure"})
    job.run(1)
    assert checkpoint_conditions(job) == [("False", "NoCheckpointYet"), ("False", "NoLoss")]
    job.edit({"suspend": True})
    job.run(2)
    job.save_checkpoint()
    job.run(4)
    job.edit({"suspend": False})
    job.run(12)
    assert checkpoint_conditions(job) == [("True", "CheckpointCompleted"), ("False", "NoLoss")]
    saved = job.status.conditions[0]
    job.cluster.fail(LAUNCHER)
    job.run(30)
    assert job.status.phase == "Running"
    assert checkpoint_conditions(job) == [("True", "CheckpointCompleted"), ("True", "CheckpointOutdated")]
    assert job.status.conditions[0] == saved, "a restart does not change when it was saved"
    assert job.status.conditions[-1].type == "Running", "the last condition tells what happened last"


def test_checkpoint_that_is_late_makes_the_condition_false_until_the_next_one() -> None:
    job = running(suspendGrace="5s")
    job.scale_in("in")
    job.run(20)
    assert checkpoint_conditions(job)[0] == ("False", "CheckpointTimeout")
    job.save_checkpoint()
    job.run(3)
    assert checkpoint_conditions(job)[0] == ("True", "CheckpointCompleted")
    assert job.reasons("Warning").count("CheckpointTimeout") == 1


def test_job_whose_policy_is_removed_has_no_conditions_of_checkpoints() -> None:
    job = running()
    job.edit({"checkpoint": None})
    job.run(3)
    assert not CONDITIONS & {item.type for item in job.status.conditions}


def by_object(job: EtSimulator) -> None:
    job.scale_in("in")


def by_number(job: EtSimulator) -> None:
    job.edit({"worker.replicas": 2})


SCALE_INS = {"ScaleIn": (by_object, "ScaleIn/in"), "worker.replicas": (by_number, "replicas")}


@pytest.mark.parametrize(("scale", "source"), SCALE_INS.values(), ids=SCALE_INS.keys())
def test_worker_leaves_once_a_checkpoint_is_saved(scale: Callable[[EtSimulator], None], source: str) -> None:
    job = running()
    scale(job)
    job.run(10)
    assert (job.status.phase, job.hosts) == ("Scaling", [W0, W1, W2])
    assert job.cluster.deleted == []
    [order] = job.orders
    assert (order.reason, dict(order.stop)) == ("Resized", {}), "workers train until they have left"
    assert job.status.checkpoint is not None
    assert "(Resized), due by" in job.status.checkpoint.message
    job.save_checkpoint()
    job.run(12)
    assert (job.status.phase, job.hosts, job.cluster.workers()) == ("Running", [W0, W1], [W0, W1])
    assert [action.name for action in job.cluster.deleted] == [W2]
    assert len(job.orders) == 1
    assert recoveries(job) == [("Resized", "ScaleIn", source, "Recovered")]
    assert (job.status.checkpoint.uri, job.status.checkpoint.last_step) == (FOLDER, order.epoch)
    assert job.reasons().count("CheckpointCompleted") == 1


LIMITS = {"suspendGrace": ({"suspendGrace": "10s"}, 600), "timeout of the ScaleIn": ({}, 10)}


@pytest.mark.parametrize(("checkpoint", "timeout"), LIMITS.values(), ids=LIMITS.keys())
def test_checkpoint_that_is_late_is_not_waited_for(checkpoint: dict[str, object], timeout: int) -> None:
    job = running(**checkpoint)
    job.scale_in("in", timeout=timeout)
    job.run(10)
    assert job.cluster.deleted == []
    job.run(20)
    assert (job.scalers["in"].status.phase, job.hosts) == ("ScaleSucceeded", [W0, W1])
    assert "CheckpointTimeout" in job.reasons("Warning")
    assert recoveries(job) == [("Resized", "ScaleIn", "ScaleIn/in", "ProgressLost")]


def test_worker_that_does_not_run_is_not_waited_for() -> None:
    job = running()
    job.cluster.pending = {W2}
    job.cluster.change(W2, phase="Pending")
    job.scale_in("in", toDelete={"podNames": [W2]})
    job.run(10)
    assert job.orders == []
    assert job.scalers["in"].status.phase == "ScaleSucceeded"


def test_scale_in_that_is_deleted_while_the_checkpoint_is_saved_removes_nobody() -> None:
    job = running()
    job.scale_in("in")
    job.run(4)
    del job.scalers["in"]
    job.saves = True
    job.run(10)
    assert (job.hosts, job.cluster.deleted) == ([W0, W1, W2], [])
    assert job.status.phase == "Running"


def test_script_runs_once_the_checkpoint_is_saved() -> None:
    job = running()
    job.scale_in("in", script="/scale.sh")
    job.run(6)
    assert job.called("script/") == []
    job.saves = True
    job.run(10)
    assert len(job.called("script/")) == 1
    assert job.hosts == [W0, W1]


def test_scale_out_saves_nothing() -> None:
    job = running()
    job.scale_out("out")
    job.run(12)
    assert job.orders == []
    assert len(job.hosts) == 5


def test_job_is_suspended_once_a_checkpoint_is_saved() -> None:
    job = running()
    job.edit({"suspend": True})
    job.run(5)
    assert job.cluster.deleted == []
    job.saves = True
    job.run(5)
    assert job.status.phase == "Suspended"
    job.edit({"suspend": False})
    job.run(40)
    assert recoveries(job) == [("Suspended", "Suspend", "spec.suspend", "Recovered")]


def test_case_45_the_release_of_a_node_saves_first() -> None:
    job = running()
    job.cluster.announce("node-worker-1", 120)
    job.run(5)
    [order] = job.orders
    assert (order.reason, dict(order.stop)) == ("Preempted", {})
    assert (job.hosts, job.status.current_scaler) == ([W0, W1, W2], "")
    deadline = job.cluster.announced["node-worker-1"].deadline
    assert deadline is not None
    assert deadline - order.by == timedelta(seconds=35), "there is time to drain"
    job.save_checkpoint()
    job.run(20)
    assert job.hosts == [W0, W2, W3]
    assert [action.name for action in job.cluster.deleted] == [W1]
    assert len(job.orders) == 1
    assert recoveries(job) == [("Preempted", "ScaleIn", "cloud", "Recovered")]


def test_case_45_a_release_whose_checkpoint_is_late_still_drains_before_the_deadline() -> None:
    job = running()
    job.cluster.announce("node-worker-1", 120)
    deadline = job.cluster.announced["node-worker-1"].deadline
    assert deadline is not None
    while W1 in job.pods:
        job.run(1)
        assert job.now < deadline
    assert job.called("drain/")
    assert "DrainTimeout" not in job.reasons()
    assert job.hosts == [W0, W2, W3]


def test_case_45_a_deadline_that_is_too_near_for_a_checkpoint_releases_at_once() -> None:
    job = running()
    job.cluster.announce("node-worker-1", 40)
    job.run(12)
    assert job.orders == []
    assert [action.name for action in job.cluster.deleted] == [W1]


class ShortNotice(Struct):
    """A notice of thirty seconds, as Google gives it."""

    saved_in: float | None
    """Seconds that the last checkpoint took; None: there is none."""
    answers: bool = True
    is_hinted: bool = False
    """Whether it was shown for two minutes before that the node may be removed."""
    want_orders: int = 0


SHORT_NOTICES = {
    "last checkpoint took a second: saved, then drained": ShortNotice(1.0, want_orders=1),
    "last checkpoint took three seconds: saved, then drained": ShortNotice(3.0, want_orders=1),
    "node was a candidate for removal before: saved, then drained": ShortNotice(
        3.0, is_hinted=True, want_orders=1
    ),
    "order is not answered: drained all the same": ShortNotice(3.0, answers=False, want_orders=1),
    "last checkpoint took four seconds: released at once": ShortNotice(4.0),
    "no checkpoint yet: released at once": ShortNotice(None),
}


@pytest.mark.parametrize("case", SHORT_NOTICES.values(), ids=SHORT_NOTICES.keys())
def test_case_45_a_notice_of_half_a_minute_saves_if_the_last_checkpoint_was_quick(case: ShortNotice) -> None:
    job = running()
    if case.saved_in is not None:
        saved = SavedCheckpoint(7, f"sha256:{7:064}", job.now, seconds=case.saved_in)
        job.cluster.change(W0, saved=saved)
        job.run(1)
    if case.is_hinted:
        job.cluster.announce("node-worker-1", 600, NoticeCause.CANDIDATE)
        job.run(120)
    job.cluster.announce("node-worker-1", 30)
    deadline = job.cluster.announced["node-worker-1"].deadline
    assert deadline is not None
    job.saves = case.answers
    while W1 in job.pods:
        job.run(1)
        assert job.now < deadline
    assert len(job.orders) == case.want_orders
    assert all(order.by == deadline - timedelta(seconds=25) for order in job.orders)
    assert job.called("drain/")
    assert "DrainTimeout" not in job.reasons()
    if case.want_orders:
        job.saves = True
        job.run(10)
        outcome = "Recovered" if case.answers else "ProgressLost"
        assert recoveries(job) == [("Preempted", "ScaleIn", "cloud", outcome)]


def test_case_45_a_worker_that_saves_on_a_signal_is_drained_before_it_gets_it() -> None:
    job = running(signal="SIGTERM")
    job.cluster.announce("node-worker-1", 120)
    job.run(3)
    assert recoveries(job) == [("Preempted", "ScaleIn", "cloud", "")]
    while W1 in job.pods:
        assert recoveries(job) == [("Preempted", "ScaleIn", "cloud", "")], "it may still save"
        job.run(1)
    assert job.called("drain/")
    job.run(10)
    assert (job.hosts, job.orders) == ([W0, W2, W3], [])
    assert recoveries(job) == [("Preempted", "ScaleIn", "cloud", "Signalled")], "nothing shows that it has"


def test_case_45_a_signal_to_the_launcher_moves_the_job_as_a_whole() -> None:
    job = running(signal="SIGTERM")
    job.edit({"restartPolicy": "OnFailure"})
    job.run(1)
    job.cluster.node_of = lambda _: "node-new"
    for name in (LAUNCHER, W1):
        job.cluster.change(name, node="node-old")
    job.cluster.announce("node-old", 120)
    job.run(12)
    assert (job.record.attempt, job.status.phase, job.hosts) == (2, "Running", [W0, W1, W2])
    assert recoveries(job) == [("Preempted", "SignalAndMove", "cloud", "")]


def test_case_45_the_launcher_and_a_worker_on_one_node_save_and_the_job_moves_as_a_whole() -> None:
    job = running()
    job.edit({"restartPolicy": "OnFailure"})
    job.run(1)
    job.cluster.node_of = lambda _: "node-new"
    for name in (LAUNCHER, W1):
        job.cluster.change(name, node="node-old")
    job.cluster.announce("node-old", 120)
    job.run(3)
    [order] = job.orders
    assert (order.stop, job.hosts) == ({"launcher": "0", "worker": "0-2"}, [W0, W1, W2])
    job.save_checkpoint()
    job.run(12)
    assert (job.record.attempt, job.status.phase, job.hosts) == (2, "Running", [W0, W1, W2])
    [recovery] = recoveries(job)
    assert recovery[:2] == ("Preempted", "SaveAndMove")


def test_job_that_restarts_while_a_worker_is_drained_keeps_all_workers() -> None:
    job = running(signal="SIGTERM")
    job.edit({"restartPolicy": "OnFailure"})
    job.scale_in("in", toDelete={"count": 2})
    while not (job.record.operation and job.record.operation.step is ScaleStep.DRAINING):
        job.run(1)
    job.cluster.announce("node-launcher", 120)
    job.run(1)
    assert (job.record.attempt, list(job.record.role("worker").members)) == (2, [0, 1, 2])
    job.run(20, scalers=False)
    assert (job.status.phase, job.hosts) == ("Running", [W0, W1, W2])


def test_case_45_a_drain_is_held_back_until_the_workers_have_left_their_node() -> None:
    job = running(onDrain="Save")
    budget = ("PodDisruptionBudget", f"{J}-trainingjob-checkpoint")
    assert job.cluster.spec(*budget)["minAvailable"] == 4
    job.cluster.announce("node-worker-1", 600, NoticeCause.DRAINED)
    job.run(3)
    job.save_checkpoint()
    while W1 in job.pods:
        assert job.cluster.spec(*budget)["minAvailable"] != 0
        job.run(1)
    job.run(3)
    assert job.cluster.spec(*budget)["minAvailable"] == 0
    assert job.called("drain/")


def test_worker_that_is_being_added_is_left_to_its_scale_out() -> None:
    job = running()
    job.edit({"worker.restartPolicy": "Always"})
    job.cluster.pending = {worker(4)}
    job.saves = True
    job.scale_out("out", toAdd={"count": 2}, timeout=60)
    job.run(6)
    job.cluster.announce("node-worker-3", 120)
    job.run(5)
    job.cluster.pending = set()
    job.run(10)
    assert job.scalers["out"].status.phase == "ScaleSucceeded"
    assert not job.record.role("worker").retired
    assert job.hosts == workers(0, 1, 2, 3, 4)


LAUNCHERS = {
    "restarted: the job moves as a whole": ("OnFailure", {"launcher", "worker"}, 2),
    "not restarted: nothing stops or moves": ("Never", set(), 1),
}


@pytest.mark.parametrize(("policy", "stop", "attempt"), LAUNCHERS.values(), ids=LAUNCHERS.keys())
def test_node_of_the_launcher_ends(policy: str, stop: set[str], attempt: int) -> None:
    job = running()
    job.edit({"restartPolicy": policy})
    job.run(1)
    job.cluster.announce("node-launcher", 120)
    job.run(3)
    [order] = job.orders
    assert (order.reason, set(order.stop)) == ("Preempted", stop)
    job.save_checkpoint()
    job.run(12)
    assert (job.record.attempt, job.status.restart_count, job.status.phase) == (attempt, 0, "Running")


def scaled(**spec: object) -> EtSimulator:
    job = running()
    job.steps.clear()
    job.saves = True
    job.scale_in("in", **spec)
    return job


def steps() -> dict[str, int]:
    job = scaled()
    job.run(22)
    return {f"{number} {what}": number for number, what in enumerate(job.steps, 1)}


@pytest.mark.parametrize("step", sampled(steps(), 2))
def test_case_44_an_operator_killed_at_any_step_orders_one_checkpoint_and_removes_one_worker(
    step: int,
) -> None:
    job = scaled()
    job.stop_at = step
    job.run(30)
    assert len(job.orders) == 1
    assert [action.name for action in job.cluster.deleted] == [W2]
    assert job.cluster.workers() == job.hosts == [W0, W1]
    assert job.scalers["in"].status.phase == "ScaleSucceeded"
    assert recoveries(job) == [("Resized", "ScaleIn", "ScaleIn/in", "Recovered")]


def test_launcher_that_has_not_left_a_worker_does_not_lose_it_while_the_checkpoint_is_saved() -> None:
    def busy(call: Exec) -> ExecResult:
        return done(call, stdout=W2.encode()) if call.key.startswith("drain/") else done(call)

    job = EtSimulator({"worker.replicas": 3, "checkpoint": POLICY}, busy)
    job.run(8)
    job.scale_in("in", timeout=20)
    job.run(15)
    job.save_checkpoint()
    job.run(15)
    assert W2 in job.pods, "the time limit of the drain begins with the drain"
    job.run(15)
    assert W2 not in job.pods
    assert "DrainTimeout" in job.reasons()


INVALID: dict[str, tuple[dict[str, object], str]] = {
    "no store": ({"interval": "5m"}, "spec.checkpoint.store: required"),
    "unknown store": ({"store": "ftp://x"}, "spec.checkpoint.store: "),
    "Adaptive without an interval": ({**POLICY, "mode": "Adaptive"}, "spec.checkpoint.mode: Adaptive"),
    "credentials of a folder": ({**POLICY, "credentials": "login"}, "spec.checkpoint.credentials: not"),
    "field of a wrong type": ({**POLICY, "keepLast": "3"}, "spec.checkpoint.keepLast: "),
}


@pytest.mark.parametrize(("checkpoint", "want"), INVALID.values(), ids=INVALID.keys())
def test_invalid_policy_is_reported_with_its_path(checkpoint: dict[str, object], want: str) -> None:
    found = load_job(msgspec.convert(manifest(changes={"checkpoint": checkpoint}), TrainingJob), started=True)
    assert isinstance(found, Problems)
    assert str(found).startswith(want), found


def test_store_that_is_no_folder_for_all_is_accepted() -> None:
    """Whoever computes goes on with the state in memory, and every new start has new pods."""
    job = EtSimulator({"checkpoint": {"store": "s3://bucket"}})
    job.run(8)
    assert job.status.phase == "Running"


def test_processes_cannot_be_saved_because_a_job_has_several_pods() -> None:
    policy = {"level": "Process", "images": {"repository": "registry.example/team/train"}}
    job = EtSimulator({"checkpoint": policy})
    job.run(3)
    status, reason, message = job.condition("Failed")
    assert (status, reason) == ("True", "InvalidSpec")
    assert message.startswith('spec.checkpoint.level: invalid value "Process": the job has more than one pod')
    assert worker(0) not in job.pods
