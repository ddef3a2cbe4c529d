"""Tests for the choice of zones for the VMs of one job: what one has learnt, and earlier preemptions.

The VMs live in virtual time against the rehearsal cloud.
"""

from datetime import timedelta

import msgspec
from msgspec.structs import replace

from argosy.capacity.catalog import read_catalog
from argosy.capacity.machine_record import MachineState
from argosy.capacity.zone_rates import with_preemption
from argosy.dialects.spot.record import SpotJobRecord, encode
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.spot import REPLICA_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import JobReference
from tests.support.machine_simulator import World
from tests.support.spot_cluster import START
from tests.support.spot_instances import NAMESPACE, seed_template
from tests.support.spot_jobs import Json, spot_job
from tests.support.spot_simulator import SpotSimulator

A, B, C = "us-central1-a", "us-central1-b", "us-central1-c"
CATALOG = read_catalog(
    f"""InstanceType,AvailabilityZone,Price,SpotPrice
n1-standard-4,{A},0.30,0.100
n1-standard-4,{B},0.30,0.125
n1-standard-4,{C},0.30,0.190
"""
)


def make_world(changes: Json | None = None, zones: tuple[str, ...] = (B, C)) -> World:
    """Return a world with one job, whose VMs need no GPU."""
    world = World(catalog=CATALOG, gpus=0, settings=SpotSettings(zone_cooldown=600))
    world.templates["vm"] = seed_template(gpu=False, gcp={"fallback_zones": list(zones)})
    metadata = {"name": "train", "uid": "uid-of-job", "namespace": NAMESPACE}
    manifest = {**spot_job("train", changes), "metadata": metadata}
    world.jobs["train"] = msgspec.convert(manifest, SpotInstanceJob)
    return world


def create_replica(world: World, index: int, name: str = "") -> str:
    resource = SpotInstanceJob.resource
    ref = JobReference(resource.api_version, resource.kind, "train", "uid-of-job")
    obj = world.create(name or f"vm-{index}", spot_instance_job_ref=ref)
    labelled = replace(obj.metadata, labels={REPLICA_LABEL: str(index)})
    world.objects[obj.metadata.name] = replace(obj, metadata=labelled)
    return obj.metadata.name


def requested_zones(world: World, name: str) -> list[str]:
    return [each.zone for each in world.gate.sent.inserts if each.body["name"] == name]


async def test_zone_without_capacity_is_asked_by_one_replica_only() -> None:
    world = make_world()
    world.cloud.capacity[A] = 0
    first = create_replica(world, 0)
    assert await world.run(120, lambda: world.is_ready(first))
    second = create_replica(world, 1)
    assert await world.run(120, lambda: world.is_ready(second))
    assert (requested_zones(world, first), requested_zones(world, second)) == ([A, B], [B])


async def test_zone_is_asked_by_other_replicas_when_its_cooldown_is_over() -> None:
    world = make_world()
    world.cloud.capacity[A] = 0
    first = create_replica(world, 0)
    assert await world.run(120, lambda: world.is_ready(first))
    await world.run(600, step=30)
    del world.cloud.capacity[A]
    second = create_replica(world, 1)
    assert await world.run(120, lambda: world.is_ready(second))
    assert requested_zones(world, second) == [A]


async def test_shared_cooldown_survives_another_operator_process() -> None:
    world = make_world()
    world.cloud.capacity[A] = 0
    assert await world.run(120, lambda name=create_replica(world, 0): world.is_ready(name))  # type: ignore[misc]
    world.replace_operator()
    second = create_replica(world, 1)
    assert await world.run(120, lambda: world.is_ready(second))
    assert requested_zones(world, second) == [B]


async def test_zone_without_room_for_another_machine_type_is_asked() -> None:
    world = make_world()
    world.cloud.capacity[A] = 0
    first = create_replica(world, 0)
    assert await world.run(120, lambda: world.is_ready(first))
    world.templates["vm"] = seed_template(gpu=False, gcp={"machine_type": "n2-standard-4"})
    del world.cloud.capacity[A]
    second = create_replica(world, 1)
    assert await world.run(120, lambda: world.is_ready(second))
    assert requested_zones(world, second) == [A]


async def test_vm_without_a_job_does_not_know_of_others() -> None:
    world = make_world()
    world.cloud.capacity[A] = 0
    first = create_replica(world, 0)
    assert await world.run(120, lambda: world.is_ready(first))
    world.create("alone")
    assert await world.run(120, lambda: world.is_ready("alone"))
    assert requested_zones(world, "alone") == [A, B]


async def test_all_replicas_get_their_vms_when_capacity_returns_after_none_was_left() -> None:
    world = make_world(zones=(B,))
    world.cloud.capacity.update({A: 0, B: 0})
    names = [create_replica(world, index) for index in range(3)]
    await world.run(60)
    assert {world.state(name) for name in names} == {MachineState.WANTED}
    world.cloud.capacity.clear()
    assert await world.run(1800, lambda: all(world.is_ready(name) for name in names), step=5)


async def test_cheapest_avoids_a_zone_where_vms_of_the_job_were_preempted() -> None:
    """The zone that is cheaper by a fifth counts as twice as dear for a while, and then not."""
    world = make_world({"recovery": {"strategy": "CHEAPEST"}})
    rates = with_preemption((), A, world.now)
    job = world.jobs["train"]
    status = replace(job.status, argosy=encode(SpotJobRecord(zone_rates=rates)))
    world.jobs["train"] = replace(job, status=status)
    first = create_replica(world, 0)
    assert await world.run(120, lambda: world.is_ready(first))
    world.now += timedelta(days=1)
    second = create_replica(world, 1)
    assert await world.run(120, lambda: world.is_ready(second))
    assert (requested_zones(world, first), requested_zones(world, second)) == ([B], [A])


def test_preemptions_of_bought_vms_are_recorded_with_the_job_and_others_losses_are_not() -> None:
    simulator = SpotSimulator({"replicas": 1})
    for cause in ("Preempted", "UserStopped", "Maintenance", "NotFound"):
        simulator.run(60)
        name = str(simulator.replica(0)["nodeName"])
        simulator.lose_node(name)
        simulator.change_instance(name, cause=cause)
    simulator.run(60)
    (rate,) = msgspec.convert(simulator.job.status.argosy, SpotJobRecord).zone_rates
    assert (rate.zone, round(rate.rate, 1)) == (A, 2.0)
    assert rate.at > START


def test_losses_of_nodes_that_were_not_bought_are_not_counted() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.add_node("own")
    simulator.run(60)
    simulator.taint("own", "cloud.google.com/impending-node-termination")
    simulator.run(60)
    assert simulator.replica(0)["incarnation"] == 1
    assert "zone_rates" not in simulator.job.status.argosy
