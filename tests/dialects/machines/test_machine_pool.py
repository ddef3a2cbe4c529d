"""Tests MachinePools with the VMs that they own, in virtual time."""

from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from argosy.capacity import pool_reasons
from argosy.capacity.catalog import read_catalog
from argosy.capacity.pool_record import Leaving, Why
from argosy.dialects.machines.pool_status import total_price
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import MACHINE_POOL
from argosy.kinds.machinepool import CredentialsReference, MachineTemplateReference
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot import REPLICA_LABEL, TERMINATION_DEADLINE, TERMINATION_SOURCE
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.local.gce.cloud import Latency
from argosy.workload.announcements import NoticeRules, find_announcement
from tests.support.commands import REPOSITORY
from tests.support.pool_simulator import PoolWorld
from tests.support.spot_instances import NAMESPACE


def make_world() -> PoolWorld:
    return PoolWorld(latency=Latency(insert=4, boot=3, delete=4, notice=30))


async def started(**spec: Any) -> PoolWorld:
    world = make_world()
    world.create_pool(**spec)
    assert await world.run(300, lambda: world.has(2))
    return world


def condition(world: PoolWorld, kind: str) -> tuple[str, str, str]:
    found = next(each for each in world.pool_status().conditions if each.type == kind)
    return found.status, found.reason, found.message


async def test_a_pool_of_two_is_two_labelled_nodes_and_says_what_they_cost() -> None:
    world = await started()
    status = world.pool_status()
    assert (status.replicas, status.ready, status.provisioning) == (2, 2, 0)
    assert status.selector == f"{MACHINE_POOL}=pool"
    assert condition(world, "Ready") == ("True", "AllReady", "2 of 2 machines are ready")
    assert {node.metadata.labels[MACHINE_POOL] for node in world.nodes.values()} == {f"{NAMESPACE}.pool"}
    [first, second] = sorted(world.machines())
    assert (first[:10], second[:10]) == ("pool-vm-0-", "pool-vm-1-"), "<pool>-<template>-<index>-<seconds>"
    assert total_price(["0.1", "", "0.25"]) == "0.350"
    assert total_price([""]) == ""
    assert total_price(["sNaN", "1e9999999", "9" * 400, "0.25"]) == "0.250", "without those that are none"


async def test_another_machine_is_requested_while_the_noticed_one_still_runs() -> None:
    world = await started()
    lost = world.machines()[0]
    world.run_pod("training", lost)
    world.preempt(lost)

    def both_are_there() -> bool:
        return len(world.machines()) == 3 and lost in world.machines()

    assert await world.run(30, both_are_there), "the replacement does not wait for the end of the lost one"
    assert (world.pool_status().noticed, world.pool_status().replicas) == (1, 2)
    assert await world.run(300, lambda: world.has(2))
    assert lost not in world.machines()
    assert world.pool_reasons().count("MachineLost") == 1


async def test_jobs_on_a_machine_are_told_its_end_though_only_the_cloud_reports_it() -> None:
    world = await started()
    lost, kept = world.machines()
    for name in (lost, kept):
        world.run_pod(f"on-{name}", name)
    world.preempt(lost)
    at = world.now
    assert await world.run(15, lambda: world.pool_status().noticed == 1)
    announced = find_announcement(world.nodes[lost], NoticeRules())
    assert announced is not None
    assert (announced.cause, announced.source) == ("Preempted", "provisioned-instance")
    assert announced.deadline is not None
    assert announced.deadline - at <= timedelta(seconds=41)
    assert find_announcement(world.nodes[kept], NoticeRules()) is None
    assert lost in world.machines(), "its pods have until the deadline"
    assert await world.run(300, lambda: world.has(2))
    assert lost not in world.nodes


async def test_jobs_on_a_machine_that_is_not_needed_are_told_before_it_goes() -> None:
    world = await started(drain_grace="1m")
    busy, idle = world.machines()
    for number in range(2):
        world.run_pod(f"training-{number}", busy)
    world.run_pod("other", idle)
    world.change_pool(replicas=1)
    await world.run(3)
    node = world.nodes[idle]
    announced = find_announcement(node, NoticeRules())
    assert announced is not None
    assert (announced.source, node.spec.unschedulable) == ("machine-pool", True)
    assert announced.deadline is not None
    assert announced.deadline - world.now < timedelta(minutes=1)
    assert find_announcement(world.nodes[busy], NoticeRules()) is None
    assert (world.pool_status().draining, world.status(idle).preemption_notice) == (1, False)
    await world.run(20)
    assert idle in world.machines(), "its pod has until the deadline"
    world.pods = [pod for pod in world.pods if pod.metadata.name != "other"]
    assert await world.run(20, lambda: world.machines() == [busy]), "gone as soon as nothing runs there"


