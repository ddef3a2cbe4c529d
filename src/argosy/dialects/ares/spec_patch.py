"""Writes into an AresJob itself what its users expect to find there.

Defaults appear in the spec, annotations that are propagated to pods appear as labels too, and the finalizer
of AresOperator, which waits for nothing here, is removed.
"""

from argosy.dialects.ares import spec, validation
from argosy.dialects.ares.defaults import with_defaults
from argosy.kinds.aresjob import FINALIZER, PROPAGATED_ANNOTATIONS, AresJob, AresJobSpec
from argosy.kinds.meta import ObjectMeta
from argosy.workload.model import Json, Phase
from argosy.workload.propagated_metadata import PropagatedMetadata

_FINISHED = (Phase.SUCCEEDED.value, Phase.FAILED.value)


def spec_patch(obj: AresJob) -> Json | None:
    """Return a merge patch, or None if nothing is missing."""
    patch: dict[str, object] = {}
    metadata: dict[str, object] = {}
    if FINALIZER in obj.metadata.finalizers:
        metadata["finalizers"] = [name for name in obj.metadata.finalizers if name != FINALIZER]
    if labels := _label_patch(obj):
        metadata["labels"] = labels
    if metadata:
        patch["metadata"] = metadata
    if defaults := _default_patch(obj):
        patch["spec"] = defaults
    return patch or None


def propagated(meta: ObjectMeta) -> PropagatedMetadata:
    """Return the annotations of a job that its pods and its pod group follow."""
    annotations = meta.annotations
    return PropagatedMetadata(
        PROPAGATED_ANNOTATIONS,
        {key: annotations[key] for key in PROPAGATED_ANNOTATIONS if key in annotations},
    )


def _default_patch(obj: AresJob) -> Json:
    """Return the defaults that the stored spec of a valid job lacks; computed once per generation."""
    meta, last = obj.metadata, obj.status
    finished = last.completion_time is not None or (not last.argosy and last.phase in _FINISHED)
    if finished or meta.deletion_timestamp is not None or last.observed_generation == meta.generation:
        return {}
    written = spec.read(obj.spec)
    if not isinstance(written, AresJobSpec):
        return {}
    full = with_defaults(written)
    return {} if validation.problems(meta.name, full) else spec.additions(obj.spec, full)


def _label_patch(obj: AresJob) -> dict[str, str | None]:
    """Return labels that the job lacks, and as None those of annotations that were removed."""
    meta = obj.metadata
    if meta.deletion_timestamp is not None:
        return {}
    wanted, recorded = propagated(meta).labels, obj.status.argosy.get("propagatedLabels")
    written = recorded if isinstance(recorded, dict) else {}
    removed: dict[str, str | None] = {
        key: None for key, value in written.items() if key not in wanted and meta.labels.get(key) == value
    }
    return {**removed, **{key: value for key, value in wanted.items() if meta.labels.get(key) != value}}
