"""What is told once, of all that is seen again and again."""

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.decide import decide
from argosy.workload.model import RestartPolicy
from argosy.workload.observed import ObservedPod
from argosy.workload.record import Record, RoleRecord
from tests.support.workloads import NOW, later, pod, role, seen, workload


class Case(Struct):
    before: Record | None
    pods: tuple[ObservedPod, ...]
    want: list[int]


def knowing(**fields: object) -> Record:
    last = RoleRecord(**{"size": 3, "phase_since": NOW, **fields})  # type: ignore[arg-type]  # tests name fields freely
    return Record(phase_since=NOW, started_at=NOW, attempt_started_at=NOW, roles={"worker": last})


FAILURES = {
    "a pod that has failed is told": Case(knowing(), (pod(0), pod(1, "Failed")), [1]),
    "one that was told is not told again": Case(knowing(failed_indexes={1: 1}), (pod(1, "Failed"),), []),
    "nor one that was replaced": Case(knowing(replacements={1: 1}), (pod(1, "Failed"),), []),
    "nor one of an earlier attempt": Case(replace(knowing(), attempt=2), (pod(1, "Failed"),), []),
    "nor one on its way out": Case(knowing(), (pod(1, "Failed", terminating=True),), []),
    "all of them, in order": Case(knowing(), (pod(2, "Failed"), pod(0, "Failed")), [0, 2]),
    "after a Record was lost all are told": Case(None, (pod(1, "Failed"),), [1]),
}


@pytest.mark.parametrize("case", FAILURES.values(), ids=FAILURES.keys())
def test_failures(case: Case) -> None:
    plan = decide(workload(), case.before, seen(*case.pods), later(1))
    assert [one.index for one in plan.transitions.failed_pods] == case.want


@pytest.mark.parametrize("restart", [RestartPolicy.NEVER, RestartPolicy.ON_FAILURE])
def test_a_failure_is_news_in_one_pass_only(restart: RestartPolicy) -> None:
    job = workload(role(replicas=2, restart=restart), role("other", 1))
    there = seen(pod(0), pod(1, "Failed"), pod(0, role="other"))
    first = decide(job, decide(job, None, seen(), NOW).record, there, later(1))
    assert [one.index for one in first.transitions.failed_pods] == [1]
    assert not decide(job, first.record, there, later(2)).transitions.failed_pods


EDITS = {
    "the first definition leaves nobody behind": ("", "a", 1, pod(0), False),
    "one that pods are not made from does": ("a", "b", 2, pod(0), True),
    "and does so once": ("b", "b", 2, pod(0), False),
    "one that pods are made from does not": ("b", "b", 3, pod(0), False),
    "what has ended is what it was": ("a", "b", 2, pod(0, "Succeeded"), False),
    "what goes is not left behind": ("a", "b", 2, pod(0, terminating=True), False),
}


@pytest.mark.parametrize(("was", "shape", "generation", "there", "told"), EDITS.values(), ids=EDITS.keys())
def test_edits(was: str, shape: str, generation: int, there: ObservedPod, told: bool) -> None:
    job = workload(replace(role(replicas=1), template_hash=shape), generation=generation)
    before = replace(knowing(size=1, template_hash=was), generation=1 if was == "a" else 2)
    plan = decide(job, before, seen(there), later(1))
    assert plan.transitions.stale_roles == (("worker",) if told else ())
    assert plan.record.role("worker").template_hash == shape
