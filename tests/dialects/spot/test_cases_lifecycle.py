"""The acceptance cases of SpotInstanceJobs: success, failure, scale and deletion, on simulated clusters."""

from collections.abc import Callable
from typing import cast

import pytest

from argosy.kinds.spot_machines import SpotInstanceVM
from tests.support.spot_jobs import Json
from tests.support.spot_simulator import SpotSimulator

MINUTE = 60.0


def bought(changes: Json | None = None, minutes: float = 0.0) -> SpotSimulator:
    simulator = SpotSimulator(changes)
    simulator.run(minutes * MINUTE)
    return simulator


def test_case_33_the_first_success_ends_everything_else() -> None:
    simulator = bought(minutes=31)
    winner = str(simulator.replica(0)["name"])
    simulator.end_pod(0, 0)
    simulator.run(10)
    assert simulator.job.status.phase == "Succeeded"
    assert simulator.condition("Complete") == ("True", "ReplicaSucceeded")
    assert set(simulator.jobs) == {winner}
    assert not simulator.instances
    assert not simulator.nodes
    assert simulator.replica(0)["phase"] == "Succeeded"
    assert simulator.event_reasons().count("Succeeded") == 1
    simulator.run(MINUTE)
    assert set(simulator.jobs) == {winner}


def test_case_33_success_during_a_recovery_supersedes_it() -> None:
    simulator = bought()
    simulator.machines = simulator.agents = False
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(5)
    simulator.end_pod(1, 0)
    simulator.run(10)
    assert simulator.job.status.phase == "Succeeded"
    assert simulator.recoveries[0]["outcome"] == "Superseded"
    assert not simulator.instances
    assert not simulator.backups


def test_the_time_to_live_of_the_template_counts_from_the_end_of_the_job() -> None:
    simulator = bought({"replicas": 1, "jobTemplate.spec.ttlSecondsAfterFinished": 100})
    assert "ttlSecondsAfterFinished" not in cast("Json", simulator.job_body(0)["spec"])
    simulator.end_pod(0, 0)
    simulator.run(99)
    assert simulator.jobs
    simulator.run(2)
    assert not simulator.jobs


def test_case_34_after_four_own_failures_a_replica_has_failed_and_the_other_goes_on() -> None:
    simulator = bought()
    other = simulator.pod_of(1).metadata.uid
    for restarts in range(1, 4):
        simulator.run(MINUTE)
        simulator.end_pod(0, 1)
        simulator.run(6 * MINUTE)
        assert simulator.replica(0)["restarts"] == restarts
        assert simulator.replica(0)["phase"] == "Running"
    simulator.end_pod(0, 1)
    simulator.run(6 * MINUTE)
    assert simulator.replica(0)["phase"] == "Failed"
    assert simulator.condition("Degraded") == ("True", "ReplicaFailed")
    assert simulator.job.status.phase == "Running"
    assert simulator.pod_of(1).metadata.uid == other
    assert len(simulator.instances) == 2, "failed replicas are restarted at the same place"
    simulator.end_pod(1, 3)
    simulator.edit(recovery=simulator.job.spec.recovery)
    simulator.run(MINUTE)


def test_all_replicas_failed_ends_the_job_and_releases_the_vms() -> None:
    simulator = bought({"recovery": {"maxRestarts": 0}})
    for index in (0, 1):
        simulator.end_pod(index, 1)
        simulator.run(10)
    assert simulator.job.status.phase == "Failed"
    assert simulator.condition("Failed") == ("True", "RestartLimitExceeded")
    assert not simulator.instances


def test_an_exit_code_that_is_not_listed_is_final() -> None:
    simulator = bought({"recovery": {"recoverOnExitCodes": [137]}})
    simulator.end_pod(0, 137)
    simulator.run(MINUTE)
    assert simulator.replica(0)["restarts"] == 1
    simulator.end_pod(0, 2)
    simulator.run(MINUTE)
    assert simulator.replica(0)["phase"] == "Failed"
    assert "exit code 2 is not in recoverOnExitCodes" in simulator.condition_message("Degraded")


@pytest.mark.parametrize("reason", ["EvictionByEvictionAPI", "PreemptionByScheduler"])
def test_case_34_a_pod_that_was_taken_away_costs_no_restart(reason: str) -> None:
    simulator = bought({"recovery": {"maxRestarts": 0}})
    simulator.end_pod(0, 137, disrupted=reason)
    simulator.run(MINUTE)
    assert simulator.replica(0)["restarts"] == 0
    assert simulator.replica(0)["phase"] == "Running"
    assert simulator.replica(0)["incarnation"] == 1


