"""Tests losses in a role whose replica 0 all others depend on, such as the store host of torchrun."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.model import Elastic, Limits, Phase, RestartPolicy, RestartScope, Rules, Workload
from argosy.workload.observed import ObservedPod
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.restarts.policy import plan_restarts
from tests.support.fake_cluster import FakeCluster
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload

RULES = Rules(succeeded_when=(("worker",),), failed_when=(("worker",),), coordinators=("worker",))
WORKERS = role(replicas=3, restart=RestartPolicy.ON_FAILURE, elastic=Elastic(1, 4))
JOB = workload(WORKERS, rules=RULES, limits=Limits(restarts=3))
RUNNING = Record(
    phase=Phase.RUNNING,
    phase_since=NOW,
    attempt_started_at=NOW,
    roles={"worker": role_record(Phase.RUNNING, size=3, created=3, phase_since=NOW)},
)
ALL = {0: 1, 1: 1, 2: 1}


class Case(Struct):
    pods: tuple[ObservedPod, ...]
    absent: tuple[tuple[str, int], ...] = ()
    down: tuple[str, ...] = ()
    want_replaced: dict[int, int] = {}
    want_restarts: int = 0
    want_cause: str = ""


def failed(index: int) -> ObservedPod:
    return pod(index, "Failed", exit_code=1, node=f"n{index}")


CASES = {
    "another replica fails: only that one is replaced": Case(
        (pod(0), failed(1), pod(2)), want_replaced={1: 1}, want_restarts=1, want_cause="NonZeroExit"
    ),
    "coordinator fails: the whole role is restarted, counted once": Case(
        (failed(0), pod(1), pod(2)), want_replaced=ALL, want_restarts=1, want_cause="NonZeroExit"
    ),
    "all fail with the coordinator: counted once": Case(
        (failed(0), failed(1), failed(2)), want_replaced=ALL, want_restarts=1, want_cause="NonZeroExit"
    ),
    "coordinator is deleted: the whole role is restarted at once, uses no restart": Case(
        (pod(0, terminating=True), pod(1), pod(2)), want_replaced=ALL, want_cause="Deleted"
    ),
    "others fail because the coordinator was deleted: uses no restart": Case(
        (pod(0, terminating=True), failed(1), failed(2)), want_replaced=ALL, want_cause="Deleted"
    ),
    "coordinator is gone, and the API server confirms it: restarted": Case(
        (pod(1), pod(2)), absent=(("worker", 0),), want_replaced=ALL, want_cause="Deleted"
    ),
    "coordinator is missing from the cache only: nothing": Case((pod(1), pod(2))),
    "another replica is deleted: created again, nothing else": Case(
        (pod(0), pod(1, terminating=True), pod(2)), want_cause="Deleted"
    ),
    "node of the coordinator is down: nothing while the others run": Case(
        (pod(0, node="n0"), pod(1), pod(2)), down=("n0",)
    ),
    "node of the coordinator is down, and others fail: restarted, uses no restart": Case(
        (pod(0, node="n0"), failed(1), pod(2)), down=("n0",), want_replaced=ALL, want_cause="NodeLost"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_loss_of_a_coordinator_restarts_its_role_once(case: Case) -> None:
    observed = observation(*case.pods, confirmed_absent=case.absent, nodes_down=case.down)
    plan = plan_restarts(JOB, RUNNING, observed, later(60))
    assert dict(plan.record.role("worker").replacements) == case.want_replaced
    assert plan.record.restarts == case.want_restarts
    assert plan.record.attempt == 1
    assert plan.causes == ((case.want_cause,) if case.want_cause else ())


SCOPES = {
    "job restarts as a whole: also for the coordinator": (RestartScope.JOB, 0, RestartScope.JOB),
    "coordinator: its role": (RestartScope.POD, 0, RestartScope.ROLE),
    "another replica: its pod": (RestartScope.POD, 1, RestartScope.POD),
}


@pytest.mark.parametrize(("scope", "index", "want"), SCOPES.values(), ids=SCOPES.keys())
def test_restart_scope_of_a_replica(scope: RestartScope, index: int, want: RestartScope) -> None:
    job = replace(JOB, rules=replace(RULES, restart_scope=scope))
    assert job.restart_scope(WORKERS, index) is want
    assert job.restart_scope(WORKERS) is scope


def settled(job: Workload) -> FakeCluster:
    cluster = FakeCluster(job)
    cluster.settle()
    return cluster


def test_restarted_role_starts_when_all_its_old_pods_are_gone() -> None:
    """An old worker must not join the store of the new worker 0."""
    cluster = settled(JOB)
    cluster.fail(cluster.pods["job-worker-0"], 137)
    for _ in range(3):
        cluster.sync()
        cluster.reconcile()
    assert all(one.terminating for one in cluster.pods.values())
    cluster.remove(cluster.pods["job-worker-0"])
    cluster.sync()
    cluster.reconcile()
    assert set(cluster.pods) == {"job-worker-1", "job-worker-2"}
    cluster.settle()
    assert {one.replacement for one in cluster.pods.values()} == {1}
    assert cluster.job
    record = decode(cluster.job.status)
    assert record
    assert (record.restarts, record.attempt, record.phase) == (1, 1, Phase.RUNNING)
