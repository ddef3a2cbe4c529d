"""Tests orders to save, and what pods acknowledge, in SpotInstanceJobs whose training saves itself."""

import json
import random
from datetime import timedelta

import pytest
from msgspec.structs import replace

from argosy.dialects.spot.names import copy_name
from argosy.dialects.spot.reconciler import SpotInstanceJobReconciler
from argosy.dialects.spot.record import SpotJobRecord
from argosy.kinds.labels import CHECKPOINT_ACK, CHECKPOINT_RESUMED, TRAINING_STEP
from argosy.kinds.spot import TERMINATION_DEADLINE, CheckpointStorage
from argosy.plan.contract import Decision
from argosy.plan.record import decode_record
from argosy.workload.checkpoint_record import SaveOrder
from argosy.workload.model import Workload
from argosy.workload.plan import CreatePod
from argosy.workload.save_acks import write_resumed
from tests.dialects.spot.test_random_faults import ACTIONS
from tests.dialects.spot.test_random_faults import CHANGES as FAULT_CHANGES
from tests.dialects.spot.test_usage import Stopwatch, spent
from tests.support.spot_jobs import Json
from tests.support.spot_simulator import SpotSimulator

MINUTE = 60.0
HINT = "aws-node-termination-handler/rebalance-recommendation"
CHANGES: Json = {
    "replicas": 2,
    "checkpointConfig.level": "App",
    "checkpointConfig.checkpointInterval": "10m",
    "checkpointConfig.checkpointStorage": {"type": "pvc", "bucket": "claim"},
}


class Trainings(SpotSimulator):
    """A simulated job whose programs acknowledge checkpoints when the test says so."""

    def _write(self, decision: Decision) -> None:
        super()._write(decision)
        # The operator may be killed now, and another replica of it answers the new pod from this Record.
        for replica in self.record.replicas:
            asked = self.order.stop if self.order is not None and replica.current.job else {}
            assert copy_name(replica.index) not in asked, "its next pod is asked to stop"

    def save(self, index: int, step: int, epoch: int = 0, seconds: float = 2.0) -> None:
        ack = {
            "step": step,
            "digest": f"sha256:{step:064x}",
            "created": self.now.isoformat(),
            "epoch": epoch,
            "seconds": seconds,
        }
        self._annotate(index, CHECKPOINT_ACK, json.dumps(ack))

    def report_resumed(self, index: int, step: int) -> None:
        self._annotate(index, CHECKPOINT_RESUMED, write_resumed(step, f"sha256:{step:064x}"))

    def report_step(self, index: int, step: int) -> None:
        self._annotate(index, TRAINING_STEP, str(step))

    @property
    def record(self) -> SpotJobRecord:
        record = decode_record(self.job.status.argosy, SpotJobRecord)
        assert record is not None
        return record

    @property
    def order(self) -> SaveOrder | None:
        return self.record.order

    def open_order(self) -> SaveOrder:
        assert self.order is not None
        return self.order

    def announce(self, index: int, seconds: float) -> str:
        """Announce the end of a replica's node; return the name of its Job."""
        deadline = self.now + timedelta(seconds=seconds)
        self.annotate_node(
            str(self.replica(index)["nodeName"]), {TERMINATION_DEADLINE: f"{deadline:%Y-%m-%dT%H:%M:%SZ}"}
        )
        return str(self.replica(index)["name"])

    def _annotate(self, index: int, key: str, value: str) -> None:
        pod = self.pod_of(index)
        annotations = {**pod.metadata.annotations, key: value}
        self.pods[pod.metadata.name] = replace(pod, metadata=replace(pod.metadata, annotations=annotations))


def running(changes: Json | None = None) -> Trainings:
    simulator = Trainings({**CHANGES, **(changes or {})})
    simulator.run(1)
    return simulator


