from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from argosy.dialects.et import reasons
from argosy.dialects.et.conditions import (
    CREATED,
    FAILED,
    LAUNCHER_CREATED,
    RESTARTING,
    RUNNING,
    SCALE_FAILED,
    SCALE_SUCCEEDED,
    SCALING,
    SCRIPT_EXECUTED,
    SUCCEEDED,
    SUSPENDED,
    WAITING_FOR_JOB,
    WORKERS_CREATED,
    WORKERS_READY,
    after_restart,
    after_resume,
    is_true,
    with_cleared,
    with_false,
    with_scaling_ended,
    with_scaling_started,
    with_true,
)
from argosy.kinds.trainingjob import JobCondition
from argosy.workload.reasons import INVALID_SPEC

START = datetime(2030, 1, 1, tzinfo=UTC)
START_UP = (CREATED, WORKERS_CREATED, WORKERS_READY, LAUNCHER_CREATED, RUNNING)


def at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


def running() -> list[JobCondition]:
    """The conditions of a job after its start."""
    conditions: list[JobCondition] = []
    for seconds, kind in enumerate(START_UP):
        conditions = with_true(conditions, kind, "", kind.lower(), at(seconds))
    return conditions


def shown(conditions: Sequence[JobCondition]) -> list[str]:
    """Types in their order; those that are False with an exclamation mark."""
    return [f"{'' if condition.status == 'True' else '!'}{condition.type}" for condition in conditions]


def condition(conditions: Sequence[JobCondition], kind: str) -> JobCondition:
    return next(condition for condition in conditions if condition.type == kind)


def test_conditions_that_become_true_are_in_the_order_of_events() -> None:
    assert shown(running()) == list(START_UP)
    assert condition(running(), WORKERS_READY) == JobCondition(
        WORKERS_READY, "True", "", "workersready", at(2), at(2)
    )


def test_condition_that_becomes_true_again_moves_to_the_end() -> None:
    failed = with_false(running(), WORKERS_CREATED, reasons.POD_CREATE_FAILED, "quota", at(10))
    assert shown(failed) == [CREATED, "!WorkersCreated", WORKERS_READY, LAUNCHER_CREATED, RUNNING]
    assert condition(failed, WORKERS_CREATED) == JobCondition(
        WORKERS_CREATED, "False", "PodCreateFailed", "quota", at(10), at(10)
    )
    again = with_true(failed, WORKERS_CREATED, "", "created", at(11))
    assert shown(again) == [CREATED, WORKERS_READY, LAUNCHER_CREATED, RUNNING, WORKERS_CREATED]


def test_condition_that_stays_true_stays_in_its_place_with_its_transition_time() -> None:
    assert with_true(running(), WORKERS_READY, "", "workersready", at(10)) == running()
    changed = with_true(running(), WORKERS_READY, "", "other", at(10))
    assert shown(changed) == list(START_UP)
    assert condition(changed, WORKERS_READY) == JobCondition(
        WORKERS_READY, "True", "", "other", at(10), at(2)
    )


def test_condition_that_never_was_true_can_be_false() -> None:
    created = with_true([], CREATED, reasons.TRAINING_JOB_CREATED, "", START)
    failed = with_false(created, WORKERS_CREATED, reasons.POD_CREATE_FAILED, "quota", at(1))
    assert shown(failed) == [CREATED, "!WorkersCreated"]
    assert with_false(failed, WORKERS_CREATED, reasons.POD_CREATE_FAILED, "quota", at(2)) == failed
    other = condition(
        with_false(failed, WORKERS_CREATED, reasons.POD_CREATE_FAILED, "webhook", at(3)), WORKERS_CREATED
    )
    assert (other.message, other.last_update_time, other.last_transition_time) == ("webhook", at(3), at(1))


def test_clearing_a_condition_that_is_not_true_changes_nothing() -> None:
    assert with_cleared(running(), SCALING, at(10)) == running()
    cleared = with_cleared(running(), RUNNING, at(10))
    assert with_cleared(cleared, RUNNING, at(11)) == cleared
    assert condition(cleared, RUNNING) == JobCondition(RUNNING, "False", "", "running", at(10), at(10))


def test_end_of_a_job_sets_running_to_false() -> None:
    for end in (SUCCEEDED, FAILED, SUSPENDED):
        ended = with_true(running(), end, "Reason", "", at(10))
        assert shown(ended) == [CREATED, WORKERS_CREATED, WORKERS_READY, LAUNCHER_CREATED, "!Running", end]
        assert condition(ended, RUNNING).last_transition_time == at(10)


