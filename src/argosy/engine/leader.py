"""One process works, the others stand by: a Lease says which.

The lease avoids doubled work; safety comes from preconditions on every write. Still, a process that may have
lost its lease must not write: `deadline()` is when the last renewal was *sent* plus the renew deadline, which
is shorter than the lease, and the client checks it before every write and times out before it. A process that
was stopped for a while therefore finds its deadline passed when it wakes, whatever it was about to do.

Clocks of other machines are never compared: a lease is over when this process has watched it unchanged for
its whole duration. Give the leader a client of its own, without the deadline and without other writes.
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
            raise ValueError("retry must be shorter than the renew deadline, and that than the lease")
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
        self._seen: LeaseSpec | None = None
        self._seen_at = NEVER
        self._version = ""
        self._heard = NEVER
        self._working = False
        self._lost_at = float("inf")
        self.last_error = ""
        """Why the last try to take, renew or see the lease came to nothing; empty while all is well."""

    def deadline(self) -> float:
        """The clock's monotonic time until which this process may write."""
        return self._deadline

    @property
    def is_leader(self) -> bool:
        return self._clock.monotonic() < self._deadline

    @property
    def holder(self) -> str:
        """Who holds the lease, as far as this process has seen."""
        return self._seen.holder_identity if self._seen else ""

    @property
    def seconds_since_contact(self) -> float:
        """Seconds since the API server last answered about the lease; without end before it did."""
        return self._clock.monotonic() - self._heard

    @property
    def lease_overrun(self) -> float:
        """Seconds that work has gone on past the deadline: more than it takes to drain, and it is stuck."""
        return max(self._clock.monotonic() - self._lost_at, 0.0) if self._working else 0.0

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Contend, and run `lead` while leading: begun anew each time the lease is won, cancelled when lost.

        Returns when `lead` does. Cancelling stops `lead`, waits until it drained, and gives the lease back.
        """
        try:
            while True:
                await self._acquire()
                if await self._lead(lead):
                    return
        finally:
            await self._release()

    async def _acquire(self) -> None:
        won = await self._try_for(self._renew_deadline)
        while not won:
            await asyncio.sleep(self._backoff.delay(1))
            won = await self._try_for(self._renew_deadline)
        log.info("became leader", lease=self._name, identity=self.identity)

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> bool:
        """True when the work ended by itself, false when the lease was lost."""
        self._gauge.set(1)
        self._working, self._lost_at = True, float("inf")
        work = asyncio.ensure_future(lead())
        keeping = asyncio.create_task(self._keep())
        try:
            await asyncio.wait((work, keeping), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return True
            log.warning("lost the lease", lease=self._name, holder=self.holder)
            return False
        finally:
            try:
                await _end(work, keeping)
            finally:
                self._gauge.set(0)
                self._working = False

    async def _keep(self) -> None:
        """Renew until that fails for so long that the deadline has passed, or the lease is another's."""
        while self.is_leader:
            await asyncio.sleep(self._backoff.delay(1))
            left = self._deadline - self._clock.monotonic()
            if left <= 0 or (not await self._try_for(left) and self.holder not in ("", self.identity)):
                break
        self._lost_at = self._clock.monotonic()
        self._deadline = NEVER

    async def _try_for(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._try()
        except TimeoutError:
            self.last_error = "no answer in time"
            log.warning("no answer about the lease in time", lease=self._name)
        except ApiError as error:
            self.last_error = str(error)
            log.warning("cannot get or renew the lease", lease=self._name, error=self.last_error)
        return False

    async def _try(self) -> bool:
        """Take or renew the lease if it is free, over, or ours."""
        sent = self._clock.monotonic()
        try:
            if self.is_leader and self._version:
                self._saw(await self._patch(self._renewed()))
            else:
                await self._look()
                if not self._available():
                    return False
                sent = self._clock.monotonic()
                self._saw(await self._patch(self._taken()) if self._version else await self._create())
        except (Conflict, AlreadyExists, NotFound):
            # Somebody wrote, or deleted it, between our look and our write. Look again at the next try.
            await self._look()
            return False
        self._deadline = sent + self._renew_deadline
        return True

    async def _look(self) -> None:
        try:
            self._saw(await self._client.get(Lease, self._name, self._namespace))
        except NotFound:
            self._seen, self._version = None, ""
            self._answered()

    def _saw(self, lease: Lease) -> None:
        if lease.spec != self._seen:
            self._seen, self._seen_at = lease.spec, self._clock.monotonic()
        self._version = lease.metadata.resource_version
        self._answered()

    def _answered(self) -> None:
        self._heard, self.last_error = self._clock.monotonic(), ""

    def _available(self) -> bool:
        if self._seen is None or self.holder in ("", self.identity):
            return True
        duration = self._seen.lease_duration_seconds or self._duration
        return self._clock.monotonic() - self._seen_at > duration

    async def _create(self) -> Lease:
        body = {"metadata": {"name": self._name}, "spec": self._taken()}
        return await self._client.create(Lease, body, self._namespace)

    async def _patch(self, spec: Json) -> Lease:
        patch = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        return await self._client.patch(Lease, self._name, patch, self._namespace)

    def _taken(self) -> Json:
        mine = self.holder == self.identity
        before = self._seen.lease_transitions if self._seen else 0
        changes: Json = {} if mine else {"acquireTime": _micro_time(self._clock.now())}
        transitions = before + (0 if mine or self._seen is None else 1)
        return self._renewed() | changes | {"leaseTransitions": transitions}

    def _renewed(self) -> Json:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": max(round(self._duration), 1),
            "renewTime": _micro_time(self._clock.now()),
        }

    async def _release(self) -> None:
        """Let a standby take over at once; only ever gives back what is still ours."""
        held, self._deadline = self.is_leader, NEVER
        if not held:
            return
        spec: Json = {"holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                await self._patch(spec)
        except (ApiError, TimeoutError) as error:
            log.warning("could not give the lease back; it runs out by itself", error=str(error))


RELEASE_TIMEOUT = 2.0


async def _end(*tasks: "asyncio.Future[None]") -> None:
    """Cancel and wait, through further cancellations too: nothing may go on working without the lease."""
    cancelled = False
    for task in tasks:
        task.cancel()
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                cancelled = True
        if not task.cancelled() and task.exception() is not None:
            log.warning("the work ended with an error", error=repr(task.exception()))
    if cancelled:
        raise asyncio.CancelledError


def _micro_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
