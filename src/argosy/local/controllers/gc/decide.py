"""Decides what to do with one object: keep it, delete it, or remove references to owners. Pure.

An owner that is not in the graph may still exist: its kind may not be watched, or it may be newer than the
cache. Only an owner that was looked up in the API by uid and not found counts as absent.
"""

from collections.abc import Container

from msgspec import Struct

from argosy.kinds.meta import OwnerReference
from argosy.local.controllers.gc.graph import FOREGROUND, ORPHAN, Graph, GraphObject

Absent = Container[tuple[str, str]]
"""(owner's uid, dependent's namespace) pairs of owners that were looked up and not found."""


class LookUpOwners(Struct, frozen=True):
    """Look up whether these owners exist."""

    owners: tuple[OwnerReference, ...]


class Delete(Struct, frozen=True):
    propagation: str


class RemoveOwners(Struct, frozen=True):
    """Remove the references to these owners from these objects."""

    objects: tuple[GraphObject, ...]
    owners: frozenset[str]
    then: str = ""
    """The finalizer to remove from the object itself afterwards."""


class RemoveFinalizer(Struct, frozen=True):
    """Remove this finalizer: nothing blocks the object's deletion."""

    finalizer: str


class WaitForDependents(Struct, frozen=True):
    """The object waits for the deletion of these dependents, which must be checked."""

    dependents: tuple[GraphObject, ...]


Action = LookUpOwners | Delete | RemoveOwners | RemoveFinalizer | WaitForDependents | None


def decide(obj: GraphObject, graph: Graph, absent: Absent) -> Action:
    if obj.is_deleting:
        return _decide_deleting(obj, graph)
    if not obj.owners:
        return None
    solid, waiting, gone, unknown = [], [], [], []
    for reference in obj.owners:
        owner = graph.get(reference.uid)
        if (reference.uid, obj.namespace) in absent:
            gone.append(reference.uid)
        elif owner is None or not _can_own(owner, obj):
            unknown.append(reference)
        elif owner.waits_for_dependents:
            waiting.append(reference.uid)
        else:
            solid.append(reference.uid)
    if unknown:
        return LookUpOwners(tuple(unknown))
    if solid:
        loose = frozenset(gone + waiting)
        return RemoveOwners((obj,), loose) if loose else None
    return Delete("Foreground" if waiting and graph.dependents(obj.uid) else "Background")


def blocks_deletion(dependent: GraphObject, uid: str) -> bool:
    return any(owner.uid == uid and owner.block_owner_deletion for owner in dependent.owners)


def _decide_deleting(obj: GraphObject, graph: Graph) -> Action:
    dependents = tuple(graph.dependents(obj.uid))
    if ORPHAN in obj.finalizers:
        return RemoveOwners(dependents, frozenset({obj.uid}), then=ORPHAN)
    if FOREGROUND not in obj.finalizers:
        return None
    if any(blocks_deletion(dependent, obj.uid) for dependent in dependents):
        return WaitForDependents(dependents)
    return RemoveFinalizer(FOREGROUND)


def _can_own(owner: GraphObject, obj: GraphObject) -> bool:
    """Return False for an owner in another namespace: references do not cross namespaces."""
    return not owner.resource.namespaced or owner.namespace == obj.namespace
