"""Who owns whom, over all kinds, by uid."""

from collections.abc import Iterator

from msgspec import Struct

from argosy.kinds.meta import OwnerReference
from argosy.kinds.resource import Resource

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Thing(Struct, frozen=True):
    """One object, as far as ownership goes."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    version: str = ""
    owners: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()
    deleting: bool = False

    @property
    def waits_for_dependents(self) -> bool:
        return self.deleting and FOREGROUND in self.finalizers

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.namespace}/{self.name}"


class Graph:
    def __init__(self) -> None:
        self._things: dict[str, Thing] = {}
        self._dependents: dict[str, dict[str, None]] = {}

    def get(self, uid: str) -> Thing | None:
        return self._things.get(uid)

    def __iter__(self) -> Iterator[Thing]:
        return iter(tuple(self._things.values()))

    def dependents(self, uid: str) -> list[Thing]:
        return [self._things[each] for each in self._dependents.get(uid, ())]

    def put(self, thing: Thing) -> None:
        self.remove(thing.uid)
        self._things[thing.uid] = thing
        for owner in thing.owners:
            self._dependents.setdefault(owner.uid, {})[thing.uid] = None

    def remove(self, uid: str) -> None:
        thing = self._things.pop(uid, None)
        for owner in thing.owners if thing is not None else ():
            held = self._dependents.get(owner.uid, {})
            held.pop(uid, None)
            if not held:
                self._dependents.pop(owner.uid, None)
