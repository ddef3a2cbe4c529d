"""Kubernetes Events, written in the background and counted up instead of repeated.

`event` only notes what happened; it never blocks and never raises, because nothing that is worth doing may
wait for, or fail from, telling about it. The same thing happening again to the same object becomes a higher
count on the Event that is there. What was said about an object is remembered until the object is forgotten,
or until there is too much to remember.

Namespaces take turns, a few of them at a time and each with one Event at a time, and there is a bound on what
may wait for each (see `pending`). What cannot be written is dropped and counted, and logged once a
minute.
"""

import asyncio
import contextvars
import secrets
from collections import OrderedDict
from typing import Literal, NamedTuple

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.dynamic import Json
from argosy.engine.errors import ApiError, NotFound, Throttled, Unavailable
from argosy.engine.event_backlog import EventBacklog
from argosy.engine.logs import Logger
from argosy.engine.metrics import Metric
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Event
from argosy.kinds.resource import Resource

log = Logger(__name__)

EventType = Literal["Normal", "Warning"]


class Recorder:
    """Needs a running loop from the first event on; `close` writes what is left."""

    def __init__(
        self, client: Client, component: str, *, clock: Clock = SystemClock(), remember: int = 4096
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._remember = remember
        self._pending: EventBacklog[_What] = EventBacklog(remember, max(remember // 8, 1))
        self._dropped = Dropped(client.metrics.events_dropped, clock)
        self._written: OrderedDict[_What, _Written] = OrderedDict()
        self._of: dict[str, set[_What]] = {}
        """What is remembered of each object that is not forgotten, by uid."""
        self._writers: set[asyncio.Task[None]] = set()

    def event(self, obj: ApiObject, type: EventType, reason: str, message: str) -> None:
        meta = obj.metadata
        what = _What(obj.resource, meta.namespace, meta.name, meta.uid, type, reason, message[:MESSAGE_LIMIT])
        if dropped := self._pending.add(what.home, what):
            self._dropped.note(what, dropped, "too many wait")
        self._of.setdefault(what.uid, set())
        if len(self._writers) < WRITERS:
            self._start_writer(what)

    def _start_writer(self, what: "_What") -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            log.warning("an event outside of the event loop", reason=what.reason, message=what.message)
            return
        # It outlives the work that said something first, and speaks for others too.
        writer = loop.create_task(self._write_all(), context=contextvars.Context())
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

    def forget(self, uid: str) -> None:
        """The object is gone. What was noted about it is still written, and not remembered."""
        for what in self._of.pop(uid, ()):
            self._written.pop(what, None)

    async def close(self) -> None:
        """Write what is noted, for a few seconds at most."""
        if self._writers:
            await asyncio.wait(self._writers, timeout=CLOSE_TIMEOUT)
        for writer in (left := tuple(self._writers)):
            writer.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _write_all(self) -> None:
        while (taken := self._pending.take()) is not None:
            namespace, what, count = taken
            try:
                await self._write_patiently(what, count)
            except ApiError as error:
                self._dropped.note(what, count, str(error))
            except Exception as error:
                self._dropped.note(what, count, repr(error))
            finally:
                self._pending.done(namespace)

    async def _write_patiently(self, what: "_What", count: int) -> None:
        """The API server may be away for a moment; after a few tries the event is not worth more."""
        for pause in PAUSES:
            try:
                return await self._write(what, count)
            except (Unavailable, Throttled):
                await asyncio.sleep(pause)
        return await self._write(what, count)

    async def _write(self, what: "_What", count: int) -> None:
        known = self._written.get(what)
        if known is not None:
            try:
                await self._bump(what, known, count)
                return
            except NotFound:
                # Events are deleted after an hour or so; the next one begins anew.
                self._written.pop(what, None)
        await self._create(what, count)

    async def _bump(self, what: "_What", known: "_Written", count: int) -> None:
        patch: Json = {"count": known.count + count, "lastTimestamp": self._now()}
        await self._client.patch(Event, known.name, patch, what.home)
        known.count += count
        if what in self._written:
            self._written.move_to_end(what)

    async def _create(self, what: "_What", count: int) -> None:
        name = f"{what.name[:NAME_LIMIT]}.{secrets.token_hex(8)}"
        now = self._now()
        body: Json = {
            "metadata": {"name": name, "namespace": what.home},
            "involvedObject": {
                "apiVersion": what.resource.api_version,
                "kind": what.resource.kind,
                "namespace": what.namespace,
                "name": what.name,
                "uid": what.uid,
            },
            "type": what.type,
            "reason": what.reason,
            "message": what.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        await self._client.create(Event, body, what.home, metadata_only=True)
        self._keep(what, _Written(name, count))

    def _keep(self, what: "_What", written: "_Written") -> None:
        known = self._of.get(what.uid)
        if known is None:
            return
        known.add(what)
        self._written[what] = written
        if len(self._written) > self._remember:
            oldest, _ = self._written.popitem(last=False)
            left = self._of.get(oldest.uid, set())
            left.discard(oldest)
            if not left:
                self._of.pop(oldest.uid, None)

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


class Dropped:
    """Counts events that nobody will see, and tells of them in the log once in a while."""

    def __init__(self, counter: Metric, clock: Clock) -> None:
        self._counter = counter
        self._clock = clock
        self._unlogged = 0
        self._next_line = float("-inf")

    def note(self, what: "_What", count: int, error: str) -> None:
        self._counter.inc(count)
        self._unlogged += count
        if (now := self._clock.monotonic()) < self._next_line:
            return
        dropped, self._unlogged, self._next_line = self._unlogged, 0, now + LINE_EVERY
        log.warning("events were dropped", count=dropped, of=what.home, reason=what.reason, error=error)


class _What(NamedTuple):
    """What makes two events the same."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    type: EventType
    reason: str
    message: str

    @property
    def home(self) -> str:
        return self.namespace or "default"


class _Written(Struct):
    name: str
    count: int


MESSAGE_LIMIT = 1024
NAME_LIMIT = 230
PAUSES = (0.5, 2.0)
WRITERS = 4
"""Namespaces whose events are written at a time."""
LINE_EVERY = 60.0
CLOSE_TIMEOUT = 5.0
