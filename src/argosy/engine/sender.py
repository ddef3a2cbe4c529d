"""Sends requests with credentials, within the write limits, before the deadline, and retries safe failures.

A write is checked against the deadline right before it is sent, and times out before the deadline. Requests
that certainly were not processed are retried here: after 429, if Retry-After is short, and after 401 once,
with refreshed credentials. Callers handle all other errors.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from argosy.engine.clock import Clock
from argosy.engine.errors import ApiError, LeaseExpired, Throttled, Unauthorized, error_from_response
from argosy.engine.kubeconfig import Connection
from argosy.engine.limiter import WriteLimiter, WriteLimits
from argosy.engine.metrics import Metric, Metrics
from argosy.engine.streams import Opener, RejectedIdentity
from argosy.engine.transport import Request, Socket, Transport
from argosy.engine.urls import namespace_in

Headers = Mapping[str, str]

MAX_TRIES = 4
"""How often a throttled request is sent at most."""

MAX_RETRY_AFTER_SECONDS = 5.0
"""A longer Retry-After is raised to the caller."""


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
        self._counters: dict[tuple[str, str], Metric] = {}
        self._histograms: dict[str, Metric] = {}

    async def send(self, method: str, target: str, headers: Headers, body: bytes | None = None) -> bytes:
        """Send a request and return the body of the response; an error status is raised."""
        is_read = method in ("GET", "HEAD")
        send_once = self._read if is_read else self._write
        refreshed = False
        tries = 1
        while True:
            try:
                return await send_once(method, target, headers, body)
            except Throttled as error:
                if tries == MAX_TRIES or error.status != 429 or error.retry_after > MAX_RETRY_AFTER_SECONDS:
                    raise
                tries += 1
                if is_read:
                    await asyncio.sleep(error.retry_after)
            except RejectedIdentity as rejected:
                if refreshed or not self._credentials.refresh(rejected.identity):
                    raise rejected.error from None
                refreshed = True

    def stream(self, target: str, headers: Headers) -> Opener:
        """Return an opener of a stream, which uses the current credentials and has no timeout."""

        async def request() -> Request:
            return await self._request("GET", target, headers, None, None)

        return Opener(self._transport, request, self._credentials.refresh, self._count_stream)

    @asynccontextmanager
    async def websocket(
        self, target: str, headers: Headers, protocols: Sequence[str]
    ) -> AsyncIterator[Socket]:
        """Open a WebSocket; this counts as a write."""
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
        request.timeout = await self._write_timeout()
        return request

    async def _read(self, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
        return await self._exchange(await self._request(method, target, headers, body, self._timeout))

    async def _write(self, method: str, target: str, headers: Headers, body: bytes | None) -> bytes:
        bucket = namespace_in(target)
        started = await self._limiter.acquire(bucket)
        self._metrics.writes_in_flight.inc()
        try:
            request = await self._request(method, target, headers, body, self._timeout)
            # Last, because waiting for a slot and for credentials takes time.
            request.timeout = await self._write_timeout()
            response = await self._exchange(request)
        except Throttled as error:
            self._limiter.throttled(started, error.retry_after)
            raise
        else:
            self._limiter.succeeded()
            return response
        finally:
            self._metrics.writes_in_flight.dec()
            self._limiter.release(bucket)

    def check_lease(self) -> None:
        """Raise `LeaseExpired` if the deadline has passed."""
        if self._deadline is not None and self._deadline() <= self._clock.monotonic():
            raise LeaseExpired()

    async def _write_timeout(self) -> float:
        """Return the timeout of a write; `LeaseExpired` if the deadline has passed."""
        if self._deadline is None:
            return self._timeout
        remaining = self._deadline() - self._clock.monotonic()
        if remaining <= 0:
            await asyncio.sleep(0)  # a caller that retries in a loop must not block the event loop
            raise LeaseExpired()
        return min(remaining, self._timeout)

    async def _request(
        self, method: str, target: str, headers: Headers, body: bytes | None, timeout: float | None
    ) -> Request:
        return Request(method, target, headers, await self._credentials.current(), body, timeout)

    async def _exchange(self, request: Request) -> bytes:
        started = self._clock.monotonic()
        try:
            response = await self._transport.send(request)
        except ApiError:
            self._count(request.method, NO_RESPONSE)
            raise
        self._count(request.method, str(response.status))
        self._time(request.method, self._clock.monotonic() - started)
        if response.status >= 300:
            error = error_from_response(response.status, response.headers, response.body)
            raise RejectedIdentity(error, request.identity) if isinstance(error, Unauthorized) else error
        return response.body

    def _count_stream(self, status: int | None) -> None:
        self._count(STREAM, NO_RESPONSE if status is None else str(status))

    def _count(self, method: str, code: str) -> None:
        """Count a request. The counters are kept, because a lookup by labels costs more than counting."""
        counter = self._counters.get((method, code))
        if counter is None:
            counter = self._counters[method, code] = self._metrics.api_requests.labels(method, code)
        counter.inc()

    def _time(self, method: str, seconds: float) -> None:
        histogram = self._histograms.get(method)
        if histogram is None:
            histogram = self._histograms[method] = self._metrics.api_request_duration.labels(method)
        histogram.observe(seconds)


STREAM = "WATCH"
"""The method label of requests for streams, whose duration depends on the reader."""

NO_RESPONSE = "error"
"""The code label of requests without a response."""