@pytest.mark.parametrize("grace", ["9999999999999999h", "100h", "9" * 31 + "h"])
async def test_a_drain_grace_of_more_than_a_day_is_a_day(grace: str) -> None:
    world = await started(drain_grace=grace)
    for node in world.machines():
        world.run_pod(f"on-{node}", node)
    world.change_pool(replicas=1)
    at = world.now
    assert await world.run(5, lambda: world.pool_status().draining == 1)
    deadlines = [find_announcement(node, NoticeRules()) for node in world.nodes.values()]
    [announced] = [each for each in deadlines if each is not None]
    assert announced.deadline is not None
    assert announced.deadline - at <= timedelta(days=1)


@pytest.mark.parametrize("argosy", [{}, {"slots": "garbled"}], ids=["lost", "garbled"])
@pytest.mark.parametrize("replicas", [2, -1], ids=["valid", "invalid"])
async def test_a_pool_whose_record_is_lost_keeps_its_machines(
    argosy: dict[str, object], replicas: int
) -> None:
    world = await started()
    before = world.machines()
    world.change_pool(replicas=replicas)
    world.lose_record(argosy)
    await world.run(60)
    assert world.machines() == before
    assert [node.spec.unschedulable for node in world.nodes.values()] == [False, False]
    world.delete_pool()
    assert await world.run(60, lambda: not world.pools)


async def test_labels_and_names_that_are_not_ours_do_not_disturb_a_lost_record() -> None:
    world = await started()
    [first, _] = world.machines()
    obj = world.objects[first]
    strange = {**obj.metadata.labels, REPLICA_LABEL: "9" * 5000}
    world.objects[first] = replace(obj, metadata=replace(obj.metadata, labels=strange))
    world.lose_record()
    assert await world.run(300, lambda: len(world.cloud.ever) == 3 and world.has(2))
    assert first not in world.machines()


async def test_a_drain_without_a_deadline_lasts_as_long_as_jobs_expect() -> None:
    world = await started()
    [drained, _] = world.machines()
    world.run_pod("training", drained)
    world.set_taints(drained, "ToBeDeletedByClusterAutoscaler")
    at = world.now
    assert await world.run(30, lambda: world.pool_status().noticed == 1)
    await world.run(500)
    assert drained in world.machines()
    assert await world.run(200, lambda: drained not in world.machines())
    assert world.now - at >= timedelta(seconds=600)


async def test_a_hint_on_a_cordoned_node_does_not_keep_pods_from_being_told() -> None:
    world = await started(drain_grace="1m")
    for name in world.machines():
        world.run_pod(f"on-{name}", name)
        world.set_taints(name, "DeletionCandidateOfClusterAutoscaler")
        node = world.nodes[name]
        world.nodes[name] = replace(node, spec=replace(node.spec, unschedulable=True))
    world.change_pool(replicas=0)
    await world.run(5)
    for node in world.nodes.values():
        announced = find_announcement(node, NoticeRules())
        assert announced is not None
        assert announced.source == "machine-pool"
        assert announced.deadline is not None
        assert announced.deadline - world.now <= timedelta(minutes=1)


async def test_pods_on_a_machine_whose_notice_was_withdrawn_are_told_before_it_goes() -> None:
    world = await started(drain_grace="2m")
    [kept, _] = world.machines()
    world.run_pod("training", kept)
    node = world.nodes[kept]
    deadline = (world.now + timedelta(seconds=40)).isoformat()
    notice = {TERMINATION_DEADLINE: deadline, TERMINATION_SOURCE: "gce-maintenance"}
    world.nodes[kept] = replace(node, metadata=replace(node.metadata, annotations=notice))
    assert await world.run(10, lambda: world.pool_status().noticed == 1)
    assert world.status(kept).notice_source == "gce-maintenance"
    world.nodes[kept] = node
    assert await world.run(10, lambda: world.nodes[kept].spec.unschedulable)
    announced = find_announcement(world.nodes[kept], NoticeRules())
    assert announced is not None
    assert announced.source == "machine-pool"
    assert (world.pool_status().noticed, world.pool_status().draining) == (0, 1)
    status = world.status(kept)
    assert (status.preemption_notice, status.deadline, status.cause) == (False, None, "")
    assert world.condition("Lost", kept)[:2] == ("False", "NoticeWithdrawn")
    await world.run(90)
    assert kept in world.machines(), "beyond the deadline that was withdrawn"
    assert await world.run(60, lambda: world.has(2))
    assert kept not in world.machines()
    assert len(world.cloud.ever) == 3


