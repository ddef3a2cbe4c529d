"""Random AresJobs never raise, always have a valid status, and run after a correction.

Some are generated from the schema; others are samples with corrupted parts.
"""

import copy
from collections.abc import Callable, Collection, Iterator

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from argosy.dialects.base import read_record
from argosy.kinds.aresjob import AresJob, AresJobCrd
from argosy.kinds.crd import schema_of
from argosy.workload.model import Phase, Problems, Workload
from argosy.workload.observed import Observed, ObservedPod
from tests.support import invariants
from tests.support.aresjobs import API, DIALECT, SimulatedJob, job, simulate
from tests.support.fuzz_specs import ARES_SPECS, EXAMPLE_COUNTS, VALID_ARES_SPECS, Spec
from tests.support.strategies import observations
from tests.support.workloads import later, pods

SECONDS = st.sampled_from([0.0, 1.0, 61.0, 4000.0, -3.0, -9000.0])
EDITS = st.one_of(st.none(), st.none(), VALID_ARES_SPECS, ARES_SPECS)
STEPS = st.lists(st.tuples(SECONDS, EDITS, observations(["worker", "master"])), max_size=6)

Settings = Callable[[Callable[..., None]], Callable[..., None]]


def job_with_spec(spec: Spec) -> AresJob:
    return replace(job(), spec=copy.deepcopy(spec))


@EXAMPLE_COUNTS
def test_random_definition_is_accepted_or_reported_as_invalid(example_settings: Settings) -> None:
    @example_settings
    @given(st.one_of(ARES_SPECS, ARES_SPECS, VALID_ARES_SPECS))
    def check(spec: Spec) -> None:
        obj = job_with_spec(spec)
        result = DIALECT.to_workload(obj)
        first = simulate(obj).reconcile()
        _check_status_and_events(first)
        if isinstance(result, Problems):
            assert all(
                problem.path.split(".")[0] in ("spec", "metadata") and problem.message
                for problem in result.items
            )
            assert (first.phase, *first.condition("Failed")) == (
                "Failed",
                "True",
                "InvalidDefinition",
                str(result),
            )
            assert (first.created, first.obj.spec) == ([], spec)
        else:
            assert first.phase == "Pending"
            assert API.spec_patch(replace(first.obj, status=obj.status)) is None, (
                "defaults are patched a second time"
            )
            invariants.check_pods(result, API.inject)
            _check_finishes_with_its_pods(first.obj)
        _check_corrected_job_runs(first)

    check()


@EXAMPLE_COUNTS
def test_invariants_of_a_job_with_random_edits_and_observations(example_settings: Settings) -> None:
    @example_settings
    @given(st.one_of(VALID_ARES_SPECS, VALID_ARES_SPECS, VALID_ARES_SPECS, ARES_SPECS), STEPS)
    def check(spec: Spec, steps: list[tuple[float, Spec | None, Observed]]) -> None:
        simulated = simulate(job_with_spec(spec)).reconcile()
        for seconds, edit, observed in steps:
            simulated = simulated if edit is None else _edited(simulated, edit)
            before = read_record(simulated.obj)
            simulated = simulated.reconcile_observed(observed, seconds)
            workload = DIALECT.to_workload(simulated.obj)
            if isinstance(workload, Workload) and simulated.plan is not None:
                invariants.check(workload, before, observed, later(simulated.at), simulated.plan)
            _check_status_and_events(simulated)
        if simulated.status.running_time is None and not simulated.status.completion_time:
            _check_corrected_job_runs(simulated)

    check()


def _check_corrected_job_runs(simulated: SimulatedJob) -> None:
    """Check that a job that has never run does so once its definition is corrected."""
    corrected = _edited(simulated, job().spec).reconcile(seconds=10_000).reconcile().reconcile()
    record = read_record(corrected.obj)
    assert record is not None
    (pod,) = pods("R")
    index = next(iter(record.role("worker").wanted))  # an elastic role may have had others
    running = corrected.reconcile(
        replace(
            pod,
            name=f"job-worker-{index}",
            index=index,
            attempt=record.attempt,
            replacement=record.replacement("worker", index),
        )
    )
    assert running.phase in ("Running", "Succeeded"), (
        running.status
    )  # the pod may have succeeded before the edit
    assert running.condition("Failed")[0] in ("", "False")


def _edited(simulated: SimulatedJob, spec: Spec) -> SimulatedJob:
    meta = simulated.obj.metadata
    meta = replace(meta, generation=meta.generation + 1)
    return replace(simulated, obj=replace(simulated.obj, metadata=meta, spec=copy.deepcopy(spec)))


def _check_status_and_events(simulated: SimulatedJob) -> None:
    invariants.check_status(AresJobCrd, simulated.status)
    assert simulated.phase in ("Pending", "Starting", "Running", "Succeeded", "Failed")
    assert all(event.message for event in simulated.events)


def _check_finishes_with_its_pods(obj: AresJob) -> None:
    """Check that the job finishes when all its pods succeed, with any policies."""
    workload = DIALECT.to_workload(obj)
    assert isinstance(workload, Workload)
    if workload.suspended or workload.gang or workload.total_pods > 50:
        return
    observed_pods = tuple(_succeeded_pods(workload))
    ended = (
        simulate(obj)
        .reconcile()
        .reconcile()
        .reconcile_observed(Observed(pods=observed_pods))
        .reconcile_observed(Observed(pods=observed_pods))
    )
    restarted = any(role.restart == "Always" for role in workload.roles.values())
    assert restarted or Phase(ended.phase).terminal


def _succeeded_pods(workload: Workload) -> Iterator[ObservedPod]:
    for role in workload.roles.values():
        yield from pods("S" * role.replicas, role.name)


OWN_FIELDS = ("elastic", "checkpoint", "belowMinTimeout")
"""Fields that AresOperator does not have and whose values the schema checks."""


def test_crd_checks_only_types_of_the_fields_of_aresoperator() -> None:
    """The operator validates values, so that AresJobs of existing users can still be stored."""
    text = msgspec.json.encode(_without(schema_of(AresJobCrd), OWN_FIELDS)).decode()
    assert not any(f'"{word}":' in text for word in ("enum", "pattern", "minimum", "minItems", "minLength"))


def _without(schema: object, names: Collection[str]) -> object:
    if not isinstance(schema, dict):
        return schema
    return {key: _without(value, names) for key, value in schema.items() if key not in names}
