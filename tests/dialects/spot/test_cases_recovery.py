"""The acceptance cases of SpotInstanceJobs: lost replicas, on simulated clusters."""

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from argosy.kinds.spot import ROLE_ANNOTATION, TERMINATION_DEADLINE, TERMINATION_SOURCE
from tests.support.spot_cluster import NAME, bound_node
from tests.support.spot_jobs import Json
from tests.support.spot_simulator import SpotSimulator

MINUTE = 60.0
REPOSITORY = "gcr.io/my-project/checkpoints"
PREEMPTED = "cloud.google.com/impending-node-termination"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


def bought(changes: Json | None = None, minutes: float = 0.0) -> SpotSimulator:
    """A job on two bought VMs that has run for a while."""
    simulator = SpotSimulator(changes)
    simulator.run(minutes * MINUTE)
    return simulator


def node(simulator: SpotSimulator, index: int) -> str:
    return str(simulator.replica(index)["nodeName"])


def image(simulator: SpotSimulator, index: int) -> str:
    spec = cast("Json", cast("Json", simulator.job_body(index)["spec"])["template"])["spec"]
    return str(cast("list[Json]", cast("Json", spec)["containers"])[0]["image"])


def variable(simulator: SpotSimulator, index: int, name: str) -> str:
    spec = cast("Json", cast("Json", simulator.job_body(index)["spec"])["template"])["spec"]
    variables = cast("list[Json]", cast("list[Json]", cast("Json", spec)["containers"])[0]["env"])
    return next(str(item["value"]) for item in variables if item["name"] == name)


def action(simulator: SpotSimulator) -> str:
    """What was done about the pod that was lost first."""
    return str(simulator.recoveries[0]["action"])


def stamps(simulator: SpotSimulator) -> list[str]:
    return sorted(name.rpartition("-")[2] for name in simulator.backups)


def test_case_22_rescue_and_replacement_begin_together_and_the_survivor_goes_on() -> None:
    simulator = bought()
    survivor, old, lost = simulator.pod_of(1).metadata, str(simulator.replica(0)["name"]), node(simulator, 0)
    simulator.agents = simulator.machines = False
    simulator.annotate_node(lost, {TERMINATION_DEADLINE: "2026-01-01T00:00:30Z", TERMINATION_SOURCE: "gce"})
    simulator.run()
    (rescue,) = simulator.backups.values()
    assert rescue.spec.pod_ref.name == survivor.name
    assert rescue.spec.stop_pod is False
    assert len(simulator.instances) == 3, "the replacement is bought before the checkpoint is made"
    assert old in simulator.jobs
    simulator.agents = True
    simulator.run(10)
    assert old in simulator.jobs, "the old Job stays until the new place is ready"
    simulator.machines = True
    simulator.run(10)
    assert old not in simulator.jobs
    assert image(simulator, 0) == f"{REPOSITORY}:training-{stamps(simulator)[0]}"
    assert node(simulator, 0) != lost
    assert lost not in simulator.instances
    assert lost not in simulator.nodes
    assert simulator.pod_of(1).metadata.uid == survivor.uid
    (entry,) = simulator.recoveries
    assert (entry["outcome"], entry["cause"], entry["sources"]) == ("Recovered", "Preempted", ["gce"])
    assert entry["restoredFrom"] == rescue.metadata.name
    metadata = cast("Json", simulator.job_body(0)["metadata"])
    assert cast("Json", metadata["annotations"])["training.dcnlab.com/checkpoint-updated"] == "true"
    assert simulator.condition("Recovering") == ("False", "Recovered")
    assert simulator.replica(0)["startMode"] == "CheckpointImage"
    assert variable(simulator, 0, "ARGOSY_INCARNATION") == "1"


def _by_annotation(simulator: SpotSimulator, name: str) -> None:
    simulator.annotate_node(name, {TERMINATION_DEADLINE: "2026-01-01T00:00:30Z"})


def _by_taint(simulator: SpotSimulator, name: str) -> None:
    simulator.taint(name, PREEMPTED)


def _by_status(simulator: SpotSimulator, name: str) -> None:
    simulator.change_instance(name, state="STOPPING")


