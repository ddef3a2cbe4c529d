"""Tests that the time of all replicas of a SpotInstanceJob is accounted for, whatever happens to them."""

import random
from datetime import datetime

import pytest

from argosy.engine.objects import Key
from argosy.kinds.labels import HOURLY_PRICE
from argosy.kinds.spot import SpotInstanceJob, SpotInstanceJobStatus
from argosy.kinds.usage_status import ACTIVITIES, UsageStatus
from argosy.plan.contract import Decision
from tests.dialects.spot.test_random_faults import ACTIONS, CHANGES, LONG_SEEDS, MINUTE, SEEDS
from tests.support.spot_simulator import SpotSimulator

APP_LEVEL = {"checkpointConfig.level": "App"}


class Stopwatch:
    """Measures the time of replicas independently: their number times the time between two decisions."""

    def __init__(self, simulator: SpotSimulator) -> None:
        self.seconds = 0.0
        self._simulator = simulator
        self._last: datetime | None = None
        simulator.observer = self

    def decided(self, obj: SpotInstanceJob, decision: Decision) -> None:
        now = self._simulator.now.replace(microsecond=0)
        if self._last is not None:
            replicas = sum(replica.phase != "Failed" for replica in obj.status.job_statuses)
            self.seconds += replicas * (now - self._last).total_seconds()
        self._last = now
        assert isinstance(decision.status, SpotInstanceJobStatus)

    def forget(self, key: Key) -> None: ...
    def clear(self) -> None: ...


def spent(simulator: SpotSimulator) -> dict[str, float]:
    """The time by activity until now, with the intervals that have not ended."""
    usage = simulator.job.status.usage
    seconds = {activity: float(getattr(usage, activity.lower())) for activity in ACTIVITIES}
    if usage.since is not None:
        open_seconds = (simulator.now.replace(microsecond=0) - usage.since).total_seconds()
        for activity, replicas in (usage.activities or {usage.activity: usage.replicas}).items():
            seconds[activity] += open_seconds * replicas
    return {activity: amount for activity, amount in seconds.items() if amount}


@pytest.mark.parametrize(
    "seed",
    [*range(SEEDS), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SEEDS, LONG_SEEDS))],
)
def test_every_second_of_every_replica_is_in_one_activity_after_any_faults(seed: int) -> None:
    choose = random.Random(1000 + seed)
    simulator = SpotSimulator(CHANGES)
    stopwatch = Stopwatch(simulator)
    simulator.run(choose.uniform(0, 40 * MINUTE))
    for _ in range(20):
        choose.choice(ACTIONS)(simulator, choose)
        if choose.random() < 0.1:
            simulator.edit(replicas=choose.choice([3, 4]))
        simulator.run(choose.choice([0, 1, 20, 3 * MINUTE, 20 * MINUTE]))
        usage = simulator.job.status.usage
        assert min(getattr(usage, activity.lower()) for activity in ACTIVITIES) >= 0
        assert sum(spent(simulator).values()) == pytest.approx(stopwatch.seconds, abs=0.01)
    assert stopwatch.seconds > 0


def test_a_replica_that_was_rescued_loses_no_training_and_an_own_failure_loses_what_is_not_saved() -> None:
    simulator = SpotSimulator({"replicas": 2})
    simulator.run(40 * MINUTE)
    simulator.taint(str(simulator.replica(0)["nodeName"]), "cloud.google.com/impending-node-termination")
    simulator.run(5 * MINUTE)
    assert [entry["outcome"] for entry in simulator.recoveries] == ["Recovered"]
    assert "Lost" not in spent(simulator), "the checkpoint of the survivor is as far as the lost replica was"
    simulator.run(10 * MINUTE)
    simulator.end_pod(1, 1)
    simulator.run(2 * MINUTE)
    lost = spent(simulator)["Lost"]
    assert 10 * MINUTE <= lost <= 16 * MINUTE, "its training since the last checkpoint"


def test_a_new_start_without_a_checkpoint_loses_all_training() -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.run(20 * MINUTE)
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(MINUTE)
    assert simulator.recoveries[0]["outcome"] == "ProgressLost"
    assert spent(simulator)["Lost"] == pytest.approx(20 * MINUTE, abs=5)


def test_training_that_reports_no_checkpoints_loses_nothing_that_is_known() -> None:
    simulator = SpotSimulator({"replicas": 1, **APP_LEVEL})
    simulator.run(20 * MINUTE)
    simulator.lose_node(str(simulator.replica(0)["nodeName"]))
    simulator.run(MINUTE)
    assert "Lost" not in spent(simulator)


def test_the_cost_is_the_price_of_vms_and_of_nodes_over_the_time_that_a_replica_has_them() -> None:
    simulator = SpotSimulator({"replicas": 2})
    simulator.add_node("own", gpus=1)
    simulator.annotate_node("own", {HOURLY_PRICE: "0.85"})
    simulator.run(60 * MINUTE)
    simulator.edit(replicas=1)  # closes all intervals of the one that goes
    simulator.run(1)
    simulator.end_pod(0, 0)
    simulator.run(1)
    usage = simulator.job.status.usage
    assert float(usage.cost) == pytest.approx(0.85 + 0.15, rel=0.01)
    assert usage.lost_cost == ""
    assert (usage.activity, usage.replicas, usage.since) == ("", 0, None), "the job has ended"


@pytest.mark.parametrize("price", ["sNaN", "1e9999999", "9" * 400], ids=["sNaN", "exponent", "digits"])
def test_a_price_of_a_vm_that_is_none_costs_nothing(price: str) -> None:
    simulator = SpotSimulator({"replicas": 1})
    simulator.run(MINUTE)
    [name] = simulator.instances
    simulator.change_instance(name, price_per_hour=price, on_demand_price_per_hour=price)
    simulator.run(60 * MINUTE)
    status = simulator.job.status
    assert (status.phase, status.cost_per_hour, status.saved_per_hour) == ("Running", "", "")
    assert float(status.usage.cost or 0) < 0.1


def test_replicas_that_do_different_things_are_counted_by_activity() -> None:
    simulator = SpotSimulator({"replicas": 2})
    simulator.add_node("own", gpus=1)
    simulator.machines = False
    simulator.run(MINUTE)
    usage = simulator.job.status.usage
    assert (usage.activity, usage.replicas, usage.activities) == ("", 2, {"Training": 1, "Waiting": 1})
    simulator.machines = True
    simulator.run(MINUTE)
    usage = simulator.job.status.usage
    assert (usage.activity, usage.activities) == ("Training", {})


def test_a_job_that_was_not_reconciled_yet_has_used_nothing() -> None:
    assert SpotSimulator().job.status.usage == UsageStatus()
