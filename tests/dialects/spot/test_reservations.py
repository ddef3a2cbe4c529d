"""Tests what replicas of one SpotInstanceJob take from others before their pods exist."""

from msgspec.structs import replace

from argosy.dialects.spot.reservations import reserved_by_others
from argosy.kinds.spot import SpotInstanceJob
from tests.support.spot_cluster import GPU
from tests.support.spot_simulator import SpotSimulator


def other_job(job: SpotInstanceJob) -> SpotInstanceJob:
    return replace(job, metadata=replace(job.metadata, name="other", uid="other-uid"))


def test_node_of_a_replica_whose_pod_does_not_exist_yet_is_reserved() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.controllers = False
    simulator.add_node("a")
    simulator.run()
    reserved = reserved_by_others(other_job(simulator.job), [simulator.job], ())
    assert reserved == {"a": {GPU: 1, "pods": 1}}


def test_node_that_a_requested_vm_will_be_is_reserved() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.machines = False
    simulator.run()
    [vm] = simulator.instances
    reserved = reserved_by_others(other_job(simulator.job), [simulator.job], ())
    assert reserved == {vm: {GPU: 1, "pods": 1}}


def test_nodes_of_the_job_itself_are_not_reserved_for_others() -> None:
    simulator = SpotSimulator()
    simulator.run()
    assert reserved_by_others(simulator.job, [simulator.job], ()) == {}
