"""Finds or builds the new ReplicaSet, numbers revisions, and selects old ReplicaSets to delete. Pure.

The new ReplicaSet is the one with the Deployment's template: `kubectl rollout undo` therefore reuses an old
one instead of creating another.
"""

import copy
import hashlib
import json
from collections.abc import Sequence

from argosy.kinds.meta import Json, ObjectMeta
from argosy.local.controllers.api_types import LabelSelector, Template
from argosy.local.controllers.deployment.rollout_state import (
    DESIRED_ANNOTATION,
    HISTORY_ANNOTATION,
    MAX_ANNOTATION,
    REVISION_ANNOTATION,
    RolloutState,
    SetState,
    parse_number,
    size_annotations,
)
from argosy.local.controllers.ownership import controller_reference
from argosy.local.controllers.workloads import Deployment, ReplicaSet, ReplicaSetSpec

HASH_LABEL = "pod-template-hash"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NOT_COPIED = frozenset(
    {
        _APPLIED,
        REVISION_ANNOTATION,
        HISTORY_ANNOTATION,
        DESIRED_ANNOTATION,
        MAX_ANNOTATION,
        "deprecated.deployment.rollback.to",
    }
)
"""Annotations that a set does not take over from its Deployment."""
_MAX_HISTORY_CHARS = 2000
_MAX_NAME_CHARS = 253
_HASH_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_UNLIMITED = 2147483647


def rollout_state_of(deployment: Deployment, replica_sets: Sequence[ReplicaSet]) -> RolloutState:
    """Split a Deployment's ReplicaSets into the new one and the old ones."""
    ordered = sorted(
        (SetState.of(replica_set) for replica_set in replica_sets), key=lambda set_state: set_state.age
    )
    wanted = _comparable(deployment.spec.template)
    new = next(
        (set_state for set_state in ordered if _comparable(set_state.replica_set.spec.template) == wanted),
        None,
    )
    return RolloutState(deployment, new, [set_state for set_state in ordered if set_state is not new])


def update_new_set(rollout: RolloutState, new: SetState) -> None:
    """Copy the Deployment's annotations to the new ReplicaSet, and give it the highest revision."""
    notes = rollout.deployment.metadata.annotations
    new.annotations |= {key: value for key, value in notes.items() if key not in _NOT_COPIED}
    revision = max((set_state.revision for set_state in rollout.old), default=0) + 1
    existing = new.annotations.get(REVISION_ANNOTATION)
    if existing is not None and parse_number(existing) is None:
        return  # not a number, so not ours: left alone
    if new.revision >= revision:
        return
    if existing is not None:
        new.annotations[HISTORY_ANNOTATION] = _append_history(
            new.annotations.get(HISTORY_ANNOTATION, ""), existing
        )
    new.annotations[REVISION_ANNOTATION] = str(revision)


def _append_history(existing: str, revision: str) -> str:
    revisions = [*filter(None, existing.split(",")), revision]
    while len(",".join(revisions)) > _MAX_HISTORY_CHARS:
        del revisions[0]
    return ",".join(revisions)


def add_new_set(rollout: RolloutState) -> SetState:
    """Add a ReplicaSet of size 0 for the Deployment's template."""
    deployment = rollout.deployment
    template = copy.deepcopy(deployment.spec.template)
    digest = template_hash(template, deployment.status.collision_count)
    metadata = template.setdefault("metadata", {})
    assert isinstance(metadata, dict)
    metadata["labels"] = labels = {**(metadata.get("labels") or {}), HASH_LABEL: digest}
    selector = deployment.spec.selector
    name = deployment.metadata.name[: _MAX_NAME_CHARS - 1 - len(digest)]
    replica_set = ReplicaSet(
        ObjectMeta(name=f"{name}-{digest}", namespace=deployment.metadata.namespace, labels=labels),
        ReplicaSetSpec(
            replicas=0,
            min_ready_seconds=deployment.spec.min_ready_seconds,
            selector=LabelSelector({**selector.match_labels, HASH_LABEL: digest}, selector.match_expressions),
            template=template,
        ),
    )
    rollout.new = SetState(replica_set, 0, {}, is_new=True)
    update_new_set(rollout, rollout.new)
    rollout.new.annotations |= size_annotations(deployment)
    return rollout.new


def replica_set_body(set_state: SetState, deployment: Deployment) -> Json:
    """Return the body with which a new ReplicaSet is created."""
    spec, selector = set_state.replica_set.spec, set_state.replica_set.spec.selector
    expressions = [
        {"key": replica_set.key, "operator": replica_set.operator, "values": replica_set.values}
        for replica_set in selector.match_expressions
    ]
    return {
        "metadata": {
            "name": set_state.name,
            "namespace": set_state.replica_set.metadata.namespace,
            "labels": set_state.replica_set.metadata.labels,
            "annotations": set_state.annotations,
            "ownerReferences": [controller_reference(deployment)],
        },
        "spec": {
            "replicas": set_state.replicas,
            "minReadySeconds": spec.min_ready_seconds,
            "selector": {"matchLabels": selector.match_labels, "matchExpressions": expressions},
            "template": spec.template,
        },
    }


def sets_beyond_history(rollout: RolloutState) -> list[ReplicaSet]:
    """Return old ReplicaSets beyond revisionHistoryLimit that have no pods and will get none."""
    limit = rollout.deployment.spec.revision_history_limit
    if limit is None or limit == _UNLIMITED:
        return []
    kept = [
        set_state for set_state in rollout.old if set_state.replica_set.metadata.deletion_timestamp is None
    ]
    kept.sort(key=lambda set_state: (set_state.revision, set_state.age))
    return [
        set_state.replica_set
        for set_state in kept[: max(len(kept) - limit, 0)]
        if not (set_state.replica_set.status.replicas or set_state.replicas)
        and set_state.replica_set.status.observed_generation >= set_state.replica_set.metadata.generation
    ]


def has_same_template(deployment: Deployment, other: ReplicaSet) -> bool:
    return _comparable(deployment.spec.template) == _comparable(other.spec.template)


def template_hash(template: Template, collisions: int | None) -> str:
    """Hash a template to a short name of letters and digits that form no words."""
    content = json.dumps([_comparable(template), collisions or 0], sort_keys=True).encode()
    digest = int.from_bytes(hashlib.blake2s(content, digest_size=4).digest())
    return "".join(_HASH_ALPHABET[ord(character) % len(_HASH_ALPHABET)] for character in str(digest))


def _comparable(template: Template) -> Template:
    """Return the template without the hash label and without null fields."""
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        return template
    kept = {key: value for key, value in metadata.items() if value is not None}
    labels = kept.get("labels")
    if isinstance(labels, dict):
        kept["labels"] = {key: value for key, value in labels.items() if key != HASH_LABEL}
    return {**template, "metadata": kept}