def _by_operation(simulator: SpotSimulator, name: str) -> None:
    simulator.change_instance(name, preemption_notice=True, cause="Preempted", notice_source="operation")


def _by_shutdown(simulator: SpotSimulator, name: str) -> None:
    simulator.set_ready(name, "False", "node is shutting down")


SOURCES = [_by_annotation, _by_taint, _by_status, _by_operation, _by_shutdown]


@pytest.mark.parametrize("first", SOURCES, ids=lambda source: source.__name__)
def test_case_23_one_preemption_by_many_sources_is_one_recovery(
    first: Callable[[SpotSimulator, str], None],
) -> None:
    simulator = bought()
    lost = node(simulator, 0)
    simulator.machines = False
    for source in (first, *SOURCES):
        source(simulator, lost)
        simulator.run(1)
    simulator.machines = True
    simulator.run(5 * MINUTE)
    assert simulator.job.status.preemption_count == 1
    (entry,) = simulator.recoveries
    assert entry["outcome"] == "Recovered"
    assert simulator.replica(0)["incarnation"] == 1
    assert len(simulator.instances) == 2


def lose_both(simulator: SpotSimulator) -> None:
    for name in list(simulator.instances):
        simulator.lose_node(name)


def test_case_24_with_no_survivor_both_start_from_the_newest_backup() -> None:
    simulator = bought(minutes=65)
    newest = stamps(simulator)[-1]
    lose_both(simulator)
    simulator.run(60)
    assert [image(simulator, index) for index in (0, 1)] == [f"{REPOSITORY}:training-{newest}"] * 2
    assert simulator.condition("ProgressLost") == ("", "")
    assert [entry["outcome"] for entry in simulator.recoveries] == ["Recovered", "Recovered"]


def test_case_25_without_backup_objects_the_newest_complete_tags_are_used() -> None:
    simulator = bought(minutes=31)
    simulator.push(f"{REPOSITORY}:other-9999999999")
    simulator.push(f"{REPOSITORY}:training-9999999998", owner="default/somebody-else")
    simulator.push(f"{REPOSITORY}:training-latest")
    newest = stamps(simulator)[-1]
    simulator.backups.clear()
    lose_both(simulator)
    simulator.run(60)
    assert {image(simulator, index) for index in (0, 1)} == {f"{REPOSITORY}:training-{newest}"}


def test_case_26_without_any_checkpoint_training_begins_anew() -> None:
    simulator = bought()
    lose_both(simulator)
    simulator.run(60)
    assert {image(simulator, index) for index in (0, 1)} == {"my-registry/training:latest"}
    assert simulator.condition("ProgressLost") == ("True", "NoCheckpointFound")
    assert {entry["outcome"] for entry in simulator.recoveries} == {"ProgressLost"}
    assert simulator.replica(0)["startMode"] == "Fresh"
    simulator.run(31 * MINUTE)
    assert simulator.condition("ProgressLost") == ("False", "Checkpointed")


def _is_late(simulator: SpotSimulator) -> None:
    (rescue,) = set(simulator.backups) - {
        name for name in simulator.backups if simulator.backups[name].status.phase
    }
    simulator.change_backup(rescue, phase="Checkpointing")


def _has_no_image(simulator: SpotSimulator) -> None:
    (rescue,) = [name for name, backup in simulator.backups.items() if not backup.status.phase]
    simulator.complete_backup(rescue)
    for container in simulator.backups[rescue].spec.containers:
        del simulator.registry[f"gcr.io/{container.image}"]


@pytest.mark.parametrize("fault", [_is_late, _has_no_image], ids=["too late", "no image"])
def test_case_27_a_bad_rescue_checkpoint_is_replaced_by_the_previous_good_one(
    fault: Callable[[SpotSimulator], None],
) -> None:
    simulator = bought(minutes=31)
    previous, old = stamps(simulator)[-1], str(simulator.replica(0)["name"])
    simulator.agents = False
    simulator.change_instance(node(simulator, 0), preemption_notice=True, cause="Preempted")
    simulator.run()
    assert old in simulator.jobs
    fault(simulator)
    if fault is _is_late:
        simulator.run(9 * MINUTE)
        assert old in simulator.jobs, "the old Job is deleted only after a source is verified"
    simulator.run(2 * MINUTE)
    assert image(simulator, 0) == f"{REPOSITORY}:training-{previous}"
    assert old not in simulator.jobs


