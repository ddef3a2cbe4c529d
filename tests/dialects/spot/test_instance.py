"""Tests for ProvisionedInstances: what is requested, what their status says, and what becomes of errors and
losses.

They run in virtual time against the rehearsal cloud (see `machine_simulator`). Numbers are those of the
acceptance cases.
"""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from argosy.agent.notices.base import Notice
from argosy.agent.notices.publisher import annotations_patch, format_time
from argosy.capacity.catalog import read_catalog
from argosy.capacity.machine_record import MachineState
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds import labels, spot
from argosy.kinds.kubernetes import Node
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.spot import JOB_LABEL, REPLICA_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import JobReference, KubeadmJoinConfig
from argosy.local.gce.api import ApiRequest
from argosy.local.gce.cloud import CloudError, Latency
from argosy.plan.drivers import SecretContent
from tests.support.machine_simulator import START, World
from tests.support.spot_instances import IMAGE, JOIN, NAMESPACE, later_template, seed_template
from tests.support.spot_jobs import spot_job

JOIN_LINE = (
    "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef"
    f" --discovery-token-ca-cert-hash sha256:{'0' * 64}"
)


async def inserted(world: World) -> dict[str, object]:
    """Return the body of the first creation."""
    world.create()
    assert await world.run(30, lambda: bool(world.gate.sent.inserts))
    assert world.gate.violations == []
    return dict(world.gate.sent.inserts[0].body)


async def test_10_the_body_of_a_spot_vm_field_by_field() -> None:
    world = World()
    gcp = {"network_tags": ["a", "b"], "service_account": "robot@p.example.com", "disk_size_gb": 50}
    world.templates["vm"] = seed_template(script="#!/bin/sh\necho hello", gcp=gcp)
    obj = world.create()
    meta = replace(obj.metadata, labels={JOB_LABEL: "train", REPLICA_LABEL: "0"})
    world.objects["vm-0"] = replace(obj, metadata=meta)
    assert await world.run(30, lambda: bool(world.gate.sent.inserts))
    zone = "zones/us-central1-a"
    assert world.gate.sent.inserts[0].body == {
        "name": "vm-0",
        "machineType": f"{zone}/machineTypes/n1-standard-4",
        "scheduling": {
            "provisioningModel": "SPOT",
            "preemptible": True,
            "instanceTerminationAction": "DELETE",
            "automaticRestart": False,
            "onHostMaintenance": "TERMINATE",
        },
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "initializeParams": {
                    "sourceImage": IMAGE,
                    "diskSizeGb": "50",
                    "diskType": f"{zone}/diskTypes/pd-standard",
                },
            }
        ],
        "networkInterfaces": [{"accessConfigs": [{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}]}],
        "guestAccelerators": [
            {"acceleratorCount": 1, "acceleratorType": f"{zone}/acceleratorTypes/nvidia-tesla-t4"}
        ],
        "metadata": {"items": [{"key": "startup-script", "value": f"#!/bin/sh\necho hello\n{JOIN_LINE}"}]},
        "tags": {"items": ["a", "b"]},
        "serviceAccounts": [
            {"email": "robot@p.example.com", "scopes": ["https://www.googleapis.com/auth/cloud-platform"]}
        ],
        "labels": {
            "managed-by": "argosy",
            "spot-instance-job": "train",
            "replica": "0",
            "argosy-cluster": "cluster-uid",
            "argosy-uid": "uid-vm-0",
        },
    }


async def test_10_a_repeated_creation_has_the_same_request_id() -> None:
    world = World()

    def lose(request: ApiRequest) -> None:
        if request.permission == "compute.instances.create" and len(world.gate.sent.inserts) < 3:
            raise CloudError(503, "backendError", "try again")

    world.gate.before_faults.append(lose)
    world.create()
    assert await world.run(120, world.is_ready)
    ids = {each.query["requestId"] for each in world.gate.sent.inserts}
    assert (len(world.gate.sent.inserts), len(ids)) == (3, 1)


