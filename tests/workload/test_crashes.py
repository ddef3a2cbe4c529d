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
from argosy.workload.restarts.causes import RestartCause
from tests.support.fake_cluster import FakeCluster
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


def running(wanted: Workload) -> FakeCluster:
    cluster = FakeCluster(wanted)
    cluster.settle()
    return cluster


def failed(scope: RestartScope) -> FakeCluster:
    cluster = running(job(scope))
    cluster.fail(cluster.pods["job-worker-1"], 137)
    return cluster


def deleted() -> FakeCluster:
    cluster = running(job())
    cluster.remove(cluster.pods["job-worker-1"])
    return cluster


def climbing(ladder: Escalation) -> FakeCluster:
    """A place that has failed once fails again."""
    cluster = running(replace(job(), limits=Limits(restarts=5, escalation=ladder)))
    cluster.fail(cluster.pods["job-worker-1"], 1)
    cluster.settle()
    cluster.fail(cluster.pods["job-worker-1"], 1)
    return cluster


def preempted() -> FakeCluster:
    cluster = running(job())
    cluster.terminate(
        replace(cluster.pods["job-worker-1"], disrupted=True, disruption_reason="PreemptionByScheduler")
    )
    return cluster


def restarted_in_place() -> FakeCluster:
    cluster = running(job())
    cluster.update(replace(cluster.pods["job-worker-1"], container_restarts=2, last_exit_code=3))
    return cluster


def edited(before: Workload, after: Workload) -> FakeCluster:
    cluster = running(before)
    cluster.edit(after)
    return cluster


def resized(replicas: int, resize: ResizeMode) -> FakeCluster:
    before = job(resize=resize)
    return edited(
        before, replace(before, roles={"worker": role("worker", replicas, RestartPolicy.ON_FAILURE)})
    )


def succeeded() -> FakeCluster:
    cluster = running(job())
    for pod in cluster.live_pods("Running"):
        cluster.update(replace(pod, phase="Succeeded", exit_code=0))
    return cluster


def exhausted() -> FakeCluster:
    cluster = running(replace(job(), limits=Limits(restarts=0)))
    cluster.fail(cluster.pods["job-worker-0"], 1)
    return cluster


SCENES: dict[str, Callable[[], FakeCluster]] = {
    "a new job": lambda: FakeCluster(job()),
    "a new gang": lambda: FakeCluster(job(gang=Gang(3))),
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
IN_BURST = pytest.mark.parametrize("in_burst", [False, True], ids=["single job", "burst of jobs"])


@IN_BURST
@pytest.mark.parametrize("age", [0, 1, 3], ids=lambda age: f"a list {age} changes old")
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_crash_at_every_request_changes_nothing(
    scene: Callable[[], FakeCluster], age: int, in_burst: bool
) -> None:
    undisturbed = scene()
    undisturbed.settle()
    for requests in range(REQUESTS):
        cluster = scene()
        cluster.in_burst = in_burst
        cluster.sync()
        cluster.reconcile(crash_after=requests)
        cluster.restart(age)
        cluster.reconcile()
        cluster.settle()
        assert end_of(cluster) == end_of(undisturbed), f"after {requests} requests"
        assert told_of(cluster) <= told_of(undisturbed), f"after {requests} requests"


@IN_BURST
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_crash_in_every_pass_changes_nothing(scene: Callable[[], FakeCluster], in_burst: bool) -> None:
    """One more request each time, in a world that goes on meanwhile."""
    undisturbed, cluster = scene(), scene()
    undisturbed.settle()
    cluster.in_burst = in_burst
    for requests in range(REQUESTS):
        cluster.sync()
        cluster.reconcile(crash_after=requests)
        cluster.tick()
    cluster.settle()
    assert end_of(cluster) == end_of(undisturbed)
    assert told_of(cluster) <= told_of(undisturbed)


@IN_BURST
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_lease_lost_at_every_request_and_won_back_changes_nothing(
    scene: Callable[[], FakeCluster], in_burst: bool
) -> None:
    """The first leader lives on, keeps its old caches, and leads again when the other has done the rest."""
    undisturbed = scene()
    undisturbed.settle()
    for requests in range(REQUESTS):
        cluster = scene()
        cluster.in_burst = in_burst
        cluster.sync()
        cluster.lose_lease(requests)
        cluster.settle()
        cluster.in_burst = in_burst
        cluster.change_leader()
        cluster.reconcile()
        cluster.settle()
        assert end_of(cluster) == end_of(undisturbed), f"after {requests} requests"
        assert told_of(cluster) <= told_of(undisturbed), f"after {requests} requests"


@IN_BURST
def test_a_job_without_restarts_that_ran_and_lost_its_pod_is_not_run_again_after_a_crash(
    in_burst: bool,
) -> None:
    cluster = FakeCluster(workload(role("worker", 1, RestartPolicy.NEVER), rules=RULES))
    cluster.in_burst = in_burst
    cluster.reconcile()
    cluster.tick()
    cluster.sync()
    cluster.reconcile()
    cluster.remove(cluster.pods["job-worker-0"])
    cluster.restart(0)
    cluster.settle()
    assert record_of(cluster).phase is Phase.FAILED
    assert not cluster.pods


def told_of(cluster: FakeCluster) -> Counter[tuple[str, str, int]]:
    """The restarts that are told. Who took a pod away may be forgotten; nothing is told twice."""
    return Counter((one.cause, one.role, one.index) for one in record_of(cluster).restart_history)


def end_of(cluster: FakeCluster) -> object:
    record = record_of(cluster)
    places = {name: (pod.attempt, pod.replacement, pod.phase) for name, pod in cluster.pods.items()}
    told = [
        one
        for one in record.restart_history
        if one.cause not in (RestartCause.DELETED, RestartCause.PREEMPTED)
    ]
    causes = [(one.cause, one.scope, one.role, one.index, one.attempt, one.exit_code) for one in told]
    return record.phase, record.reason, record.attempt, record.restarts, record.disruptions, causes, places


def record_of(cluster: FakeCluster) -> Record:
    assert cluster.job
    record = decode(cluster.job.status)
    assert isinstance(record, Record)
    return record