@pytest.mark.parametrize("cause", ["UserStopped", "NotFound", "HostError", "Maintenance", "Unknown"])
def test_case_28_every_cause_is_recovered_and_reported(cause: str) -> None:
    simulator = bought()
    simulator.change_instance(node(simulator, 0), state="TERMINATED", preemption_notice=True, cause=cause)
    simulator.run(5 * MINUTE)
    assert simulator.recoveries[0]["cause"] == cause
    assert simulator.replica(0)["incarnation"] == 1


def test_case_28_what_the_node_repeats_of_its_vm_does_not_change_the_cause() -> None:
    simulator = bought()
    name = node(simulator, 0)
    simulator.annotate_node(
        name, {TERMINATION_DEADLINE: "2026-01-01T00:00:30Z", TERMINATION_SOURCE: "provisioned-instance"}
    )
    simulator.change_instance(name, state="TERMINATED", preemption_notice=True, cause="UserStopped")
    simulator.run(5 * MINUTE)
    assert (simulator.recoveries[0]["cause"], simulator.recoveries[0]["sources"]) == ("UserStopped", ["gce"])


def _preempt_at_case_22(simulator: SpotSimulator) -> None:
    simulator.change_instance(node(simulator, 0), state="STOPPING", preemption_notice=True, cause="Preempted")
    simulator.run(5 * MINUTE)


def _outcome(simulator: SpotSimulator) -> object:
    """What a user sees in the end, without times."""
    return (
        [(r["phase"], r["incarnation"], r["startMode"]) for r in map(simulator.replica, (0, 1))],
        sorted(what.split()[0] for _, what in simulator.created),
        len(simulator.jobs),
        len(simulator.instances),
        len(simulator.backups),
        simulator.job.status.preemption_count,
    )


def test_case_29_a_leader_change_at_each_write_leads_to_the_same_end() -> None:
    undisturbed = bought()
    before = undisturbed.writes
    _preempt_at_case_22(undisturbed)
    for kill in range(before + 1, undisturbed.writes + 1):
        simulator = bought()
        simulator.kill_before = kill
        _preempt_at_case_22(simulator)
        assert _outcome(simulator) == _outcome(undisturbed), f"killed before write {kill}"
        assert [entry["outcome"] for entry in simulator.recoveries] == ["Recovered"]


def test_case_30_no_new_job_while_the_old_pod_may_still_run() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.add_node("a")
    simulator.run()
    simulator.set_ready("a", "Unknown")
    simulator.run(10 * MINUTE)
    assert len(simulator.created) == 2, "a VM was bought, and no second Job created"
    assert len(simulator.instances) == 1
    simulator.taint("a", OUT_OF_SERVICE)
    simulator.run(10)
    assert node(simulator, 0) != "a"
    assert simulator.replica(0)["phase"] == "Running"


def test_case_30_a_silent_vm_that_still_runs_is_deleted_first() -> None:
    simulator = bought({"replicas": 1})
    old = node(simulator, 0)
    simulator.set_ready(old, "Unknown")
    simulator.run(119)
    assert old in simulator.instances
    simulator.run(2 * MINUTE)
    assert old not in simulator.instances
    what = [what for _, what in simulator.deleted]
    assert what.index(f"ProvisionedInstance {old}") < len(what)
    assert simulator.replica(0)["phase"] == "Running"
    assert simulator.replica(0)["incarnation"] == 1


def test_case_31_a_node_that_cannot_restore_images_gets_the_original_ones() -> None:
    storage: Json = {"checkpointConfig.checkpointStorage": {"type": "gcs", "bucket": "b", "pathPrefix": "p"}}
    simulator = bought(storage, minutes=31)
    simulator.machines = False
    simulator.change_instance(node(simulator, 0), preemption_notice=True, cause="Preempted")
    simulator.run(10)
    (new,) = [name for name, instance in simulator.instances.items() if not instance.status.state]
    simulator.machines = True
    simulator.provision()
    simulator.add_node(new, 1, {"training.dcnlab.com/restore-capability": "none"})
    simulator.run(10)
    assert image(simulator, 0) == "my-registry/training:latest"
    assert variable(simulator, 0, "ARGOSY_RESUME") == "1"
    assert variable(simulator, 0, "ARGOSY_CHECKPOINT_URI") == f"gs://b/p/default/{NAME}"
    assert simulator.replica(0)["startMode"] == "AppResume"
    assert simulator.condition("ProgressLost") == ("", "")