async def test_11_an_on_demand_vm_has_no_termination_action() -> None:
    world = World()
    world.templates["vm"] = later_template(preemptible=False)
    world.create(instance_template_kind="InstanceTemplate")
    assert await world.run(30, lambda: bool(world.gate.sent.inserts))
    assert world.gate.sent.inserts[0].body["scheduling"] == {
        "provisioningModel": "STANDARD",
        "preemptible": False,
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
    }
    assert world.status().provisioning_model == "STANDARD"


async def test_a_vm_without_gpu_and_without_external_address() -> None:
    world = World(gpus=0)
    world.templates["vm"] = seed_template(gpu=False, gcp={"external_ip": False})
    body = await inserted(world)
    assert "guestAccelerators" not in body
    assert body["networkInterfaces"] == [{}]
    assert await world.run(60, world.is_ready)


BUY = ["InstanceRequested", "InstanceRunning", "NodeJoined", "NodeReady"]


async def test_37_a_vm_is_requested_joins_is_ready_and_is_deleted_with_its_object() -> None:
    world = World()
    world.create()
    assert world.status().state == ""
    await world.run(1)
    assert world.status().state == "PENDING"
    assert await world.run(120, world.is_ready)
    status = world.status()
    assert world.reasons() == BUY
    assert (status.state, status.node_name, status.joined_cluster) == ("RUNNING", "vm-0", True)
    assert (status.instance_name, status.zone, status.attempts) == ("vm-0", "us-central1-a", 1)
    assert status.instance_id
    assert status.internal_ip
    assert world.nodes["vm-0"].metadata.labels == {"training.dcnlab.com/provisioned-instance": "vm-0"}
    world.delete()
    assert await world.run(60, lambda: not world.objects)
    assert (world.machines(), world.nodes) == ([], {})


def _change_join(world: World, **keys: bytes | None) -> None:
    data = {**JOIN, **{key.replace("_", "-"): value for key, value in keys.items()}}
    kept = {key: value for key, value in data.items() if value is not None}
    world.secrets["kubeadm-join-token"] = SecretContent(kept)


MISSING: dict[str, tuple[Callable[[World], object], str, tuple[str, str, str]]] = {
    "no credentials": (
        lambda world: world.secrets.pop("gcp-credentials"),
        "CredentialsReady",
        ("False", "SecretNotFound", f"secret {NAMESPACE}/gcp-credentials not found"),
    ),
    "credentials without their key": (
        lambda world: world.secrets.update({"gcp-credentials": SecretContent({"key.json": b"{}"})}),
        "CredentialsReady",
        ("False", "KeyMissing", f'secret {NAMESPACE}/gcp-credentials: key "credentials.json" missing'),
    ),
    "credentials that are not JSON": (
        lambda world: world.secrets.update(
            {"gcp-credentials": SecretContent({"credentials.json": b"\xff\x00"})}
        ),
        "CredentialsReady",
        ("False", "InvalidCredentials", ""),
    ),
    "no join data": (
        lambda world: world.secrets.pop("kubeadm-join-token"),
        "JoinConfigReady",
        ("False", "SecretNotFound", f"secret {NAMESPACE}/kubeadm-join-token not found"),
    ),
    "join data without the hash": (
        lambda world: _change_join(world, ca_cert_hash=None),
        "JoinConfigReady",
        ("False", "KeyMissing", f'secret {NAMESPACE}/kubeadm-join-token: key "ca-cert-hash" missing'),
    ),
    "join data with more than a word": (
        lambda world: _change_join(world, control_plane_endpoint=b"10.0.0.1:6443\nrm -rf /"),
        "JoinConfigReady",
        ("False", "KeyMissing", 'key "control-plane-endpoint" missing'),
    ),
    "no template": (
        lambda world: world.templates.clear(),
        "Provisioned",
        ("False", "TemplateNotFound", f"SpotInstanceVM {NAMESPACE}/vm not found"),
    ),
    "a token of its own where that is not allowed": (
        lambda world: _change_join(world, token=b"auto"),
        "JoinConfigReady",
        ("False", "TokenNotAllowed", ""),
    ),
}