def test_all_replicas_are_ordered_to_save_at_the_interval_until_each_has_answered() -> None:
    simulator = running()
    simulator.run(9 * MINUTE)
    assert simulator.order is None
    simulator.run(2 * MINUTE)
    order = simulator.open_order()
    assert (order.id, order.reason) == ("interval", "Interval")
    simulator.save(0, 100, order.epoch)
    simulator.run(1)
    assert simulator.open_order() == order, "replica 1 has not answered"
    simulator.save(1, 90, order.epoch)
    simulator.run(1)
    assert simulator.order is None
    status = simulator.job.status
    assert (status.last_checkpoint_step, status.last_checkpoint_time is not None) == (100, True)
    assert simulator.condition("CheckpointReady") == ("True", "CheckpointCompleted")
    assert simulator.condition_message("CheckpointReady") == "step 100"
    assert not simulator.backups


def test_a_training_that_saves_at_the_interval_by_itself_gets_no_orders() -> None:
    simulator = running()
    for number in range(1, 6):
        simulator.run(10 * MINUTE)
        simulator.save(0, number * 100)
        simulator.run(1)
    assert "CheckpointRequested" not in simulator.event_reasons()
    assert simulator.job.status.last_checkpoint_step == 500


def test_an_order_that_nobody_answers_is_dropped_late_and_followed_by_another_one() -> None:
    simulator = running()
    simulator.run(25 * MINUTE)
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointTimeout")
    assert simulator.event_reasons().count("CheckpointRequested") == 2
    assert simulator.job.status.phase == "Running"


def test_adaptive_orders_come_sooner_after_a_loss() -> None:
    simulator = running(
        {"checkpointConfig.intervalMode": "Adaptive", "checkpointConfig.checkpointInterval": "30m"}
    )
    simulator.save(0, 100)
    simulator.run(10 * MINUTE)
    assert simulator.order is None
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(5)
    simulator.save(1, 160, simulator.open_order().epoch)
    simulator.run(5 * MINUTE)
    assert simulator.open_order().reason == "Interval"


def test_a_lost_replica_and_the_survivor_save_first_and_the_new_pod_continues_from_there() -> None:
    simulator = running()
    simulator.save(0, 100)
    simulator.run(MINUTE)
    simulator.machines = False
    old = simulator.announce(0, 30)
    simulator.run(1)
    order = simulator.open_order()
    assert (order.reason, order.stop) == ("Preempted", {"replica-0": "0"})
    assert simulator.recoveries[0]["action"] == "Checkpoint"
    assert old in simulator.jobs, "its pod goes on until it has saved"
    simulator.machines = True
    simulator.run(1)
    assert old in simulator.jobs, "the new Job waits for the checkpoint"
    # The pod of the lost incarnation answers; it is not that of the current one any more.
    pod = next(pod for pod in simulator.pods.values() if pod.metadata.labels["job-name"] == old)
    ack = {
        "step": 130,
        "digest": f"sha256:{130:064x}",
        "created": simulator.now.isoformat(),
        "epoch": order.epoch,
    }
    meta = replace(pod.metadata, annotations={CHECKPOINT_ACK: json.dumps(ack)})
    simulator.pods[pod.metadata.name] = replace(pod, metadata=meta)
    simulator.run(5)
    assert old not in simulator.jobs
    simulator.report_resumed(0, 130)
    simulator.run(1)
    [recovery] = simulator.recoveries
    assert (recovery["action"], recovery["outcome"]) == ("CheckpointMade", "Recovered")
    assert recovery["restoredFrom"] == "step 130"
    assert simulator.job.status.last_checkpoint_step == 130


def test_a_pod_that_starts_from_an_older_step_has_lost_progress_and_one_that_is_silent_is_unknown() -> None:
    for resumed, want in ((90, "ProgressLost"), (None, "Unknown")):
        simulator = running()
        simulator.save(0, 100)
        simulator.run(MINUTE)
        simulator.lose_node(str(simulator.replica(0)["nodeName"]))
        simulator.run(1)
        simulator.save(1, 100, simulator.open_order().epoch)
        simulator.run(5)
        assert simulator.replica(0)["phase"] == "Recovering", "it waits for the report of the pod"
        if resumed is not None:
            simulator.report_resumed(0, resumed)
        simulator.run(MINUTE)
        assert simulator.recoveries[0]["outcome"] == want