def test_case_31_an_unlabelled_node_that_refuses_is_resumed_by_the_application() -> None:
    simulator = bought(minutes=31)
    simulator.change_instance(node(simulator, 0), state="TERMINATED", preemption_notice=True)
    simulator.run(1)
    for _ in range(2):
        assert simulator.replica(0)["startMode"] == "CheckpointImage"
        simulator.end_pod(0, 1)
        simulator.run(11)
    assert "RestoreUnsupported" in simulator.event_reasons()
    assert simulator.replica(0)["startMode"] == "AppResume"
    assert image(simulator, 0) == "my-registry/training:latest"
    simulator.run(5 * MINUTE)
    assert simulator.replica(0)["phase"] == "Running"


def test_case_32_a_restored_job_pulls_with_the_credentials_of_the_registry() -> None:
    simulator = bought({"checkpointConfig.checkpointRepoCredentialRef": {"name": "registry"}}, minutes=31)
    simulator.change_instance(node(simulator, 0), state="TERMINATED", preemption_notice=True)
    simulator.run(10)
    assert simulator.condition("CredentialsReady") == ("False", "SecretNotFound")
    assert "registry not found" in simulator.condition_message("CredentialsReady")
    simulator.secret = {"username": b"me", "password": b"secret"}
    simulator.run(10)
    spec = cast("Json", cast("Json", simulator.job_body(0)["spec"])["template"])["spec"]
    assert cast("Json", spec)["imagePullSecrets"] == [{"name": f"{NAME}-checkpoint-pull"}]
    created = [what for _, what in simulator.created]
    job = f"Job {simulator.replica(0)['name']}"
    assert created.index(f"Secret {NAME}-checkpoint-pull") < created.index(job)
    assert "secret" not in str(simulator.job.status.argosy)


def test_a_survivor_that_is_lost_meanwhile_is_not_waited_for() -> None:
    simulator = bought(minutes=31)
    previous = stamps(simulator)[-1]
    simulator.agents = False
    simulator.change_instance(node(simulator, 0), preemption_notice=True, cause="Preempted")
    simulator.run(5)
    simulator.lose_node(node(simulator, 1))
    simulator.run(30)
    assert [image(simulator, index) for index in (0, 1)] == [f"{REPOSITORY}:training-{previous}"] * 2


def test_a_replica_is_replaced_as_often_as_it_is_lost() -> None:
    simulator = bought({"replicas": 1})
    for number in range(1, 13):
        simulator.lose_node(node(simulator, 0))
        simulator.run(MINUTE)
        assert simulator.replica(0)["incarnation"] == number
    assert simulator.job.status.preemption_count == 12
    assert len(simulator.recoveries) == 10
    assert simulator.replica(0)["phase"] == "Running"


def test_the_next_primary_is_chosen_in_the_same_reconcile() -> None:
    simulator = bought()
    simulator.run(1)
    assert simulator.pod_of(0).metadata.annotations[ROLE_ANNOTATION] == "primary"
    assert simulator.pod_of(1).metadata.annotations[ROLE_ANNOTATION] == "standby"
    simulator.machines = False
    simulator.lose_node(node(simulator, 0))
    simulator._reconcile()
    assert simulator.pod_of(1).metadata.annotations[ROLE_ANNOTATION] == "primary"


def test_a_dying_pod_is_checkpointed_if_there_is_time() -> None:
    simulator = bought({"replicas": 1}, minutes=29)
    simulator.agents = False
    simulator.run(2 * MINUTE)
    (first,) = simulator.backups
    simulator.now += timedelta(seconds=20)
    simulator.complete_backup(first)
    simulator.run(1)
    simulator.machines = False
    simulator.annotate_node(node(simulator, 0), {TERMINATION_DEADLINE: "2026-01-01T02:00:00Z"})
    simulator.run(1)
    assert len(simulator.backups) == 2
    assert action(simulator) == "Checkpoint"
    (second,) = simulator.backups.keys() - {first}
    simulator.complete_backup(second)
    simulator.run(1)
    assert action(simulator) == "CheckpointMade"