@pytest.mark.parametrize(("damage", "kind", "want"), MISSING.values(), ids=MISSING.keys())
async def test_15_nothing_is_requested_until_everything_is_there(
    damage: Callable[[World], object], kind: str, want: tuple[str, str, str]
) -> None:
    world = World()
    secrets, templates = dict(world.secrets), dict(world.templates)
    damage(world)
    world.create()
    await world.run(30)
    status, reason, message = world.condition(kind)
    assert (status, reason) == want[:2]
    assert want[2] in message
    assert world.gate.sent.requests == []
    world.secrets, world.templates = secrets, templates
    assert await world.run(12, lambda: bool(world.gate.sent.inserts)), "within 10 s"


CATALOG = read_catalog(
    """InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice
n1-standard-4,,,us-central1,us-central1-a,0.19,0.04
n1-standard-4,,,us-central1,us-central1-b,0.19,0.05
n1-standard-4,,,us-central1,us-central1-c,0.19,0.03
,T4,1,us-central1,us-central1-a,0.35,0.10
,T4,1,us-central1,us-central1-b,0.35,0.20
,T4,1,us-central1,us-central1-c,0.35,0.15
"""
)


async def test_16_an_exhausted_zone_rests_and_the_next_one_by_price_is_asked() -> None:
    world = World(catalog=CATALOG)
    world.cloud.capacity["us-central1-a"] = 0
    world.create()
    assert await world.run(120, world.is_ready)
    assert [each.zone for each in world.gate.sent.inserts] == ["us-central1-a", "us-central1-c"]
    assert (world.status().zone, world.status().price_per_hour) == ("us-central1-c", "0.1800")
    assert world.status().on_demand_price_per_hour == "0.5400"
    assert world.nodes["vm-0"].metadata.annotations[labels.HOURLY_PRICE] == "0.1800"
    assert "ZoneExhausted" in world.reasons()


async def test_16_quota_rests_the_whole_region() -> None:
    world = World()
    zones = ["us-central1-b", "us-east1-b"]
    world.templates["vm"] = seed_template(gcp={"fallback_zones": zones})
    world.cloud.quota["us-central1"] = 0
    world.create()
    assert await world.run(120, world.is_ready)
    assert [each.zone for each in world.gate.sent.inserts] == ["us-central1-a", "us-east1-b"]
    assert "QuotaExceeded" in world.reasons()


async def test_quota_that_is_lifted_later_is_used() -> None:
    world = World()
    world.cloud.quota["us-central1"] = 0
    world.create()
    await world.run(3600, step=30)
    assert world.condition("Provisioned")[0] == "False"
    assert world.machines() == []
    assert len(world.gate.sent.inserts) < 10, "a region without quota rests"
    del world.cloud.quota["us-central1"]
    assert await world.run(3600, world.is_ready, step=30)


async def test_cloud_whose_api_is_down_for_an_hour_changes_nothing() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    asked = 0

    def refuse(request: ApiRequest) -> None:
        nonlocal asked
        asked += 1
        raise CloudError(503, "backendError", "try again") if asked % 2 else ConnectionError("cut")

    world.gate.before_faults.append(refuse)
    world.create("vm-1")
    world.create("vm-2")
    await world.run(1800, step=30)
    world.delete("vm-2")
    await world.run(1800, step=30)
    assert world.is_ready(), "a VM that nobody can look at is not lost"
    assert world.condition("Provisioned", "vm-1")[:2] == ("False", "CloudUnavailable")
    assert asked < 3000, "requests are repeated after growing times"
    world.gate.before_faults.clear()
    assert await world.run(300, lambda: world.is_ready("vm-1"))
    assert await world.run(600, lambda: "vm-2" not in world.objects)
    assert world.machines() == ["vm-0", "vm-1"]


