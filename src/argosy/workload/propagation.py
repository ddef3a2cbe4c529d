"""Propagates annotations of a job to its pods and its PodGroup, also as labels, while they exist.

The job's value overrides the template's; if the job drops the annotation, the template's value returns. Other
keys are never changed, and neither are objects that are being deleted.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from argosy.kinds.kubernetes import Pod
from argosy.kinds.pod_groups import PodGroupType
from argosy.plan.actions import Remove
from argosy.workload.gang_schedulers.registry import GANG_SCHEDULERS
from argosy.workload.model import Json, PropagatedMetadata, Workload
from argosy.workload.observed import MetadataSubset, Observed
from argosy.workload.plan import Action, DeletePod, PatchMetadata
from argosy.workload.record import Record


def sync_metadata(
    workload: Workload, observed: Observed, actions: Iterable[Action]
) -> Iterator[PatchMetadata]:
    """Corrects what is there with other values; nothing that these actions delete."""
    given = workload.propagated
    if not given.keys:
        return
    gone = {one.uid for one in actions if isinstance(one, DeletePod | Remove)}
    wanted = {name: desired_metadata(given, role.template) for name, role in workload.roles.items()}
    for pod in observed.pods:
        want = wanted.get(pod.role)
        if want is not None and pod.metadata != want and not pod.terminating and pod.uid not in gone:
            yield _metadata_patch(Pod, pod.name, pod.uid, pod.metadata, want)
    told, want = observed.group, desired_metadata(given)
    group = GANG_SCHEDULERS[told.scheduler].group if told else None
    if told is not None and group is not None and told.metadata != want and told.uid not in gone:
        yield _metadata_patch(group.kind, workload.name, told.uid, told.metadata, want)


def with_propagated_labels(workload: Workload, record: Record) -> Record:
    """The record that knows which labels the job has because of this."""
    given = workload.propagated
    unfit = ",".join(key for key in given.annotations if key not in given.labels)
    if record.propagated_labels == given.labels and record.invalid_label_keys == unfit:
        return record
    return replace(record, propagated_labels=dict(given.labels), invalid_label_keys=unfit)


def desired_metadata(given: PropagatedMetadata, template: Json | None = None) -> MetadataSubset:
    """What an object has of the keys that are handed on, made from this template if from any."""
    metadata = template.get("metadata") if template else None
    written = metadata if isinstance(metadata, Mapping) else {}
    own = [key for key in given.keys if key not in given.annotations]
    return MetadataSubset(
        {**_select(written.get("labels"), own), **given.labels},
        {**_select(written.get("annotations"), own), **given.annotations},
    )


def _select(written: object, keys: Iterable[str]) -> dict[str, str]:
    there = written if isinstance(written, Mapping) else {}
    return {key: there[key] for key in keys if isinstance(there.get(key), str)}


def _metadata_patch(
    kind: type[Pod] | PodGroupType, name: str, uid: str, there: MetadataSubset, want: MetadataSubset
) -> PatchMetadata:
    return PatchMetadata(
        kind, name, uid, _changes(there.labels, want.labels), _changes(there.annotations, want.annotations)
    )


def _changes(there: Mapping[str, str], want: Mapping[str, str]) -> dict[str, str | None]:
    gone: dict[str, str | None] = {key: None for key in there if key not in want}
    return {**gone, **{key: value for key, value in want.items() if there.get(key) != value}}
