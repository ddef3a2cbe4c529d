"""Decides whether jobs can be worked on under the CRD that is installed, and by this operator's version.

Two things are checked. The CRD must preserve `status.argosy`: some CRDs prune unknown status fields, and
without the Record counts would be lost. Until a Record has been read back once, every status is written
before any pod is created, and concurrent reconciles wait up to one second for the first such write. And the
Record must not be of a later version. A job that fails a check is left alone, because nothing that is done
for it could be remembered: an event says why, and it is tried again later or when its CRD changes.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from argosy.engine.clock import Clock
from argosy.engine.controller import Requeue
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.engine.objects import ApiObject
from argosy.kinds.resource import Resource
from argosy.reconcile.job_state import NEVER, CrdBlock
from argosy.workload import messages, reasons

log = Logger(__name__)

FIRST_WRITE_WAIT_SECONDS = 1.0
"""How long others wait for the first write under a CRD to come back."""

RETRY_DELAYS_SECONDS = (2.0, 5.0, 20.0, 60.0)
"""Delays until a blocked job is tried again; a corrected CRD takes a moment to be in force."""


class RecordSupport:
    """Tracks whether the installed CRD is known to preserve `status.argosy`."""

    def __init__(self) -> None:
        self.confirmed = False
        self._crd_changed = False
        self._first_write: asyncio.Future[None] | None = None
        """The first write under this CRD, while it is in flight."""

    def confirm_write(self) -> None:
        """Note that a written Record came back complete."""
        self.confirmed = True

    def confirm_read(self) -> None:
        """Note that a job has a Record. After a change of the CRD it may have been read before that."""
        self.confirmed = self.confirmed or not self._crd_changed

    def on_crd_changed(self, *, jobs_were_read: bool) -> None:
        self.confirmed = False
        self._crd_changed = self._crd_changed or jobs_were_read

    @contextmanager
    def first_write(self) -> Iterator[None]:
        """Let others wait for the write in this block, if support is unconfirmed and it is the first."""
        if self.confirmed or self._first_write is not None:
            yield
            return
        first = self._first_write = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._first_write = None
            first.set_result(None)

    async def wait_for_first_write(self) -> None:
        if self._first_write is not None:
            await asyncio.wait([self._first_write], timeout=FIRST_WRITE_WAIT_SECONDS)


class Compatibility:
    """Blocks jobs of one kind that cannot be worked on, and says why."""

    def __init__(self, resource: Resource, clock: Clock, recorder: Recorder) -> None:
        self._resource = resource
        self._clock = clock
        self._recorder = recorder

    def blocked_for(self, block: CrdBlock) -> float:
        """Return the seconds for which a job is still left alone; 0 if it is not blocked."""
        return max(block.until - self._clock.monotonic(), 0.0)

    def status_cannot_be_written(self, job: ApiObject, problem: str, block: CrdBlock) -> Requeue:
        """Report by an event, since there is no status to report in."""
        self._recorder.event(job, "Warning", reasons.STATUS_UPDATE_FAILED, self.crd_message(problem))
        return self.block(block)

    def record_is_unsupported(self, job: ApiObject, problem: str, block: CrdBlock) -> Requeue:
        """Report by an event: the status belongs to a later operator."""
        log.error("unsupported status.argosy version", error=problem)
        message = messages.unsupported_record(problem)
        self._recorder.event(job, "Warning", reasons.UNSUPPORTED_RECORD_VERSION, message)
        return self.block(block)

    def record_is_pruned(self, obj: ApiObject, block: CrdBlock) -> Requeue:
        """Report by an event that the CRD dropped the Record that was written."""
        self._recorder.event(
            obj, "Warning", reasons.INCOMPATIBLE_CRD, self.crd_message("drops status.argosy")
        )
        return self.block(block)

    def crd_message(self, problem: str) -> str:
        """Return what to say about a CRD that does not fit."""
        name = f"{self._resource.plural}.{self._resource.group}"
        log.error("incompatible CRD", crd=name, problem=problem)
        return messages.incompatible_crd(name, problem)

    def block(self, block: CrdBlock) -> Requeue:
        """Leave the job alone for a while, or until its CRD changes."""
        delay = RETRY_DELAYS_SECONDS[min(block.count, len(RETRY_DELAYS_SECONDS) - 1)]
        block.count += 1
        block.until = self._clock.monotonic() + delay
        return Requeue(delay)

    def unblock(self, block: CrdBlock) -> bool:
        """Try a blocked job again at once; return True if it was blocked."""
        was_blocked = block.until > NEVER
        block.until, block.count = NEVER, 0
        return was_blocked