async def test_vm_that_joins_twice_is_lost_once_and_its_nodes_are_deleted() -> None:
    """A VM that is reset joins again: its Node is deleted and another one of its name registers."""
    world = World(settings=SpotSettings(lease_loss_timeout=60))
    world.create()
    assert await world.run(120, world.is_ready)
    first = world.nodes["vm-0"]
    meta = replace(first.metadata, uid="joined-again", creation_timestamp=world.now)
    world.nodes["vm-0"] = replace(first, metadata=meta)
    assert await world.run(300, lambda: world.status().state == "TERMINATED")
    assert world.reasons().count("PreemptionNotice") == 1
    assert world.condition("Lost")[0] == "True"
    world.delete()
    assert await world.run(120, lambda: not world.objects)
    assert (world.machines(), list(world.nodes)) == ([], [])


async def test_16_a_missing_permission_is_named_and_another_secret_reopens() -> None:
    world = World()
    world.templates["vm"] = seed_template(gcp={"fallback_zones": ["us-east1-b"]})
    world.gate.permissions.discard("compute.instances.create")
    world.create()
    await world.run(120)
    status, reason, message = world.condition("Provisioned")
    assert (status, reason) == ("False", "PermissionDenied")
    assert "compute.instances.create" in message
    assert len(world.gate.sent.inserts) == 1, "no other zone is asked"
    world.gate.permissions.add("compute.instances.create")
    await world.run(120)
    assert len(world.gate.sent.inserts) == 1, "only a change reopens"
    data = world.secrets["gcp-credentials"].data["credentials.json"]
    world.secrets["gcp-credentials"] = SecretContent({"credentials.json": data + b" "})
    assert await world.run(60, world.is_ready)


async def test_16_without_any_capacity_all_zones_are_asked_again_for_ever() -> None:
    world = World(settings=SpotSettings(no_capacity_backoff=60))
    world.cloud.capacity["us-central1-a"] = 0
    world.create()
    await world.run(20)
    assert world.condition("Provisioned")[:2] == ("False", "NoCapacity")
    await world.run(600)
    waits = len(world.gate.sent.inserts)
    assert waits == 4, "at 0, 60, 180 and 420 s"
    del world.cloud.capacity["us-central1-a"]
    assert await world.run(600, world.is_ready)


async def test_14_a_vm_that_does_not_join_is_deleted_and_replaced_in_the_next_zone() -> None:
    world = World(settings=SpotSettings(join_timeout=100, max_join_attempts=2), join_seconds=None)
    world.templates["vm"] = seed_template(gcp={"fallback_zones": ["us-central1-b"]})
    world.create()
    assert await world.run(500, lambda: world.state() is MachineState.FAILED)
    assert [each.zone for each in world.gate.sent.inserts] == ["us-central1-a", "us-central1-b"]
    assert world.condition("Provisioned")[:2] == ("False", "JoinAttemptsExhausted")
    assert world.reasons().count("JoinTimeout") == 2
    assert world.machines() == []


HOW_FAR: dict[str, tuple[dict[str, object], str]] = {
    "no Node: image and kubeadm": ({"join_seconds": None}, f"no Node has come; vmImage {IMAGE}"),
    "a Node that is not Ready": ({"node_ready": False}, "is not Ready"),
    "a Node without GPU": ({"gpus": 0}, "offers 0 of 1 nvidia.com/gpu"),
}


@pytest.mark.parametrize(("world_fields", "want"), HOW_FAR.values(), ids=HOW_FAR.keys())
async def test_50_the_message_tells_how_far_a_vm_came(world_fields: dict[str, object], want: str) -> None:
    world = World(settings=SpotSettings(join_timeout=60, max_join_attempts=1), **world_fields)  # type: ignore[arg-type]
    world.create()
    assert await world.run(300, lambda: world.state() is MachineState.FAILED)
    assert want in world.condition("Provisioned")[2]


