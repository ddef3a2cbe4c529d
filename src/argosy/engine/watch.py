"""Watches a kind with error recovery: delivers every object once, then every change.

The watcher is a state machine. `Start` fetches all objects, by WatchList if the server supports it, otherwise
by list. `Watching` follows the changes after a resourceVersion and resumes there after an error. `Waiting` is
the backoff between an error and the next attempt. After 410 (the version is too old) it returns to `Start`:
`Init` begins a new list and `InitDone` completes it, and a cache replaces its contents only then. Errors are
logged, counted and retried; they are never raised.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Generic

from msgspec import Struct

from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.codec import Bookmark, Undecodable, WatchEvent
from argosy.engine.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Gone,
    Invalid,
    Throttled,
    Unavailable,
    without_traceback,
)
from argosy.engine.logs import Logger
from argosy.engine.objects import T

log = Logger(__name__)


class Init(Struct, frozen=True):
    """A new list begins; the objects up to `InitDone` are all objects."""


class InitApply(Struct, Generic[T], frozen=True):
    """An object of the list."""

    object: T


class InitDone(Struct, frozen=True):
    """The list is complete at this version."""

    resource_version: str


class Apply(Struct, Generic[T]):
    """An object was added or modified."""

    object: T


class Delete(Struct, Generic[T]):
    """An object was deleted; this is its last version."""

    object: T


class Progress(Struct, gc=False):
    """A bookmark: all changes up to this version have been delivered."""

    resource_version: str


Event = Init | InitApply[T] | InitDone | Apply[T] | Delete[T] | Progress | Undecodable
"""`Undecodable` takes the place of an object that could not be decoded."""

_Batches = AsyncGenerator[Sequence[Event[T]], None]


class Start(Struct, frozen=True):
    """No version is known from which a watch could resume."""

    from_cache: bool = True
    """The first list may come from the server's cache. A list after 410 must not, as the cache may lag."""


class Watching(Struct, frozen=True):
    """Following the changes after a version."""

    resource_version: str


class Waiting(Struct, frozen=True):
    """In backoff after an error."""

    seconds: float
    then: Start | Watching


State = Start | Watching | Waiting


class WatchTimings(Struct, frozen=True):
    idle_timeout: float = 70.0
    """Seconds without event or bookmark until the watch is restarted; servers send a bookmark a minute."""
    initial_idle_timeout: float = 10.0
    """The same before the initial events are complete: then the server does not support WatchList."""
    server_timeout: float = 300.0
    """The server ends a watch after one to two times this, so that watches spread over its replicas."""
    backoff: Backoff = Backoff(initial=0.2, maximum=10.0)
    batch_window: float = 0.0
    """Seconds to wait between reads, so that single events are handled in batches. A batch costs little more
    than one event."""
    min_lifetime: float = 1.0
    """A watch that ended within this time without any event counts as failed."""