def test_a_training_that_does_not_answer_gets_sigterm_in_the_middle_of_its_notice() -> None:
    simulator = running()
    simulator.machines = False
    old = simulator.announce(0, 65)
    simulator.run(25)
    assert old in simulator.jobs
    simulator.run(10)
    assert old not in simulator.jobs, "30 of 60 seconds are left for it to save"
    assert simulator.recoveries[0]["action"] == "SignalAnswered"


def test_a_new_job_waits_until_a_training_that_may_answer_orders_has_had_its_time() -> None:
    simulator = running()
    old = simulator.announce(0, 65)
    simulator.run(25)
    assert simulator.replica(0)["name"] == old, "its successor has a node already"
    simulator.run(10)
    assert simulator.replica(0)["name"] != old
    [recovery] = simulator.recoveries
    assert (recovery["action"], recovery["outcome"]) == ("SignalAnswered", "Unknown")


def test_a_pod_that_is_ended_for_its_successor_has_got_sigterm() -> None:
    simulator = running()
    simulator.save(0, 100)
    simulator.run(1)
    old = simulator.announce(0, 65)
    simulator.run(1)
    simulator.save(1, 120, simulator.open_order().epoch)
    simulator.run(10)
    assert simulator.replica(0)["name"] == old, "it may be ahead of replica 1, and has time to save"
    simulator.run(55)
    assert simulator.replica(0)["name"] != old
    assert simulator.recoveries[0]["action"] == "SignalAnswered"


def test_a_training_that_is_known_to_answer_has_its_whole_notice_to_save() -> None:
    simulator = running()
    simulator.save(0, 10)
    simulator.run(1)
    simulator.machines = False
    old = simulator.announce(0, 65)
    simulator.run(50)
    assert old in simulator.jobs
    simulator.run(20)
    assert simulator.recoveries[0]["action"] in ("SignalAnswered", "CheckpointMissed")


def test_a_survivor_saves_when_a_node_is_lost_without_notice() -> None:
    simulator = running()
    simulator.save(1, 100)
    simulator.run(MINUTE)
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(1)
    order = simulator.open_order()
    old = str(simulator.replica(0)["name"])
    simulator.save(1, 160, order.epoch)
    simulator.run(5)
    assert str(simulator.replica(0)["name"]) != old
    assert simulator.recoveries[0]["restoredFrom"] == "step 160"


def test_a_node_that_may_be_lost_gets_one_order_and_no_backup() -> None:
    simulator = running()
    simulator.taint(str(simulator.replica(0)["nodeName"]), HINT)
    simulator.run(5)
    assert simulator.open_order().id.startswith("hint/")
    assert not simulator.backups
    assert not simulator.recoveries


def test_a_second_notice_keeps_the_stop_and_the_deadline_of_the_first_one() -> None:
    simulator = running()
    simulator.save(0, 10)
    simulator.run(1)
    simulator.machines = False
    simulator.announce(0, 40)
    simulator.run(1)
    first = simulator.open_order()
    simulator.announce(1, 120)
    simulator.run(1)
    second = simulator.open_order()
    assert second.epoch > first.epoch, "pods only read an order with a higher number"
    assert second.stop == {"replica-0": "0", "replica-1": "0"}
    assert second.by == first.by
    simulator.run(45)
    assert simulator.open_order().stop == {"replica-1": "0"}, "replica 1 still has time to save"
    assert simulator.open_order().by > first.by
    simulator.run(2 * MINUTE)
    assert simulator.order is None


def test_a_loss_without_notice_keeps_the_order_to_a_replica_that_stops() -> None:
    simulator = running({"replicas": 3})
    simulator.save(0, 10)
    simulator.run(1)
    simulator.machines = False
    simulator.announce(0, 40)
    simulator.run(1)
    first = simulator.open_order()
    simulator.lose_node(str(simulator.replica(1)["nodeName"]))
    simulator.run(1)
    assert simulator.open_order() == first