async def test_a_vm_that_is_there_already_is_adopted_by_its_exact_name() -> None:
    world = World()
    body = {"name": "vm-0", "metadata": {}}
    world.cloud.insert("my-project", "us-central1-a", body, "")
    world.cloud.insert("my-project", "us-central1-a", {**body, "name": "vm-0-b"}, "")
    world.create()
    assert await world.run(120, world.is_ready)
    assert world.gate.sent.inserts == []
    assert "InstanceAdopted" in world.reasons()


async def test_a_vm_that_was_there_before_is_neither_adopted_nor_deleted() -> None:
    world = World(settings=SpotSettings(join_timeout=120, max_join_attempts=1), join_seconds=None)
    world.cloud.insert("my-project", "us-central1-a", {"name": "vm-0", "metadata": {}}, "")
    await world.run(120)
    world.create()
    await world.run(300)
    assert world.condition("Provisioned")[:2] == ("False", "NameConflict")
    assert "vm-0" in world.condition("Provisioned")[2]
    world.delete()
    assert await world.run(60, lambda: not world.objects)
    assert world.machines() == ["vm-0"]


async def test_two_objects_whose_vms_have_one_name_do_not_share_a_node() -> None:
    """Objects of two namespaces may have one name; here `vm.0` and `vm-0` have one as VMs."""
    world = World()
    world.templates["other"] = seed_template(gcp={"project": "other-project"})
    world.create("vm.0")
    await world.run(2)
    world.create("vm-0", instance_template_name="other")
    assert await world.run(120, lambda: world.condition("NodeReady", "vm.0")[0] == "True")
    _, reason, message = world.condition("Provisioned", "vm-0")
    assert (reason, message) == ("NameConflict", "a Node of the name vm-0 exists already")
    world.delete("vm-0")
    assert await world.run(60, lambda: "vm-0" not in world.objects)
    assert (world.machines(), list(world.nodes)) == (["vm-0"], ["vm-0"])
    world.create("vm-0", instance_template_name="other")
    world.delete("vm.0")
    assert await world.run(240, lambda: world.condition("NodeReady", "vm-0")[0] == "True")


async def test_a_vm_of_another_object_is_neither_adopted_nor_deleted() -> None:
    world = World()
    body = {"name": "vm-0", "labels": {"argosy-uid": "somebody-else"}}
    world.cloud.insert("my-project", "us-central1-a", body, "")
    world.create()
    await world.run(60)
    assert world.condition("Provisioned")[:2] == ("False", "NameConflict")
    world.delete()
    assert await world.run(60, lambda: not world.objects)
    assert world.machines() == ["vm-0"]


async def test_a_node_that_exists_already_is_not_taken_for_the_vm() -> None:
    world = World()
    ready = Condition("Ready", "True")
    world.nodes["vm-0"] = Node(ObjectMeta(name="vm-0", uid="control-plane"))
    world.nodes["vm-0"].status.conditions.append(ready)
    world.create()
    await world.run(60)
    assert world.condition("Provisioned")[:2] == ("False", "NameConflict")
    world.delete()
    assert await world.run(60, lambda: not world.objects)
    assert world.nodes.keys() == {"vm-0"}


def _vm(world: World) -> tuple[str, str, str]:
    return next(iter(world.cloud.instances))


LOSSES: dict[str, tuple[Callable[[World], object], str, str]] = {
    "preempted": (lambda world: world.cloud.preempt(*_vm(world)), "operation", "Preempted"),
    "stopped by a user": (lambda world: world.cloud.stop(*_vm(world)), "operation", "UserStopped"),
    "gone without an operation": (lambda world: world.cloud.vanish(*_vm(world)), "absence", "NotFound"),
}


