"""Sends requests: with credentials, within limits, never after the deadline, and again where that is safe.

A write is checked against the deadline last of all, right before it is sent, and times out before it. What
certainly was not done is tried again here: 429, after the time the server asked for if that is short, and
401, once, with credentials fetched anew. Anything else is the caller's to judge.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, LeaseExpired, Throttled, Unauthorized, error_from_response
from argosy.engine.kubeconfig import Connection
from argosy.engine.limiter import WriteLimiter, WriteLimits
from argosy.engine.metrics import Metric, Metrics
from argosy.engine.streams import Opener, Refused
from argosy.engine.transport import Request, Socket, Transport
from argosy.engine.urls import namespace_in

Headers = Mapping[str, str]

TRIES = 4
"""How often a request that was throttled is sent at most."""

PATIENCE = 5.0
"""Seconds of Retry-After that are waited out here; a longer wait is the caller's to plan."""


class Sender:
    def __init__(
        self,
        connection: Connection,
        transport: Transport,
        *,
        limits: WriteLimits,
        deadline: Callable[[], float] | None,
        timeout: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._credentials = connection.credentials
        self._transport = transport
        self._limiter = WriteLimiter(limits)
        self._deadline = deadline
        self._timeout = timeout
        self._clock = clock
        self._metrics = metrics
        self._counted: dict[tuple[str, str], Metric] = {}
        self._timed: dict[str, Metric] = {}

    async def send(self, method: str, target: str, headers: Headers, body: bytes | None = None) -> bytes:
        """The body of a successful answer; any other answer raises."""
        once = self._read if method in ("GET", "HEAD") else self._write
        refreshed = False
        tries = 1
        while True:
            try:
                return await once(method, target, headers, body)
            except Throttled as error:
                if tries == TRIES or error.status != 429 or error.retry_after > PATIENCE:
                    raise
                tries += 1
                if once == self._read:
                    await asyncio.sleep(error.retry_after)
            except Refused as refused:
                if refreshed or not self._credentials.refresh(refused.identity):
                    raise refused.error from None
                refreshed = True

    def stream(self, target: str, headers: Headers) -> Opener:
        """How a stream is opened when it is first read: with credentials of that moment, and no end."""

        async def request() -> Request:
            return await self._request("GET", target, headers, None, None)

        return Opener(self._transport, request, self._credentials.refresh, self._opened)

    @asynccontextmanager
    async def websocket(
        self, target: str, headers: Headers, protocols: Sequence[str]
    ) -> AsyncIterator[Socket]:
        """A WebSocket; opening it counts as a write."""
        async with AsyncExitStack() as stack:
            request = await self._upgrade(target, headers)
            try:
                socket = await stack.enter_async_context(self._transport.websocket(request, protocols))
            except Unauthorized:
                if not self._credentials.refresh(request.identity):
                    raise
                request = await self._upgrade(target, headers)
                socket = await stack.enter_async_context(self._transport.websocket(request, protocols))
            yield socket

    async def _upgrade(self, target: str, headers: Headers) -> Request:
        request = await self._request("GET", target, headers, None, self._timeout)
        await self._time_to_write()
        return request

    async def _read(self, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
        return await self._answered(await self._request(method, target, headers, body, self._timeout))

    async def _write(self, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
        bucket = namespace_in(target)
        started = await self._limiter.acquire(bucket)
        self._metrics.writes_in_flight.inc()
        try:
            request = await self._request(method, target, headers, body, self._timeout)
            # Only now: waiting for a place and for credentials takes time.
            request.timeout = await self._time_to_write()
            answer = await self._answered(request)
        except Throttled as error:
            self._limiter.throttled(started, error.retry_after)
            raise
        else:
            self._limiter.succeeded()
            return answer
        finally:
            self._metrics.writes_in_flight.dec()
            self._limiter.release(bucket)

    async def _time_to_write(self) -> float:
        if self._deadline is None:
            return self._timeout
        left = self._deadline() - self._clock.monotonic()
        if left <= 0:
            await asyncio.sleep(0)  # a caller that only tries again must not keep the loop from stopping it
            raise LeaseExpired()
        return min(left, self._timeout)

    async def _request(
        self, method: str, target: str, headers: Headers, body: bytes | None, timeout: float | None
    ) -> Request:
        return Request(method, target, headers, await self._credentials.current(), body, timeout)

    async def _answered(self, request: Request) -> bytes:
        before = self._clock.monotonic()
        try:
            answer = await self._transport.send(request)
        except ApiError:
            self._count(request.method, UNANSWERED)
            raise
        self._count(request.method, str(answer.status))
        self._time(request.method, self._clock.monotonic() - before)
        if answer.status >= 300:
            error = error_from_response(answer.status, answer.headers, answer.body)
            raise Refused(error, request.identity) if isinstance(error, Unauthorized) else error
        return answer.body

    def _opened(self, status: int | None) -> None:
        self._count(STREAM, UNANSWERED if status is None else str(status))

    def _count(self, verb: str, code: str) -> None:
        """Looking a metric up by its labels costs more than counting: those in use are kept."""
        counter = self._counted.get((verb, code))
        if counter is None:
            counter = self._counted[verb, code] = self._metrics.api_requests.labels(verb, code)
        counter.inc()

    def _time(self, verb: str, seconds: float) -> None:
        timed = self._timed.get(verb)
        if timed is None:
            timed = self._timed[verb] = self._metrics.api_request_duration.labels(verb)
        timed.observe(seconds)


STREAM = "WATCH"
"""What a request for a stream counts as: it is no sooner over than its reader wants."""

UNANSWERED = "error"
