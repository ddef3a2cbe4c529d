"""Random TrainingRuns never raise, always have a valid status, and run after a correction."""

import copy
from collections.abc import Callable

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from argosy.dialects.base import StatusInput, read_record
from argosy.dialects.trainingrun.dialect import TrainingRunDialect, training_run_api
from argosy.kinds.trainingrun import TrainingRun
from argosy.workload.decide import decide, plan_invalid
from argosy.workload.model import Problems
from argosy.workload.observed import Observed
from argosy.workload.pods import with_planned_pods
from tests.support import invariants
from tests.support.builders import run
from tests.support.fuzz_specs import EXAMPLE_COUNTS, RUN_SPECS, VALID_RUN_SPECS, Spec
from tests.support.strategies import observations
from tests.support.workloads import later, pods

API = training_run_api()
DIALECT = TrainingRunDialect()
VALID_SPEC = run().role("worker", 1).spec
STEPS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 61.0, 4000.0, -9000.0]),
        st.one_of(st.none(), st.none(), VALID_RUN_SPECS, RUN_SPECS),
        observations(["worker", "launcher"]),
    ),
    max_size=5,
)
Settings = Callable[[Callable[..., None]], Callable[..., None]]


@EXAMPLE_COUNTS
def test_invariants_of_a_run_with_random_edits_and_observations(example_settings: Settings) -> None:
    @example_settings
    @given(st.one_of(VALID_RUN_SPECS, VALID_RUN_SPECS, RUN_SPECS), STEPS)
    def check(spec: Spec, steps: list[tuple[float, Spec | None, Observed]]) -> None:
        obj, at = _decode(spec, 1, None) or _valid_run(1), 0.0
        obj = _reconcile(obj, Observed(), at)
        for number, (seconds, edit, observed) in enumerate(steps, 2):
            at += seconds
            edited = _decode(edit, number, obj) if edit is not None else None
            obj = _reconcile(edited or obj, observed, at)
        if obj.status.running_time is None and obj.status.completion_time is None:
            _check_corrected_run_runs(obj, at)

    check()


def _decode(spec: Spec, generation: int, before: TrainingRun | None) -> TrainingRun | None:
    """Return the run; None if it cannot be decoded, which the operator reports elsewhere."""
    meta = {"name": "job", "namespace": "ns", "uid": "job-uid", "generation": generation}
    try:
        converted = msgspec.convert({"metadata": meta, "spec": copy.deepcopy(spec)}, TrainingRun)
    except msgspec.ValidationError:
        return None
    return converted if before is None else replace(converted, status=before.status)


def _valid_run(generation: int, before: TrainingRun | None = None) -> TrainingRun:
    converted = _decode(VALID_SPEC, generation, before)
    assert converted is not None
    return converted


def _reconcile(obj: TrainingRun, observed: Observed, at: float) -> TrainingRun:
    """Return the run with the status that a reconcile would write, after checking the invariants."""
    result, before = DIALECT.to_workload(obj), read_record(obj)
    if isinstance(result, Problems):
        assert all(
            problem.path.split(".")[0] in ("spec", "metadata") and problem.message for problem in result.items
        )
        workload, plan = None, plan_invalid(before, result, obj.metadata.generation, later(at))
        assert plan.record.finished_at or (plan.record.waiting and plan.record.waiting.message == str(result))
    else:
        workload, plan = result, decide(result, before, observed, later(at))
        invariants.check(result, before, observed, later(at), plan)
        invariants.check_pods(result, API.inject)
    status = DIALECT.to_status(
        obj, StatusInput(workload, plan.record, with_planned_pods(observed, plan.actions))
    )
    invariants.check_status(TrainingRun, status)
    return replace(obj, status=status)


def _check_corrected_run_runs(obj: TrainingRun, at: float) -> None:
    """Check that a run that has never run does so once its definition is corrected."""
    obj = _valid_run(99, obj)
    for seconds in (10_000, 10_001, 20_000):
        obj = _reconcile(obj, Observed(), at + seconds)
    record = read_record(obj)
    assert record is not None
    (pod,) = pods("R")
    [index] = record.role("worker").members  # not 0 if the role was elastic in the random steps before
    pod = replace(pod, index=index, attempt=record.attempt, replacement=record.replacement("worker", index))
    obj = _reconcile(obj, Observed(pods=(pod,)), at + 20_001)
    exhausted = obj.status.reason == "RestartsExhausted"  # by the random steps before
    assert exhausted or obj.status.phase in ("Running", "Succeeded"), obj.status
