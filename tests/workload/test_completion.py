from datetime import datetime

import pytest
from msgspec import Struct

from argosy.kinds.kubernetes import Service
from argosy.plan.actions import Remove
from argosy.plan.diff import remove
from argosy.workload import completion
from argosy.workload.gang_schedulers.volcano import GROUP
from argosy.workload.index_set import IndexSet
from argosy.workload.model import CleanupPolicy, Limits, Phase, Ttl
from argosy.workload.observed import Observed, ObservedGroup
from argosy.workload.plan import DeleteJob, DeletePod
from argosy.workload.record import Record
from tests.support.workloads import NOW, existing, later, pod, role_record, workload

PODS = (
    pod(0, "Running"),
    pod(1, "Succeeded"),
    pod(2, "Failed"),
    pod(3, "Pending", waits_for_dependency=True),
    pod(4, terminating=True),
)


class Case(Struct):
    policy: CleanupPolicy
    phase: Phase = Phase.SUCCEEDED
    reason: str = ""
    limits: Limits = Limits()
    seconds: float = 0
    want_pods: tuple[int, ...] = ()
    want_children: bool = False
    want_job: bool = False
    want_wake: datetime | None = None


HOUR = Limits(ttl=Ttl(succeeded=3600), children_ttl=Ttl(failed=60))

CASES = {
    "policy All: everything is deleted": Case(CleanupPolicy.ALL, want_pods=(0, 1, 2, 3), want_children=True),
    "policy Running: pods that have not ended are deleted": Case(CleanupPolicy.RUNNING, want_pods=(0, 3)),
    "policy None: only pods that wait for a dependency are deleted": Case(CleanupPolicy.NONE, want_pods=(3,)),
    "policy None after an exceeded limit: running pods are deleted": Case(
        CleanupPolicy.NONE, Phase.FAILED, "DeadlineExceeded", want_pods=(0, 3)
    ),
    "before the TTL: the job is kept": Case(
        CleanupPolicy.NONE, limits=HOUR, want_pods=(3,), want_wake=later(3600)
    ),
    "after the TTL: the job is deleted": Case(CleanupPolicy.NONE, limits=HOUR, seconds=3600, want_job=True),
    "failed job without a TTL: kept": Case(
        CleanupPolicy.NONE, Phase.FAILED, limits=HOUR, seconds=10, want_pods=(3,), want_wake=later(60)
    ),
    "failed job with a TTL of children: they are deleted": Case(
        CleanupPolicy.NONE, Phase.FAILED, limits=HOUR, seconds=60, want_pods=(0, 1, 2, 3), want_children=True
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_finished_jobs_are_cleaned_up(case: Case) -> None:
    job = workload(cleanup=case.policy, limits=case.limits)
    record = Record(phase_since=NOW, phase=case.phase, reason=case.reason, finished_at=NOW)
    children = (existing(Service, "job-worker"), existing(GROUP.kind, "job"))
    observed = Observed(pods=PODS, children=children, group=ObservedGroup())
    plan = completion.clean_up(job, record, observed, later(case.seconds))
    names = tuple(action.name for action in plan.actions if isinstance(action, DeletePod))
    assert names == tuple(f"job-worker-{index}" for index in case.want_pods)
    removed = [action for action in plan.actions if isinstance(action, Remove)]
    assert removed == ([remove(child) for child in children] if case.want_children else [])
    assert any(isinstance(action, DeleteJob) for action in plan.actions) is case.want_job
    assert plan.requeue_at == case.want_wake
    assert plan.record == record, "status stays as at the end"


def test_pods_that_were_only_being_added_are_deleted_whatever_the_policy() -> None:
    """They would wait for capacity for ever."""
    last = role_record(Phase.SUCCEEDED, size=1, joining=IndexSet.of((1,)))
    record = Record(phase_since=NOW, phase=Phase.SUCCEEDED, finished_at=NOW, roles={"worker": last})
    observed = Observed(pods=(pod(0, "Succeeded"), pod(1, "Pending")))
    plan = completion.clean_up(workload(cleanup=CleanupPolicy.NONE), record, observed, NOW)
    assert [action.name for action in plan.actions if isinstance(action, DeletePod)] == ["job-worker-1"]
