"""Stores objects and their history: in memory for reads and watches, in the log for durability.

A write is based on the newest version, durable or not, and gets its resourceVersion immediately; readers and
watchers see it when it is durable, in the order of resourceVersions. Everything runs on the thread of the
event loop, and nothing else runs between `head` and `put`: of two writers of one version exactly one
succeeds, without locks. Objects are kept as encoded JSON together with the values that selectors need.

A watcher is only a position in the events of a collection, so that a slow one costs nothing and does not
block others; it gets a 410 when its position is no longer in the history.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from argosy.local.apiserver.group_commit import Writer
from argosy.local.apiserver.wal import Log, Row
from argosy.local.schema.model import Json

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Stored(msgspec.Struct, frozen=True, gc=False):
    """One version of an object."""

    namespace: str
    name: str
    rv: int
    data: bytes
    labels: dict[str, str]
    fields: tuple[str, ...]

    def decoded(self) -> Json:
        obj: Json = msgspec.json.decode(self.data)
        return obj


class Event(msgspec.Struct, frozen=True, gc=False):
    """A change. `old` is the version before it, None for an addition."""

    type: EventType
    new: Stored
    old: Stored | None
    at: float


class Limits(NamedTuple):
    """Limits of the history; the first one that is exceeded applies."""

    events: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0


class TooOldError(Exception):
    """The requested version is no longer in the history."""


class Collection:
    """The durable objects of one kind, by namespace and name, and their recent events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespaces: dict[str, dict[str, Stored]] = {}
        self.events: deque[Event] = deque()
        self.first = 0  # number of events that were dropped from the history
        self.changed = asyncio.Event()
        self.revision = 0  # of the newest change
        self._sorted: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return sum(len(objects) for objects in self.namespaces.values())

    def get(self, namespace: str, name: str) -> Stored | None:
        objects = self.namespaces.get(namespace)
        return objects.get(name) if objects else None

    def listed(self, namespace: str | None) -> list[Stored]:
        """Return the objects of a namespace, or of all namespaces, ordered by namespace and name."""
        result: list[Stored] = []
        for key in sorted(self.namespaces) if namespace is None else [namespace]:
            objects = self.namespaces.get(key)
            if objects:
                names = self._sorted.get(key)
                if names is None:
                    names = self._sorted[key] = sorted(objects)
                result.extend([objects[name] for name in names])
        return result

    def since(self, position: int) -> Sequence[Event]:
        """Return the events from an absolute position on; TooOldError if some of them were dropped."""
        start = position - self.first
        if start < 0:
            raise TooOldError
        count = len(self.events)
        if start >= count:
            return ()
        # A deque is fast at its ends.
        return (
            [self.events[index] for index in range(start, count)]
            if start * 2 > count
            else list(self.events)[start:]
        )

    @property
    def end(self) -> int:
        """The position after the newest event."""
        return self.first + len(self.events)

    def position_after(self, rv: int) -> int:
        """Return the position of the first event newer than `rv`."""
        back = 0
        for event in reversed(self.events):
            if event.new.rv <= rv:
                break
            back += 1
        return self.end - back

    def apply(self, event: Event) -> None:
        new = event.new
        objects = self.namespaces.setdefault(new.namespace, {})
        if event.type == "DELETED":
            objects.pop(new.name, None)
            self._sorted.pop(new.namespace, None)
            if not objects:
                del self.namespaces[new.namespace]
        else:
            if new.name not in objects:
                self._sorted.pop(new.namespace, None)
            objects[new.name] = new
        self.revision = new.rv