@pytest.mark.parametrize(("lose", "source", "cause"), LOSSES.values(), ids=LOSSES.keys())
async def test_28_a_lost_vm_is_noticed_with_its_cause_and_nothing_of_it_stays(
    lose: Callable[[World], object], source: str, cause: str
) -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    lose(world)
    lost_at = world.now
    assert await world.run(30, lambda: world.status().preemption_notice)
    status = world.status()
    assert (status.notice_source, status.cause) == (source, cause)
    assert status.notice_time is not None
    assert status.notice_time - lost_at <= timedelta(seconds=11)
    assert await world.run(120, lambda: world.status().state == "TERMINATED")
    assert world.condition("Lost")[:2] == ("True", cause)
    assert world.machines() == []
    assert len(world.gate.sent.inserts) == 1, "the job decides about another one"


async def test_an_announcement_on_the_node_is_the_first_word_and_others_add_nothing() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    node = world.nodes["vm-0"]
    deadline = (world.now + timedelta(seconds=25)).isoformat()
    annotations = {labels.TERMINATION_DEADLINE: deadline, labels.TERMINATION_SOURCE: "gce-metadata"}
    world.nodes["vm-0"] = replace(node, metadata=replace(node.metadata, annotations=annotations))
    assert await world.run(5, lambda: world.status().preemption_notice)
    world.cloud.preempt(*_vm(world))
    await world.run(40)
    status = world.status()
    assert (status.notice_source, status.cause) == ("gce-metadata", "Preempted")
    assert status.deadline is not None
    assert status.deadline.isoformat() == deadline
    assert world.reasons().count("PreemptionNotice") == 1


def announce(world: World, seconds: float | None) -> None:
    """Announce the end of the Node, or withdraw that."""
    node = world.nodes["vm-0"]
    annotations: dict[str, str] = {}
    if seconds is not None:
        deadline = (START + timedelta(seconds=seconds)).isoformat()
        annotations = {labels.TERMINATION_DEADLINE: deadline, labels.TERMINATION_SOURCE: "gce-maintenance"}
    world.nodes["vm-0"] = replace(node, metadata=replace(node.metadata, annotations=annotations))


async def test_a_notice_on_the_node_follows_its_deadline_until_it_is_withdrawn() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    for seconds in (600.0, 900.0, 300.0):
        announce(world, seconds)
        await world.run(3)
        assert world.status().deadline == START + timedelta(seconds=seconds)
    noticed = world.status().notice_time
    node = world.nodes.pop("vm-0")
    await world.run(10)
    assert world.status().notice_time == noticed, "a Node that is not seen withdraws nothing"
    world.nodes["vm-0"] = node
    announce(world, None)
    await world.run(3)
    assert (world.status().preemption_notice, world.status().notice_time) == (False, None)
    assert [each for each in world.reasons() if "Notice" in each] == ["PreemptionNotice", "NoticeWithdrawn"]


async def test_a_notice_that_the_cloud_has_confirmed_is_not_withdrawn_by_the_node() -> None:
    world = World(latency=Latency(notice=30))
    world.create()
    assert await world.run(120, world.is_ready)
    announce(world, 86_400)
    await world.run(3)
    world.cloud.preempt(*_vm(world))
    at = world.now
    await world.run(15)
    announce(world, None)
    await world.run(5)
    status = world.status()
    assert status.preemption_notice
    assert status.deadline is not None
    assert status.deadline - at <= timedelta(seconds=60), "the earlier of both"
    assert "NoticeWithdrawn" not in world.reasons()


def told(world: World) -> tuple[str, str]:
    """Return what the Node says of its end: when that is, and who says so."""
    annotations = world.nodes["vm-0"].metadata.annotations
    return annotations.get(spot.TERMINATION_DEADLINE, ""), annotations.get(spot.TERMINATION_SOURCE, "")


