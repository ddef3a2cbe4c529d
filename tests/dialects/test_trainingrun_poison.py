"""Runs made at random, from the schema and from examples with parts of them broken: never a crash, always a
clear status, and cured by an edit."""

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
RIGHT = run().role("worker", 1).spec
LIVES = st.lists(
    st.tuples(
        st.sampled_from([0.0, 1.0, 61.0, 4000.0, -9000.0]),
        st.one_of(st.none(), st.none(), VALID_RUN_SPECS, RUN_SPECS),
        observations(["worker", "launcher"]),
    ),
    max_size=5,
)
How = Callable[[Callable[..., None]], Callable[..., None]]


@EXAMPLE_COUNTS
def test_whatever_is_written_and_happens_what_always_holds_holds(often: How) -> None:
    @often
    @given(st.one_of(VALID_RUN_SPECS, VALID_RUN_SPECS, RUN_SPECS), LIVES)
    def holds(spec: Spec, life: list[tuple[float, Spec | None, Observed]]) -> None:
        obj, at = _read(spec, 1, None) or _right(1), 0.0
        obj = _passed(obj, Observed(), at)
        for number, (seconds, edit, seen) in enumerate(life, 2):
            at += seconds
            edited = _read(edit, number, obj) if edit is not None else None
            obj = _passed(edited or obj, seen, at)
        if obj.status.running_time is None and obj.status.completion_time is None:
            _cured(obj, at)

    holds()


def _read(spec: Spec, generation: int, before: TrainingRun | None) -> TrainingRun | None:
    """The run, if an API server with our definition would keep it; others are told of as unreadable."""
    meta = {"name": "job", "namespace": "ns", "uid": "job-uid", "generation": generation}
    try:
        made = msgspec.convert({"metadata": meta, "spec": copy.deepcopy(spec)}, TrainingRun)
    except msgspec.ValidationError:
        return None
    return made if before is None else replace(made, status=before.status)


def _right(generation: int, before: TrainingRun | None = None) -> TrainingRun:
    made = _read(RIGHT, generation, before)
    assert made is not None
    return made


def _passed(obj: TrainingRun, seen: Observed, at: float) -> TrainingRun:
    """The run with the status that a pass would give it."""
    lowered, before = DIALECT.to_workload(obj), read_record(obj)
    if isinstance(lowered, Problems):
        assert all(one.path.split(".")[0] in ("spec", "metadata") and one.message for one in lowered.items)
        workload, plan = None, plan_invalid(before, lowered, obj.metadata.generation, later(at))
        assert plan.record.finished_at or (
            plan.record.waiting and plan.record.waiting.message == str(lowered)
        )
    else:
        workload, plan = lowered, decide(lowered, before, seen, later(at))
        invariants.check(lowered, before, seen, later(at), plan)
        invariants.check_pods(lowered, API.inject)
    status = DIALECT.to_status(obj, StatusInput(workload, plan.record, with_planned_pods(seen, plan.actions)))
    invariants.check_status(TrainingRun, status)
    return replace(obj, status=status)


def _cured(obj: TrainingRun, at: float) -> None:
    """A right definition, and the run goes on, if it has not run before."""
    obj = _right(99, obj)
    for seconds in (10_000, 10_001, 20_000):
        obj = _passed(obj, Observed(), at + seconds)
    record = read_record(obj)
    assert record is not None
    (there,) = pods("R")
    there = replace(there, attempt=record.attempt, replacement=record.replacement("worker", 0))
    obj = _passed(obj, Observed(pods=(there,)), at + 20_001)
    used_up = obj.status.reason == "RestartsExhausted"  # by what happened before
    assert used_up or obj.status.phase in ("Running", "Succeeded"), obj.status
