"""Caches all objects of a kind that match a selector, indexed, and never moves back in time.

A relist replaces the contents at once, when it is complete; objects missing from it are reported as deleted.
The object that our own write returned may be put in before the watch delivers it, so that no reconcile starts
from a version older than this process wrote. If only its metadata was returned, the watch completes it.
Reading is a plain method call without await. If a new version of an object cannot be decoded, the last
version that could is kept until the object is deleted.
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
    """A change of one object: added (no old), modified, or deleted (no new)."""

    old: T | None
    new: T | None
    own: bool = False
    """True if this process put the object in after its own write."""


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
        """`name` is the label in metrics; it defaults to the kind, of which there may be two caches."""
        self.kind = kind
        self.namespace = namespace
        self._name = name or kind.resource.kind
        self.watcher = Watcher(client, kind, namespace, labels, fields, timings=timings)
        self._transform = transform
        self._objects: dict[Key, T] = {}
        self._index = _Index(indexes or {})
        self._listeners: list[Callable[[Change[T]], None]] = []
        self._undecodable_listeners: list[Callable[[Undecodable], None]] = []
        self._synced = asyncio.Event()
        self._observed_version = 0
        self._incoming: dict[Key, T] | None = None
        """Objects of the relist in progress."""
        self._put_during_relist: set[Key] = set()
        self._metadata_only: set[Key] = set()
        """Objects of which only the metadata is known so far."""
        self._last_event_at = float("-inf")
        self._metrics = client.metrics

    @property
    def seconds_since_event(self) -> float:
        """Seconds since the watch last received anything, or since it started; 0 if it never ran."""
        if self._last_event_at == float("-inf"):
            return 0.0
        return asyncio.get_running_loop().time() - self._last_event_at

    @property
    def observed_version(self) -> int:
        """The resourceVersion up to which the cache has received all changes."""
        return self._observed_version

    @property
    def is_current(self) -> bool:
        """False while the watch is broken, or has been idle for longer than a healthy watch ever is."""
        healthy = self.watcher.last_error is None
        return healthy and self.seconds_since_event <= self.watcher.timings.idle_timeout

    @property
    def synced(self) -> bool:
        """True once the first list is complete."""
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def get(self, namespace: str, name: str) -> T | None:
        """Return an object; the namespace of a cluster-scoped object is empty."""
        return self._objects.get(Key(namespace, name))

    def by(self, index: str, value: str) -> tuple[T, ...]:
        """Return the objects for which an index function returned this value."""
        return tuple(map(self._objects.__getitem__, self._index.keys(index, value)))

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def add_index(self, name: str, function: Callable[[T], Iterable[str]]) -> None:
        """Index the objects, also those that are cached already, by one more function."""
        self._index.add(name, function, self._objects)

    def subscribe(self, listener: Callable[[Change[T]], None]) -> None:
        """Call `listener` synchronously after each change, when the cache already shows it."""
        self._listeners.append(listener)

    def on_undecodable(self, listener: Callable[[Undecodable], None]) -> None:
        """Call `listener` for each version of an object that cannot be decoded."""
        self._undecodable_listeners.append(listener)

    def put(self, obj: T, *, metadata_only: bool = False, own: bool = False) -> None:
        """Store the object that our own write returned, unless the cache has this version or a later one.

        With `metadata_only`, the watch's event of the same version replaces it. `own` is passed to listeners.
        """
        key, version = key_of(obj), version_of(obj)
        current = self._objects.get(key)
        if current is None and version <= self._observed_version:
            return  # the watch has passed this version: the object was deleted, or is not selected
        if current is not None and version <= version_of(current):
            return
        if self._incoming is not None:
            self._put_during_relist.add(key)
        self._store(key, self._apply_transform(obj), own=own)
        if metadata_only:
            self._metadata_only.add(key)

    async def run(self) -> None:
        """Keep the cache current until cancelled."""
        loop = asyncio.get_running_loop()
        self._last_event_at = loop.time()
        self._register_metrics()
        async with aclosing(self.watcher.batches()) as batches:
            async for batch in batches:
                if batch and not isinstance(batch[0], Init):  # the watcher's own event, not the server's
                    self._last_event_at = loop.time()
                for event in batch:
                    self._handle(event)

    def _register_metrics(self) -> None:
        name, metrics = self._name, self._metrics
        metrics.cache_objects.labels(name).set_function(lambda: len(self))
        metrics.cache_synced.labels(name).set_function(lambda: float(self.synced))
        metrics.cache_seconds_since_event.labels(name).set_function(lambda: self.seconds_since_event)

    def _handle(self, event: Event[T]) -> None:
        if isinstance(event, Apply):
            obj = event.object
            version = version_of(obj)
            self._observed_version = max(self._observed_version, version)
            key = key_of(obj)
            current = self._objects.get(key)
            stored = version_of(current) if current is not None else -1
            if version > stored or (version == stored and key in self._metadata_only):
                self._store(key, self._apply_transform(obj))
        elif isinstance(event, Delete):
            self._remove(key_of(event.object), version_of(event.object))
        elif isinstance(event, InitApply):
            if self._incoming is not None:
                self._incoming[key_of(event.object)] = self._apply_transform(event.object)
        elif isinstance(event, Init):
            self._incoming = {}
            self._put_during_relist.clear()
        elif isinstance(event, InitDone):
            self._finish_relist(version_number(event.resource_version))
        elif isinstance(event, Undecodable):
            self._skip(event)
        else:
            self._observed_version = max(self._observed_version, version_number(event.resource_version))

    def _skip(self, undecodable: Undecodable) -> None:
        meta = undecodable.metadata
        if undecodable.deleted:
            self._remove(Key(meta.namespace, meta.name), version_number(meta.resource_version))
        for listener in self._undecodable_listeners:
            listener(undecodable)

    def _remove(self, key: Key, version: int) -> None:
        if self._incoming is not None:
            self._incoming.pop(key, None)
            return
        self._observed_version = max(self._observed_version, version)
        current = self._objects.get(key)
        if current is not None and version >= version_of(current):
            self._store(key, None)

    def _finish_relist(self, version: int) -> None:
        incoming, self._incoming = self._incoming or {}, None
        for key in self._put_during_relist:
            # We wrote it after the server made the list, which therefore may not have it.
            written = self._objects.get(key)
            if written is not None and version_of(written) > version:
                incoming[key] = written
        self._metadata_only &= self._put_during_relist
        self._put_during_relist.clear()
        self._observed_version = version
        outgoing, self._objects = self._objects, incoming
        self._index.clear()
        for key, obj in incoming.items():
            self._index.update(key, None, obj)
        self._synced.set()
        self._notify_differences(outgoing, incoming)

    def _notify_differences(self, outgoing: Mapping[Key, T], incoming: Mapping[Key, T]) -> None:
        if not self._listeners:
            return
        for key, old in outgoing.items():
            new = incoming.get(key)
            if new is None or new.metadata.uid != old.metadata.uid:
                self._notify(old, None)
        for key, obj in incoming.items():
            before = outgoing.get(key)
            if before is None or before.metadata.uid != obj.metadata.uid:
                self._notify(None, obj)
            elif before.metadata.resource_version != obj.metadata.resource_version:
                self._notify(before, obj)

    def _store(self, key: Key, obj: T | None, *, own: bool = False) -> None:
        old = self._objects.get(key)
        self._metadata_only.discard(key)
        if obj is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = obj
        self._index.update(key, old, obj)
        self._notify(old, obj, own=own)

    def _notify(self, old: T | None, new: T | None, *, own: bool = False) -> None:
        change = Change(old, new, own)
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                log.exception("cache listener failed", kind=self.kind.resource.kind)

    def _apply_transform(self, obj: T) -> T:
        return obj if self._transform is None else self._transform(obj)


class _Index(Generic[T]):
    """Maps each value that an index function returns to the keys of its objects.

    A value with a single key maps to the key itself: most values have one object and need no set.
    """

    def __init__(self, functions: Mapping[str, Callable[[T], Iterable[str]]]) -> None:
        self._entries: dict[str, _Entries] = {name: {} for name in functions}
        self._functions = [(function, self._entries[name]) for name, function in functions.items()]

    def add(self, name: str, function: Callable[[T], Iterable[str]], objects: Mapping[Key, T]) -> None:
        entries = self._entries[name] = {}
        self._functions.append((function, entries))
        for key, obj in objects.items():
            for value in function(obj):
                _add_entry(entries, value, key)

    def keys(self, index: str, value: str) -> Iterable[Key]:
        keys = self._entries[index].get(value, {})
        return (keys,) if isinstance(keys, Key) else keys

    def clear(self) -> None:
        for entries in self._entries.values():
            entries.clear()

    def update(self, key: Key, old: T | None, new: T | None) -> None:
        """Move a key from the values of its old object to those of its new one."""
        for function, entries in self._functions:
            after = () if new is None else tuple(function(new))
            if old is not None:
                before = tuple(function(old))
                if before == after:
                    continue
                for value in before:
                    _remove_entry(entries, value, key)
            for value in after:
                _add_entry(entries, value, key)


_Entries = dict[str, Key | dict[Key, None]]


def _add_entry(entries: _Entries, value: str, key: Key) -> None:
    existing = entries.get(value)
    if existing is None:
        entries[value] = key
    elif isinstance(existing, Key):
        entries[value] = {existing: None, key: None}
    else:
        existing[key] = None


def _remove_entry(entries: _Entries, value: str, key: Key) -> None:
    existing = entries.get(value)
    if isinstance(existing, dict):
        existing.pop(key, None)
    if existing == key or not existing:
        entries.pop(value, None)
