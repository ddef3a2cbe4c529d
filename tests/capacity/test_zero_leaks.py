"""Tests that no VM is ever lost: the operator is killed at its requests, answers get lost, operations hang.

The rules: (1) a VM is created only if a stored Record names it at that moment; (2) at rest the cloud has the
VMs that Records have, and no others; (3) after a deletion nothing is left; (5) an operator without its Lease
sends nothing.
"""

import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from argosy.local.gce.api import ApiRequest
from argosy.local.gce.cloud import CloudError, Latency
from tests.support.captured_logs import captured_lines
from tests.support.machine_invariants import check_at_rest, check_nothing_left
from tests.support.machine_simulator import World
from tests.support.spot_instances import seed_template

ZONES = ["us-central1-b", "us-east1-b"]
REQUESTS = 55
"""More than a life of one VM takes."""


def make_world(kill_at: int = 0, *, answered: bool = False, own_tokens: bool = True) -> World:
    world = World(kill_at=kill_at, answered=answered, latency=Latency(insert=4, boot=3, delete=4, notice=30))
    world.templates["vm"] = seed_template(gcp={"fallback_zones": ZONES})
    if own_tokens:
        content = world.secrets["kubeadm-join-token"]
        world.secrets["kubeadm-join-token"] = type(content)({**content.data, "token": b"auto"})
        world.operator.reconciler = type(world.operator.reconciler)(
            type(world.settings)(bootstrap_token_namespaces="*"), world.catalog
        )
        world.settings = type(world.settings)(bootstrap_token_namespaces="*")
    return world


async def live(world: World) -> None:
    """Take one VM from its creation to its deletion."""
    world.create()
    assert await world.run(600, world.is_ready)
    check_at_rest(world)
    world.delete()
    assert await world.run(600, lambda: not world.objects)
    await world.run(120)
    check_nothing_left(world)


SAMPLE = [*range(1, REQUESTS, 6)]


@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its answer arrives"])
async def test_an_operator_that_is_killed_at_a_request_leaks_nothing(answered: bool) -> None:
    with captured_lines():
        for at in SAMPLE:
            world = make_world(at, answered=answered)
            await live(world)
            assert len(world.cloud.ever) == 1, f"killed at {at}: one VM and no other"


async def test_an_operator_that_is_killed_while_it_deletes_leaks_nothing() -> None:
    with captured_lines():
        for at in range(1, 16, 4):
            await delete_with_a_kill(make_world(), at)


async def delete_with_a_kill(world: World, at: int) -> None:
    world.create()
    assert await world.run(600, world.is_ready)
    world.kill_at = world.requests + at
    world.answered = bool(at % 2)
    world.delete()
    assert await world.run(600, lambda: not world.objects)
    await world.run(120)
    check_nothing_left(world)


STATES: dict[str, Callable[[World], bool]] = {
    "before anything was requested": lambda world: world.requests >= 1,
    "as soon as it is recorded": lambda world: bool(world.names),
    "while it is PROVISIONING": lambda world: bool(world.machines()),
    "while it is RUNNING": lambda world: world.condition("Provisioned")[0] == "True",
}


@pytest.mark.parametrize("reached", STATES.values(), ids=STATES.keys())
async def test_a_deletion_at_any_time_leaves_nothing(reached: Callable[[World], bool]) -> None:
    world = make_world()
    world.create()
    assert await world.run(300, lambda: reached(world))
    world.delete()
    assert await world.run(600, lambda: not world.objects)
    await world.run(120)
    check_nothing_left(world)


async def test_a_creation_that_arrives_after_the_deletion_began_is_found_and_deleted() -> None:
    world = make_world()
    late: list[ApiRequest] = []

    def delay(request: ApiRequest) -> None:
        if request.permission == "compute.instances.create" and not late:
            late.append(request)
            raise ConnectionError("no answer")

    world.gate.before_faults.append(delay)
    world.create()
    assert await world.run(60, lambda: bool(late))
    world.delete()
    await world.run(5)
    request = late[0]
    world.cloud.insert(request.project, request.zone, request.body, request.query["requestId"])
    assert await world.run(300, lambda: not world.objects)
    await world.run(60)
    check_nothing_left(world)


async def test_an_operator_whose_lease_has_expired_sends_no_creation() -> None:
    world = make_world(own_tokens=False)
    world.lease_ends = world.now + timedelta(seconds=0)  # it was stopped right before
    world.create()
    await world.run(30)
    assert world.gate.sent.inserts == []
    assert world.machines() == []


async def test_a_deletion_that_hangs_is_asked_for_again_and_the_object_stays() -> None:
    world = make_world()
    world.create()
    assert await world.run(300, world.is_ready)
    world.cloud.hangs.add("delete")
    world.delete()
    assert not await world.run(300, lambda: not world.objects)
    check_at_rest(world)
    world.cloud.hangs.clear()
    assert await world.run(600, lambda: not world.objects)
    check_nothing_left(world)


def troubled(seed: int) -> World:
    """Return a world in which much goes wrong, and the operator is killed now and then."""
    chance = random.Random(seed)
    world = make_world(chance.randrange(1, REQUESTS), answered=chance.random() < 0.5)
    world.join_seconds = chance.choice([20.0, 20.0, 5.0])
    if chance.random() < 0.3:
        world.cloud.capacity["us-central1-a"] = 0
    if chance.random() < 0.2:
        world.cloud.quota["us-central1"] = 0
    rate = chance.choice([0.0, 0.1, 0.3])

    def refuse(request: ApiRequest) -> None:
        if chance.random() < rate:
            if chance.random() < 0.5:
                raise CloudError(500, "backendError", "try again")
            raise ConnectionError("cut")

    def lose(request: ApiRequest) -> None:
        if chance.random() < rate:
            raise ConnectionError("answer lost")

    world.gate.before_faults.append(refuse)
    world.gate.after_faults.append(lose)
    return world


async def live_in_trouble(seed: int) -> None:
    chance, world = random.Random(seed + 1), troubled(seed)
    for number in range(chance.choice([1, 1, 2, 3])):
        world.create(f"vm-{number}")
    await world.run(chance.choice([3, 10, 40, 120]))
    if chance.random() < 0.5:
        world.kill_at, world.answered = world.requests + chance.randrange(1, 20), chance.random() < 0.5
    for instance in list(world.cloud.instances.values()):
        if chance.random() < 0.3:
            world.cloud.preempt(instance.project, instance.zone, instance.name)
        elif chance.random() < 0.1:
            world.cloud.stop(instance.project, instance.zone, instance.name)
    await world.run(chance.choice([0, 5, 60]))
    for name in list(world.objects):
        world.delete(name)
    assert await world.run(4000, lambda: not world.objects), f"seed {seed}"
    await world.run(200)
    check_nothing_left(world)


@pytest.mark.parametrize("seed", range(5))
async def test_nothing_leaks_when_much_goes_wrong(seed: int) -> None:
    with captured_lines():
        await live_in_trouble(seed)


@pytest.mark.long
@pytest.mark.timeout(3600)
async def test_nothing_leaks_in_a_thousand_lives() -> None:
    with captured_lines():
        for at in range(1, REQUESTS):
            for answered in (False, True):
                await live(make_world(at, answered=answered))
        for seed in range(1000, 1900):
            await live_in_trouble(seed)
