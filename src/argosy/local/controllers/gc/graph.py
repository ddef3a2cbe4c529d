"""The graph of owners and dependents over all kinds, by uid."""

from collections.abc import Iterator

from msgspec import Struct

from argosy.kinds.meta import OwnerReference
from argosy.kinds.resource import Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class GraphObject(Struct, frozen=True):
    """The fields of an object that concern ownership."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: str = ""
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    is_deleting: bool = False

    @property
    def waits_for_dependents(self) -> bool:
        return self.is_deleting and FOREGROUND in self.finalizers

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"


class Graph:
    def __init__(self) -> None:
        self._objects: dict[str, GraphObject] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def get(self, uid: str) -> GraphObject | None:
        return self._objects.get(uid)

    def __iter__(self) -> Iterator[GraphObject]:
        return iter(tuple(self._objects.values()))

    def dependents(self, uid: str) -> list[GraphObject]:
        return [self._objects[dependent_uid] for dependent_uid in self._dependents.get(uid, ())]

    def put(self, obj: GraphObject) -> None:
        self.remove(obj.uid)
        self._objects[obj.uid] = obj
        for owner in obj.owners:
            self._dependents.setdefault(owner.uid, {})[obj.uid] = None

    def remove(self, uid: str) -> None:
        obj = self._objects.pop(uid, None)
        for owner in obj.owners if obj is not None else ():
            held = self._dependents.get(owner.uid, {})
            held.pop(uid, None)
            if not held:
                self._dependents.pop(owner.uid, None)
