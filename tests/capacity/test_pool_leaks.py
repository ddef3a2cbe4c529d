"""Tests that a pool neither loses a VM nor buys one too many: it is killed at its requests, and scaled."""

import random

import pytest

from argosy.local.gce.cloud import Latency
from tests.support.captured_logs import captured_lines
from tests.support.machine_invariants import check_at_rest, check_nothing_left
from tests.support.pool_simulator import PoolWorld
from tests.support.spot_instances import seed_template

ZONES = ["us-central1-b", "us-east1-b"]
REQUESTS = 165
"""More than a life of one pool takes."""


def make_world(kill_at: int = 0, *, answered: bool = False) -> PoolWorld:
    world = PoolWorld(
        kill_at=kill_at, answered=answered, latency=Latency(insert=4, boot=3, delete=4, notice=30)
    )
    world.templates["vm"] = seed_template(gcp={"fallback_zones": ZONES})
    return world


async def live(world: PoolWorld) -> None:
    """Buy two machines, lose one, give one up, and delete the pool."""
    world.create_pool()
    assert await world.run(600, lambda: world.has(2))
    check_at_rest(world)
    lost = world.machines()[0]
    world.preempt(lost)
    assert await world.run(600, lambda: lost not in world.machines() and world.has(2))
    check_at_rest(world)
    world.change_pool(replicas=1)
    assert await world.run(600, lambda: world.has(1))
    check_at_rest(world)
    world.delete_pool()
    assert await world.run(600, lambda: not world.pools)
    await world.run(120)
    check_nothing_left(world)


@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its answer arrives"])
async def test_an_operator_that_is_killed_at_a_request_leaks_nothing(answered: bool) -> None:
    with captured_lines():
        for at in range(1 + answered, REQUESTS, 22):
            world = make_world(at, answered=answered)
            await live(world)
            assert len(world.cloud.ever) == 3, f"killed at {at}: two VMs, one in the place of the lost one"


async def live_in_trouble(seed: int) -> None:
    chance = random.Random(seed)
    world = make_world(chance.randrange(1, REQUESTS), answered=chance.random() < 0.5)
    if chance.random() < 0.3:
        world.cloud.capacity["us-central1-a"] = 1
    world.create_pool(replicas=chance.randrange(4))
    for _ in range(chance.randrange(1, 5)):
        await world.run(chance.choice([1, 5, 40, 120]))
        for name in world.machines():
            if chance.random() < 0.3:
                world.preempt(name)
        for name in list(world.objects):
            if chance.random() < 0.1:
                world.delete(name)
        for node in list(world.nodes):
            if chance.random() < 0.3:
                world.run_pod(f"pod-{len(world.pods)}", node)
            if chance.random() < 0.3:
                world.set_taints(node, *(["karpenter.sh/disrupted"] if chance.random() < 0.5 else []))
        if chance.random() < 0.2:
            world.lose_record()
        world.kill_at, world.answered = world.requests + chance.randrange(1, 20), chance.random() < 0.5
        world.change_pool(replicas=chance.randrange(4))
    for node in list(world.nodes):
        world.set_taints(node)
    wanted = world.pools["pool"].spec.replicas
    assert await world.run(4000, lambda: world.has(wanted)), f"seed {seed}"
    check_at_rest(world)
    world.delete_pool()
    assert await world.run(2000, lambda: not world.pools), f"seed {seed}"
    await world.run(200)
    check_nothing_left(world)


@pytest.mark.parametrize("seed", range(4))
async def test_a_pool_in_trouble_comes_to_its_size_and_leaves_nothing(seed: int) -> None:
    with captured_lines():
        await live_in_trouble(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_nothing_leaks_in_hundreds_of_lives() -> None:
    with captured_lines():
        for at in range(1, REQUESTS):
            for answered in (False, True):
                await live(make_world(at, answered=answered))
        for seed in range(100, 300):
            await live_in_trouble(seed)
