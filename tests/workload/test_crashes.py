"""Tests that a crash of the operator at any request changes no result.

The operator is killed at every single request of a reconcile and starts again with a list of pods that may be
outdated. The job ends as it would have without the crash, and nothing is counted twice: the scenes have no
expectations of their own.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from argosy.kinds.checkpoint_spec import CheckpointLevel
from argosy.workload.announcements import NoticeCause
from argosy.workload.checkpoint_policy import CheckpointPolicy, ImageTarget
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
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.restarts.causes import RestartCause
from tests.support.fake_cluster import FakeCluster
from tests.support.parameters import marked
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


def escalating(escalation: Escalation) -> FakeCluster:
    """A replica whose pod failed once fails again."""
    cluster = running(replace(job(), limits=Limits(restarts=5, escalation=escalation)))
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


def with_checkpoints(scope: RestartScope) -> Workload:
    return replace(job(scope), checkpoint=CheckpointPolicy("file:///store/ns/job-uid"))


def saved_before_the_end_of_a_node(scope: RestartScope) -> FakeCluster:
    """A checkpoint was ordered for a node that ends, and a pod has acknowledged it."""
    cluster = running(with_checkpoints(scope))
    cluster.announce(cluster.pods["job-worker-1"].node, NoticeCause.PREEMPTED, 60)
    cluster.sync()
    cluster.reconcile()
    cluster.save_checkpoint()
    return cluster


def ordered_before_the_end_of_a_node(wanted: Workload) -> FakeCluster:
    cluster = running(wanted)
    [*_, last] = cluster.pods.values()
    cluster.announce(last.node, NoticeCause.PREEMPTED, 60)
    return cluster


def with_processes() -> Workload:
    """A job of one pod whose processes the node agent saves."""
    images = ImageTarget("registry.example", "train")
    policy = CheckpointPolicy("", level=CheckpointLevel.PROCESS, images=images)
    return replace(workload(role("worker", 1, RestartPolicy.ON_FAILURE), rules=RULES), checkpoint=policy)


def processes_before_the_end_of_a_node(*, failed: bool) -> FakeCluster:
    """The node agent was asked for an image of the processes, and has pushed one or failed."""
    cluster = ordered_before_the_end_of_a_node(with_processes())
    cluster.sync()
    cluster.reconcile()
    cluster.finish_backups(failed=failed)
    return cluster


def processes_before_a_suspension() -> FakeCluster:
    cluster = edited(with_processes(), replace(with_processes(), suspended=True))
    cluster.sync()
    cluster.reconcile()
    cluster.finish_backups()
    return cluster


def on_signal(scope: RestartScope) -> Workload:
    policy = CheckpointPolicy("file:///store/ns/job-uid", saves_on_signal=True)
    return replace(job(scope), checkpoint=policy)


def saved_before_a_suspension() -> FakeCluster:
    wanted = with_checkpoints(RestartScope.JOB)
    cluster = edited(wanted, replace(wanted, suspended=True))
    cluster.sync()
    cluster.reconcile()
    cluster.save_checkpoint()
    return cluster


def scaled_in(replicas: int = 1) -> FakeCluster:
    """A running role with checkpoints gets a smaller size."""
    wanted = with_checkpoints(RestartScope.POD)
    workers = role("worker", replicas, RestartPolicy.ON_FAILURE)
    return edited(wanted, replace(wanted, roles={"worker": workers}))


def saved_before_a_scale_in(replicas: int = 1) -> FakeCluster:
    """The same, after a pod has acknowledged the checkpoint; meanwhile the size has become this one."""
    cluster = scaled_in()
    cluster.sync()
    cluster.reconcile()
    if replicas != 1:
        wanted = with_checkpoints(RestartScope.POD)
        workers = role("worker", replicas, RestartPolicy.ON_FAILURE)
        cluster.edit(replace(wanted, roles={"worker": workers}))
    cluster.save_checkpoint()
    return cluster


SCENES: dict[str, Callable[[], FakeCluster]] = {
    "new job": lambda: FakeCluster(job()),
    "new gang": lambda: FakeCluster(job(gang=Gang(3))),
    "deleted pod": deleted,
    "preempted pod": preempted,
    "restarted containers": restarted_in_place,
    "failed pod": lambda: failed(RestartScope.POD),
    "failed pod that escalates to its role": lambda: escalating(Escalation(pod=1)),
    "failed pod that escalates to the job": lambda: escalating(Escalation(pod=1, role=0)),
    "failed pod with restart scope Role": lambda: failed(RestartScope.ROLE),
    "failed pod with restart scope Job": lambda: failed(RestartScope.JOB),
    "role scaled up": lambda: resized(5, ResizeMode.LIVE),
    "role scaled down": lambda: resized(1, ResizeMode.LIVE),
    "new size that restarts the job": lambda: resized(4, ResizeMode.RESTART),
    "job being suspended": lambda: edited(job(), replace(job(), suspended=True)),
    "node that ends: a checkpoint is ordered": (
        lambda: ordered_before_the_end_of_a_node(with_checkpoints(RestartScope.POD))
    ),
    "node that ends: the checkpoint is saved, and its pod is moved": (
        lambda: saved_before_the_end_of_a_node(RestartScope.POD)
    ),
    "node that ends: the checkpoint is saved, and all pods are moved": (
        lambda: saved_before_the_end_of_a_node(RestartScope.JOB)
    ),
    "job being suspended: the checkpoint is saved": saved_before_a_suspension,
    "role scaled down: a checkpoint is ordered": scaled_in,
    "role scaled down: the checkpoint is saved": saved_before_a_scale_in,
    "role scaled down and up again: the checkpoint is saved": lambda: saved_before_a_scale_in(3),
    "node that ends: its processes are ordered to be saved": (
        lambda: ordered_before_the_end_of_a_node(with_processes())
    ),
    "node that ends: its processes are saved, and its pod is moved": (
        lambda: processes_before_the_end_of_a_node(failed=False)
    ),
    "node that ends: its processes could not be saved": (
        lambda: processes_before_the_end_of_a_node(failed=True)
    ),
    "job being suspended: its processes are saved": processes_before_a_suspension,
    "node that ends: its pod gets SIGTERM to save": (
        lambda: ordered_before_the_end_of_a_node(on_signal(RestartScope.POD))
    ),
    "node that ends: all pods get SIGTERM to save": (
        lambda: ordered_before_the_end_of_a_node(on_signal(RestartScope.JOB))
    ),
    "succeeded job": succeeded,
    "failed pod without restarts left": exhausted,
}
REQUESTS = 8
AGES_OF_LISTS = (0, 1, 3)
AGES = marked(
    {f"a list {age} changes old": age for age in AGES_OF_LISTS}, ["a list 1 changes old"], pytest.mark.long
)
CHOSEN_BY_OLD_LISTS = "role scaled down: a checkpoint is ordered"
"""With a list from before its pods ran, a job has nothing to save before they leave."""
IN_BURST = pytest.mark.parametrize("in_burst", [False, True], ids=["single job", "burst of jobs"])


@IN_BURST
@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", SCENES)
def test_a_crash_at_every_request_changes_nothing(name: str, age: int, in_burst: bool) -> None:
    scene = SCENES[name]
    compared = lasting_state if name == CHOSEN_BY_OLD_LISTS and age > 1 else final_state
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
        assert compared(cluster) == compared(undisturbed), f"after {requests} requests"
        assert recorded_restarts(cluster) <= recorded_restarts(undisturbed), f"after {requests} requests"


@IN_BURST
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_crash_in_every_reconcile_changes_nothing(scene: Callable[[], FakeCluster], in_burst: bool) -> None:
    """Each reconcile gets one request further than the one before, while the cluster continues."""
    undisturbed, cluster = scene(), scene()
    undisturbed.settle()
    cluster.in_burst = in_burst
    for requests in range(REQUESTS):
        cluster.sync()
        cluster.reconcile(crash_after=requests)
        cluster.tick()
    cluster.settle()
    assert final_state(cluster) == final_state(undisturbed)
    assert recorded_restarts(cluster) <= recorded_restarts(undisturbed)


@IN_BURST
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES.keys())
def test_a_lease_lost_at_any_request_and_acquired_again_changes_nothing(
    scene: Callable[[], FakeCluster], in_burst: bool
) -> None:
    """The first leader keeps its old caches, and leads again after the other one has finished the work."""
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
        assert final_state(cluster) == final_state(undisturbed), f"after {requests} requests"
        assert recorded_restarts(cluster) <= recorded_restarts(undisturbed), f"after {requests} requests"


@IN_BURST
def test_a_job_without_restarts_that_lost_its_running_pod_is_not_restarted_after_a_crash(
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


def recorded_restarts(cluster: FakeCluster) -> Counter[tuple[str, str, int]]:
    """The recorded restarts. The cause of a disruption may be lost; nothing is recorded twice."""
    return Counter((entry.cause, entry.role, entry.index) for entry in record_of(cluster).restart_history)


def final_state(cluster: FakeCluster) -> object:
    record = record_of(cluster)
    replicas = {name: (pod.attempt, pod.replacement, pod.phase) for name, pod in cluster.pods.items()}
    recoveries = [(recovery.cause, recovery.action, recovery.outcome) for recovery in record.recoveries]
    entries = [entry for entry in record.restart_history if entry.cause == RestartCause.DISRUPTED]
    disruptions = record.disruptions, [(entry.role, entry.index, entry.attempt) for entry in entries]
    return lasting_state(cluster), disruptions, replicas, recoveries


def lasting_state(cluster: FakeCluster) -> object:
    """Return what must be the same however old the caches were."""
    record = record_of(cluster)
    failures = [
        entry
        for entry in record.restart_history
        if entry.cause not in (RestartCause.DELETED, RestartCause.PREEMPTED, RestartCause.DISRUPTED)
    ]
    causes = [
        (entry.cause, entry.scope, entry.role, entry.index, entry.attempt, entry.exit_code)
        for entry in failures
    ]
    level = record.saved.level if record.saved else None
    backups = level, len(cluster.backed_up)
    return record.phase, record.reason, record.attempt, record.restarts, causes, sorted(cluster.pods), backups


def record_of(cluster: FakeCluster) -> Record:
    assert cluster.job
    record = decode(cluster.job.status)
    assert isinstance(record, Record)
    return record
