"""What to do about one object: keep it, delete it, or loosen its ties. Pure.

An owner that is not in the graph is not yet proof of anything: it may be of a kind that is not followed, or
newer than what was seen. Only an owner known to be absent, by its uid, counts as gone; who asks for that
looks it up in the API.
"""

from collections.abc import Container

from msgspec import Struct

from argosy.kinds.meta import OwnerReference
from argosy.local.controllers.gc.graph import FOREGROUND, ORPHAN, Graph, Thing

Absent = Container[tuple[str, str]]
"""(owner's uid, dependent's namespace) pairs of owners that were looked up and not found."""


class Look(Struct, frozen=True):
    """Find out whether these owners exist."""

    owners: tuple[OwnerReference, ...]


class Delete(Struct, frozen=True):
    propagation: str


class Disown(Struct, frozen=True):
    """Take references to these owners out of these objects."""

    things: tuple[Thing, ...]
    owners: frozenset[str]
    then: str = ""
    """The finalizer to take off the object itself afterwards."""


class Finish(Struct, frozen=True):
    """Take this finalizer off: nothing keeps the object any more."""

    finalizer: str


class Await(Struct, frozen=True):
    """The object waits for these to go; they are to be looked at."""

    things: tuple[Thing, ...]


Action = Look | Delete | Disown | Finish | Await | None


def decide(thing: Thing, graph: Graph, absent: Absent) -> Action:
    if thing.deleting:
        return _deleting(thing, graph)
    if not thing.owners:
        return None
    solid, waiting, gone, unknown = [], [], [], []
    for reference in thing.owners:
        owner = graph.get(reference.uid)
        if (reference.uid, thing.namespace) in absent:
            gone.append(reference.uid)
        elif owner is None or not _reachable(owner, thing):
            unknown.append(reference)
        elif owner.waits_for_dependents:
            waiting.append(reference.uid)
        else:
            solid.append(reference.uid)
    if unknown:
        return Look(tuple(unknown))
    if solid:
        loose = frozenset(gone + waiting)
        return Disown((thing,), loose) if loose else None
    return Delete("Foreground" if waiting and graph.dependents(thing.uid) else "Background")


def blocks(dependent: Thing, uid: str) -> bool:
    return any(owner.uid == uid and owner.block_owner_deletion for owner in dependent.owners)


def _deleting(thing: Thing, graph: Graph) -> Action:
    dependents = tuple(graph.dependents(thing.uid))
    if ORPHAN in thing.finalizers:
        return Disown(dependents, frozenset({thing.uid}), then=ORPHAN)
    if FOREGROUND not in thing.finalizers:
        return None
    if any(blocks(dependent, thing.uid) for dependent in dependents):
        return Await(dependents)
    return Finish(FOREGROUND)


def _reachable(owner: Thing, thing: Thing) -> bool:
    """An owner in another namespace is none: a reference has no namespace of its own."""
    return not owner.resource.namespaced or owner.namespace == thing.namespace
