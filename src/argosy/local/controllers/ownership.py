"""Resolves which objects a controller owns, should adopt and should release (a reference manager).

An owned object whose labels no longer match is released; one without a controller is adopted by a controller
that selects it. Both are conditional on the resourceVersion, so that two controllers cannot own one object.
"""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, to_builtins

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds.meta import ObjectMeta
from argosy.local.controllers.api_types import LabelSelector
from argosy.local.scheduler.node_affinity import selects


class LabelledObject(ApiObject, Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


L = TypeVar("L", bound=LabelledObject)


class Ownership(Struct, Generic[L]):
    owned: list[L]
    to_adopt: list[L]
    to_release: list[L]


def resolve_ownership(owner: ObjectMeta, selector: LabelSelector, objects: Iterable[L]) -> Ownership[L]:
    """Sort the objects that a controller selects or owns. An owner being deleted adopts nothing."""
    result: Ownership[L] = Ownership([], [], [])
    for obj in objects:
        meta, controller = obj.metadata, obj.metadata.controller
        selected = selects(selector, meta.labels)
        if controller is not None:
            if controller.uid == owner.uid and selected:
                result.owned.append(obj)
            elif controller.uid == owner.uid and owner.deletion_timestamp is None:
                result.to_release.append(obj)
        elif selected and owner.deletion_timestamp is None and meta.deletion_timestamp is None:
            result.to_adopt.append(obj)
    return result


async def adopt(client: Client, owner: LabelledObject, obj: L) -> L | None:
    """Make `owner` the controller of an object; None if the object changed or was deleted meanwhile."""
    live = await client.get(type(owner), owner.metadata.name, owner.metadata.namespace)
    if live.metadata.uid != owner.metadata.uid or live.metadata.deletion_timestamp is not None:
        raise ApiError(409, "Conflict", f"{owner.metadata.name} has been deleted or replaced")
    return await _edit(client, obj, [*_references(obj.metadata), controller_reference(owner)])


async def release(client: Client, owner: LabelledObject, obj: L) -> L | None:
    """Remove the owner's reference; None if the object changed or was deleted meanwhile."""
    remaining = [item for item in _references(obj.metadata) if item["uid"] != owner.metadata.uid]
    return await _edit(client, obj, remaining)


def controller_reference(owner: LabelledObject) -> dict[str, object]:
    """Return the owner reference of a controller."""
    kind, meta = type(owner).resource, owner.metadata
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _references(meta: ObjectMeta) -> list[dict[str, object]]:
    return [to_builtins(reference) for reference in meta.owner_references]


async def _edit(client: Client, obj: L, references: list[dict[str, object]]) -> L | None:
    meta = obj.metadata
    fixed = {"uid": meta.uid, "resourceVersion": meta.resource_version}
    try:
        return await client.patch(
            type(obj), meta.name, {"metadata": {**fixed, "ownerReferences": references}}, meta.namespace
        )
    except (Conflict, NotFound):
        return None
