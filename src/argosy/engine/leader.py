"""Elects one leader among several processes with a Lease.

The lease avoids duplicated work; preconditions on every write keep the objects correct. A process that may
have lost its lease still must not write. `deadline()` is the time at which the last renewal was *sent* plus
the renew deadline, which is shorter than the lease. The client checks it before every write, and writes time
out before it. So a process that was suspended finds its deadline passed when it resumes.

Clocks of other machines are never compared: a lease has expired when this process has observed it unchanged
for its whole duration. The leader needs a client of its own, without the deadline and without other writes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime

from argosy.engine.backoff import Backoff
from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.dynamic import Json
from argosy.engine.errors import AlreadyExists, ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.engine.metrics import Metrics
from argosy.kinds.kubernetes import Lease, LeaseSpec

log = Logger(__name__)

NEVER = float("-inf")


class Leader:
    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        identity: str,
        *,
        duration: float = 10.0,
        renew_deadline: float = 6.0,
        retry: float = 2.0,
        clock: Clock = SystemClock(),
        metrics: Metrics | None = None,
    ) -> None:
        if not retry < renew_deadline < duration:
            raise ValueError("retry must be shorter than renew_deadline, and renew_deadline than duration")
        self.identity = identity
        self._client = client
        self._name = name
        self._namespace = namespace
        self._duration = duration
        self._renew_deadline = renew_deadline
        self._backoff = Backoff(initial=retry, maximum=retry)
        self._clock = clock
        self._gauge = (metrics or client.metrics).is_leader
        self._deadline = NEVER
        self._observed: LeaseSpec | None = None
        self._observed_at = NEVER
        self._version = ""
        self._last_contact = NEVER
        self._working = False
        self._lost_at = float("inf")
        self._unanswered = False
        """The last write of the lease did not return; it may have been done."""
        self.last_error = ""
        """Why the last attempt to read, acquire or renew the lease failed; empty after a success."""

    def deadline(self) -> float:
        """Return the monotonic time until which this process may write."""
        return self._deadline

    @property
    def is_leader(self) -> bool:
        return self._clock.monotonic() < self._deadline

    @property
    def holder(self) -> str:
        """The identity of the holder, as last observed."""
        return self._observed.holder_identity if self._observed else ""

    @property
    def seconds_since_contact(self) -> float:
        """Seconds since the API server last answered a request for the lease; infinite before that."""
        return self._clock.monotonic() - self._last_contact

    @property
    def lease_overrun(self) -> float:
        """Seconds that work has continued after the lease was lost. If it grows, the work does not stop."""
        return max(self._clock.monotonic() - self._lost_at, 0.0) if self._working else 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Compete for the lease and run `lead` while holding it.

        `lead` is started each time the lease is acquired, and cancelled when it is lost. Returns when `lead`
        returns. Cancelling this method cancels `lead`, waits for it to end, and releases the lease.
        """
        try:
            while True:
                await self._acquire()
                if await self._lead(lead):
                    return
        finally:
            await self._release()

    async def _acquire(self) -> None:
        acquired = await self._try_within(self._renew_deadline)
        while not acquired:
            await asyncio.sleep(self._backoff.delay(1))
            acquired = await self._try_within(self._renew_deadline)
        log.info("became leader", lease=self._name, identity=self.identity)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """Run `lead`; return True if it returned, False if the lease was lost."""
        self._gauge.set(1)
        self._working, self._lost_at = True, float("inf")
        work = asyncio.ensure_future(lead())
        renewing = asyncio.create_task(self._renew_loop())
        try:
            await asyncio.wait((work, renewing), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return True
            log.warning("lost the lease", lease=self._name, holder=self.holder)
            return False
        finally:
            try:
                await _cancel_and_wait(work, renewing)
            finally:
                self._gauge.set(0)
                self._working = False

    async def _renew_loop(self) -> None:
        """Renew the lease until the deadline has passed without success, or another process holds it."""
        while self.is_leader:
            await asyncio.sleep(self._backoff.delay(1))
            remaining = self._deadline - self._clock.monotonic()
            if remaining <= 0 or (
                not await self._try_within(remaining) and self.holder not in ("", self.identity)
            ):
                break
        self._lost_at = self._clock.monotonic()
        self._deadline = NEVER

    async def _try_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._try()
        except TimeoutError:
            self.last_error = "request timed out"
            log.warning("lease request timed out", lease=self._name)
        except ApiError as error:
            self.last_error = str(error)
            log.warning("cannot acquire or renew the lease", lease=self._name, error=self.last_error)
        return False

    async def _try(self) -> bool:
        """Acquire or renew the lease if it is free, expired or held by this process."""
        sent = self._clock.monotonic()
        try:
            if self.is_leader and self._version:
                self._observe(await self._patch(self._renewed_spec()))
            else:
                await self._read()
                if not self._is_available():
                    return False
                sent = self._clock.monotonic()
                self._observe(
                    await self._patch(self._acquired_spec()) if self._version else await self._create()
                )
        except (Conflict, AlreadyExists, NotFound):
            # The lease was changed or deleted between our read and our write.
            await self._read()
            return False
        self._deadline = sent + self._renew_deadline
        return True

    async def _read(self) -> None:
        try:
            self._observe(await self._client.get(Lease, self._name, self._namespace))
        except NotFound:
            self._observed, self._version = None, ""
            self._record_contact()

    def _observe(self, lease: Lease) -> None:
        if lease.spec != self._observed:
            self._observed, self._observed_at = lease.spec, self._clock.monotonic()
        self._version = lease.metadata.resource_version
        self._record_contact()

    def _record_contact(self) -> None:
        self._last_contact, self.last_error = self._clock.monotonic(), ""

    def _is_available(self) -> bool:
        if self._observed is None or self.holder in ("", self.identity):
            return True
        duration = self._observed.lease_duration_seconds or self._duration
        return self._clock.monotonic() - self._observed_at > duration

    async def _create(self) -> Lease:
        body = {"metadata": {"name": self._name}, "spec": self._acquired_spec()}
        return await self._send(self._client.create(Lease, body, self._namespace))

    async def _patch(self, spec: Json) -> Lease:
        patch = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        return await self._send(self._client.patch(Lease, self._name, patch, self._namespace))

    async def _send(self, write: Awaitable[Lease]) -> Lease:
        self._unanswered = True
        lease = await write
        self._unanswered = False
        return lease

    def _acquired_spec(self) -> Json:
        is_own = self.holder == self.identity
        before = self._observed.lease_transitions if self._observed else 0
        changes: Json = {} if is_own else {"acquireTime": _micro_time(self._clock.now())}
        transitions = before + (0 if is_own or self._observed is None else 1)
        return self._renewed_spec() | changes | {"leaseTransitions": transitions}

    def _renewed_spec(self) -> Json:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(round(self._duration), 1),
            "renewTime": _micro_time(self._clock.now()),
        }

    async def _release(self) -> None:
        """Release the lease if this process holds it, so that a standby can take over at once."""
        is_held, self._deadline = self.is_leader, NEVER
        spec: Json = {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                if self._unanswered:
                    await self._read()
                    is_held = self.holder == self.identity
                if is_held:
                    await self._patch(spec)
        except (ApiError, TimeoutError) as error:
            log.warning("cannot release the lease; it will expire", error=str(error))


RELEASE_TIMEOUT = 2.0


async def _cancel_and_wait(*tasks: "asyncio.Future[None]") -> None:
    """Cancel tasks and wait for them, even if cancelled meanwhile: no work may continue without the lease."""
    cancelled = False
    for task in tasks:
        task.cancel()
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                cancelled = True
        if not task.cancelled() and task.exception() is not None:
            log.warning("leader work ended with an error", error=repr(task.exception()))
    if cancelled:
        raise asyncio.CancelledError


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
