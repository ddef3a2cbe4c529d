"""The acceptance cases of SpotInstanceJobs: templates, places and Jobs, on simulated clusters."""

from typing import cast

import pytest

from argosy.kinds.labels import QUARANTINE_NAMESPACES, QUARANTINE_UNTIL
from tests.support.spot_cluster import GPU, NAME, bound_node
from tests.support.spot_jobs import REMOVED, Json, spot_job
from tests.support.spot_simulator import SpotSimulator

LATER: Json = {"spotInstanceVMRef": REMOVED}
POD = "jobTemplate.spec.template.spec"


def with_nodes(*names: str, changes: Json | None = None, later_shape: bool = False) -> SpotSimulator:
    simulator = SpotSimulator(changes, later_shape=later_shape)
    for name in names:
        simulator.add_node(name)
    return simulator


def pod_spec(body: Json) -> Json:
    return cast("Json", cast("Json", cast("Json", body["spec"])["template"])["spec"])


@pytest.mark.parametrize("nodes", [("a", "b"), ()], ids=["on existing nodes", "on bought VMs"])
def test_case_3_both_shapes_give_the_same_vms_jobs_and_status(nodes: tuple[str, ...]) -> None:
    seed, later = with_nodes(*nodes), with_nodes(*nodes, later_shape=True)
    for simulator in (seed, later):
        simulator.run(60)
    kinds = {"InstanceTemplate": "SpotInstanceVM"}
    assert seed.bodies == later.bodies
    assert seed.status["jobStatuses"] == later.status["jobStatuses"]
    assert seed.job.status.conditions == later.job.status.conditions
    for name, instance in later.instances.items():
        kind = kinds[instance.spec.instance_template_kind]
        assert seed.instances[name].spec.instance_template_kind == kind


def test_case_5_a_request_of_a_gpu_without_a_limit_gets_one() -> None:
    simulator = with_nodes("a", "b")
    simulator.run()
    containers = cast("list[Json]", pod_spec(simulator.job_body(0))["containers"])
    assert containers[0]["resources"] == {"requests": {GPU: 1}, "limits": {GPU: 1}}


INVALID: dict[str, tuple[Json, str, str]] = {
    "no containers: InvalidJobTemplate": (
        {f"{POD}.containers": []},
        "InvalidJobTemplate",
        "spec.jobTemplate.spec.template.spec.containers: required",
    ),
    "parallelism 3: UnsupportedJobTemplate": (
        {"jobTemplate.spec.parallelism": 3},
        "UnsupportedJobTemplate",
        "spec.jobTemplate.spec.parallelism: invalid value 3",
    ),
    "nodeName: UnsupportedJobTemplate": (
        {f"{POD}.nodeName": "x"},
        "UnsupportedJobTemplate",
        "spec.jobTemplate.spec.template.spec.nodeName",
    ),
    "no map at all: InvalidJobTemplate": ({"jobTemplate": "x"}, "InvalidJobTemplate", "must be a map"),
    "a number as command: InvalidJobTemplate": (
        {f"{POD}.containers": [{"name": "c", "command": 3}]},
        "InvalidJobTemplate",
        "spec.jobTemplate.spec.template.spec.containers[0].command",
    ),
    "a repository with a tag: InvalidImageRepo": (
        {"checkpointConfig.checkpointImageRepo": "gcr.io/a:b"},
        "InvalidImageRepo",
        "spec.checkpointConfig.checkpointImageRepo",
    ),
    "case 48, an interval that admission did not check: InvalidSpec": (
        {"checkpointConfig.checkpointInterval": "30x"},
        "InvalidSpec",
        'spec.checkpointConfig.checkpointInterval: invalid duration "30x"',
    ),
    "a storage of a claim without its name: InvalidSpec": (
        {"checkpointConfig.checkpointStorage": {"type": "PVC", "pathPrefix": "p"}},
        "InvalidSpec",
        "spec.checkpointConfig.checkpointStorage.bucket: required if type is gcs, s3, pvc",
    ),
    "a bucket with a scheme at level App: InvalidSpec": (
        {
            "checkpointConfig.level": "App",
            "checkpointConfig.checkpointStorage": {"type": "gcs", "bucket": "gs://b"},
        },
        "InvalidSpec",
        "spec.checkpointConfig.checkpointStorage.bucket: must be the name of a bucket, without a scheme",
    ),
    "a path to a folder above at level App: InvalidSpec": (
        {
            "checkpointConfig.level": "App",
            "checkpointConfig.checkpointStorage": {"type": "S3", "bucket": "b", "pathPrefix": "a/../c"},
        },
        "InvalidSpec",
        "spec.checkpointConfig.checkpointStorage.pathPrefix: must not contain '.', '..' or an empty name",
    ),
    "credentials of a claim: InvalidSpec": (
        {
            "checkpointConfig.level": "App",
            "checkpointConfig.checkpointStorage": {
                "type": "pvc",
                "bucket": "b",
                "credentials": {"name": "a"},
            },
        },
        "InvalidSpec",
        "spec.checkpointConfig.checkpointStorage.credentials: supported only with level App and type gcs or",
    ),
    "credentials whose name is no name: InvalidSpec": (
        {
            "checkpointConfig.level": "App",
            "checkpointConfig.checkpointStorage": {
                "type": "s3",
                "bucket": "b",
                "credentials": {"name": "../a"},
            },
        },
        "InvalidSpec",
        'spec.checkpointConfig.checkpointStorage.credentials.name: invalid value "../a": must be',
    ),
    "case 48, both references: InvalidSpec": (
        {"instanceTemplateRef": {"name": "x"}},
        "InvalidSpec",
        "spec: exactly one of spotInstanceVMRef and instanceTemplateRef must be set",
    ),
}


