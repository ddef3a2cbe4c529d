"""Tests that pods and groups get the propagated metadata of their job, and nothing else."""

from collections.abc import Mapping

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Pod
from argosy.workload.decide import decide
from argosy.workload.gang_schedulers.volcano import GROUP
from argosy.workload.model import Workload
from argosy.workload.observed import MetadataSubset, Observed, ObservedGroup, ObservedPod
from argosy.workload.plan import PatchMetadata
from argosy.workload.propagated_metadata import PropagatedMetadata
from argosy.workload.record import Record
from tests.support.workloads import NOW, TEMPLATE, pod, role, workload

KEYS = ("x/queue", "x/priority")


def job(template: dict[str, object] | None = None, **annotations: str) -> Workload:
    propagated = PropagatedMetadata(KEYS, {f"x/{name}": value for name, value in annotations.items()})
    pod_template = {**TEMPLATE, "metadata": template} if template else TEMPLATE
    return replace(workload(replace(role(replicas=1), template=pod_template)), propagated=propagated)


def marked(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> ObservedPod:
    return replace(pod(0), metadata=MetadataSubset(labels or {}, annotations or {}))


BOTH = {"x/queue": "a"}


class Case(Struct):
    job: Workload
    existing: ObservedPod
    want_labels: Mapping[str, str | None] | None = None
    want_annotations: Mapping[str, str | None] | None = None


CASES = {
    "annotation added to the job: patched": Case(job(queue="a"), marked(), BOTH, BOTH),
    "pod has the annotation: unchanged": Case(job(queue="a"), marked(BOTH, BOTH)),
    "annotation changed: patched": Case(
        job(queue="b"), marked(BOTH, BOTH), {"x/queue": "b"}, {"x/queue": "b"}
    ),
    "annotation removed from the job: removed": Case(
        job(), marked(BOTH, BOTH), {"x/queue": None}, {"x/queue": None}
    ),
    "invalid label value: annotation only": Case(
        job(queue="a b"), marked(BOTH, BOTH), {"x/queue": None}, {"x/queue": "a b"}
    ),
    "template has another value: the job's value": Case(
        job({"labels": {"x/queue": "mine"}}, queue="a"), marked({"x/queue": "mine"}), BOTH, BOTH
    ),
    "annotation removed from the job, in the template: the template's value": Case(
        job({"labels": {"x/queue": "mine"}}), marked(BOTH, BOTH), {"x/queue": "mine"}, {"x/queue": None}
    ),
    "other keys of the template: unchanged": Case(
        job({"annotations": {"x/queue": "mine"}}), marked({}, {"x/queue": "mine"})
    ),
    "terminating pod: unchanged": Case(job(queue="a"), replace(marked(), terminating=True)),
    "pod deleted in the same reconcile: unchanged": Case(job(queue="a"), replace(marked(), attempt=0)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_annotations_are_propagated_to_pods(case: Case) -> None:
    started = decide(case.job, None, Observed(pods=(pod(0),)), NOW).record
    plan = decide(case.job, started, Observed(pods=(case.existing,)), NOW)
    patches = [action for action in plan.actions if isinstance(action, PatchMetadata)]
    want = case.want_labels is not None
    assert [(action.kind, action.name, action.uid) for action in patches] == [
        (Pod, "job-worker-0", "worker-0-1-0")
    ] * want
    if want:
        assert (patches[0].labels, patches[0].annotations) == (case.want_labels, case.want_annotations)


def test_annotations_are_propagated_to_the_pod_group() -> None:
    observed = Observed(group=ObservedGroup(uid="g", metadata=MetadataSubset({}, {"x/priority": "1"})))
    plan = decide(job(queue="a"), None, observed, NOW)
    (patch,) = (action for action in plan.actions if isinstance(action, PatchMetadata))
    assert patch == PatchMetadata(GROUP.kind, "job", "g", BOTH, {"x/priority": None, "x/queue": "a"})


def test_annotations_are_propagated_to_pods_of_finished_jobs() -> None:
    ended = Record(phase_since=NOW, finished_at=NOW)
    plan = decide(job(queue="a"), ended, Observed(pods=(replace(pod(0), phase="Succeeded"),)), NOW)
    assert [action.name for action in plan.actions if isinstance(action, PatchMetadata)] == ["job-worker-0"]
    assert (plan.record.propagated_labels, plan.record.invalid_label_keys) == (BOTH, "")


def test_nothing_is_patched_without_propagated_keys() -> None:
    plan = decide(workload(), None, Observed(pods=(marked(BOTH, BOTH),)), NOW)
    assert not any(isinstance(action, PatchMetadata) for action in plan.actions)
