"""Tests that the metrics of SpotInstanceJobs and of VMs count what has happened, each once."""

from prometheus_client import CollectorRegistry

from argosy.capacity.catalog import read_catalog
from argosy.engine.objects import Key
from argosy.kinds.spot import TERMINATION_DEADLINE, TERMINATION_SOURCE
from argosy.kinds.spot_machines import ProvisionedInstanceStatus
from argosy.operator.apis.spot_metrics import SpotMetrics
from argosy.operator.job_metrics import UsageMetrics
from argosy.plan.contract import Decision
from tests.support.machine_simulator import World
from tests.support.spot_simulator import SpotSimulator

CATALOG = read_catalog(
    """InstanceType,AcceleratorName,AcceleratorCount,Region,AvailabilityZone,Price,SpotPrice
n1-standard-4,,,us-central1,us-central1-a,0.19,0.04
n1-standard-4,,,us-central1,us-central1-b,0.19,0.05
,T4,1,us-central1,us-central1-a,0.35,0.10
,T4,1,us-central1,us-central1-b,0.35,0.20
"""
)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float:
    return registry.get_sample_value(f"argosy_spot_{name}", labels) or 0.0


def test_preemption_and_recovery_of_a_replica_count_once_although_the_operator_is_killed() -> None:
    registry = CollectorRegistry()
    simulator = SpotSimulator()
    simulator.observer = SpotMetrics(registry, UsageMetrics(registry)).jobs
    simulator.run(31 * 60)
    assert value(registry, "checkpoints_total", result="completed") == 2
    lost = str(simulator.replica(0)["nodeName"])
    simulator.kill_before = simulator.writes + 2
    simulator.annotate_node(lost, {TERMINATION_DEADLINE: "2026-01-01T00:31:30Z", TERMINATION_SOURCE: "gce"})
    simulator.run(120)
    [recovery] = simulator.recoveries
    assert recovery["outcome"] == "Recovered"
    assert value(registry, "preemptions_total", cause="Preempted") == 1
    mode = str(simulator.replica(0)["startMode"])
    assert value(registry, "recoveries_total", outcome="Recovered", start_mode=mode) == 1
    assert value(registry, "recovery_seconds_count") == 1
    completed = simulator.event_reasons().count("CheckpointCompleted")
    assert value(registry, "checkpoints_total", result="completed") == completed > 2
    labels = {"kind": "SpotInstanceJob", "framework": "", "activity": "Training"}
    trained = registry.get_sample_value("argosy_replica_seconds_total", labels)
    usage = simulator.job.status.usage
    assert trained == usage.training + usage.lost > 50 * 60


async def test_vms_are_counted_by_state_and_price_and_their_refusals_by_code() -> None:
    registry = CollectorRegistry()
    metrics = SpotMetrics(registry, UsageMetrics(registry))
    world = World(catalog=CATALOG, observer=metrics.instances)
    world.cloud.capacity["us-central1-a"] = 0
    world.create()
    assert await world.run(120, world.is_ready)
    assert value(registry, "instances", state="RUNNING") == 1
    assert value(registry, "instances", state="PENDING") == 0
    assert value(registry, "insert_errors_total", code="ZONE_RESOURCE_POOL_EXHAUSTED") == 1
    assert value(registry, "cost_dollars_per_hour") == 0.25
    world.cloud.preempt("my-project", "us-central1-b", "vm-0")
    assert await world.run(120, lambda: world.status().state == "TERMINATED")
    assert value(registry, "preemptions_total", cause="Preempted") == 1
    assert value(registry, "cost_dollars_per_hour") == 0
    metrics.instances.forget(Key("default", "vm-0"))
    assert value(registry, "instances", state="TERMINATED") == 0


def test_codes_that_only_the_cloud_knows_are_no_label() -> None:
    registry = CollectorRegistry()
    observer, obj = SpotMetrics(registry, UsageMetrics(registry)).instances, World().create()
    machine = {"refusals": 3, "refusal": "a-code-of-tomorrow"}
    status = ProvisionedInstanceStatus(state="DREAMING", argosy={"machine": machine})
    observer.decided(obj, Decision(status))
    assert value(registry, "insert_errors_total", code="Other") == 3
    assert value(registry, "instances", state="Other") == 1
