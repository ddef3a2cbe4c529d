"""Random faults against a simulated SpotInstanceJob: whatever happens, it ends with its replicas running.

The simulator checks after every action that nothing is created that was not recorded, that no two
incarnations of a replica can run at once, and that no replica has two VMs that hold it.
"""

import random
from collections.abc import Callable

import pytest

from tests.support.spot_jobs import Json
from tests.support.spot_simulator import SpotSimulator

MINUTE = 60.0
SEEDS = 2
LONG_SEEDS = 100
FAULTS = 25
CHANGES: Json = {"recovery": {"maxRestarts": 1000}, "replicas": 3}


def _nodes(simulator: SpotSimulator) -> list[str]:
    return [str(r["nodeName"]) for r in map(simulator.replica, range(3)) if r.get("nodeName")]


def _lose(simulator: SpotSimulator, choose: random.Random) -> None:
    if nodes := [name for name in _nodes(simulator) if name in simulator.nodes]:
        simulator.lose_node(choose.choice(nodes))


def _announce(simulator: SpotSimulator, choose: random.Random) -> None:
    if nodes := [name for name in _nodes(simulator) if name in simulator.nodes]:
        simulator.taint(choose.choice(nodes), "cloud.google.com/impending-node-termination")


def _fall_silent(simulator: SpotSimulator, choose: random.Random) -> None:
    if nodes := [name for name in _nodes(simulator) if name in simulator.nodes]:
        simulator.set_ready(choose.choice(nodes), "Unknown")


def _fail(simulator: SpotSimulator, choose: random.Random) -> None:
    running = [i for i in range(3) if simulator.replica(i).get("role")]
    if running:
        simulator.end_pod(choose.choice(running), choose.choice([1, 137]))


def _delete_a_job(simulator: SpotSimulator, choose: random.Random) -> None:
    if simulator.jobs:
        simulator._delete(type(next(iter(simulator.jobs.values()))), choose.choice(sorted(simulator.jobs)))


def _forget_backups(simulator: SpotSimulator, choose: random.Random) -> None:
    del choose
    simulator.backups.clear()


def _switch_registry(simulator: SpotSimulator, choose: random.Random) -> None:
    simulator.registry_down = choose.random() < 0.5


def _switch_agents(simulator: SpotSimulator, choose: random.Random) -> None:
    simulator.agents = choose.random() < 0.5


def _switch_machines(simulator: SpotSimulator, choose: random.Random) -> None:
    simulator.machines = choose.random() < 0.5


def _kill(simulator: SpotSimulator, choose: random.Random) -> None:
    simulator.kill_before = simulator.writes + choose.randint(1, 6)


ACTIONS: list[Callable[[SpotSimulator, random.Random], None]] = [
    _lose,
    _announce,
    _fall_silent,
    _fail,
    _delete_a_job,
    _forget_backups,
    _switch_registry,
    _switch_agents,
    _switch_machines,
    _kill,
]


@pytest.mark.parametrize(
    "seed",
    [*range(SEEDS), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(SEEDS, LONG_SEEDS))],
)
def test_after_any_faults_all_replicas_run_again_and_nothing_is_left(seed: int) -> None:
    choose = random.Random(seed)
    simulator = SpotSimulator(CHANGES)
    simulator.run(choose.uniform(0, 40 * MINUTE))
    for _ in range(FAULTS):
        choose.choice(ACTIONS)(simulator, choose)
        simulator.run(choose.choice([0, 1, 20, 3 * MINUTE, 20 * MINUTE]))
    simulator.registry_down, simulator.agents, simulator.machines = False, True, True
    simulator.run(30 * MINUTE)
    phases = [simulator.replica(index)["phase"] for index in range(3)]
    assert phases == ["Running"] * 3
    assert len(simulator.jobs) == len(simulator.instances) == 3
    assert all(entry["outcome"] for entry in simulator.recoveries)
    assert len(str(simulator.job.status.argosy)) < 8_000
    simulator.delete_job()
    simulator.run(10)
    assert simulator.released
    assert not (simulator.jobs or simulator.instances or simulator.backups)
