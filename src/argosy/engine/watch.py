"""A watch that lasts: every object once, then every change, across whatever happens to the connection.

An explicit machine with three states. `Start` asks for everything, by WatchList where the server offers it
and by list otherwise. `Watching` follows changes from a version and resumes there after any break. `Waiting`
stands between an error and the next attempt. From 410 (the version is too old) the way leads back to `Start`:
`Init` opens a new picture, `InitDone` completes it, and who keeps a store swaps it then, so that nobody ever
sees half a list. Errors never come out: they are logged, counted and waited out.
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
    """A new picture begins; what follows up to `InitDone` is all there is."""


class InitApply(Struct, Generic[T], frozen=True):
    object: T


class InitDone(Struct, frozen=True):
    """The picture is complete at this version."""

    resource_version: str


class Apply(Struct, Generic[T]):
    object: T


class Delete(Struct, Generic[T]):
    object: T


class Progress(Struct, gc=False):
    """Nothing changed, and all changes up to this version have been seen."""

    resource_version: str


Event = Init | InitApply[T] | InitDone | Apply[T] | Delete[T] | Progress | Undecodable
"""`Undecodable` stands, in its place among the others, for an object that does not fit its type."""

_Batches = AsyncGenerator[Sequence[Event[T]], None]


class Start(Struct, frozen=True):
    """Nothing is known, or what is known is too old."""

    from_cache: bool = True
    """The first list may come from the server's cache; one after 410 must not go back in time."""


class Watching(Struct, frozen=True):
    resource_version: str


class Waiting(Struct, frozen=True):
    seconds: float
    then: Start | Watching


State = Start | Watching | Waiting


class WatchTimings(Struct, frozen=True):
    idle_timeout: float = 70.0
    """Without event or bookmark for this long (servers send one a minute) the peer is taken for dead."""
    initial_idle_timeout: float = 10.0
    """The same before the initial events are complete: then the server does not know WatchList."""
    server_timeout: float = 300.0
    """The server is asked to end a watch after once to twice this, so that they spread over its replicas."""
    backoff: Backoff = Backoff(initial=0.2, maximum=10.0)
    batch_window: float = 0.0
    """Seconds for which events that come one by one are let come before the next are taken: taking a few
    together costs little more than taking one."""
    min_lifetime: float = 1.0
    """A watch that brought nothing and ended within this was no success, though the server thinks so."""


class Watcher(Generic[T]):
    """Iterate over it to get `Event`s; over `batches()` to get them as they came from the socket."""

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
        """What the last attempt failed with; none while all is well."""
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
                    async with aclosing(self._guarded(self._start(from_cache))) as batches:
                        async for batch in batches:
                            yield batch
                case Watching(version):
                    async with aclosing(self._guarded(self._follow(version))) as batches:
                        async for batch in batches:
                            yield batch

    async def _guarded(self, attempt: _Batches[T]) -> _Batches[T]:
        try:
            async with aclosing(attempt):
                async for batch in attempt:
                    yield batch
        except ApiError as error:
            self._failed(error)

    def _start(self, from_cache: bool) -> _Batches[T]:
        return self._stream_all() if self._watch_list else self._list_all(from_cache)

    async def _stream_all(self) -> _Batches[T]:
        """Everything, then changes, in one watch. Ends in `Watching` whenever the initial events were all."""
        yield [Init()]
        watch = self._client.watch_batches(
            self._kind,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            send_initial_events=True,
            timeout_seconds=self._server_timeout(),
            idle_seconds=self._patience,
        )
        async with aclosing(watch):
            async for batch in watch:
                yield self._translate(batch)
                await self._gather(len(batch))
        if not isinstance(self.state, Watching):
            raise Unavailable(0, "Unfinished", "the watch ended before its initial events did")

    async def _list_all(self, from_cache: bool) -> _Batches[T]:
        yield [Init()]
        listed = await self._client.list(
            self._kind,
            self._namespace,
            labels=self._labels,
            fields=self._fields,
            resource_version="0" if from_cache else None,
        )
        for bad in listed.undecodable:
            self._warn_of(bad)
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
            idle_seconds=self._patience,
        )
        began = asyncio.get_running_loop().time()
        async with aclosing(watch):
            async for batch in watch:
                yield self._translate(batch)
                await self._gather(len(batch))
        if asyncio.get_running_loop().time() - began > self.timings.min_lifetime:
            self._well()
        elif self.state == Watching(version):
            raise Unavailable(0, "Ended", "the server ended the watch at once")

    async def _gather(self, came: int) -> None:
        if self.timings.batch_window and came < MANY and isinstance(self.state, Watching):
            await asyncio.sleep(self.timings.batch_window)

    def _server_timeout(self) -> int:
        return round(self.timings.server_timeout * (1 + self.timings.backoff.jitter()))

    def _patience(self) -> float:
        return (
            self.timings.idle_timeout
            if isinstance(self.state, Watching)
            else self.timings.initial_idle_timeout
        )

    def _translate(self, batch: Sequence[WatchEvent[T] | Bookmark | Undecodable]) -> list[Event[T]]:
        """Wire events to ours, keeping the version to resume from."""
        events: list[Event[T]] = []
        version = ""
        initial = not isinstance(self.state, Watching)
        if not initial:
            self._well()
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
                self._warn_of(event)
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

    def _well(self) -> None:
        """Changes are coming, or a watch ran its time: whatever was wrong is over."""
        self._failures = 0
        self.last_error = None

    def _failed(self, error: ApiError) -> None:
        """Where an error leads: back to the start, or on from where we were, after a while."""
        cause, then = self._next(error)
        self._client.metrics.watch_restarts.labels(self._kind.resource.kind, cause).inc()
        self._failures += 1
        if self._failures == 1 and cause in ("gone", "no-watch-list"):
            self.state = then
            return
        seconds = self.timings.backoff.delay(self._failures)
        if isinstance(error, Throttled):
            seconds = max(seconds, error.retry_after)
        self.state = Waiting(seconds, then)
        # A kind that is not installed is asked for until it is: said once, not every ten seconds.
        known = self.last_error is not None and self.last_error.reason == error.reason
        (log.debug if known else log.warning)(
            "watch broken, trying again",
            kind=self._kind.resource.kind,
            cause=cause,
            error=str(error),
            seconds=round(seconds, 1),
        )
        self.last_error = without_traceback(error)

    def _next(self, error: ApiError) -> tuple[str, Start | Watching]:
        if isinstance(self.state, Watching):
            if isinstance(error, Gone):
                return "gone", Start(from_cache=False)
            return ("idle-timeout" if error.reason == "IdleTimeout" else "error"), self.state
        # 500: a server that knows WatchList on an etcd too old for it says so only when asked.
        unknown = isinstance(error, BadRequest | Invalid | Forbidden | Gone) or error.reason == "IdleTimeout"
        unknown = unknown or error.status == 500
        if self._watch_list and unknown:
            # Not offered: answered with a refusal, or ignored and never completed. Forbidden is the answer
            # to a role that may list and not watch, too; the list then tells which it is.
            self._watch_list = False
            return "no-watch-list", Start(from_cache=False)
        return "error", Start(from_cache=False)

    def _warn_of(self, bad: Undecodable) -> None:
        kind = self._kind.resource.kind
        self._client.metrics.undecodable.labels(kind).inc()
        name = f"{bad.metadata.namespace}/{bad.metadata.name}".lstrip("/")
        log.warning(
            "object does not fit its type", kind=kind, object=name, path=bad.path, problem=bad.problem
        )


MANY = 100
"""Events that came at once: enough of them to be taken without waiting for more."""