APP_LEVEL: Json = {
    "replicas": 1,
    "checkpointConfig.level": "App",
    "checkpointConfig.checkpointStorage": {"type": "gcs", "bucket": "checkpoints"},
}


def test_a_dying_pod_that_saves_itself_is_ended_by_signal_and_its_successor_resumes() -> None:
    simulator = bought(APP_LEVEL, minutes=1)
    lost, old = node(simulator, 0), str(simulator.replica(0)["name"])
    simulator.machines = False
    simulator.annotate_node(lost, {TERMINATION_DEADLINE: "2026-01-01T00:01:30Z"})
    simulator.run(5)
    assert old not in simulator.jobs, "its pod gets SIGTERM while its node is there"
    assert action(simulator) == "SignalAnswered"
    assert lost in simulator.nodes
    simulator.machines = True
    simulator.run(MINUTE)
    assert simulator.recoveries[0]["outcome"] == "Unknown", "nothing shows what it has saved"
    assert "ProgressLost" not in simulator.event_reasons()
    assert variable(simulator, 0, "ARGOSY_RESUME") == "1"
    assert variable(simulator, 0, "ARGOSY_CHECKPOINT_URI") == f"gs://checkpoints/default/{NAME}"
    assert not simulator.backups


@pytest.mark.parametrize("written", ["soon", "2026-01-01T00:01:30", ""])
def test_a_deadline_that_cannot_be_read_is_half_a_minute_after_it_was_noticed(written: str) -> None:
    simulator = bought(APP_LEVEL, minutes=1)
    simulator.keep_pods = True
    simulator.annotate_node(node(simulator, 0), {TERMINATION_DEADLINE: written})
    simulator.run(25)
    assert action(simulator) == "Signal"
    simulator.run(10)
    assert action(simulator) == "SignalMissed", "the deadline does not move with each look"


def test_a_pod_that_does_not_end_before_its_node_goes_has_missed_the_signal() -> None:
    simulator = bought(APP_LEVEL, minutes=1)
    lost = node(simulator, 0)
    simulator.keep_pods = True
    simulator.annotate_node(lost, {TERMINATION_DEADLINE: "2026-01-01T00:01:30Z"})
    simulator.run(20)
    assert action(simulator) == "Signal"
    simulator.run(20)
    assert action(simulator) == "SignalMissed"
    simulator.keep_pods = False
    simulator.lose_node(lost)
    simulator.run(5 * MINUTE)
    assert simulator.recoveries[0]["outcome"] == "ProgressLost"
    assert "ProgressLost" in simulator.event_reasons()


def test_nothing_is_signalled_when_no_time_is_left() -> None:
    simulator = bought(APP_LEVEL, minutes=1)
    old = str(simulator.replica(0)["name"])
    simulator.machines = False
    simulator.annotate_node(node(simulator, 0), {TERMINATION_DEADLINE: "2026-01-01T00:01:04Z"})
    simulator.reconcile()
    assert action(simulator) == "None"
    assert old in simulator.jobs


def test_a_registry_that_does_not_answer_is_waited_for_but_not_for_ever() -> None:
    simulator = bought(minutes=31)
    previous = stamps(simulator)[-1]
    simulator.registry_down = True
    lose_both(simulator)
    simulator.run(5 * MINUTE)
    assert simulator.replica(0)["phase"] == "Recovering"
    simulator.registry_down = False
    simulator.run(MINUTE)
    assert image(simulator, 0) == f"{REPOSITORY}:training-{previous}"


def test_a_registry_that_never_answers_ends_in_a_new_start() -> None:
    simulator = bought(minutes=31)
    simulator.registry_down = True
    lose_both(simulator)
    simulator.run(12 * MINUTE)
    assert simulator.condition("ProgressLost")[0] == "True"
    assert "connection refused" in simulator.condition_message("ProgressLost")
    assert bound_node(simulator.job_body(0)) == node(simulator, 0)
