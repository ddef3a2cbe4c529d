"""Writes Kubernetes Events in the background, and increases the count of repeated ones.

`event` only queues the event. It never blocks and never raises, because no work may wait for, or fail from,
reporting about it. If the same event happens again, the count of the existing Event is increased; the
recorder remembers the Events of an object until the object is forgotten or the memory is full.

Namespaces take turns: a few are written at a time, each with one Event at a time, and the backlog of each is
bounded (see `event_backlog`). Events that cannot be written are dropped, counted, and logged once a minute.
"""

import asyncio
import contextvars
import secrets
from collections import OrderedDict
from typing import Literal, NamedTuple

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import ApiError, NotFound, Throttled, Unavailable
from argosy.engine.event_backlog import EventBacklog
from argosy.engine.logs import Logger
from argosy.engine.metrics import Metric
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Event
from argosy.kinds.meta import Json
from argosy.kinds.resource import Resource

log = Logger(__name__)

EventType = Literal["Normal", "Warning"]

MAX_MESSAGE_CHARS = 1024
MAX_NAME_CHARS = 230
"""Characters of the object's name in the name of an Event; a random suffix follows."""
RETRY_DELAYS = (0.5, 2.0)
"""Seconds between attempts to write an Event while the API server is unavailable."""
WRITERS = 4
"""Namespaces whose Events are written at a time."""
LOG_INTERVAL = 60.0
CLOSE_TIMEOUT = 5.0


class Recorder:
    """Records Events. It needs a running event loop from the first event on; `close` writes the backlog."""

    def __init__(
        self, client: Client, component: str, *, clock: Clock = SystemClock(), max_remembered: int = 4096
    ) -> None:
        self._client = client
        self._component = component
        self._clock = clock
        self._max_remembered = max_remembered
        self._backlog: EventBacklog[_EventKey] = EventBacklog(max_remembered, max(max_remembered // 8, 1))
        self._dropped = DroppedEvents(client.metrics.events_dropped, clock)
        self._written: OrderedDict[_EventKey, _WrittenEvent] = OrderedDict()
        self._keys_by_uid: dict[str, set[_EventKey]] = {}
        """The written events of each object that is not forgotten."""
        self._writers: set[asyncio.Task[None]] = set()

    def event(self, obj: ApiObject, type: EventType, reason: str, message: str) -> None:
        meta = obj.metadata
        key = _EventKey(
            obj.resource, meta.namespace, meta.name, meta.uid, type, reason, message[:MAX_MESSAGE_CHARS]
        )
        if dropped := self._backlog.add(key.event_namespace, key):
            self._dropped.add(key, dropped, "the backlog is full")
        self._keys_by_uid.setdefault(key.uid, set())
        if len(self._writers) < WRITERS:
            self._start_writer(key)

    def _start_writer(self, key: "_EventKey") -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            log.warning("event recorded without an event loop", reason=key.reason, message=key.message)
            return
        # An empty context: the writer outlives the current work, and writes events of other objects, too.
        writer = loop.create_task(self._write_all(), context=contextvars.Context())
        self._writers.add(writer)
        writer.add_done_callback(self._writers.discard)

    def forget(self, uid: str) -> None:
        """Forget the Events of a deleted object. Those in the backlog are still written."""
        for key in self._keys_by_uid.pop(uid, ()):
            self._written.pop(key, None)

    async def close(self) -> None:
        """Write the backlog, for at most `CLOSE_TIMEOUT` seconds."""
        if self._writers:
            await asyncio.wait(self._writers, timeout=CLOSE_TIMEOUT)
        for writer in (unfinished := tuple(self._writers)):
            writer.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)

    async def _write_all(self) -> None:
        while (taken := self._backlog.take()) is not None:
            namespace, key, count = taken
            try:
                await self._write_with_retries(key, count)
            except ApiError as error:
                self._dropped.add(key, count, str(error))
            except Exception as error:
                self._dropped.add(key, count, repr(error))
            finally:
                self._backlog.done(namespace)

    async def _write_with_retries(self, key: "_EventKey", count: int) -> None:
        for delay in RETRY_DELAYS:
            try:
                return await self._write(key, count)
            except (Unavailable, Throttled):
                await asyncio.sleep(delay)
        return await self._write(key, count)

    async def _write(self, key: "_EventKey", count: int) -> None:
        written = self._written.get(key)
        if written is not None:
            try:
                await self._increase_count(key, written, count)
                return
            except NotFound:
                # The API server deletes Events after an hour or so: create a new one.
                self._written.pop(key, None)
        await self._create(key, count)

    async def _increase_count(self, key: "_EventKey", written: "_WrittenEvent", count: int) -> None:
        patch: Json = {"count": written.count + count, "lastTimestamp": self._now()}
        await self._client.patch(Event, written.name, patch, key.event_namespace)
        written.count += count
        if key in self._written:
            self._written.move_to_end(key)

    async def _create(self, key: "_EventKey", count: int) -> None:
        name = f"{key.name[:MAX_NAME_CHARS]}.{secrets.token_hex(8)}"
        now = self._now()
        body: Json = {
            "metadata": {"name": name, "namespace": key.event_namespace},
            "involvedObject": {
                "apiVersion": key.resource.api_version,
                "kind": key.resource.kind,
                "namespace": key.namespace,
                "name": key.name,
                "uid": key.uid,
            },
            "type": key.type,
            "reason": key.reason,
            "message": key.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "count": count,
            "firstTimestamp": now,
            "lastTimestamp": now,
        }
        await self._client.create(Event, body, key.event_namespace, metadata_only=True)
        self._remember(key, _WrittenEvent(name, count))

    def _remember(self, key: "_EventKey", written: "_WrittenEvent") -> None:
        keys = self._keys_by_uid.get(key.uid)
        if keys is None:
            return
        keys.add(key)
        self._written[key] = written
        if len(self._written) > self._max_remembered:
            oldest, _ = self._written.popitem(last=False)
            remaining = self._keys_by_uid.get(oldest.uid, set())
            remaining.discard(oldest)
            if not remaining:
                self._keys_by_uid.pop(oldest.uid, None)

    def _now(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


class DroppedEvents:
    """Counts dropped events, and logs them once a minute."""

    def __init__(self, counter: Metric, clock: Clock) -> None:
        self._counter = counter
        self._clock = clock
        self._unlogged = 0
        self._next_log_at = float("-inf")

    def add(self, key: "_EventKey", count: int, error: str) -> None:
        self._counter.inc(count)
        self._unlogged += count
        if (now := self._clock.monotonic()) < self._next_log_at:
            return
        dropped, self._unlogged, self._next_log_at = self._unlogged, 0, now + LOG_INTERVAL
        log.warning(
            "events dropped", count=dropped, namespace=key.event_namespace, reason=key.reason, error=error
        )


class _EventKey(NamedTuple):
    """Two events with the same key are the same event, which happened again."""

    resource: Resource
    namespace: str
    name: str
    uid: str
    type: EventType
    reason: str
    message: str

    @property
    def event_namespace(self) -> str:
        """The namespace of the Event; Events of cluster-scoped objects are in `default`."""
        return self.namespace or "default"


class _WrittenEvent(Struct):
    name: str
    count: int
