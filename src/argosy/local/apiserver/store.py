"""The objects and what happened to them: memory for reads and watches, the log for durability.

A write is checked against the newest version there is, durable or not, and gets its resourceVersion at once;
readers and watchers see it only when it is durable, in the order of resourceVersions. Everything here runs on
the event loop's thread, and between `head` and `put` nothing else runs: of two writers on one version exactly
one wins, without locks. Objects are kept as encoded JSON with the little that selectors need beside it.

A watcher is only a position in a collection's events, so a slow one costs nothing and cannot hold others up:
when its position leaves the history window it is told 410.
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
    """How much history is kept: whichever is reached first."""

    events: int = 50_000
    size: int = 64 << 20
    seconds: float = 300.0


class TooOldError(Exception):
    """The version asked for has left the history."""


class Collection:
    """The committed objects of one kind, by namespace and name, and their recent events."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespaces: dict[str, dict[str, Stored]] = {}
        self.events: deque[Event] = deque()
        self.first = 0  # how many events have left the window
        self.changed = asyncio.Event()
        self.revision = 0  # of the newest change here
        self._sorted: dict[str, list[str]] = {}

    def __len__(self) -> int:
        return sum(len(objects) for objects in self.namespaces.values())

    def get(self, namespace: str, name: str) -> Stored | None:
        objects = self.namespaces.get(namespace)
        return objects.get(name) if objects else None

    def listed(self, namespace: str | None) -> list[Stored]:
        """The objects of a namespace or of all, ordered by namespace and name."""
        wanted = sorted(self.namespaces) if namespace is None else [namespace]
        found: list[Stored] = []
        for each in wanted:
            objects = self.namespaces.get(each)
            if objects:
                names = self._sorted.get(each)
                if names is None:
                    names = self._sorted[each] = sorted(objects)
                found.extend([objects[name] for name in names])
        return found

    def since(self, position: int) -> Sequence[Event]:
        """The events from an absolute position on; TooOld when some of them are gone."""
        start = position - self.first
        if start < 0:
            raise TooOldError
        count = len(self.events)
        if start >= count:
            return ()
        # A deque is quick at its ends: walk back from the newest event.
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
        """The position of the first event newer than `rv`."""
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
        self.restored = self.revision  # versions before it cannot be shown whole any more
        self._next = self.revision + 1
        self._writer: Writer | None = None
        self._rows: list[Row] = []  # of this turn of the event loop

    def start(self) -> None:
        """Begin to write; on the event loop's thread."""
        self._writer = Writer(self._log, asyncio.get_running_loop(), self._committed)

    def stop(self) -> None:
        if self._writer is not None:
            self._hand_over()
            self._writer.stop()
        self._log.close()

    def collection(self, name: str) -> Collection:
        found = self._collections.get(name)
        if found is None:
            found = self._collections[name] = Collection(name)
        return found

    def listen(self, listener: Callable[[str, Event], None]) -> None:
        """Call with every durable change, in order."""
        self._listeners.append(listener)

    def head(self, collection: str, namespace: str, name: str) -> Stored | None:
        """The newest version, durable or not: what a write must be based on."""
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
        """Write an object over its head (or as the last thing said of it); done when it is durable."""
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
        """Give the writer all rows of this turn at once: waking it costs more than a row does."""
        rows, self._rows = self._rows, []
        if rows and self._writer is not None:
            self._writer.add(rows)

    def at(self, collection: str, namespace: str | None, rv: int) -> list[Stored]:
        """The objects as they were at a version: today's, with later events taken back."""
        if rv < self.compacted or rv < self.restored:
            raise TooOldError
        there = self.collection(collection)
        undone: dict[tuple[str, str], Stored | None] = {}
        for event in reversed(there.events):
            if event.new.rv <= rv:
                break
            undone[event.new.namespace, event.new.name] = event.old
        now = there.listed(namespace)
        if not undone:
            return now
        kept = [stored for stored in now if (stored.namespace, stored.name) not in undone]
        kept += [old for old in undone.values() if old and namespace in (None, old.namespace)]
        return sorted(kept, key=lambda stored: (stored.namespace, stored.name))

    def trim(self) -> None:
        """Let what is too old, too many or too big leave the history."""
        limits, oldest = self._limits, self._clock() - self._limits.seconds
        dropped: list[int] = []
        while self._window and (
            len(self._window) > limits.events
            or self._window_bytes > limits.size
            or self._window[0][1].at < oldest
        ):
            there, event = self._window.popleft()
            there.events.popleft()
            there.first += 1
            self._window_bytes -= _weight(event)
            self.compacted = event.new.rv
            if there.get(event.new.namespace, event.new.name) is not event.new:
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
            there = self.collection(row.collection)
            self._publish(there, event)
            if event.old is not None and event.old.rv <= self.compacted:
                superseded.append(event.old.rv)
            touched.add(there)
            for listener in self._listeners:
                listener(row.collection, event)
            if not future.done():
                future.set_result(event.new)
        if superseded and self._writer is not None:
            self._writer.drop(superseded, {"compacted": self.compacted})
        for there in touched:
            there.changed.set()
            there.changed.clear()
        self.trim()

    def _publish(self, there: Collection, event: Event) -> None:
        there.apply(event)
        there.events.append(event)
        self._window.append((there, event))
        self._window_bytes += _weight(event)
        self.revision = event.new.rv

    def _give_up(self, error: Exception) -> None:
        """A commit failed: nobody's write since then may count."""
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
            there = self.collection(row.collection)
            labels, fields = msgspec.json.decode(row.selectable, type=tuple[dict[str, str], tuple[str, ...]])
            labels = {share.setdefault(k, k): share.setdefault(v, v) for k, v in labels.items()}
            fields = tuple([share.setdefault(field, field) for field in fields])
            new = Stored(
                share.setdefault(row.namespace, row.namespace), row.name, row.rv, row.data, labels, fields
            )
            old = there.get(row.namespace, row.name)
            if old is None and row.previous is not None and row.type != "ADDED":
                old_labels, old_fields = msgspec.json.decode(
                    row.previous, type=tuple[dict[str, str], tuple[str, ...]]
                )
                old = Stored(new.namespace, new.name, row.rv, row.data, old_labels, old_fields)
            event = Event(_event_type(row.type), new, old, row.at)
            if row.rv > self.compacted:
                self._publish(there, event)
            else:
                there.apply(event)
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
