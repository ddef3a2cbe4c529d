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
from argosy.workload.model import Json, Workload
from argosy.workload.observed import MetadataSubset, Observed
from argosy.workload.plan import Action, DeletePod, PatchMetadata
from argosy.workload.propagated_metadata import PropagatedMetadata
from argosy.workload.record import Record


def sync_metadata(
    workload: Workload, observed: Observed, actions: Iterable[Action]
) -> Iterator[PatchMetadata]:
    """Patch pods and the pod group whose metadata differs, except those that these actions delete."""
    propagated = workload.propagated
    if not propagated.keys:
        return
    deleted = {action.uid for action in actions if isinstance(action, DeletePod | Remove)}
    wanted = {name: desired_metadata(propagated, role.template) for name, role in workload.roles.items()}
    for pod in observed.pods:
        want = wanted.get(pod.role)
        if want is not None and pod.metadata != want and not pod.terminating and pod.uid not in deleted:
            yield _metadata_patch(Pod, pod.name, pod.uid, pod.metadata, want)
    existing, want = observed.group, desired_metadata(propagated)
    if existing is None or existing.metadata == want or existing.uid in deleted:
        return
    if group := GANG_SCHEDULERS[existing.scheduler].group:
        yield _metadata_patch(group.kind, workload.name, existing.uid, existing.metadata, want)


def with_propagated_labels(workload: Workload, record: Record) -> Record:
    """Return the record with the labels that the job has because it propagates them."""
    propagated = workload.propagated
    invalid = ",".join(key for key in propagated.annotations if key not in propagated.labels)
    if record.propagated_labels == propagated.labels and record.invalid_label_keys == invalid:
        return record
    return replace(record, propagated_labels=dict(propagated.labels), invalid_label_keys=invalid)


def desired_metadata(propagated: PropagatedMetadata, template: Json | None = None) -> MetadataSubset:
    """Return the values of the propagated keys for an object that is created from this template, if any."""
    metadata = template.get("metadata") if template else None
    written = metadata if isinstance(metadata, Mapping) else {}
    unset = [key for key in propagated.keys if key not in propagated.annotations]
    return MetadataSubset(
        {**_select(written.get("labels"), unset), **propagated.labels},
        {**_select(written.get("annotations"), unset), **propagated.annotations},
    )


def _select(values: object, keys: Iterable[str]) -> dict[str, str]:
    written = values if isinstance(values, Mapping) else {}
    return {key: written[key] for key in keys if isinstance(written.get(key), str)}


def _metadata_patch(
    kind: type[Pod] | PodGroupType, name: str, uid: str, old: MetadataSubset, new: MetadataSubset
) -> PatchMetadata:
    return PatchMetadata(
        kind, name, uid, _changes(old.labels, new.labels), _changes(old.annotations, new.annotations)
    )


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str | None]:
    removed: dict[str, str | None] = {key: None for key in old if key not in new}
    return {**removed, **{key: value for key, value in new.items() if old.get(key) != value}}
