"""All objects of a kind that a selector covers, in memory, indexed, and never going back in time.

A relist replaces the contents at once when it is complete; what is missing from it is reported as deleted.
The object that our own write returned may be put in before the watch brings it: then no pass starts from a
version older than what this process itself wrote. If it was returned in brief, the watch brings the rest.
Reading is plain method calls, with no await in between. Of an object that does not fit its type the last
version that did is kept, until it is deleted.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Generic

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.codec import Undecodable
from argosy.engine.logs import Logger
from argosy.engine.objects import Key, T, key_of, version_number, version_of
from argosy.engine.watch import Apply, Delete, Event, Init, InitApply, InitDone, Watcher, WatchTimings

log = Logger(__name__)


class Change(Struct, Generic[T]):
    """What happened to one object: new (no old), changed, or gone (no new)."""

    old: T | None
    new: T | None
    own: bool = False
    """Set if the object was returned by a write of this process, so that the writer knows of it already."""


class Cache(Generic[T]):
    def __init__(
        self,
        client: Client,
        kind: type[T],
        *,
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        indexes: Mapping[str, Callable[[T], Iterable[str]]] | None = None,
        transform: Callable[[T], T] | None = None,
        timings: WatchTimings = WatchTimings(),
        name: str = "",
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self._called = name or kind.resource.kind
        """In metrics, where two caches may hold objects of one kind."""
        self.watcher = Watcher(client, kind, namespace, labels, fields, timings=timings)
        self._transform = transform
        self._objects: dict[Key, T] = {}
        self._index = _Index(indexes or {})
        self._listeners: list[Callable[[Change[T]], None]] = []
        self._undecodable: list[Callable[[Undecodable], None]] = []
        self._synced = asyncio.Event()
        self._seen = 0
        self._incoming: dict[Key, T] | None = None
        self._put_meanwhile: set[Key] = set()
        self._brief: set[Key] = set()
        """Objects of which only the metadata is there so far."""
        self._heard = float("-inf")
        self._metrics = client.metrics

    @property
    def seconds_since_event(self) -> float:
        """Seconds since the watch brought anything, or since it was begun; 0 for a cache that is not run."""
        if self._heard == float("-inf"):
            return 0.0
        return asyncio.get_running_loop().time() - self._heard

    @property
    def observed_version(self) -> int:
        """The version up to which the watch has brought all changes."""
        return self._seen

    @property
    def is_current(self) -> bool:
        """False while the watch is broken, or has been silent for longer than a living one ever is."""
        return (
            self.watcher.last_error is None and self.seconds_since_event <= self.watcher.timings.idle_timeout
        )

    @property
    def synced(self) -> bool:
        """True once the first complete picture is in."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def get(self, namespace: str, name: str) -> T | None:
        """One object; the namespace of a cluster-scoped one is empty."""
        return self._objects.get(Key(namespace, name))

    def by(self, index: str, key: str) -> tuple[T, ...]:
        """The objects that an index files under a key."""
        return tuple(map(self._objects.__getitem__, self._index.keys(index, key)))

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def subscribe(self, listener: Callable[[Change[T]], None]) -> None:
        """Call after every change, synchronously, once the cache shows it."""
        self._listeners.append(listener)

    def on_undecodable(self, listener: Callable[[Undecodable], None]) -> None:
        """Call for each version of an object that does not fit its type: somebody may tell its owner."""
        self._undecodable.append(listener)

    def put(self, obj: T, *, metadata_only: bool = False, own: bool = False) -> None:
        """What our own write returned, unless the watch already brought that version or a later one. In
        brief it is metadata alone, and the watch's own word of the same version replaces it."""
        key, version = key_of(obj), version_of(obj)
        held = self._objects.get(key)
        if held is None and version <= self._seen:
            return  # the watch is past it and has nothing here: it is deleted, or outside the selection
        if held is not None and version <= version_of(held):
            return
        if self._incoming is not None:
            self._put_meanwhile.add(key)
        self._store(key, self._trim(obj), own=own)
        if metadata_only:
            self._brief.add(key)

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        loop = asyncio.get_running_loop()
        self._heard = loop.time()
        self._show()
        async with aclosing(self.watcher.batches()) as batches:
            async for batch in batches:
                if batch and not isinstance(batch[0], Init):  # that one is our own, before the server's first
                    self._heard = loop.time()
                for event in batch:
                    self._take(event)

    def _show(self) -> None:
        kind, metrics = self._called, self._metrics
        metrics.cache_objects.labels(kind).set_function(lambda: len(self))
        metrics.cache_synced.labels(kind).set_function(lambda: float(self.synced))
        metrics.cache_seconds_since_event.labels(kind).set_function(lambda: self.seconds_since_event)

    def _take(self, event: Event[T]) -> None:
        if isinstance(event, Apply):
            obj = event.object
            version = version_of(obj)
            self._seen = max(self._seen, version)
            key = key_of(obj)
            held = self._objects.get(key)
            known = version_of(held) if held is not None else -1
            if version > known or (version == known and key in self._brief):
                self._store(key, self._trim(obj))
        elif isinstance(event, Delete):
            self._remove(key_of(event.object), version_of(event.object))
        elif isinstance(event, InitApply):
            if self._incoming is not None:
                self._incoming[key_of(event.object)] = self._trim(event.object)
        elif isinstance(event, Init):
            self._incoming = {}
            self._put_meanwhile.clear()
        elif isinstance(event, InitDone):
            self._swap(version_number(event.resource_version))
        elif isinstance(event, Undecodable):
            self._pass_over(event)
        else:
            self._seen = max(self._seen, version_number(event.resource_version))

    def _pass_over(self, bad: Undecodable) -> None:
        meta = bad.metadata
        if bad.deleted:
            self._remove(Key(meta.namespace, meta.name), version_number(meta.resource_version))
        for listener in self._undecodable:
            listener(bad)

    def _remove(self, key: Key, version: int) -> None:
        if self._incoming is not None:
            self._incoming.pop(key, None)
            return
        self._seen = max(self._seen, version)
        held = self._objects.get(key)
        if held is not None and version >= version_of(held):
            self._store(key, None)

    def _swap(self, version: int) -> None:
        incoming, self._incoming = self._incoming or {}, None
        for key in self._put_meanwhile:
            # Written by us while the list was on its way: the list may be too old to show it.
            mine = self._objects.get(key)
            if mine is not None and version_of(mine) > version:
                incoming[key] = mine
        self._brief &= self._put_meanwhile
        self._put_meanwhile.clear()
        self._seen = version
        outgoing, self._objects = self._objects, incoming
        self._index.clear()
        for key, obj in incoming.items():
            self._index.move(key, None, obj)
        self._synced.set()
        self._tell_difference(outgoing, incoming)

    def _tell_difference(self, outgoing: Mapping[Key, T], incoming: Mapping[Key, T]) -> None:
        if not self._listeners:
            return
        for key, old in outgoing.items():
            new = incoming.get(key)
            if new is None or new.metadata.uid != old.metadata.uid:
                self._tell(old, None)
        for key, obj in incoming.items():
            before = outgoing.get(key)
            if before is None or before.metadata.uid != obj.metadata.uid:
                self._tell(None, obj)
            elif before.metadata.resource_version != obj.metadata.resource_version:
                self._tell(before, obj)

    def _store(self, key: Key, obj: T | None, *, own: bool = False) -> None:
        old = self._objects.get(key)
        self._brief.discard(key)
        if obj is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        self._index.move(key, old, obj)
        self._tell(old, obj, own=own)

    def _tell(self, old: T | None, new: T | None, *, own: bool = False) -> None:
        change = Change(old, new, own)
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                log.exception("a listener failed", kind=self.kind.resource.kind)

    def _trim(self, obj: T) -> T:
        return obj if self._transform is None else self._transform(obj)


