"""Tests for invalid definitions that end the job."""

from msgspec.structs import replace

from argosy.kinds.kubernetes import Service
from argosy.plan.actions import ActionResult, ActionStatus, Apply
from argosy.plan.diff import remove
from argosy.workload.decide import decide, plan_invalid_cleanup
from argosy.workload.model import CleanupPolicy, Limits, Phase, Problem, Problems
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod, DeletePod
from argosy.workload.reasons import INVALID_SPEC, SPEC_REJECTED
from argosy.workload.record import Record, WaitReason
from argosy.workload.semantics import Semantics
from tests.support.workloads import NOW, existing, later, pods, workload

STRICT = replace(workload(), semantics=Semantics(delete_children_if_invalid=True))
REMAINS = workload(cleanup=CleanupPolicy.NONE, generation=2)
PROBLEMS = Problems((Problem("spec.x", "is wrong"),))
REFUSAL = ActionResult("Pod", "job-worker-0", ActionStatus.INVALID, "no such class", role="worker", index=0)


def test_an_invalid_spec_deletes_the_children_and_a_valid_edit_starts_a_new_attempt() -> None:
    started = decide(STRICT, None, Observed(), NOW).record
    observed = Observed(pods=pods("P"), children=(existing(Service, "job-worker"),))
    plan = plan_invalid_cleanup(REMAINS, started, PROBLEMS, observed, later(1))
    assert (plan.record.phase, plan.record.attempt, plan.record.started_at) == (Phase.PENDING, 2, None)
    assert plan.record.waiting is not None
    assert (plan.record.waiting.reason, plan.record.waiting.message) == (INVALID_SPEC, "spec.x: is wrong")
    assert [action.name for action in plan.actions if isinstance(action, DeletePod)] == ["job-worker-0"]
    assert remove(observed.children[0]) in plan.actions
    again = plan_invalid_cleanup(REMAINS, plan.record, PROBLEMS, Observed(), later(2))
    assert (again.record, again.actions) == (plan.record, ()), "reported once"
    cured = decide(replace(STRICT, generation=3), again.record, Observed(), later(3))
    assert [action.attempt for action in cured.actions if isinstance(action, CreatePod)] == [2, 2, 2]
    assert cured.record.finished_at is None


def test_a_valid_edit_without_restarts_left_fails_the_job() -> None:
    used_up = Record(phase_since=NOW, restarts=2, waiting=WaitReason(INVALID_SPEC, "spec.x: is wrong", NOW))
    right = replace(
        STRICT,
        semantics=Semantics(delete_children_if_invalid=True, report_pending_first=True),
        generation=3,
    )
    ended = decide(replace(right, limits=Limits(restarts=1)), used_up, Observed(), later(1))
    assert (ended.record.phase, ended.record.reason) == (Phase.FAILED, "RestartsExhausted")
    shown = decide(replace(right, limits=Limits(restarts=2)), used_up, Observed(), later(1))
    assert (shown.record.phase, shown.actions) == (Phase.PENDING, ()), "shown first, as a new one is"


def test_a_rejected_spec_is_not_retried_before_an_edit() -> None:
    started = decide(STRICT, None, Observed(), NOW).record
    refused = decide(STRICT, started, Observed(failed_actions=(REFUSAL,)), later(1)).record
    assert refused.waiting is not None
    assert (refused.waiting.reason, refused.waiting.message) == (SPEC_REJECTED, "job-worker-0: no such class")
    forgotten = decide(STRICT, refused, Observed(), later(9))
    assert (forgotten.record, forgotten.actions) == (refused, ()), "also by an operator that is new"
    edited = decide(replace(STRICT, generation=2), refused, Observed(), later(9))
    assert any(isinstance(action, CreatePod) for action in edited.actions)


def test_pods_are_kept_if_the_api_does_not_delete_children_of_invalid_jobs() -> None:
    started = decide(workload(), None, Observed(), NOW).record
    plan = decide(workload(), started, Observed(pods=pods("RR"), failed_actions=(REFUSAL,)), later(1))
    assert not any(isinstance(action, DeletePod) for action in plan.actions)


def test_an_invalid_edit_of_a_job_that_was_running_is_final() -> None:
    ran = Record(
        phase_since=NOW, phase=Phase.RUNNING, started_at=NOW, attempt_started_at=NOW, first_running_at=NOW
    )
    plan = plan_invalid_cleanup(REMAINS, ran, PROBLEMS, Observed(pods=pods("R")), later(1))
    assert (plan.record.phase, plan.record.reason) == (Phase.FAILED, "InvalidDefinition")
    assert plan.record.finished_at == later(1)
    assert not plan.actions, "its pods are left to its cleanup policy, which here is None"
    tidy = replace(REMAINS, cleanup=CleanupPolicy.ALL)
    again = plan_invalid_cleanup(tidy, plan.record, PROBLEMS, Observed(pods=pods("R")), later(2))
    assert [action.name for action in again.actions if isinstance(action, DeletePod)] == ["job-worker-0"]


def test_pending_is_written_before_anything_is_created_if_the_api_demands_it() -> None:
    announced = replace(workload(), semantics=Semantics(report_pending_first=True))
    first = decide(announced, None, Observed(), NOW)
    assert (first.actions, first.requeue_at, first.record.phase) == ((), NOW, Phase.PENDING)
    second = decide(announced, first.record, Observed(), NOW)
    assert any(isinstance(action, CreatePod) for action in second.actions)
    assert not any(isinstance(action, Apply) for action in first.actions)