@pytest.mark.parametrize(("changes", "reason", "message"), INVALID.values(), ids=INVALID.keys())
def test_case_6_nothing_is_created_for_an_invalid_job(changes: Json, reason: str, message: str) -> None:
    simulator = with_nodes("a", "b", changes=changes)
    simulator.run(60)
    assert simulator.condition("Accepted") == ("False", reason)
    assert message in simulator.condition_message("Accepted")
    assert simulator.created == []


def test_case_6_a_job_that_the_api_server_refuses_buys_nothing() -> None:
    simulator = SpotSimulator()
    simulator.check_problem = 'Job.batch "x" is invalid: spec.template.spec.restartPolicy: Unsupported value'
    simulator.run(60)
    assert simulator.condition("Accepted") == ("False", "InvalidJobTemplate")
    assert "restartPolicy" in simulator.condition_message("Accepted")
    assert simulator.created == []


def test_case_8_free_nodes_are_used_and_nothing_is_bought() -> None:
    simulator = with_nodes("a", "b")
    simulator.run()
    assert [bound_node(simulator.job_body(index)) for index in (0, 1)] == ["a", "b"]
    assert not simulator.instances
    for index in (0, 1):
        body = simulator.job_body(index)
        labels = {
            "training.dcnlab.com/spot-instance-job": NAME,
            "training.dcnlab.com/job-replica": str(index),
        }
        meta = cast("Json", body["metadata"])
        template = cast("Json", cast("Json", body["spec"])["template"])
        assert labels.items() <= cast("Json", meta["labels"]).items()
        assert cast("Json", template["metadata"])["labels"] == labels
        assert str(meta["name"]).startswith(f"{NAME}-{index}-")
        owner = cast("list[Json]", meta["ownerReferences"])[0]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("SpotInstanceJob", "job-uid", True)
        assert "nodeName" not in pod_spec(body)


def test_case_9_gpus_that_other_pods_have_requested_are_not_free() -> None:
    simulator = with_nodes("a", "b")
    simulator.occupy("a")
    simulator.occupy("b")
    simulator.run()
    assert len(simulator.instances) == 2
    assert {bound_node(simulator.job_body(index)) for index in (0, 1)} == set(simulator.instances)


def test_one_free_node_is_used_and_one_vm_is_bought() -> None:
    simulator = with_nodes("a")
    simulator.run()
    assert len(simulator.instances) == 1
    assert bound_node(simulator.job_body(0)) == "a"


QUARANTINES: dict[str, tuple[Json, bool]] = {
    "until later, for all namespaces: not used": ({QUARANTINE_UNTIL: "2026-01-01T01:00:00Z"}, False),
    "until later, for this namespace: not used": (
        {QUARANTINE_UNTIL: "2026-01-01T01:00:00Z", QUARANTINE_NAMESPACES: "other,default"},
        False,
    ),
    "until later, for another namespace: used": (
        {QUARANTINE_UNTIL: "2026-01-01T01:00:00Z", QUARANTINE_NAMESPACES: "other"},
        True,
    ),
    "over: used": ({QUARANTINE_UNTIL: "2025-12-31T23:59:59Z"}, True),
    "until something that is no time: used": ({QUARANTINE_UNTIL: "soon"}, True),
}


@pytest.mark.parametrize(("annotations", "used"), QUARANTINES.values(), ids=QUARANTINES.keys())
def test_node_in_quarantine_gets_no_replica(annotations: Json, used: bool) -> None:
    simulator = with_nodes("a", changes={"replicas": 1})
    simulator.annotate_node("a", cast("dict[str, str]", annotations))
    simulator.run()
    assert (bound_node(simulator.job_body(0)) == "a") is used
    assert len(simulator.instances) == (0 if used else 1)


def test_replica_that_runs_stays_on_a_node_in_quarantine_and_is_restarted_elsewhere() -> None:
    simulator = with_nodes("a", "b", changes={"replicas": 1})
    simulator.run()
    assert bound_node(simulator.job_body(0)) == "a"
    simulator.annotate_node("a", {QUARANTINE_UNTIL: "2026-01-01T01:00:00Z"})
    simulator.run(60)
    assert len(simulator.jobs) == 1
    simulator.end_pod(0, exit_code=1)
    simulator.run(60)
    assert bound_node(simulator.job_body(0)) == "b"
    assert simulator.replica(0)["restarts"] == 1