def _preempt_without_operation(world: World) -> None:
    world.cloud.preempt(*_vm(world))
    world.cloud.operations.clear()


ENDS: dict[str, tuple[Callable[[World], object], str]] = {
    "preempted": (lambda world: world.cloud.preempt(*_vm(world)), "operation"),
    "stopped by a user": (lambda world: world.cloud.stop(*_vm(world)), "operation"),
    "only its status says so": (_preempt_without_operation, "STOPPING"),
}


@pytest.mark.parametrize(("end", "source"), ENDS.values(), ids=ENDS.keys())
async def test_an_end_that_only_the_cloud_reports_is_announced_on_the_node(
    end: Callable[[World], object], source: str
) -> None:
    world = World(latency=Latency(notice=30))
    world.create()
    assert await world.run(120, world.is_ready)
    end(world)
    assert await world.run(30, lambda: world.status().preemption_notice)
    deadline = world.status().deadline
    assert deadline is not None
    assert world.status().notice_source == source
    want = deadline.replace(microsecond=0).isoformat().replace("+00:00", "Z"), "provisioned-instance"
    assert told(world) == want
    node = world.nodes["vm-0"]
    await world.run(8)
    assert world.nodes["vm-0"] is node, "it is announced once"
    assert await world.run(120, lambda: world.status().state == "TERMINATED")
    assert told(world) == want


@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its answer arrives"])
@pytest.mark.parametrize("after", range(1, 4))
async def test_an_end_is_announced_though_the_operator_is_killed(after: int, answered: bool) -> None:
    world = World(latency=Latency(notice=30), answered=answered)
    world.create()
    assert await world.run(120, world.is_ready)
    world.cloud.preempt(*_vm(world))
    world.kill_at = world.requests + after
    assert await world.run(29, lambda: told(world)[1] == "provisioned-instance")
    assert world.status().deadline is not None


async def test_what_a_node_repeats_of_the_cloud_is_no_notice_of_its_own() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    node = world.nodes["vm-0"]
    annotations = {
        spot.TERMINATION_DEADLINE: "2026-01-01T00:00:00Z",
        spot.TERMINATION_SOURCE: "provisioned-instance",
    }
    world.nodes["vm-0"] = replace(node, metadata=replace(node.metadata, annotations=annotations))
    await world.run(5)
    assert not world.status().preemption_notice


async def test_an_agent_that_withdraws_its_own_notice_leaves_that_of_the_cloud() -> None:
    world = World(latency=Latency(notice=60))
    world.create()
    assert await world.run(120, world.is_ready)
    world.cloud.preempt(*_vm(world))
    assert await world.run(15, lambda: told(world)[1] == "provisioned-instance")
    of_cloud, agent = told(world), Notice("gce-maintenance", world.now + timedelta(seconds=5))
    for notices in ((agent,), ()):
        node = world.nodes["vm-0"]
        patch = annotations_patch(node.metadata.annotations, notices, "gce-")
        assert patch is not None
        kept = {key: value for key, value in patch.items() if value is not None}
        meta = replace(node.metadata, annotations=kept)
        world.nodes["vm-0"] = replace(node, metadata=meta)
        await world.run(3)
        assert told(world) == ((format_time(agent.deadline), agent.source) if notices else of_cloud)


async def test_a_silent_node_whose_vm_is_running_is_given_up_and_its_vm_deleted() -> None:
    world = World(settings=SpotSettings(lease_loss_timeout=60))
    world.create()
    assert await world.run(120, world.is_ready)
    node = world.nodes["vm-0"]
    node.status.conditions[0] = Condition("Ready", "Unknown")
    assert await world.run(200, lambda: world.status().state == "TERMINATED")
    assert world.condition("Lost")[0] == "True"
    assert world.machines() == []


