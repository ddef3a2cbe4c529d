"""Handles watches: streams of changes from a version on, as lines of JSON.

A watcher is a position in the events of its kind. Each event is encoded once per form for all watchers, and
the events that accumulate while a client is slow are sent as one chunk. A watcher whose position is no longer
in the history gets a 410 and lists again, so that a slow watcher neither uses memory nor delays others.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator

import msgspec

from argosy.local.apiserver import representations
from argosy.local.apiserver.api import Call
from argosy.local.apiserver.http import Response
from argosy.local.apiserver.negotiation import Form, wanted_form
from argosy.local.apiserver.read import check_list, parse_version
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.selection import Selection, read_selection
from argosy.local.apiserver.status import StatusError, expired
from argosy.local.apiserver.store import Collection, Event, EventType, Stored, TooOldError
from argosy.local.schema.model import Json

_BOOKMARK_SECONDS = 60.0
_LAST_BOOKMARK_SECONDS = 2.0
_TIMEOUT_SECONDS = 1800.0  # Kubernetes chooses a random one between this and its double
_BATCH_EVENTS = 500
_CACHED_LINES = 512


class Lines:
    """A cache of the newest encoded events, shared by all watchers of the server."""

    def __init__(self) -> None:
        self._lines: dict[tuple[int, EventType, str, Form, str], bytes] = {}

    def line(
        self, event_type: EventType, stored: Stored, rv: int, served: Served, form: Form, include: str
    ) -> bytes:
        """Return the line of an event; `rv` is the version of the change, maybe newer than the object."""
        key = (rv, event_type, served.api_version, form, include)
        line = self._lines.get(key)
        if line is None:
            line = event_line(event_type, _render_at_version(stored, rv, served, form, include))
            if len(self._lines) >= _CACHED_LINES:
                del self._lines[next(iter(self._lines))]
            self._lines[key] = line
        return line


def event_line(event_type: str, data: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (event_type.encode(), data)


async def watch_objects(call: Call, lines: Lines) -> Response:
    request, served = call.request, call.served
    form = wanted_form(request)
    check_list(request)
    watcher = Watcher(
        call=call,
        lines=lines,
        selection=read_selection(request, served, call.namespace, call.target.name),
        form=form,
        include=request.parameter("includeObject") or "Metadata",
        bookmarks=request.flag("allowWatchBookmarks"),
        initial=request.flag("sendInitialEvents"),
        version=parse_version(request.parameter("resourceVersion"), alone=True),
        seconds=float(request.integer("timeoutSeconds") or _TIMEOUT_SECONDS),
    )
    return Response(watcher.stream())


class Watcher(msgspec.Struct, kw_only=True, eq=False):
    call: Call
    lines: Lines
    selection: Selection
    form: Form
    include: str
    bookmarks: bool
    initial: bool
    version: int
    seconds: float
    columns_sent: bool = False

    async def stream(self) -> AsyncIterator[bytes]:
        store, served = self.call.api.store, self.call.served
        collection = store.collection(served.storage)
        loop = asyncio.get_running_loop()
        end = loop.time() + self.seconds
        yield b""  # sends the headers immediately
        sends_existing = self.initial or (
            "sendInitialEvents" not in self.call.request.query and self.version == 0
        )
        if sends_existing:
            position, shown = collection.end, store.revision
            for chunk in self._initial_events(collection):
                yield chunk
            if self.initial:
                yield self._bookmark(shown, ended=True)
        else:
            if self.version and self.version < store.compacted:
                yield _error(_too_old(self.version, store.compacted))
                return
            position = collection.position_after(self.version) if self.version else collection.end
        try:
            async for chunk in self._follow(collection, position, end):
                yield chunk
        except TooOldError:
            yield _error(expired("too old resource version: the watcher was too slow"))

    def _initial_events(self, collection: Collection) -> Iterator[bytes]:
        chunk: list[bytes] = []
        for stored in collection.listed(self.selection.namespace):
            if self.selection.matches(stored):
                chunk.append(self._line("ADDED", stored, stored.rv))
                if len(chunk) >= _BATCH_EVENTS:
                    yield b"".join(chunk)
                    chunk = []
        if chunk:
            yield b"".join(chunk)

    async def _follow(self, collection: Collection, position: int, end: float) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        store = self.call.api.store
        bookmark_at = self._next_bookmark(loop.time(), end)
        while True:
            events = collection.since(position)[:_BATCH_EVENTS]
            position += len(events)
            if chunk := b"".join([line for event in events if (line := self._line_for_watcher(event))]):
                yield chunk
            if events:
                continue
            now = loop.time()
            if now >= end:
                return
            if now >= bookmark_at:
                yield self._bookmark(store.revision)
                bookmark_at = self._next_bookmark(now, end)
                continue
            try:
                async with asyncio.timeout(min(end, bookmark_at) - now):
                    await collection.changed.wait()
            except TimeoutError:
                continue

    def _next_bookmark(self, now: float, end: float) -> float:
        """Return the time of the next bookmark: one per minute, and one shortly before the watch ends."""
        if not self.bookmarks or end - now <= _LAST_BOOKMARK_SECONDS:
            return end + 1
        return min(now + _BOOKMARK_SECONDS, end - _LAST_BOOKMARK_SECONDS)

    def _line_for_watcher(self, event: Event) -> bytes | None:
        """Return the line for this watcher: ADDED if the object starts to match, DELETED if it stops."""
        new, old = event.new, event.old
        if self.selection.namespace is not None and new.namespace != self.selection.namespace:
            return None
        was = old is not None and self.selection.matches(old)
        if event.type == "DELETED":
            # The last version may differ from the previous one in selected fields; the previous one decides.
            return self._line("DELETED", new, new.rv) if was or old is None else None
        now = self.selection.matches(new)
        if now:
            return self._line("MODIFIED" if was else "ADDED", new, new.rv)
        if was and old is not None:
            return self._line("DELETED", old, new.rv)
        return None

    def _line(self, event_type: EventType, stored: Stored, rv: int) -> bytes:
        if self.form == "table" and not self.columns_sent:
            self.columns_sent = True
            served = self.call.served
            return event_line(event_type, representations.render(stored, served, self.form, self.include))
        return self.lines.line(event_type, stored, rv, self.call.served, self.form, self.include)

    def _bookmark(self, rv: int, *, ended: bool = False) -> bytes:
        metadata: Json = {"resourceVersion": str(rv)}
        if ended:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        served = self.call.served
        obj: Json = {"kind": served.kind, "apiVersion": served.api_version, "metadata": metadata}
        mark = Stored("", "", rv, msgspec.json.encode(obj), {}, ())
        columns, self.columns_sent = not self.columns_sent, True
        return event_line(
            "BOOKMARK", representations.render(mark, served, self.form, self.include, columns=columns)
        )


def _render_at_version(stored: Stored, rv: int, served: Served, form: Form, include: str) -> bytes:
    if stored.rv != rv:
        obj = stored.decoded()
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        metadata["resourceVersion"] = str(rv)
        stored = msgspec.structs.replace(stored, rv=rv, data=msgspec.json.encode(obj))
    return representations.render(stored, served, form, include, columns=False)


def _too_old(version: int, compacted: int) -> StatusError:
    return expired(f"too old resource version: {version} ({compacted})")


def _error(error: StatusError) -> bytes:
    return event_line("ERROR", msgspec.json.encode(error.body()))