class _Index(Generic[T]):
    """Keys filed under the strings that each index function gives for an object.

    A string with a single key holds that key itself: most owners of one object cost no set of their own.
    """

    def __init__(self, functions: Mapping[str, Callable[[T], Iterable[str]]]) -> None:
        self._filed: dict[str, _Filed] = {name: {} for name in functions}
        self._parts = [(function, self._filed[name]) for name, function in functions.items()]

    def keys(self, index: str, value: str) -> Iterable[Key]:
        filed = self._filed[index].get(value, {})
        return (filed,) if isinstance(filed, Key) else filed

    def clear(self) -> None:
        for filed in self._filed.values():
            filed.clear()

    def move(self, key: Key, old: T | None, new: T | None) -> None:
        for function, filed in self._parts:
            after = () if new is None else tuple(function(new))
            if old is not None:
                before = tuple(function(old))
                if before == after:
                    continue
                for value in before:
                    _unfile(filed, value, key)
            for value in after:
                _file(filed, value, key)


_Filed = dict[str, Key | dict[Key, None]]


def _file(filed: _Filed, value: str, key: Key) -> None:
    there = filed.get(value)
    if there is None:
        filed[value] = key
    elif isinstance(there, Key):
        filed[value] = {there: None, key: None}
    else:
        there[key] = None


def _unfile(filed: _Filed, value: str, key: Key) -> None:
    there = filed.get(value)
    if isinstance(there, dict):
        there.pop(key, None)
    if there == key or not there:
        filed.pop(value, None)
