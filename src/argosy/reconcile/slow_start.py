"""Slow start of a job's pod creations.

The first pod of a job is created alone. Each pod that is created lets one more be in flight, so the window
doubles with every round trip (1, 2, 4, 8, …) without waiting for the slowest of a batch, and it stays open
while all goes well. The first rejection (a quota, an admission webhook, an invalid pod) stops the creations
of the job. After a back-off of 0.5 to 30 s a single pod is tried as a probe; if it is created, the window
opens again from there. So a job whose pods are rejected costs one request now and then, however large it is.

An answer that says nothing about the pod (a timeout, a server error) halves the window instead: on a bad
connection creation continues more slowly, and stops when no request succeeds.

A reconcile creates pods for a minute at most and leaves the rest to the next one, so that reconciles of the
largest jobs end, however slow the API server is, and others have their turn.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container, Iterable, Sequence

from msgspec import Struct, field

from argosy.engine.clock import Clock
from argosy.plan.actions import ActionStatus
from argosy.workload.plan import CreatePod

MAX_WINDOW = 128
"""Pod creations of one job in flight at most."""
MAX_SECONDS = 60.0
"""How long one reconcile starts new creations."""
FIRST_PROBE_SECONDS = 0.5
MAX_PROBE_SECONDS = 30.0

REJECTIONS = frozenset({ActionStatus.FORBIDDEN, ActionStatus.INVALID, ActionStatus.SPEC_REJECTED})
"""Answers that the next pod would most likely get too."""


ReplicaKey = tuple[str, int | None]
"""Role and index."""


class SlowStart(Struct):
    """How many pods of a job may be created at a time, remembered between reconciles."""

    window: int = 1
    probe_at: float | None = None
    """When one pod may be tried after a rejection, on the monotonic clock; None if there was none."""
    rejections: int = 0
    """Rejections in a row, each of which doubles the back-off."""
    unfinished: bool = False
    """The last reconcile had no time for all creations."""
    rejected_roles: dict[str, int] = field(default_factory=dict)
    """Roles of rejected pods, numbered in order: the probe is of another role, if there is one."""

    def is_held(self, now: float) -> bool:
        """Return True while no pod of the job may be tried."""
        return self.probe_at is not None and now < self.probe_at

    def in_order(self, creations: Iterable[CreatePod], failed: Container[ReplicaKey]) -> list[CreatePod]:
        """Return the creations in the order to try: what was rejected or failed last comes at the end.

        `failed` are replicas whose creation failed for another reason than a rejection.
        """
        return sorted(
            creations,
            key=lambda pod: (self.rejected_roles.get(pod.role, 0), (pod.role, pod.index) in failed),
        )

    def record(self, role: str, result: ActionStatus, now: float) -> None:
        """Adjust the window to the answer that a creation got."""
        if result in REJECTIONS:
            self.rejected_roles[role] = max(self.rejected_roles.values(), default=0) + 1
            self._close(now)
        elif result is ActionStatus.RETRY:
            self.window //= 2
            if self.window == 0:
                self._close(now)
        elif result is ActionStatus.DONE:
            self.rejected_roles.pop(role, None)
            if not self.is_held(now):
                self.probe_at, self.rejections = None, 0
                self.window = min(self.window + 1, MAX_WINDOW)

    def _close(self, now: float) -> None:
        self.window = 1
        if self.is_held(now):
            return  # creations that were in flight together are rejected together and count once
        self.rejections += 1
        delay = min(FIRST_PROBE_SECONDS * 2.0 ** (self.rejections - 1), MAX_PROBE_SECONDS)
        self.probe_at = now + delay


class PodCreations:
    """Creates the pods of one reconcile within the window of their job's slow start."""

    def __init__(
        self,
        slow_start: SlowStart,
        clock: Clock,
        create: Callable[[CreatePod], Awaitable[ActionStatus | None]],
    ) -> None:
        self._slow_start = slow_start
        self._clock = clock
        self._create = create
        """Returns the answer; None if the pod itself is still in back-off and was not tried."""
        self._waiting: deque[CreatePod] = deque()
        self._until = clock.monotonic() + MAX_SECONDS
        self._runners = 0
        self._error: Exception | None = None

    async def run(self, creations: Sequence[CreatePod]) -> bool:
        """Create what may be created now, in this order; return True if all were tried. Stops at an error."""
        self._slow_start.unfinished = False
        self._waiting.extend(creations)
        if not self._waiting:
            return True
        async with asyncio.TaskGroup() as group:
            self._runners += 1
            self._open(group)
            await self._run(group)
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # it holds this frame: the frame must not hold it
        self._slow_start.unfinished = bool(self._waiting) and self._clock.monotonic() >= self._until
        return not self._waiting

    async def _run(self, group: asyncio.TaskGroup) -> None:
        while self._may_go_on():
            creation = self._waiting.popleft()
            try:
                result = await self._create(creation)
            except Exception as error:
                self._error = error
                break
            if result is not None:
                self._slow_start.record(creation.role, result, self._clock.monotonic())
            self._open(group)
        self._runners -= 1

    def _may_go_on(self) -> bool:
        if not self._waiting or self._error is not None or self._runners > self._slow_start.window:
            return False
        now = self._clock.monotonic()
        return now < self._until and not self._slow_start.is_held(now)

    def _open(self, group: asyncio.TaskGroup) -> None:
        """Start as many more runners as the window allows; the caller takes one creation itself."""
        if self._slow_start.is_held(self._clock.monotonic()):
            return
        for _ in range(min(self._slow_start.window - self._runners, len(self._waiting) - 1)):
            self._runners += 1
            group.create_task(self._run(group))
