"""Which ReplicaSet is the newest, its revision, how a new one looks, and which are forgotten. Pure.

The newest set is the one with the Deployment's template; that is how `kubectl rollout undo` finds an old set
again instead of making another.
"""

import copy
import hashlib
import json
from collections.abc import Sequence

from argosy.kinds.meta import Json, ObjectMeta
from argosy.local.controllers.deployment.rollout_state import (
    DESIRED,
    HISTORY,
    MOST,
    REVISION,
    Part,
    Parts,
    number,
    size_notes,
)
from argosy.local.controllers.kinds import LabelSelector, Template
from argosy.local.controllers.ownership import reference_to
from argosy.local.controllers.workloads import Deployment, ReplicaSet, ReplicaSetSpec

HASH = "pod-template-hash"
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OWN = frozenset({_APPLIED, REVISION, HISTORY, DESIRED, MOST, "deprecated.deployment.rollback.to"})
"""Annotations that a set does not take over from its Deployment."""
_LONGEST_HISTORY = 2000
_LONGEST_NAME = 253
_SAFE = "bcdfghjklmnpqrstvwxz2456789"
_ALL = 2147483647


def parts_of(deployment: Deployment, sets: Sequence[ReplicaSet]) -> Parts:
    """The sets of a Deployment, the newest apart from the others."""
    ordered = sorted((Part.of(each) for each in sets), key=lambda part: part.age)
    wanted = _comparable(deployment.spec.template)
    new = next((part for part in ordered if _comparable(part.set.spec.template) == wanted), None)
    return Parts(deployment, new, [part for part in ordered if part is not new])


def renew(parts: Parts, new: Part) -> None:
    """Give the newest set the annotations of its Deployment, and a revision above all others."""
    notes = parts.deployment.metadata.annotations
    new.notes |= {key: value for key, value in notes.items() if key not in _OWN}
    revision = max((part.revision for part in parts.old), default=0) + 1
    known = new.notes.get(REVISION)
    if known is not None and number(known) is None:
        return  # somebody else's: left alone
    if new.revision >= revision:
        return
    if known is not None:
        new.notes[HISTORY] = _history(new.notes.get(HISTORY, ""), known)
    new.notes[REVISION] = str(revision)


def _history(known: str, revision: str) -> str:
    revisions = [*filter(None, known.split(",")), revision]
    while len(",".join(revisions)) > _LONGEST_HISTORY:
        del revisions[0]
    return ",".join(revisions)


def add_new(parts: Parts) -> Part:
    """A set for the Deployment's template, of no size yet."""
    deployment = parts.deployment
    template = copy.deepcopy(deployment.spec.template)
    digest = template_hash(template, deployment.status.collision_count)
    metadata = template.setdefault("metadata", {})
    assert isinstance(metadata, dict)
    metadata["labels"] = labels = {**(metadata.get("labels") or {}), HASH: digest}
    selector = deployment.spec.selector
    name = deployment.metadata.name[: _LONGEST_NAME - 1 - len(digest)]
    made = ReplicaSet(
        ObjectMeta(name=f"{name}-{digest}", namespace=deployment.metadata.namespace, labels=labels),
        ReplicaSetSpec(
            replicas=0,
            min_ready_seconds=deployment.spec.min_ready_seconds,
            selector=LabelSelector({**selector.match_labels, HASH: digest}, selector.match_expressions),
            template=template,
        ),
    )
    parts.new = Part(made, 0, {}, new=True)
    renew(parts, parts.new)
    parts.new.notes |= size_notes(deployment)
    return parts.new


def body_of(part: Part, deployment: Deployment) -> Json:
    """A new set as it is created."""
    spec, selector = part.set.spec, part.set.spec.selector
    expressions = [
        {"key": each.key, "operator": each.operator, "values": each.values}
        for each in selector.match_expressions
    ]
    return {
        "metadata": {
            "name": part.name,
            "namespace": part.set.metadata.namespace,
            "labels": part.set.metadata.labels,
            "annotations": part.notes,
            "ownerReferences": [reference_to(deployment)],
        },
        "spec": {
            "replicas": part.replicas,
            "minReadySeconds": spec.min_ready_seconds,
            "selector": {"matchLabels": selector.match_labels, "matchExpressions": expressions},
            "template": spec.template,
        },
    }


def forgotten(parts: Parts) -> list[ReplicaSet]:
    """Old sets beyond the history limit that have no pods and will get none."""
    limit = parts.deployment.spec.revision_history_limit
    if limit is None or limit == _ALL:
        return []
    kept = [part for part in parts.old if part.set.metadata.deletion_timestamp is None]
    kept.sort(key=lambda part: (part.revision, part.age))
    return [
        part.set
        for part in kept[: max(len(kept) - limit, 0)]
        if not (part.set.status.replicas or part.replicas)
        and part.set.status.observed_generation >= part.set.metadata.generation
    ]


def same_template(deployment: Deployment, other: ReplicaSet) -> bool:
    return _comparable(deployment.spec.template) == _comparable(other.spec.template)


def template_hash(template: Template, collisions: int | None) -> str:
    """A short name for a template, of letters and digits that make no words."""
    content = json.dumps([_comparable(template), collisions or 0], sort_keys=True).encode()
    digest = int.from_bytes(hashlib.blake2s(content, digest_size=4).digest())
    return "".join(_SAFE[ord(character) % len(_SAFE)] for character in str(digest))


def _comparable(template: Template) -> Template:
    """The template without the label that tells sets apart, and without fields that say nothing."""
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        return template
    kept = {key: value for key, value in metadata.items() if value is not None}
    labels = kept.get("labels")
    if isinstance(labels, dict):
        kept["labels"] = {key: value for key, value in labels.items() if key != HASH}
    return {**template, "metadata": kept}
