"""Tests that transitions are reported once, however often they are observed."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.decide import decide
from argosy.workload.model import ReplacementPolicy, RestartPolicy, RestartScope
from argosy.workload.observed import ObservedPod
from argosy.workload.record import Record
from tests.support.workloads import NOW, later, observation, pod, role, role_record, workload


class Case(Struct):
    before: Record | None
    pods: tuple[ObservedPod, ...]
    want: list[int]


def recorded(**fields: object) -> Record:
    last = role_record(**{"size": 3, "phase_since": NOW, **fields})  # type: ignore[arg-type]  # tests name fields freely
    return Record(phase_since=NOW, started_at=NOW, attempt_started_at=NOW, roles={"worker": last})


FAILURES = {
    "failed pod: reported": Case(recorded(), (pod(0), pod(1, "Failed")), [1]),
    "failed pod that was reported: not again": Case(recorded(failed_indexes={1: 1}), (pod(1, "Failed"),), []),
    "failed pod that was replaced: not reported": Case(
        recorded(replacements={1: 1}), (pod(1, "Failed"),), []
    ),
    "failed pod of an earlier attempt: not reported": Case(
        replace(recorded(), attempt=2), (pod(1, "Failed"),), []
    ),
    "failed pod that is terminating: not reported": Case(
        recorded(), (pod(1, "Failed", terminating=True),), []
    ),
    "two failed pods: reported in order": Case(recorded(), (pod(2, "Failed"), pod(0, "Failed")), [0, 2]),
    "Record lost: reported": Case(None, (pod(1, "Failed"),), [1]),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_pod_is_reported_once(case: Case) -> None:
    plan = decide(workload(), case.before, observation(*case.pods), later(1))
    assert [pod.index for pod in plan.transitions.failed_pods] == case.want


@pytest.mark.parametrize("restart", [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])
def test_a_failed_pod_is_reported_in_one_reconcile_only(restart: RestartPolicy) -> None:
    job = workload(role(replicas=2, restart=restart), role("other", 1))
    observed = observation(pod(0), pod(1, "Failed"), pod(0, role="other"))
    first = decide(job, decide(job, None, observation(), NOW).record, observed, later(1))
    assert [pod.index for pod in first.transitions.failed_pods] == [1]
    assert not decide(job, first.record, observed, later(2)).transitions.failed_pods


@pytest.mark.parametrize("restart", [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])
def test_a_pod_whose_index_is_not_used_again_is_reported_in_one_reconcile_only(
    restart: RestartPolicy,
) -> None:
    worker = replace(
        role(replicas=2, restart=restart), replacement=ReplacementPolicy(RestartScope.POD, next_index=True)
    )
    job = workload(worker, role("other", 1))
    observed = observation(pod(0), pod(1, "Failed"), pod(0, role="other"))
    first = decide(job, decide(job, None, observation(), NOW).record, observed, later(1))
    assert [pod.index for pod in first.transitions.retired_pods] == [1]
    assert not decide(job, first.record, observed, later(2)).transitions.retired_pods


EDITS = {
    "first template: not stale": ("", "a", 1, pod(0), False),
    "edited template: stale": ("a", "b", 2, pod(0), True),
    "edited template that was reported: not again": ("b", "b", 2, pod(0), False),
    "edit of something else: not stale": ("b", "b", 3, pod(0), False),
    "edited template, ended pod: not stale": ("a", "b", 2, pod(0, "Succeeded"), False),
    "edited template, terminating pod: not stale": ("a", "b", 2, pod(0, terminating=True), False),
}


@pytest.mark.parametrize(
    ("was", "template", "generation", "existing", "want"), EDITS.values(), ids=EDITS.keys()
)
def test_a_role_with_pods_of_an_earlier_template_is_reported_once(
    was: str, template: str, generation: int, existing: ObservedPod, want: bool
) -> None:
    job = workload(replace(role(replicas=1), template_hash=template), generation=generation)
    before = replace(recorded(size=1, template_hash=was), generation=1 if was == "a" else 2)
    plan = decide(job, before, observation(existing), later(1))
    assert plan.transitions.stale_roles == (("worker",) if want else ())
    assert plan.record.role("worker").template_hash == template
