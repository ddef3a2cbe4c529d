"""The objects that a reconciled object owns, as data: what they contain, whose they are, and what to change.

A child is written whole: its body, the owner's labels, an ownerReference and the digest of the body.
Comparing digests tells whether an existing child is up to date; server-side apply then changes what we wrote
and keeps what others wrote.
"""

import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Protocol

import msgspec
from msgspec import Struct, field

from argosy.kinds import labels
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource

Json = Mapping[str, object]


class KubernetesObject(Protocol):
    """An object of any kind, decoded at least as far as its metadata."""

    resource: ClassVar[Resource]

    @property
    def metadata(self) -> ObjectMeta: ...


class Owner(Struct, frozen=True):
    """The object that children belong to, and the labels that each of them carries."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_object(cls, obj: KubernetesObject) -> "Owner":
        meta = obj.metadata
        return cls(obj.resource.api_version, obj.resource.kind, meta.namespace, meta.name, meta.uid)

    def owns(self, meta: ObjectMeta) -> bool:
        """Return True if the metadata names this owner as its controller, in the owner's namespace.

        Any object may carry our label or name our uid, also in another namespace: only both together, here,
        make a child. A missing label is put back; a label with another uid contradicts the ownerReference.
        """
        controller = meta.controller
        if controller is None or controller.uid != self.uid or meta.namespace != self.namespace:
            return False
        return meta.labels.get(labels.UID, self.uid) == self.uid


class Child(Struct, frozen=True, dict=True):
    """One object that the owner shall have, in the owner's namespace."""

    kind: type[KubernetesObject]
    name: str
    body: Json
    """Without ownerReferences and the labels of the owner."""
    generator: str = ""
    """The generator that adds random content when the child is created. Such a child is never changed."""
    merge: bool = False
    """What it contains is ours as a whole, lists included. While its fields stay the same, a change is one
    merge patch, instead of a server-side apply that must first claim the fields."""
    stage: int = 0
    """Children of a stage exist before those of the next are written."""
    propagated: Json = field(default_factory=dict)
    """Labels and annotations, as metadata, that are written with the body and kept up to date by other means:
    a change of them does not make the child outdated."""

    @cached_property
    def digest(self) -> str:
        """Return what the content is compared by."""
        return hashlib.sha256(msgspec.json.encode(self.body, order="sorted")).hexdigest()[:16]


def child_body(owner: Owner, child: Child, uid: str = "") -> dict[str, object]:
    """Return the whole body, to create a child or to apply to the one of this uid."""
    metadata = _mapping(child.body.get("metadata"))
    whole = {
        **metadata,
        "name": child.name,
        "namespace": owner.namespace,
        "labels": child_labels(owner, child),
        "annotations": _annotations(child),
        "ownerReferences": [owner_reference(owner)],
    }
    return {**child.body, "metadata": {**whole, "uid": uid} if uid else whole}


def child_patch(owner: Owner, child: Child, uid: str) -> dict[str, object]:
    """Return the merge patch that brings the existing child of this uid to its body."""
    labelled = {"labels": child_labels(owner, child), "annotations": _annotations(child)}
    return {**child.body, "metadata": {**labelled, "uid": uid}}


def fields_of(body: object, path: str = "") -> frozenset[str]:
    """Return the paths of all fields in a body; a list counts as one field."""
    if not isinstance(body, Mapping):
        return frozenset((path,))
    return frozenset().union(*(fields_of(value, f"{path}/{key}") for key, value in body.items()))


def child_labels(owner: Owner, child: Child) -> dict[str, object]:
    """Return all labels of a child. Its own cannot replace those that tell whose it is."""
    return {
        **_part(child, "labels"),
        labels.MANAGED_BY: labels.MANAGER,
        **owner.labels,
        labels.UID: owner.uid,
    }


def version_of(meta: ObjectMeta) -> str:
    """Return what changes when the content of the object changes: its generation, or else its version.

    Kinds without a spec, such as ConfigMap, have no generation.
    """
    return f"generation {meta.generation}" if meta.generation else meta.resource_version


def owner_reference(owner: Owner) -> dict[str, object]:
    return {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _annotations(child: Child) -> dict[str, object]:
    return {**_part(child, "annotations"), labels.DIGEST: child.digest}


def _part(child: Child, name: str) -> dict[str, object]:
    """Return the labels or the annotations of the body, with those that are propagated."""
    own = _mapping(child.body.get("metadata")).get(name)
    return {**_mapping(own), **_mapping(child.propagated.get(name))}


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
