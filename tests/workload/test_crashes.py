"""The operator killed at every single request of a pass, and back with a list of pods that may be old.

Whatever was going on, the job ends up where it would have without the crash, and nothing is counted twice.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from argosy.workload.model import (
    Escalation,
    Gang,
    Limits,
    Phase,
    ResizeMode,
    RestartPolicy,
    RestartScope,
    Rules,
    Workload,
)
from argosy.workload.record import Record, decode
from argosy.workload.restart_causes import RestartCause
from tests.support.fake_cluster import World
from tests.support.workloads import role, workload

RULES = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),), services=("worker",))


def job(
    scope: RestartScope = RestartScope.POD, resize: ResizeMode = ResizeMode.LIVE, gang: Gang | None = None
) -> Workload:
    return workload(
        role("worker", 3, RestartPolicy.ON_FAILURE),
        rules=replace(RULES, restart_scope=scope, resize=resize),
        limits=Limits(restarts=5),
        gang=gang,
    )


def running(wanted: Workload) -> World:
    world = World(wanted)
    world.settle()
    return world


def failed(scope: RestartScope) -> World:
    world = running(job(scope))
    world.fail(world.pods["job-worker-1"], 137)
    return world


def deleted() -> World:
    world = running(job())
    world.remove(world.pods["job-worker-1"])
    return world


def climbing(ladder: Escalation) -> World:
    """A place that has failed once fails again."""
    world = running(replace(job(), limits=Limits(restarts=5, escalation=ladder)))
    world.fail(world.pods["job-worker-1"], 1)
    world.settle()
    world.fail(world.pods["job-worker-1"], 1)
    return world


def preempted() -> World:
    world = running(job())
    world.terminate(
        replace(world.pods["job-worker-1"], disrupted=True, disruption_reason="PreemptionByScheduler")
    )
    return world


def restarted_in_place() -> World:
    world = running(job())
    world.update(replace(world.pods["job-worker-1"], container_restarts=2, last_exit_code=3))
    return world


def edited(before: Workload, after: Workload) -> World:
    world = running(before)
    world.edit(after)
    return world


def resized(replicas: int, resize: ResizeMode) -> World:
    before = job(resize=resize)
    return edited(
        before, replace(before, roles={"worker": role("worker", replicas, RestartPolicy.ON_FAILURE)})
    )


def succeeded() -> World:
    world = running(job())
    for pod in world.live("Running"):
        world.update(replace(pod, phase="Succeeded", exit_code=0))
    return world


def exhausted() -> World:
    world = running(replace(job(), limits=Limits(restarts=0)))
    world.fail(world.pods["job-worker-0"], 1)
    return world


SCENES: dict[str, Callable[[], World]] = {
    "a new job": lambda: World(job()),
    "a new gang": lambda: World(job(gang=Gang(3))),
    "a deleted pod": deleted,
    "a preempted pod": preempted,
    "containers restarted in their place": restarted_in_place,
    "a failed pod": lambda: failed(RestartScope.POD),
    "a failure that climbs to the role": lambda: climbing(Escalation(pod=1)),
    "a failure that climbs to the job": lambda: climbing(Escalation(pod=1, role=0)),
    "a failed pod whose role starts anew": lambda: failed(RestartScope.ROLE),
    "a failed pod whose job starts anew": lambda: failed(RestartScope.JOB),
    "a role that grows": lambda: resized(5, ResizeMode.LIVE),
    "a role that shrinks": lambda: resized(1, ResizeMode.LIVE),
    "a size that starts the job anew": lambda: resized(4, ResizeMode.RESTART),
    "a job being suspended": lambda: edited(job(), replace(job(), suspended=True)),
    "a job that succeeded": succeeded,
    "a job out of restarts": exhausted,
}
REQUESTS = 8
CROWDED = pytest.mark.parametrize("crowded", [False, True], ids=["alone", "in a crowd"])


@CROWDED
@pytest.mark.parametrize("age", [0, 1, 3], ids=lambda age: f"a list {age} changes old")
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_crash_at_every_request_changes_nothing(
    scene: Callable[[], World], age: int, crowded: bool
) -> None:
    undisturbed = scene()
    undisturbed.settle()
    for requests in range(REQUESTS):
        world = scene()
        world.crowded = crowded
        world.sync()
        world.run(crash_after=requests)
        world.restart(age)
        world.run()
        world.settle()
        assert end_of(world) == end_of(undisturbed), f"after {requests} requests"
        assert told_of(world) <= told_of(undisturbed), f"after {requests} requests"


@CROWDED
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_crash_in_every_pass_changes_nothing(scene: Callable[[], World], crowded: bool) -> None:
    """One more request each time, in a world that goes on meanwhile."""
    undisturbed, world = scene(), scene()
    undisturbed.settle()
    world.crowded = crowded
    for requests in range(REQUESTS):
        world.sync()
        world.run(crash_after=requests)
        world.tick()
    world.settle()
    assert end_of(world) == end_of(undisturbed)
    assert told_of(world) <= told_of(undisturbed)


@CROWDED
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_lease_lost_at_every_request_and_won_back_changes_nothing(
    scene: Callable[[], World], crowded: bool
) -> None:
    """The first leader lives on, keeps its old caches, and leads again when the other has done the rest."""
    undisturbed = scene()
    undisturbed.settle()
    for requests in range(REQUESTS):
        world = scene()
        world.crowded = crowded
        world.sync()
        world.lose_lease(requests)
        world.settle()
        world.crowded = crowded
        world.change_leader()
        world.run()
        world.settle()
        assert end_of(world) == end_of(undisturbed), f"after {requests} requests"
        assert told_of(world) <= told_of(undisturbed), f"after {requests} requests"


@CROWDED
def test_a_job_without_restarts_that_ran_and_lost_its_pod_is_not_run_again_after_a_crash(
    crowded: bool,
) -> None:
    world = World(workload(role("worker", 1, RestartPolicy.NEVER), rules=RULES))
    world.crowded = crowded
    world.run()
    world.tick()
    world.sync()
    world.run()
    world.remove(world.pods["job-worker-0"])
    world.restart(0)
    world.settle()
    assert record_of(world).phase is Phase.FAILED
    assert not world.pods


def told_of(world: World) -> Counter[tuple[str, str, int]]:
    """The restarts that are told. Who took a pod away may be forgotten; nothing is told twice."""
    return Counter((one.cause, one.role, one.index) for one in record_of(world).restart_history)


def end_of(world: World) -> object:
    record = record_of(world)
    places = {name: (pod.attempt, pod.replacement, pod.phase) for name, pod in world.pods.items()}
    told = [
        one
        for one in record.restart_history
        if one.cause not in (RestartCause.DELETED, RestartCause.PREEMPTED)
    ]
    causes = [(one.cause, one.scope, one.role, one.index, one.attempt, one.exit_code) for one in told]
    return record.phase, record.reason, record.attempt, record.restarts, record.disruptions, causes, places


def record_of(world: World) -> Record:
    assert world.job
    record = decode(world.job.status)
    assert isinstance(record, Record)
    return record
