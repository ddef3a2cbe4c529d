"""Jobs made at random: never a crash, always a clear status, and cured by an edit.

Some are made from the schema, and so could be stored; others are samples with parts of them broken.
"""

import copy
from collections.abc import Callable, Iterator

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
from tests.support.aresjobs import API, DIALECT, Played, job, played
from tests.support.fuzz_specs import ARES_SPECS, EXAMPLE_COUNTS, VALID_ARES_SPECS, Spec
from tests.support.strategies import observations
from tests.support.workloads import later, pods

SPANS = st.sampled_from([0.0, 1.0, 61.0, 4000.0, -3.0, -9000.0])
EDITS = st.one_of(st.none(), st.none(), VALID_ARES_SPECS, ARES_SPECS)
LIVES = st.lists(st.tuples(SPANS, EDITS, observations(["worker", "master"])), max_size=6)

How = Callable[[Callable[..., None]], Callable[..., None]]


def made(spec: Spec) -> AresJob:
    return replace(job(), spec=copy.deepcopy(spec))


@EXAMPLE_COUNTS
def test_every_definition_is_run_or_told_what_is_wrong(often: How) -> None:
    @often
    @given(st.one_of(ARES_SPECS, ARES_SPECS, VALID_ARES_SPECS))
    def holds(spec: Spec) -> None:
        obj = made(spec)
        lowered = DIALECT.to_workload(obj)
        first = played(obj).saw()
        _fits(first)
        if isinstance(lowered, Problems):
            assert all(
                one.path.split(".")[0] in ("spec", "metadata") and one.message for one in lowered.items
            )
            assert (first.phase, *first.condition("Failed")) == (
                "Failed",
                "True",
                "InvalidDefinition",
                str(lowered),
            )
            assert (first.created, first.obj.spec) == ([], spec)
        else:
            assert first.phase == "Pending"
            assert API.spec_patch(replace(first.obj, status=obj.status)) is None, (
                "defaults are filled in once"
            )
            invariants.check_pods(lowered, API.inject)
            _ends(first.obj)
        _cured(first)

    holds()


@EXAMPLE_COUNTS
def test_whatever_happens_to_a_job_what_always_holds_holds(often: How) -> None:
    @often
    @given(st.one_of(VALID_ARES_SPECS, VALID_ARES_SPECS, VALID_ARES_SPECS, ARES_SPECS), LIVES)
    def holds(spec: Spec, life: list[tuple[float, Spec | None, Observed]]) -> None:
        stage = played(made(spec)).saw()
        for seconds, edit, seen in life:
            stage = stage if edit is None else _edited(stage, edit)
            before = read_record(stage.obj)
            stage = stage.went(seen, seconds)
            workload = DIALECT.to_workload(stage.obj)
            if isinstance(workload, Workload) and stage.plan is not None:
                invariants.check(workload, before, seen, later(stage.at), stage.plan)
            _fits(stage)
        if stage.status.running_time is None and not stage.status.completion_time:
            _cured(stage)

    holds()


def _cured(stage: Played) -> None:
    """A right definition, and the job runs, if it has not run before."""
    cured = _edited(stage, job().spec).saw(seconds=10_000).saw().saw()
    record = read_record(cured.obj)
    assert record is not None
    (there,) = pods("R")
    up = cured.saw(replace(there, attempt=record.attempt, replacement=record.replacement("worker", 0)))
    assert up.phase in ("Running", "Succeeded"), up.status  # the pod may have succeeded before the edit
    assert up.condition("Failed")[0] in ("", "False")


def _edited(stage: Played, spec: Spec) -> Played:
    meta = stage.obj.metadata
    meta = replace(meta, generation=meta.generation + 1)
    return replace(stage, obj=replace(stage.obj, metadata=meta, spec=copy.deepcopy(spec)))


def _fits(stage: Played) -> None:
    invariants.check_status(AresJobCrd, stage.status)
    assert stage.phase in ("Pending", "Starting", "Running", "Succeeded", "Failed")
    assert all(event.message for event in stage.events)


def _ends(obj: AresJob) -> None:
    """Whatever its policies, a job whose pods all end ends."""
    workload = DIALECT.to_workload(obj)
    assert isinstance(workload, Workload)
    if workload.suspended or workload.gang or workload.total_pods > 50:
        return
    there = tuple(_all(workload))
    ended = played(obj).saw().saw().went(Observed(pods=there)).went(Observed(pods=there))
    restarted = any(role.restart == "Always" for role in workload.roles.values())
    assert restarted or Phase(ended.phase).terminal


def _all(workload: Workload) -> Iterator[ObservedPod]:
    for role in workload.roles.values():
        yield from pods("S" * role.replicas, role.name)


def test_a_definition_knows_types_only() -> None:
    """Values are judged by the operator: what users could always store is stored."""
    text = msgspec.json.encode(schema_of(AresJobCrd)).decode()
    assert not any(f'"{word}":' in text for word in ("enum", "pattern", "minimum", "minItems", "minLength"))