def test_replica_that_fails_on_a_bought_node_in_quarantine_keeps_its_vm() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.run()
    node = bought(simulator)
    simulator.annotate_node(node, {QUARANTINE_UNTIL: "2026-01-01T01:00:00Z"})
    simulator.end_pod(0, exit_code=1)
    simulator.run(60)
    assert bound_node(simulator.job_body(0)) == node
    assert list(simulator.instances) == [node]


def bought(simulator: SpotSimulator) -> str:
    return next(iter(simulator.instances))


def test_vm_that_has_joined_and_has_no_label_yet_is_no_place_for_another_replica() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.machines = False
    simulator.run()
    simulator.add_node(bought(simulator))
    simulator.edit(replicas=2)
    simulator.run()
    assert len(simulator.instances) == 2


def test_case_12_a_node_must_be_ready_and_have_its_gpu() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.machines = False
    simulator.run()
    node = bought(simulator)
    simulator.change_instance(node, state="RUNNING", node_name=node)
    simulator.add_node(node, gpus=1)
    simulator.set_ready(node, "False")
    simulator.run(5)
    assert not simulator.jobs
    simulator.add_node(node, gpus=0)
    simulator.run(5)
    assert not simulator.jobs
    assert "no allocatable nvidia.com/gpu" in simulator.condition_message("InstancesReady")
    simulator.add_node(node, gpus=1)
    simulator.run(5)
    assert bound_node(simulator.job_body(0)) == node
    assert "nodeName" not in pod_spec(simulator.job_body(0))


def test_case_13_a_pod_with_cdi_devices_needs_no_allocatable_gpu() -> None:
    changes: Json = {
        "replicas": 1,
        f"{POD}.containers": [{"name": "training", "image": "x"}],
        "jobTemplate.spec.template.metadata": {
            "annotations": {"container.devices.cdi.k8s.io/training": "nvidia.com/gpu=0"}
        },
    }
    simulator = SpotSimulator(changes)
    simulator.machines = False
    simulator.run()
    node = bought(simulator)
    simulator.add_node(node, gpus=0)
    simulator.change_instance(node, state="RUNNING", node_name=node)
    simulator.run(5)
    assert bound_node(simulator.job_body(0)) == node


def test_case_44_the_job_first_then_the_vm() -> None:
    simulator = SpotSimulator(template=False)
    simulator.run(10)
    assert simulator.condition("Accepted") == ("False", "TemplateNotFound")
    assert simulator.created == []
    simulator.add_template()
    simulator.run()
    assert simulator.condition("Accepted") == ("True", "Accepted")
    specs = [instance.spec for instance in simulator.instances.values()]
    assert [spec.instance_template_name for spec in specs] == ["my-training-vm"] * 2
    assert {spec.gcp_credentials_secret_ref.name for spec in specs} == {"gcp-credentials"}
    for name, instance in simulator.instances.items():
        assert name.startswith(f"{NAME}-my-training-vm-")
        assert instance.spec.spot_instance_job_ref is not None
        assert instance.spec.spot_instance_job_ref.uid == "job-uid"


def test_case_45_a_vm_without_gpu_is_ready_as_soon_as_its_node_is() -> None:
    changes: Json = {f"{POD}.containers": [{"name": "training", "image": "x"}]}
    simulator = SpotSimulator(changes, vm_changes={"gpu": REMOVED})
    simulator.run()
    assert len(simulator.instances) == len(simulator.jobs) == 2


def test_case_46_nothing_about_vms_is_required_while_nodes_are_free() -> None:
    simulator = with_nodes("a", "b")
    simulator.run()
    assert simulator.job.status.phase == "Running"
    for kind in ("CredentialsReady", "JoinConfigReady", "InstancesReady"):
        assert simulator.condition(kind) == ("True", "NotRequired")


def test_case_7_phase_replicas_zone_and_price_are_in_the_status() -> None:
    simulator = SpotSimulator()
    simulator.run(31 * 60)
    status = simulator.job.status
    assert (status.phase, status.active_replicas) == ("Running", 2)
    assert (status.zones, status.cost_per_hour) == ("us-central1-a", "0.300")
    assert status.saved_per_hour == "0.700"
    assert status.last_checkpoint_time is not None
    assert status.preemption_count == 0
    reasons = simulator.event_reasons()
    for reason in ("InstanceRequested", "JobCreated", "CheckpointRequested", "CheckpointCompleted"):
        assert reasons.count(reason) >= 2, reason


def test_a_changed_template_is_reported_once_and_changes_nothing_that_runs() -> None:
    simulator = with_nodes("a", "b")
    simulator.run()
    names = set(simulator.jobs)
    template = cast("Json", spot_job(changes={f"{POD}.priorityClassName": "high"})["spec"])["jobTemplate"]
    simulator.edit(job_template=template)
    simulator.run(30)
    assert set(simulator.jobs) == names
    assert simulator.event_reasons().count("TemplateChanged") == 1