def test_end_of_a_job_that_is_being_scaled_or_restarted_sets_that_to_false() -> None:
    scaling = with_scaling_started(running(), "", at(10))
    assert shown(with_true(scaling, FAILED, "Reason", "", at(11)))[-3:] == ["!Running", "!Scaling", FAILED]
    restarting = after_restart("", at(10))
    assert shown(with_true(restarting, SUSPENDED, "Reason", "", at(11))) == ["!Restarting", SUSPENDED]


def test_nothing_is_recorded_after_a_failure() -> None:
    failed = with_true(running(), FAILED, reasons.TRAINING_JOB_FAILED, "has failed", at(10))
    assert with_true(failed, FAILED, reasons.TRAINING_JOB_EVICTED, "other", at(11)) == failed
    assert with_true(failed, RUNNING, "", "", at(11)) == failed
    assert with_true(failed, SUCCEEDED, "", "", at(11)) == failed
    assert with_false(failed, FAILED, "", "", at(11)) == failed
    assert with_false(failed, WORKERS_CREATED, "", "", at(11)) == failed
    assert with_scaling_started(failed, "", at(11)) == failed


def test_restart_is_recorded_after_a_failure_and_ends_with_running() -> None:
    conditions = after_restart("restart 1 of 6", at(10))
    assert conditions == [
        JobCondition(RESTARTING, "True", "TrainingJobRestarting", "restart 1 of 6", at(10), at(10))
    ]
    for kind in START_UP:
        assert is_true(conditions, RESTARTING)
        conditions = with_true(conditions, kind, "", "", at(11))
    assert shown(conditions) == ["!Restarting", *START_UP]


def test_resumed_job_starts_with_a_condition_suspended_that_is_false() -> None:
    resumed = after_resume("resumed", at(10))
    assert resumed == [JobCondition(SUSPENDED, "False", "TrainingJobResumed", "resumed", at(10), at(10))]
    assert shown(with_true(resumed, CREATED, "", "", at(11))) == ["!Suspended", CREATED]


def test_invalid_spec_is_reported_anew_after_an_edit_that_did_not_repair_it() -> None:
    first = with_true([], FAILED, INVALID_SPEC, "spec.a: no", START)
    second = with_true(first, FAILED, INVALID_SPEC, "spec.b: no", at(1))
    assert second == [JobCondition(FAILED, "True", INVALID_SPEC, "spec.b: no", at(1), START)]
    assert with_true(second, RUNNING, "", "", at(2)) == second
    assert shown(with_true([], CREATED, "", "", at(3))) == [CREATED], "a repaired job begins as if new"


def test_job_that_is_scaled_twice() -> None:
    first = with_scaling_started(running(), "a", at(10))
    assert shown(first) == [*START_UP, SCALING]
    assert condition(first, SCALING).reason == "ScalingStart"
    succeeded = with_scaling_ended(first, "ScaleIn", "a has Succeeded", at(11), succeeded=True)
    assert shown(succeeded) == [*START_UP, "!Scaling", SCALE_SUCCEEDED]
    assert condition(succeeded, SCALE_SUCCEEDED).reason == "ScalingInSucceeded"
    second = with_scaling_started(succeeded, "b", at(12))
    assert shown(second) == [*START_UP, "!ScaleSucceeded", SCALING]
    failed = with_scaling_ended(second, "ScaleOut", "b failed", at(13), succeeded=False)
    assert shown(failed) == [*START_UP, "!ScaleSucceeded", "!Scaling", SCALE_FAILED]
    assert condition(failed, SCALE_FAILED).reason == "ScalingOutFailed"
    assert is_true(failed, RUNNING), "a failed scaler does not fail the job"


def test_the_last_condition_of_a_scaler_is_what_kubectl_shows() -> None:
    conditions = with_true([], WAITING_FOR_JOB, reasons.TRAINING_JOB_NOT_FOUND, "", START)
    seen = [conditions[-1].type]
    conditions = with_true(conditions, CREATED, "", "", at(1))
    assert shown(conditions) == ["!WaitingForJob", CREATED]
    seen.append(conditions[-1].type)
    conditions = with_scaling_started(conditions, "", at(2))
    seen.append(conditions[-1].type)
    conditions = with_true(conditions, SCRIPT_EXECUTED, "", "", at(3))
    seen.append(conditions[-1].type)
    conditions = with_scaling_ended(conditions, "ScaleIn", "", at(4), succeeded=True)
    seen.append(conditions[-1].type)
    assert seen == [WAITING_FOR_JOB, CREATED, SCALING, SCRIPT_EXECUTED, SCALE_SUCCEEDED]