def test_a_node_that_may_be_lost_does_not_replace_the_order_to_a_replica_that_stops() -> None:
    simulator = running()
    simulator.save(0, 10)
    simulator.run(1)
    simulator.machines = False
    simulator.announce(0, 40)
    simulator.run(1)
    first = simulator.open_order()
    simulator.taint(str(simulator.replica(1)["nodeName"]), HINT)
    simulator.run(1)
    assert simulator.open_order() == first


def test_the_next_pod_of_a_replica_that_has_saved_is_not_asked_to_stop() -> None:
    simulator = running()
    simulator.save(0, 100)
    simulator.run(MINUTE)
    old = simulator.announce(0, 50)
    simulator.run(1)
    order = simulator.open_order()
    pod = next(pod for pod in simulator.pods.values() if pod.metadata.labels["job-name"] == old)
    ack = {
        "step": 130,
        "digest": f"sha256:{130:064x}",
        "created": simulator.now.isoformat(),
        "epoch": order.epoch,
    }
    meta = replace(pod.metadata, annotations={CHECKPOINT_ACK: json.dumps(ack)})
    simulator.pods[pod.metadata.name] = replace(pod, metadata=meta)
    simulator.run(2)
    assert simulator.replica(0)["name"] != old
    assert simulator.open_order().stop == {}, "replica 1 has not saved yet"


def test_the_next_pod_of_a_replica_that_ended_before_it_has_saved_is_not_asked_to_stop() -> None:
    simulator = running()
    simulator.save(0, 100)
    simulator.run(1)
    node = str(simulator.replica(0)["nodeName"])
    old = simulator.announce(0, 120)
    simulator.run(1)
    assert simulator.open_order().stop == {"replica-0": "0"}
    simulator.save(1, 130, simulator.open_order().epoch)
    simulator.lose_node(node)
    simulator.run(10)
    assert simulator.replica(0)["name"] != old


def test_a_pod_whose_clock_is_ahead_does_not_stop_the_interval() -> None:
    simulator = running()
    now, simulator.now = simulator.now, simulator.now + timedelta(hours=1)
    simulator.save(0, 100)
    simulator.now = now
    simulator.run(1)
    last = simulator.job.status.last_checkpoint_time
    assert last is not None
    assert last <= simulator.now
    simulator.run(11 * MINUTE)
    assert simulator.open_order().reason == "Interval"


BUCKETS: dict[str, Json] = {
    "Google Cloud Storage": {"type": "gcs", "bucket": "b"},
    "S3, with a Secret": {"type": "S3", "bucket": "b/team", "credentials": {"name": "keys"}},
}


@pytest.fixture(params=[*BUCKETS.values()], ids=[*BUCKETS])
def bucket(request: pytest.FixtureRequest) -> Json:
    """The changes of a job whose checkpoints go to a bucket."""
    return {"checkpointConfig.checkpointStorage": request.param}


def test_with_a_bucket_replicas_save_by_order_and_continue_from_the_copy_that_is_ahead(bucket: Json) -> None:
    simulator = running(bucket)
    simulator.run(11 * MINUTE)
    order = simulator.open_order()
    simulator.save(0, 100, order.epoch)
    simulator.save(1, 90, order.epoch)
    simulator.run(1)
    assert (simulator.order, simulator.job.status.last_checkpoint_step) == (None, 100)
    assert simulator.condition("CheckpointReady") == ("True", "CheckpointCompleted")
    old = simulator.announce(0, 30)
    simulator.run(1)
    order = simulator.open_order()
    assert (order.stop, old in simulator.jobs) == ({"replica-0": "0"}, True)
    simulator.save(1, 160, order.epoch)
    simulator.run(30)
    assert old not in simulator.jobs
    simulator.report_resumed(0, 160)
    simulator.run(1)
    [recovery] = simulator.recoveries
    assert (recovery["restoredFrom"], recovery["outcome"]) == ("step 160", "Recovered")