async def test_a_forged_status_neither_drains_nor_deletes_a_node_of_others() -> None:
    world = await started()
    theirs = Node(ObjectMeta(name="cp-1", uid="theirs", creation_timestamp=world.now))
    world.nodes["cp-1"] = theirs
    [first, second] = world.machines()
    obj = world.objects[first]
    machine: Any = {**cast("Any", obj.status.argosy["machine"]), "name": "cp-1", "node": "cp-1"}
    machine["nodeUid"] = "theirs"
    forged = replace(obj.status, node_name="cp-1", argosy={**obj.status.argosy, "machine": machine})
    world.objects[first] = replace(obj, status=forged)
    leaving = Leaving(second, Why.SURPLUS, f"uid-{second}", "cp-1", world.now + timedelta(hours=1))
    argosy: dict[str, object] = {"version": 1, "leaving": [msgspec.to_builtins(leaving)]}
    world.lose_record(argosy)
    world.delete_pool()
    await world.run(200)
    assert world.nodes["cp-1"] == theirs


async def test_a_machine_goes_at_the_deadline_though_pods_stay() -> None:
    world = await started(drain_grace="1m")
    for node in world.machines():
        world.run_pod(f"on-{node}", node)
    world.delete_pool()
    await world.run(40)
    assert len(world.machines()) == 2
    assert condition(world, "Ready")[1] == "Deleting"
    assert await world.run(60, lambda: not world.pools)


async def test_machines_are_spread_and_follow_the_strategy_of_the_pool() -> None:
    world = await started(strategy="CHEAPEST", on_demand_fallback_after=2)
    specs = [obj.spec for obj in world.objects.values()]
    assert {(spec.strategy, spec.on_demand_fallback_after) for spec in specs} == {("CHEAPEST", 2)}
    world.change_pool(strategy="EAGER_NEXT_REGION")
    await world.run(3)
    assert {obj.spec.strategy for obj in world.objects.values()} == {"EAGER_NEXT_REGION"}
    assert len(world.cloud.ever) == 2, "no machine is replaced for it"


async def test_the_cheapest_zone_is_not_the_one_where_machines_are_preempted() -> None:
    offers = ("us-central1-a,0.10", "us-central1-b,0.12")
    header = "InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice"
    rows = [
        f"n1-standard-4,T4,1,us-central1,{offer.split(',')[0]},1,{offer.split(',')[1]}" for offer in offers
    ]
    world = PoolWorld(catalog=read_catalog("\n".join([header, *rows])))
    world.create_pool(replicas=1, strategy="CHEAPEST")
    assert await world.run(300, lambda: world.has(1))
    [first] = world.machines()
    assert world.status(first).zone == "us-central1-a"
    world.preempt(first)
    assert await world.run(300, lambda: len(world.cloud.ever) == 2 and world.has(1))
    assert world.status(world.machines()[0]).zone == "us-central1-b"


async def test_a_changed_template_holds_for_the_next_machines() -> None:
    world = await started()
    world.templates["other"] = replace(
        world.templates["vm"], metadata=ObjectMeta(name="other", namespace=NAMESPACE)
    )
    world.change_pool(template=MachineTemplateReference("SpotInstanceVM", "other"))
    await world.run(3)
    assert {obj.spec.instance_template_name for obj in world.objects.values()} == {"vm"}
    world.preempt(world.machines()[0])
    assert await world.run(300, lambda: len(world.cloud.ever) == 3 and world.has(2))
    assert {obj.spec.instance_template_name for obj in world.objects.values()} == {"vm", "other"}


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    "more machines than a pool may have": (
        {"replicas": 1001},
        "spec.replicas: invalid value 1001: must be between 0 and 1000",
    ),
    "a template of an unknown kind": (
        {"template": MachineTemplateReference("Node", "vm")},
        'spec.template.kind: invalid value "Node": must be InstanceTemplate or SpotInstanceVM',
    ),
    "no name of a template": (
        {"template": MachineTemplateReference("SpotInstanceVM", "")},
        "spec.template.name: must not be empty",
    ),
    "no Secret": (
        {"gcp_credentials_secret_ref": CredentialsReference("")},
        "spec.gcpCredentialsSecretRef.name: must not be empty",
    ),
    "an unknown strategy": (
        {"strategy": "BEST"},
        'spec.strategy: invalid value "BEST": must be one of FAILOVER, EAGER_NEXT_REGION, CHEAPEST',
    ),
    "a drain grace without unit": (
        {"drain_grace": "5"},
        "spec.drainGrace: invalid duration '5': must be a number with a unit, like 90s, 10m or 1h30m",
    ),
}