class Store:
    def __init__(self, path: Path, limits: Limits = Limits(), clock: Callable[[], float] = time.time) -> None:
        self._limits, self._clock = limits, clock
        self._collections: dict[str, Collection] = {}
        self._window: deque[tuple[Collection, Event]] = deque()
        self._window_bytes = 0
        self._pending: dict[tuple[str, str, str], Event] = {}
        self._waiting: dict[int, tuple[Event, asyncio.Future[Stored]]] = {}
        self._listeners: list[Callable[[str, Event], None]] = []
        self._log = Log(path)
        self.compacted = self._log.mark("compacted")
        self.revision = max(self.compacted, 1)
        self._load()
        self.restored = self.revision  # lists of older versions are not possible
        self._next = self.revision + 1
        self._writer: Writer | None = None
        self._rows: list[Row] = []  # of this iteration of the event loop

    def start(self) -> None:
        """Start the writer; on the thread of the event loop."""
        self._writer = Writer(self._log, asyncio.get_running_loop(), self._committed)

    def stop(self) -> None:
        if self._writer is not None:
            self._hand_over()
            self._writer.stop()
        self._log.close()

    def collection(self, name: str) -> Collection:
        collection = self._collections.get(name)
        if collection is None:
            collection = self._collections[name] = Collection(name)
        return collection

    def listen(self, listener: Callable[[str, Event], None]) -> None:
        """Call the listener with every durable change, in order."""
        self._listeners.append(listener)

    def head(self, collection: str, namespace: str, name: str) -> Stored | None:
        """Return the newest version, durable or not: what a write must be based on."""
        pending = self._pending.get((collection, namespace, name))
        if pending is not None:
            return None if pending.type == "DELETED" else pending.new
        return self.collection(collection).get(namespace, name)

    def put(
        self,
        collection: str,
        obj: Json,
        labels: dict[str, str],
        fields: tuple[str, ...],
        *,
        delete: bool = False,
    ) -> "asyncio.Future[Stored]":
        """Write the next version of an object, or its last one; the result is set when it is durable."""
        assert self._writer is not None
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        namespace, name = metadata.get("namespace", ""), metadata["name"]
        rv, self._next = self._next, self._next + 1
        metadata["resourceVersion"] = str(rv)
        old = self.head(collection, namespace, name)
        new = Stored(namespace, name, rv, msgspec.json.encode(obj), labels, fields)
        event = Event("DELETED" if delete else "MODIFIED" if old else "ADDED", new, old, self._clock())
        self._pending[collection, namespace, name] = event
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Stored] = loop.create_future()
        self._waiting[rv] = (event, future)
        previous = msgspec.json.encode((old.labels, old.fields)) if old else None
        selectable = msgspec.json.encode((labels, fields))
        if not self._rows:
            loop.call_soon(self._hand_over)
        self._rows.append(
            Row(rv, collection, namespace, name, event.type, event.at, selectable, previous, new.data)
        )
        return future

    def _hand_over(self) -> None:
        """Give the writer all rows of this iteration at once: waking it costs more than a row does."""
        rows, self._rows = self._rows, []
        if rows and self._writer is not None:
            self._writer.add(rows)

    def at(self, collection: str, namespace: str | None, rv: int) -> list[Stored]:
        """Return the objects as of a version: the current ones, with later events undone."""
        if rv < self.compacted or rv < self.restored:
            raise TooOldError
        target = self.collection(collection)
        undone: dict[tuple[str, str], Stored | None] = {}
        for event in reversed(target.events):
            if event.new.rv <= rv:
                break
            undone[event.new.namespace, event.new.name] = event.old
        now = target.listed(namespace)
        if not undone:
            return now
        kept = [stored for stored in now if (stored.namespace, stored.name) not in undone]
        kept += [old for old in undone.values() if old and namespace in (None, old.namespace)]
        return sorted(kept, key=lambda stored: (stored.namespace, stored.name))

    def trim(self) -> None:
        """Drop the oldest events until the history is within its limits."""
        limits, oldest = self._limits, self._clock() - self._limits.seconds
        dropped: list[int] = []
        while self._window and (
            len(self._window) > limits.events
            or self._window_bytes > limits.size
            or self._window[0][1].at < oldest
        ):
            target, event = self._window.popleft()
            target.events.popleft()
            target.first += 1
            self._window_bytes -= _weight(event)
            self.compacted = event.new.rv
            if target.get(event.new.namespace, event.new.name) is not event.new:
                dropped.append(event.new.rv)
        if dropped and self._writer is not None:
            self._writer.drop(dropped, {"compacted": self.compacted})

    def _committed(self, rows: Sequence[Row], error: Exception | None) -> None:
        if error is not None:
            self._give_up(error)
            return
        touched: set[Collection] = set()
        superseded: list[int] = []
        for row in rows:
            event, future = self._waiting.pop(row.rv)
            key = (row.collection, row.namespace, row.name)
            if self._pending.get(key) is event:
                del self._pending[key]
            target = self.collection(row.collection)
            self._publish(target, event)
            if event.old is not None and event.old.rv <= self.compacted:
                superseded.append(event.old.rv)
            touched.add(target)
            for listener in self._listeners:
                listener(row.collection, event)
            if not future.done():
                future.set_result(event.new)
        if superseded and self._writer is not None:
            self._writer.drop(superseded, {"compacted": self.compacted})
        for target in touched:
            target.changed.set()
            target.changed.clear()
        self.trim()

    def _publish(self, target: Collection, event: Event) -> None:
        target.apply(event)
        target.events.append(event)
        self._window.append((target, event))
        self._window_bytes += _weight(event)
        self.revision = event.new.rv

    def _give_up(self, error: Exception) -> None:
        """Fail all writes that are not durable, because a commit failed."""
        waiting = [future for _, future in self._waiting.values()]
        self._waiting.clear()
        self._pending.clear()
        self._rows.clear()
        assert self._writer is not None
        self._writer.discard()
        for future in waiting:
            if not future.done():
                future.set_exception(NotDurableError(str(error)))

    def _load(self) -> None:
        share: dict[str, str] = {}
        for row in self._log.rows():
            target = self.collection(row.collection)
            labels, fields = msgspec.json.decode(row.selectable, type=tuple[dict[str, str], tuple[str, ...]])
            labels = {share.setdefault(k, k): share.setdefault(v, v) for k, v in labels.items()}
            fields = tuple([share.setdefault(field, field) for field in fields])
            new = Stored(
                share.setdefault(row.namespace, row.namespace), row.name, row.rv, row.data, labels, fields
            )
            old = target.get(row.namespace, row.name)
            if old is None and row.previous is not None and row.type != "ADDED":
                old_labels, old_fields = msgspec.json.decode(
                    row.previous, type=tuple[dict[str, str], tuple[str, ...]]
                )
                old = Stored(new.namespace, new.name, row.rv, row.data, old_labels, old_fields)
            event = Event(_event_type(row.type), new, old, row.at)
            if row.rv > self.compacted:
                self._publish(target, event)
            else:
                target.apply(event)
            self.revision = max(self.revision, row.rv)


class NotDurableError(Exception):
    """The write could not be made durable and did not happen."""


def _weight(event: Event) -> int:
    return len(event.new.data) + (len(event.old.data) if event.old else 0)


def _event_type(name: str) -> EventType:
    match name:
        case "ADDED" | "MODIFIED" | "DELETED":
            return name
    raise ValueError(f"unknown event type {name!r} in the log")