async def test_an_unknown_status_holds_the_vm() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    next(iter(world.cloud.instances.values())).status = "MOVING"
    await world.run(60)
    assert (world.status().state, world.status().preemption_notice) == ("MOVING", False)


async def test_36_the_template_may_be_deleted_before_the_vm() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    world.templates.clear()
    await world.run(20)
    assert world.is_ready(), "the VM goes on"
    world.delete()
    assert await world.run(60, lambda: not world.objects)
    assert world.machines() == []


async def test_35_a_vm_without_credentials_is_kept_until_it_is_given_up_by_force() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    world.secrets.pop("gcp-credentials")
    world.delete()
    assert not await world.run(120, lambda: not world.objects)
    assert world.condition("CredentialsReady")[:2] == ("False", "SecretNotFound")
    obj = world.objects["vm-0"]
    meta = replace(obj.metadata, annotations={"training.dcnlab.com/force-delete": "true"})
    world.objects["vm-0"] = replace(obj, metadata=meta)
    assert await world.run(30, lambda: not world.objects)
    assert "InstanceAbandoned" in world.reasons()


async def test_49_the_permissions_of_the_role_suffice_and_no_others_are_used() -> None:
    world = World()
    world.create()
    assert await world.run(120, world.is_ready)
    world.cloud.preempt(*_vm(world))
    await world.run(60)
    world.delete()
    assert await world.run(60, lambda: not world.objects)
    used = {each.permission.rsplit(".", 1)[0] for each in world.gate.sent.requests}
    assert used == {"compute.instances", "compute.zoneOperations"}
    assert world.gate.violations == []


async def test_a_token_of_its_own_is_made_before_the_vm_and_deleted_once_it_has_joined() -> None:
    settings = SpotSettings(bootstrap_token_namespaces=f"other, {NAMESPACE}")
    world = World(settings=settings)
    _change_join(world, token=b"auto")
    world.create()
    assert await world.run(30, lambda: bool(world.gate.sent.inserts))
    (token_id,) = world.tokens
    metadata = world.gate.sent.inserts[0].body["metadata"]
    assert f"--token {token_id}.0123456789abcdef " in str(metadata)
    assert token_id + "." not in str(world.status()), "the token is in no Record"
    assert await world.run(60, world.is_ready)
    await world.run(5)
    assert world.tokens == {}


async def test_the_secret_wins_over_the_template_and_a_difference_is_told_once() -> None:
    world = World()
    template = seed_template()
    join = KubeadmJoinConfig(ca_cert_hash="sha256:abc123...", control_plane_endpoint="10.9.9.9:6443")
    world.templates["vm"] = replace(template, spec=replace(template.spec, kubeadm_join_config=join))
    _change_join(world, ca_cert_hash=None)
    body = await inserted(world)
    assert "kubeadm join 10.0.0.1:6443" in str(body)
    assert "sha256:abc123..." in str(body)
    await world.run(60)
    assert world.reasons().count("JoinConfigMismatch") == 1


async def test_on_demand_after_failed_spot_attempts_of_a_job() -> None:
    world = World()
    manifest = spot_job("train", {"recovery": {"onDemandFallbackAfter": 1}})
    metadata = {"name": "train", "uid": "uid-of-job", "namespace": NAMESPACE}
    job = msgspec.convert({**manifest, "metadata": metadata}, SpotInstanceJob)
    world.jobs["train"] = job
    world.templates["vm"] = seed_template(gcp={"fallback_zones": ["us-central1-b"]})
    world.cloud.capacity["us-central1-a"] = 0
    resource = job.resource
    ref = JobReference(resource.api_version, resource.kind, job.metadata.name, job.metadata.uid)
    world.create(spot_instance_job_ref=ref)
    assert await world.run(60, lambda: len(world.gate.sent.inserts) == 2)
    models = [str(each.body["scheduling"]) for each in world.gate.sent.inserts]
    assert "SPOT" in models[0]
    assert "STANDARD" in models[1]