class Watcher(Generic[T]):
    """Iterate over it to get `Event`s, or over `batches()` to get all events of one read at a time."""

    def __init__(
        self,
        client: Client,
        kind: type[T],
        namespace: str | None = None,
        labels: str = "",
        fields: str = "",
        *,
        timings: WatchTimings = WatchTimings(),
    ) -> None:
        self.state: State = Start()
        self.last_error: ApiError | None = None
        """The error of the last attempt; None while the watch is healthy."""
        self._client = client
        self._kind = kind
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self.timings = timings
        self._watch_list = True
        self._failures = 0
        self._events = client.metrics.watch_events.labels(kind.resource.kind)

    async def __aiter__(self) -> AsyncGenerator[Event[T], None]:
        async with aclosing(self.batches()) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self) -> _Batches[T]:
        while True:
            match self.state:
                case Waiting(seconds, then):
                    await asyncio.sleep(seconds)
                    self.state = then
                case Start(from_cache):
                    async with aclosing(self._handle_errors(self._start(from_cache))) as batches:
                        async for batch in batches:
                            yield batch
                case Watching(version):
                    async with aclosing(self._handle_errors(self._follow(version))) as batches:
                        async for batch in batches:
                            yield batch

    async def _handle_errors(self, attempt: _Batches[T]) -> _Batches[T]:
        try:
            async with aclosing(attempt):
                async for batch in attempt:
                    yield batch
        except ApiError as error:
            self._handle_error(error)

    def _start(self, from_cache: bool) -> _Batches[T]:
        return self._stream_all() if self._watch_list else self._list_all(from_cache)

    async def _stream_all(self) -> _Batches[T]:
        """Fetch all objects and follow the changes in one watch (WatchList)."""
        yield [Init()]
        watch = self._client.watch_batches(
            self._kind,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            send_initial_events=True,
            timeout_seconds=self._server_timeout(),
            idle_seconds=self._idle_timeout,
        )
        async with aclosing(watch):
            async for batch in watch:
                yield self._translate(batch)
                await self._wait_for_more(len(batch))
        if not isinstance(self.state, Watching):
            raise Unavailable(0, "Incomplete", "the watch ended before its initial events were complete")

    async def _list_all(self, from_cache: bool) -> _Batches[T]:
        yield [Init()]
        listed = await self._client.list(
            self._kind,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version="0" if from_cache else None,
        )
        for undecodable in listed.undecodable:
            self._log_undecodable(undecodable)
        yield [*listed.undecodable, *(InitApply(item) for item in listed.items)]
        self.state = Watching(listed.resource_version)
        self.last_error = None
        yield [InitDone(listed.resource_version)]

    async def _follow(self, version: str) -> _Batches[T]:
        watch = self._client.watch_batches(
            self._kind,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version=version,
            timeout_seconds=self._server_timeout(),
            idle_seconds=self._idle_timeout,
        )
        started = asyncio.get_running_loop().time()
        async with aclosing(watch):
            async for batch in watch:
                yield self._translate(batch)
                await self._wait_for_more(len(batch))
        if asyncio.get_running_loop().time() - started > self.timings.min_lifetime:
            self._mark_healthy()
        elif self.state == Watching(version):
            raise Unavailable(0, "Ended", "the server ended the watch at once without events")

    async def _wait_for_more(self, received: int) -> None:
        if self.timings.batch_window and received < LARGE_BATCH and isinstance(self.state, Watching):
            await asyncio.sleep(self.timings.batch_window)

    def _server_timeout(self) -> int:
        return round(self.timings.server_timeout * (1 + self.timings.backoff.jitter()))

    def _idle_timeout(self) -> float:
        return (
            self.timings.idle_timeout
            if isinstance(self.state, Watching)
            else self.timings.initial_idle_timeout
        )

    def _translate(self, batch: Sequence[WatchEvent[T] | Bookmark | Undecodable]) -> list[Event[T]]:
        """Convert the codec's events, and remember the version from which to resume."""
        events: list[Event[T]] = []
        version = ""
        initial = not isinstance(self.state, Watching)
        if not initial:
            self._mark_healthy()
        for event in batch:
            if isinstance(event, WatchEvent):
                version = event.object.metadata.resource_version
                if event.type == "DELETED":
                    events.append(Delete(event.object))
                elif initial:
                    events.append(InitApply(event.object))
                else:
                    events.append(Apply(event.object))
            elif isinstance(event, Undecodable):
                version = event.metadata.resource_version
                self._log_undecodable(event)
                events.append(event)
            else:
                version = event.resource_version
                if initial and event.initial_events_end:
                    initial = False
                    events.append(InitDone(version))
                else:
                    events.append(Progress(version))
        if version and not initial:
            if not isinstance(self.state, Watching):
                self.last_error = None
            self.state = Watching(version)
        self._events.inc(len(batch))
        return events

    def _mark_healthy(self) -> None:
        """Reset the backoff, after an event or after a watch that lasted."""
        self._failures = 0
        self.last_error = None

    def _handle_error(self, error: ApiError) -> None:
        """Go to the state that follows an error, after the backoff."""
        reason, then = self._next(error)
        self._client.metrics.watch_restarts.labels(self._kind.resource.kind, reason).inc()
        self._failures += 1
        if self._failures == 1 and reason in ("gone", "no-watch-list"):
            self.state = then
            return
        seconds = self.timings.backoff.delay(self._failures)
        if isinstance(error, Throttled):
            seconds = max(seconds, error.retry_after)
        self.state = Waiting(seconds, then)
        # The same error again, such as for a kind that is not installed, is logged as a warning only once.
        is_repeated = self.last_error is not None and self.last_error.reason == error.reason
        (log.debug if is_repeated else log.warning)(
            "watch failed; retrying",
            kind=self._kind.resource.kind,
            reason=reason,
            error=str(error),
            seconds=round(seconds, 1),
        )
        self.last_error = without_traceback(error)

    def _next(self, error: ApiError) -> tuple[str, Start | Watching]:
        """Return the reason for the metric, and the state after an error."""
        if isinstance(self.state, Watching):
            if isinstance(error, Gone):
                return "gone", Start(from_cache=False)
            return ("idle-timeout" if error.reason == "IdleTimeout" else "error"), self.state
        # 500: the server supports WatchList, but its etcd is too old for it.
        unsupported = isinstance(error, BadRequest | Invalid | Forbidden | Gone) or error.status == 500
        if self._watch_list and (unsupported or error.reason == "IdleTimeout"):
            # The server rejected WatchList, or ignored it and never completed the initial events. Forbidden
            # may also mean a role that may list but not watch; the list shows which it is.
            self._watch_list = False
            return "no-watch-list", Start(from_cache=False)
        return "error", Start(from_cache=False)

    def _log_undecodable(self, undecodable: Undecodable) -> None:
        kind = self._kind.resource.kind
        self._client.metrics.undecodable.labels(kind).inc()
        meta = undecodable.metadata
        log.warning(
            "object cannot be decoded",
            kind=kind,
            object=f"{meta.namespace}/{meta.name}".lstrip("/"),
            path=undecodable.path,
            error=undecodable.problem,
        )


LARGE_BATCH = 100
"""After a read of at least so many events the next read is not delayed."""
