"""The acceptance cases of SpotInstanceJobs: checkpoints of running replicas, on simulated clusters."""

from datetime import timedelta
from typing import cast

import msgspec
import pytest

from argosy.dialects.spot.settings import SpotSettings
from tests.support.spot_cluster import NAME, START
from tests.support.spot_jobs import Json
from tests.support.spot_simulator import SpotSimulator

MINUTE = 60.0
PATIENT = SpotSettings(backup_timeout=100 * MINUTE, backup_pickup_timeout=100 * MINUTE)


def running(changes: Json | None = None, settings: SpotSettings = SpotSettings()) -> SpotSimulator:
    simulator = SpotSimulator(changes, settings=settings)
    simulator.add_node("a")
    simulator.add_node("b")
    simulator.run()
    return simulator


def minutes_of_backups(simulator: SpotSimulator, index: int) -> list[float]:
    """When backups of a replica were created, in minutes after the start."""
    prefix = f"CheckpointBackup {NAME}-{NAME}-{index}-"
    times = [time for time, what in simulator.created if what.startswith(prefix)]
    return [(time - START).total_seconds() / MINUTE for time in times]


def test_case_17_every_replica_is_checkpointed_at_each_interval() -> None:
    simulator = running()
    simulator.run(92 * MINUTE)
    for index in (0, 1):
        found = minutes_of_backups(simulator, index)
        assert [round(minute // 30 * 30) for minute in found] == [30, 60, 90]
        assert all(minute % 30 <= 1.1 for minute in found), "within the jitter of a minute"
    images = [c.image for backup in simulator.backups.values() for c in backup.spec.containers]
    assert len(set(images)) == len(images) == 6
    assert simulator.job.status.last_checkpoint_image in [f"gcr.io/{image}" for image in images]
    assert simulator.job.status.last_checkpoint_time is not None
    for index in (0, 1):
        assert str(simulator.replica(index)["lastCheckpointImage"]).startswith(
            "gcr.io/my-project/checkpoints:"
        )
    assert simulator.condition("CheckpointReady") == ("True", "CheckpointCompleted")


def test_case_17_a_backup_says_what_an_agent_needs() -> None:
    simulator = running()
    simulator.run(31 * MINUTE)
    pod = simulator.pod_of(0)
    backup = next(b for b in simulator.backups.values() if b.spec.pod_ref.name == pod.metadata.name)
    stamp = backup.metadata.name.rpartition("-")[2]
    assert cast("Json", msgspec.to_builtins(backup.spec)) == {
        "schedule": "immediately",
        "stopPod": False,
        "podRef": {"name": pod.metadata.name, "namespace": "default"},
        "resourceRef": {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": simulator.replica(0)["name"],
            "namespace": "default",
        },
        "registry": {"url": "gcr.io", "repository": "my-project/checkpoints"},
        "containers": [{"name": "training", "image": f"my-project/checkpoints:training-{stamp}"}],
    }
    assert backup.metadata.labels["training.dcnlab.com/spot-instance-job"] == NAME
    assert backup.metadata.labels["training.dcnlab.com/job"] == simulator.replica(0)["name"]


def test_case_18_a_backup_of_70_minutes_is_followed_by_one_that_catches_up() -> None:
    simulator = running({"replicas": 1}, PATIENT)
    simulator.agents = False
    simulator.run(32 * MINUTE)
    (name,) = simulator.backups
    simulator.change_backup(name, phase="Checkpointing")
    simulator.run(70 * MINUTE)
    assert len(simulator.backups) == 1
    simulator.complete_backup(name)
    simulator.agents = True
    simulator.run(30 * MINUTE)
    assert [round(minute / 10) * 10 for minute in minutes_of_backups(simulator, 0)] == [30, 100, 120]


def test_case_19_an_operator_that_was_down_makes_one_backup_and_keeps_the_rhythm() -> None:
    simulator = running({"replicas": 1})
    simulator.run(10 * MINUTE)
    simulator.now += timedelta(minutes=90)
    simulator.run(51 * MINUTE)
    assert [round(minute / 10) * 10 for minute in minutes_of_backups(simulator, 0)] == [100, 120, 150]


def test_case_20_without_the_crd_replicas_run_and_with_it_the_next_tick_works() -> None:
    simulator = SpotSimulator()
    simulator.add_node("a")
    simulator.add_node("b")
    simulator.backups_served = False
    simulator.run(61 * MINUTE)
    assert simulator.job.status.phase == "Running"
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointUnavailable")
    assert not simulator.backups
    simulator.backups_served = True
    simulator.run(30 * MINUTE)
    assert simulator.condition("CheckpointReady") == ("True", "CheckpointCompleted")


@pytest.mark.parametrize("delete_images", [False, True])
def test_case_21_the_newest_backups_are_kept(delete_images: bool) -> None:
    retention: Json = {"keepLast": 2, "deleteImages": delete_images}
    simulator = running({"replicas": 1, "checkpointConfig.retention": retention})
    simulator.run(152 * MINUTE)
    assert len(minutes_of_backups(simulator, 0)) == 5
    kept = sorted(simulator.backups)
    assert len(kept) == 2
    assert simulator.job.status.last_checkpoint_image.endswith(kept[-1].rpartition("-")[2])
    assert len(simulator.registry) == (2 if delete_images else 5)


def test_a_backup_that_nobody_begins_is_deleted() -> None:
    simulator = running({"replicas": 1})
    simulator.agents = False
    simulator.run(34 * MINUTE)
    assert not simulator.backups
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointTimeout")
    assert "no agent has begun it within 60 s" in simulator.condition_message("CheckpointReady")


def test_a_backup_that_is_not_finished_in_time_is_deleted() -> None:
    simulator = running({"replicas": 1})
    simulator.agents = False
    simulator.run(31 * MINUTE)
    (name,) = simulator.backups
    simulator.change_backup(name, phase="SomethingNew")
    simulator.run(11 * MINUTE)
    assert not simulator.backups
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointTimeout")


def test_a_backup_whose_images_nobody_confirms_is_given_up_with_the_reason() -> None:
    simulator = running({"replicas": 1})
    simulator.registry_down = True
    simulator.run(42 * MINUTE)
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointTimeout")
    message = simulator.condition_message("CheckpointReady")
    assert message.endswith(": the registry did not answer: connection refused")


def test_a_failed_backup_is_reported_and_the_next_interval_goes_on() -> None:
    simulator = running({"replicas": 1})
    simulator.agents = False
    simulator.run(31 * MINUTE)
    (name,) = simulator.backups
    simulator.change_backup(name, phase="Failed", message="criu is missing")
    simulator.run(60)
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointFailed")
    assert "criu is missing" in simulator.condition_message("CheckpointReady")
    simulator.agents = True
    simulator.run(31 * MINUTE)
    assert simulator.condition("CheckpointReady") == ("True", "CheckpointCompleted")


def test_a_completed_backup_counts_only_with_its_image_in_the_registry() -> None:
    simulator = running({"replicas": 1})
    simulator.agents = False
    simulator.run(31 * MINUTE)
    (name,) = simulator.backups
    simulator.complete_backup(name)
    simulator.registry.clear()
    simulator.run(60)
    assert simulator.condition("CheckpointReady") == ("False", "CheckpointFailed")
    assert simulator.job.status.last_checkpoint_image == ""


def test_a_hint_makes_one_checkpoint_and_no_replacement() -> None:
    simulator = running({"replicas": 1})
    simulator.taint("a", "aws-node-termination-handler/rebalance-recommendation")
    simulator.run(60)
    assert len(simulator.backups) == 1
    assert len(simulator.jobs) == 1
    assert simulator.job.status.preemption_count == 0


def test_adaptive_interval_is_shorter_after_preemptions() -> None:
    mode: Json = {"replicas": 1, "checkpointConfig.intervalMode": "Adaptive"}
    simulator = running(mode)
    simulator.run(35 * MINUTE)
    assert len(minutes_of_backups(simulator, 0)) == 1
    simulator.lose_node("a")
    simulator.run(5 * MINUTE)
    before = len(simulator.backups)
    simulator.run(25 * MINUTE)
    assert len(simulator.backups) > before


def test_the_unfinished_checkpoint_of_a_replica_that_is_scaled_away_is_not_made_again() -> None:
    simulator = SpotSimulator()
    simulator.agents = False
    simulator.run(31 * MINUTE)
    assert len(simulator.backups) == 2
    simulator.edit(replicas=1)
    simulator.run(5)
    [backup] = simulator.backups.values()
    assert backup.metadata.labels["training.dcnlab.com/job-replica"] == "0"