@pytest.mark.parametrize(("spec", "want"), INVALID.values(), ids=INVALID.keys())
async def test_an_invalid_pool_requests_nothing_and_says_why(spec: dict[str, Any], want: str) -> None:
    world = make_world()
    world.create_pool(**spec)
    await world.run(5)
    assert world.objects == {}
    assert condition(world, "Accepted") == ("False", "InvalidSpec", want)
    assert world.pool_reasons() == ["InvalidSpec"]


async def test_an_invalid_change_leaves_the_machines_as_they_are() -> None:
    world = await started()
    world.change_pool(replicas=-1, drain_grace="soon")
    await world.run(30)
    assert len(world.machines()) == 2
    world.delete_pool()
    assert await world.run(60, lambda: not world.pools), "and it can be deleted"


async def test_a_template_that_is_missing_is_named_and_nothing_is_bought() -> None:
    world = make_world()
    world.create_pool(template=MachineTemplateReference("InstanceTemplate", "a100"))
    await world.run(10)
    status, reason, message = condition(world, "Ready")
    assert (status, reason) == ("False", "TemplateNotFound")
    assert message == f"0 of 2 machines are ready; InstanceTemplate {NAMESPACE}/a100 not found"
    assert world.machines() == []


async def test_templates_are_those_of_the_namespace_and_secrets_are_passed_on_with_theirs() -> None:
    world = make_world()
    world.create_pool(gcp_credentials_secret_ref=CredentialsReference("gcp-credentials", "other-team"))
    await world.run(2)
    for obj in world.objects.values():
        assert obj.spec.instance_template_namespace == NAMESPACE
        assert obj.spec.gcp_credentials_secret_ref.namespace == "other-team", "checked where it is read"


async def test_a_quota_is_told_and_the_machine_comes_when_it_is_lifted() -> None:
    world = make_world()
    world.quota = 1
    world.create_pool()
    await world.run(60)
    status, reason, message = condition(world, "Ready")
    assert (status, reason) == ("False", "MachineRejected")
    assert message == "1 of 2 machines are ready; exceeded quota: machines"
    world.quota = None
    assert await world.run(300, lambda: world.has(2))


async def test_an_object_of_somebody_else_with_the_name_of_a_machine_is_left_alone() -> None:
    world = make_world()
    name = f"pool-vm-0-{int(world.now.timestamp())}"
    world.objects[name] = ProvisionedInstance(
        ObjectMeta(name=name, namespace=NAMESPACE, uid="theirs", creation_timestamp=world.now)
    )
    world.create_pool(replicas=1)
    assert await world.run(300, lambda: world.pool_status().ready == 1)
    assert "NameConflict" in world.pool_reasons()
    assert (world.objects[name].metadata.uid, world.objects[name].metadata.deletion_timestamp) == (
        "theirs",
        None,
    )


async def test_a_node_with_the_name_of_a_machine_gives_it_another_name() -> None:
    world = make_world()
    name = f"pool-vm-0-{int(world.now.timestamp())}"
    world.nodes[name] = Node(ObjectMeta(name=name, uid="theirs"))
    world.create_pool(replicas=1)
    assert await world.run(300, lambda: world.has(1))
    assert world.nodes[name].metadata.uid == "theirs"
    assert name not in world.machines()


def test_every_condition_reason_and_event_is_documented() -> None:
    page = (REPOSITORY / "docs/users/spot-machines.md").read_text()
    words = [value for name, value in vars(pool_reasons).items() if name.isupper()]
    assert len(words) > 10
    assert [word for word in words if f"`{word}`" not in page] == []


async def test_machines_that_are_lost_again_and_again_are_requested_ever_more_slowly() -> None:
    world = make_world()
    world.create_pool(replicas=1)
    for _ in range(200):
        await world.run(10, lambda: bool(world.machines()))
        for name in world.machines():
            world.preempt(name)
    assert len(world.cloud.ever) < 20