def test_with_a_bucket_a_pod_that_found_only_an_older_checkpoint_has_lost_progress(bucket: Json) -> None:
    simulator = running(bucket)
    simulator.save(0, 100)
    simulator.run(MINUTE)
    simulator.announce(0, 30)
    simulator.run(MINUTE)
    simulator.report_resumed(0, 90)
    simulator.run(MINUTE)
    assert simulator.recoveries[0]["outcome"] == "ProgressLost"


def test_a_program_that_writes_to_the_bucket_by_itself_gets_sigterm_at_the_notice(bucket: Json) -> None:
    simulator = running(bucket)
    simulator.machines = False
    old = simulator.announce(0, 65)
    simulator.run(1)
    assert old not in simulator.jobs, "all of its notice is for it to save"
    assert simulator.order is None
    simulator.machines = True
    simulator.run(MINUTE)
    [recovery] = simulator.recoveries
    assert (recovery["action"], recovery["outcome"]) == ("SignalAnswered", "Unknown")


def test_a_program_that_writes_to_the_bucket_by_itself_misses_no_orders(bucket: Json) -> None:
    simulator = running(bucket)
    simulator.run(25 * MINUTE)
    simulator.taint(str(simulator.replica(0)["nodeName"]), HINT)
    simulator.run(25 * MINUTE)
    assert simulator.condition("CheckpointReady") == ("Unknown", "NoCheckpointYet")
    assert "CheckpointTimeout" not in simulator.event_reasons()
    assert simulator.job.status.usage.activity == "Training"


def test_a_program_that_has_reported_a_step_is_ordered_to_save_before_it_gets_sigterm(bucket: Json) -> None:
    simulator = running(bucket)
    simulator.report_step(1, 7)
    simulator.run(1)
    simulator.machines = False
    old = simulator.announce(0, 65)
    simulator.run(1)
    assert old in simulator.jobs
    assert simulator.open_order().stop == {"replica-0": "0"}
    simulator.run(35)
    assert old not in simulator.jobs, "30 of 60 seconds are left for it to save"


def test_a_job_that_an_earlier_version_has_started_is_not_refused_because_of_its_bucket() -> None:
    simulator = running(CHANGES)
    config = replace(
        simulator.job.spec.checkpoint_config,
        checkpoint_storage=CheckpointStorage(type="gcs", bucket="gs://b"),
    )
    simulator.edit(checkpoint_config=config)
    old = simulator.announce(0, 65)
    simulator.run(2 * MINUTE)
    assert simulator.replica(0)["name"] != old
    assert [recovery["action"] for recovery in simulator.recoveries] == ["SignalAnswered"]
    assert simulator.condition("Ready")[1] != "InvalidSpec"
    assert simulator.order is None, "nothing can be sent there"


def test_only_pods_of_a_training_that_has_never_saved_start_without_the_bucket(bucket: Json) -> None:
    simulator = Trainings({**CHANGES, **bucket})
    may_start: dict[int, bool] = {}

    def complete(spec: Json, workload: Workload, pod: CreatePod) -> Json:
        assert workload.checkpoint is not None
        if workload.checkpoint.copy == "replica-0":
            may_start[pod.replacement] = workload.checkpoint.starts_without_store
        return spec

    simulator.reconciler = SpotInstanceJobReconciler(simulator.settings, complete=complete)
    simulator.run(1)
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(MINUTE)
    simulator.save(0, 100)
    simulator.run(1)
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(2 * MINUTE)
    assert may_start == {0: True, 1: True, 2: False}


def test_a_job_without_a_storage_gets_no_orders() -> None:
    simulator = running({"checkpointConfig.checkpointStorage": {}})
    simulator.run(30 * MINUTE)
    assert simulator.order is None
    assert "CheckpointRequested" not in simulator.event_reasons()