def test_case_48_an_older_api_server_tells_a_disruption_by_the_pods_reason() -> None:
    simulator = bought({"recovery": {"maxRestarts": 0}})
    simulator.end_pod(0, 143)
    name = simulator.pod_of(0).metadata.name
    simulator.pods[name].status.reason = "Terminated"
    simulator.run(MINUTE)
    assert simulator.replica(0)["restarts"] == 0
    assert simulator.replica(0)["phase"] == "Running"


def test_restarts_wait_twice_as_long_each_time() -> None:
    simulator = bought({"replicas": 1})
    waits = []
    for _ in range(3):
        failed = simulator.now
        simulator.end_pod(0, 1)
        name = simulator.replica(0)["name"]
        while simulator.replica(0)["name"] in (name, ""):
            simulator.run(1)
        waits.append((simulator.now - failed).total_seconds())
    assert waits == [10, 20, 40]


def _pending(simulator: SpotSimulator) -> None:
    simulator.machines = False
    simulator.run()


def _running(simulator: SpotSimulator) -> None:
    simulator.run(31 * MINUTE)


def _recovering(simulator: SpotSimulator) -> None:
    simulator.run()
    simulator.machines = simulator.agents = False
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(5)


@pytest.mark.parametrize("stage", [_pending, _running, _recovering], ids=lambda stage: stage.__name__)
def test_case_35_deletion_leaves_nothing(stage: Callable[[SpotSimulator], None]) -> None:
    simulator = SpotSimulator()
    stage(simulator)
    simulator.delete_job()
    simulator.run(10)
    assert simulator.released
    assert not (simulator.jobs or simulator.instances or simulator.backups or simulator.nodes)
    assert simulator.job.status.phase == "Deleting"


def test_case_36_deletion_completes_without_the_template() -> None:
    simulator = bought()
    simulator.kinds[SpotInstanceVM].clear()
    simulator.run(MINUTE)
    assert simulator.job.status.phase == "Running"
    simulator.delete_job()
    simulator.run(10)
    assert simulator.released
    assert not (simulator.jobs or simulator.instances)


def test_without_the_template_running_replicas_go_on_and_nothing_is_bought() -> None:
    simulator = bought()
    simulator.kinds[SpotInstanceVM].clear()
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(MINUTE)
    assert len(simulator.instances) == 2, "the lost one and the survivor"
    assert simulator.condition("InstancesReady") == ("False", "TemplateNotFound")
    simulator.add_template()
    simulator.run(MINUTE)
    assert simulator.replica(0)["phase"] == "Running"


def test_more_replicas_start_from_the_newest_checkpoint_and_fewer_leave_the_others_alone() -> None:
    simulator = bought(minutes=31)
    kept = {simulator.pod_of(index).metadata.uid for index in (0, 1)}
    simulator.edit(replicas=3)
    simulator.run(MINUTE)
    assert len(simulator.jobs) == 3
    assert simulator.replica(2)["startMode"] == "CheckpointImage"
    assert simulator.job.status.phase == "Running"
    assert simulator.recoveries == []
    simulator.edit(replicas=2)
    simulator.run(MINUTE)
    assert {simulator.pod_of(index).metadata.uid for index in (0, 1)} == kept
    assert len(simulator.jobs) == len(simulator.instances) == 2


def test_deletion_and_success_survive_a_kill_at_every_write() -> None:
    def story(simulator: SpotSimulator) -> None:
        simulator.run(31 * MINUTE)
        simulator.end_pod(0, 0)
        simulator.run(10)
        simulator.delete_job()
        simulator.run(10)

    undisturbed = SpotSimulator()
    story(undisturbed)
    for kill in range(1, undisturbed.writes + 1):
        simulator = SpotSimulator()
        simulator.kill_before = kill
        story(simulator)
        assert simulator.released, f"killed before write {kill}"
        created = sorted(what.split()[0] for _, what in simulator.created)
        assert created == sorted(what.split()[0] for _, what in undisturbed.created)
        assert not (simulator.jobs or simulator.instances or simulator.backups)


def test_a_vm_that_cannot_be_bought_for_good_fails_the_job_until_it_can() -> None:
    from argosy.kinds.status_condition import StatusCondition

    simulator = SpotSimulator({"replicas": 1})
    simulator.machines = False
    simulator.run()
    (name,) = simulator.instances
    denied = StatusCondition(
        "Provisioned", "False", "PermissionDenied", "compute.instances.create is missing"
    )
    simulator.change_instance(name, conditions=[denied])
    simulator.run(5)
    assert simulator.job.status.phase == "Failed"
    assert simulator.condition("Failed") == ("True", "PermissionDenied")
    assert simulator.condition("InstancesReady") == ("False", "PermissionDenied")
    simulator.change_instance(name, conditions=[])
    simulator.machines = True
    simulator.run(5)
    assert simulator.job.status.phase == "Running"
