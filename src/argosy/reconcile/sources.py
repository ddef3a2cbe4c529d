"""The caches that reconcilers read: children of all kinds that are owned, and objects that others may need.

Children are cached by our label alone, so that kinds which others use a lot, such as ConfigMap, cost nothing
but our own. Objects that a need may name are cached whole, with the indexes that are declared for them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar, cast

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.objects import Key
from argosy.kinds import labels
from argosy.plan.children import KubernetesObject, Owner
from argosy.plan.contract import Matching, Need, ObjectNeed, Ref
from argosy.reconcile.owners import OWNER, owner_key, owner_keys

K = TypeVar("K", bound=KubernetesObject)
Kind = type[KubernetesObject]
Index = Callable[[KubernetesObject], Iterable[str]]
"""Returns the values under which an object is filed."""


class Sources:
    """The caches of all reconcilers together: one per kind and use, shared by those who declare it."""

    def __init__(self, client: Client, namespace: str | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self.children: dict[Kind, Cache[KubernetesObject]] = {}
        self.needed: dict[Kind, Cache[KubernetesObject]] = {}
        self._indexes: dict[Kind, dict[str, Index]] = {}

    def declare(
        self, owned: Iterable[Kind], needed: Mapping[Kind, Mapping[str, Index]]
    ) -> tuple[Cache[KubernetesObject], ...]:
        """Add the caches that a reconciler reads, unless another one declared them; return all it reads."""
        children = tuple(self._children_cache(kind) for kind in owned)
        return (*children, *(self._needed_cache(kind, indexes) for kind, indexes in needed.items()))

    def _children_cache(self, kind: Kind) -> Cache[KubernetesObject]:
        if kind not in self.children:
            self.children[kind] = Cache(
                self._client,
                kind,
                namespace=self._namespace,
                labels=labels.UID,
                indexes={OWNER: owner_keys},
                name=f"{kind.resource.kind} (owned)",
            )
        return self.children[kind]

    def _needed_cache(self, kind: Kind, indexes: Mapping[str, Index]) -> Cache[KubernetesObject]:
        if kind not in self.needed:
            name = f"{kind.resource.kind} (needed)"
            self.needed[kind] = Cache(self._client, kind, namespace=self._namespace, name=name)
            self._indexes[kind] = {}
        declared = self._indexes[kind]
        for name, index in indexes.items():
            if declared.get(name, index) is not index:
                raise ValueError(f"{kind.__name__} has two different indexes of the name {name}")
            if name not in declared:
                declared[name] = index
                self.needed[kind].add_index(name, index)
        return self.needed[kind]

    def share(self, cache: Cache[K]) -> None:
        """Let needs of this kind be met by a cache that exists, instead of by another one of the same kind.

        It must hold all objects whole.
        """
        kind: Kind = cache.kind
        self.needed[kind] = cast("Cache[KubernetesObject]", cache)
        self._indexes[kind] = {}

    def shared(self, kind: type[K]) -> Cache[K] | None:
        """Return the cache of all objects of a kind; None if nobody has declared one."""
        return cast("Cache[K] | None", self.needed.get(kind))

    @property
    def caches(self) -> tuple[Cache[KubernetesObject], ...]:
        return (*self.children.values(), *self.needed.values())

    def children_of(self, owner: Owner, kinds: Iterable[Kind]) -> tuple[KubernetesObject, ...]:
        """Return the children of these kinds; what merely carries the owner's uid is none."""
        key = owner_key(owner.namespace, owner.uid)
        candidates = (child for kind in kinds for child in self.children[kind].by(OWNER, key))
        return tuple(child for child in candidates if owner.owns(child.metadata))

    def find(self, need: ObjectNeed) -> tuple[KubernetesObject, ...]:
        """Return what a need names."""
        cache = self.needed[need.kind]
        if isinstance(need, Matching):
            return cache.by(need.index, need.value)
        obj = cache.get(need.namespace, need.name)
        return (obj,) if obj is not None else ()

    def put(self, obj: KubernetesObject) -> None:
        """Take in an object that the API returned, without waiting for the watch to bring it."""
        for caches in (self.children, self.needed):
            cache = caches.get(type(obj))
            if cache is not None and (caches is self.needed or labels.UID in obj.metadata.labels):
                cache.put(obj)

    def needs_met_by(self, change: Change[KubernetesObject]) -> set[Need]:
        """Return every need that a changed object met before or meets now."""
        needs: set[Need] = set()
        for obj in (change.old, change.new):
            if obj is None:
                continue
            kind, meta = type(obj), obj.metadata
            needs.add(Ref(kind, meta.name, meta.namespace))
            for index, values in self._indexes.get(kind, {}).items():
                needs.update(Matching(kind, index, value) for value in values(obj))
        return needs


class NeedIndex:
    """Which objects named which needs in their last reconcile."""

    def __init__(self) -> None:
        self._needs: dict[Key, frozenset[Need]] = {}
        self._keys: dict[Need, set[Key]] = {}

    def replace(self, key: Key, needs: Iterable[Need]) -> None:
        """Remember the needs of an object instead of those that it named before."""
        before, after = self._needs.get(key, frozenset()), frozenset(needs)
        for need in before - after:
            self._keys[need].discard(key)
            if not self._keys[need]:
                del self._keys[need]
        for need in after - before:
            self._keys.setdefault(need, set()).add(key)
        if after:
            self._needs[key] = after
        else:
            self._needs.pop(key, None)

    def keys(self, needs: Iterable[Need]) -> set[Key]:
        """Return the objects whose last reconcile named any of these needs."""
        return {key for need in needs for key in self._keys.get(need, ())}

    def __len__(self) -> int:
        return len(self._keys)