def test_the_operator_may_be_killed_before_every_write_of_a_rescue() -> None:
    for kill in range(1, 12):
        simulator = running()
        simulator.save(0, 100)
        simulator.run(MINUTE)
        simulator.kill_before = simulator.writes + kill
        simulator.lose_node(str(simulator.replica(0)["nodeName"]))
        simulator.run(1)
        if simulator.order is not None:
            simulator.save(1, 160, simulator.order.epoch)
        simulator.run(MINUTE)
        assert [r["restoredFrom"] for r in simulator.recoveries] == ["step 160"], (
            f"killed before write {kill}"
        )
        assert len(simulator.jobs) == 2


def test_a_loss_undoes_the_training_since_the_last_acknowledged_checkpoint() -> None:
    simulator = running()
    simulator.save(0, 100)
    simulator.run(5 * MINUTE)
    simulator.end_pod(0, 1)
    simulator.run(MINUTE)
    assert 4.5 * MINUTE <= simulator.job.status.usage.lost <= 5.5 * MINUTE


def test_a_training_saves_from_the_order_to_its_answer_if_it_is_known_to_answer() -> None:
    simulator = running()
    simulator.run(12 * MINUTE)
    assert simulator.open_order().reason == "Interval"
    assert simulator.job.status.usage.activity == "Training", "it may not know of orders"
    simulator.save(0, 10, simulator.open_order().epoch)
    simulator.save(1, 10, simulator.open_order().epoch)
    simulator.run(1)
    simulator.run(12 * MINUTE)
    order = simulator.open_order()
    assert simulator.job.status.usage.activity == "Saving"
    simulator.save(0, 20, order.epoch)
    simulator.run(1)
    assert simulator.job.status.usage.activities == {"Saving": 1, "Training": 1}


def with_pods(simulator: Trainings) -> list[int]:
    """The replicas whose Job has a pod."""
    jobs = {pod.metadata.labels["job-name"] for pod in simulator.pods.values()}
    return [index for index in range(3) if simulator.replica(index)["name"] in jobs]


def _answer(simulator: Trainings, choose: random.Random) -> None:
    """A program saves by itself, or answers the order in force."""
    if running := with_pods(simulator):
        epoch = simulator.order.epoch if simulator.order is not None and choose.random() < 0.7 else 0
        simulator.save(choose.choice(running), choose.randint(1, 10_000), epoch)


def _resume(simulator: Trainings, choose: random.Random) -> None:
    for index in with_pods(simulator):
        if choose.random() < 0.5:
            simulator.report_resumed(index, choose.randint(1, 10_000))


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 60))]
)
def test_after_any_faults_all_trainings_run_again_and_no_recovery_is_left_open(seed: int) -> None:
    choose = random.Random(2000 + seed)
    storage: Json = {"checkpointConfig.checkpointStorage": choose.choice([*BUCKETS.values()])}
    simulator = Trainings({**CHANGES, **FAULT_CHANGES, **(storage if seed % 2 else {})})
    stopwatch = Stopwatch(simulator)
    simulator.run(choose.uniform(0, 20 * MINUTE))
    for _ in range(25):
        for act in (choose.choice(ACTIONS), choose.choice((_answer, _resume))):
            act(simulator, choose)
        simulator.run(choose.choice([0, 1, 20, 3 * MINUTE, 20 * MINUTE]))
        assert sum(spent(simulator).values()) == pytest.approx(stopwatch.seconds, abs=0.01)
    simulator.agents = simulator.machines = True
    simulator.run(30 * MINUTE)
    assert [simulator.replica(index)["phase"] for index in range(3)] == ["Running"] * 3
    assert all(entry["outcome"] for entry in simulator.recoveries)
    assert not simulator.backups
    assert len(str(simulator.job.status.argosy)) < 8_000


def test_a_training_that_had_to_go_back_is_shown_with_what_it_has_saved_since() -> None:
    simulator = running({"replicas": 1})
    simulator.save(0, 100)
    simulator.run(MINUTE)
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(5)
    simulator.report_resumed(0, 40)
    simulator.run(MINUTE)
    assert simulator.recoveries[0]["outcome"] == "ProgressLost"
    simulator.save(0, 60)
    simulator.run(1)
    assert simulator.job.status.last_checkpoint_step == 60
