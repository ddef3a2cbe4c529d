"""Writes the status of jobs, each with the Record in it, before anything is executed.

The Record is written at the resourceVersion that was decided on. If that write is a conflict, nothing is
executed: the job is reconciled again with what was written in between. So a crash at any point, an old cache
or a second operator can neither count a failure twice nor forget why something was done.

Not every change is written at once:

- During a burst, a Record that could be rebuilt from pod labels is written up to ten seconds later, while its
  actions are executed at once (`bursts`, docs/decisions/007).
- Changes of counts and of messages alone are throttled (`status_changes`).
- A job that ran and ended while its Running status was deferred is written twice, so that nobody who waits
  for the condition Running misses it.
"""

from typing import Generic

from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.base import JobApi, StatusChange, StatusInput, T, read_record
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Requeue
from argosy.engine.errors import Conflict, Invalid, NotFound
from argosy.engine.events import Recorder
from argosy.engine.objects import key_of
from argosy.reconcile.bursts import BurstDetector, BurstDetectors
from argosy.reconcile.compatibility import Compatibility, RecordSupport
from argosy.reconcile.job_state import Deferred, JobState, StatusState
from argosy.reconcile.object_writer import raw_record
from argosy.reconcile.status_changes import status_body, write_interval
from argosy.reconcile.term import Term
from argosy.workload import reasons
from argosy.workload.dependencies import releases_waiting
from argosy.workload.model import Phase, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.pods import with_planned_pods
from argosy.workload.record import Record
from argosy.workload.record_sync import is_recoverable_from_pods

DEFER_SECONDS = 5.0
"""How long a Record is deferred if the burst ends meanwhile."""

MAX_DEFER_SECONDS = 10.0
"""How long a Record is deferred at most."""

MAX_STATUS_NOT_FOUND = 3
"""Status writes in a row, a second apart, that are answered with NotFound although the job exists, until it
is concluded that its CRD has no status subresource."""

RETRY_SECONDS = 1.0
RETRY = Requeue(RETRY_SECONDS)
"""Decided on an old version: the watch brings what was written since."""


class Written(Struct, Generic[T], frozen=True):
    """The job as it is stored now, and what was decided about it.

    A change whose status was deferred or throttled, or is the same, has one object before and after.
    """

    job: T
    changes: tuple[StatusChange[T], ...]


class StatusWriter(Generic[T]):
    """Writes the statuses of all jobs of one kind."""

    def __init__(
        self, api: JobApi[T], jobs: Cache[T], client: Client, clock: Clock, recorder: Recorder
    ) -> None:
        self._api = api
        self._jobs = jobs
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self.record_support = RecordSupport()
        self.compatibility = Compatibility(api.resource, clock, recorder)
        self.bursts = BurstDetectors()
        self.term = Term(client, jobs)

    async def defer(
        self,
        job: T,
        workload: Workload | None,
        before: Record | None,
        plan: Plan,
        observed: Observed,
        state: JobState,
    ) -> Written[T] | None:
        """Defer writing the status, if that is safe and useful now; return None if it must be written."""
        if _missed_running(job, state.status, plan.record) is not None:
            return None
        if not await self._defer(job, workload, before, plan, observed, state):
            return None
        return Written(job, (StatusChange(job, job, plan, workload),))

    async def write(
        self, job: T, workload: Workload | None, plan: Plan, observed: Observed, state: JobState
    ) -> Written[T] | Requeue:
        """Write the status that follows from the plan; a Requeue means that nothing may be executed."""
        missed = _missed_running(job, state.status, plan.record)
        steps = [(Plan(missed), observed)] if missed is not None else []
        steps.append((plan, with_planned_pods(observed, plan.actions)))
        changes: list[StatusChange[T]] = []
        current = job
        with self.record_support.first_write():
            for step, after in steps:
                change = await self._write_step(current, workload, step, after, state)
                if isinstance(change, Requeue):
                    return change
                changes.append(change)
                current = change.after
        if current is job and plan.actions and not await self._is_current(job, state.status):
            return RETRY
        return Written(current, tuple(changes))

    async def _write_step(
        self, job: T, workload: Workload | None, plan: Plan, observed: Observed, state: JobState
    ) -> StatusChange[T] | Requeue:
        """Write one status, unless it is unchanged or throttled."""
        status = self._api.dialect.to_status(job, StatusInput(workload, plan.record, observed))
        if status == job.status:
            state.status.flush_at = state.status.deferred = None
            return StatusChange(job, job, plan, workload)
        now = self._clock.monotonic()
        in_burst = self.bursts.for_namespace(job.metadata.namespace).in_burst(now)
        due = state.status.written_at + write_interval(job.status, status, in_burst=in_burst)
        if now < due:
            state.status.flush_at = due
            return StatusChange(job, job, plan, workload)
        try:
            after = await self._put(job, status)
        except Conflict:
            state.status.deferred, state.status.record_first = None, True
            return RETRY
        except NotFound:
            return self._not_found(job, state)
        except Invalid as error:
            problem = f"rejects the status ({error.message})"
            return self.compatibility.status_cannot_be_written(job, problem, state.block)
        state.status.written(self._clock.monotonic())
        # Comparing what was sent is cheaper than decoding what came back.
        if raw_record(after.status) != raw_record(status) and read_record(after) != plan.record:
            return await self._report_pruned(after, workload, plan.record, observed, state)
        self.record_support.confirm_write()
        return StatusChange(job, after, plan, workload)

    async def _put(self, job: T, status: Struct) -> T:
        if field := self._api.write_time_field:
            status = replace(status, **{field: self._clock.now()})
        meta = job.metadata
        body = status_body(meta, status)
        written = await self._client.replace(self._api.kind, body, meta.namespace, subresource="status")
        self._jobs.put(written, own=True)
        return written

    def _not_found(self, job: T, state: JobState) -> Requeue:
        """Conclude that the CRD has no status subresource, if this repeats; the job may be gone instead."""
        state.status.not_found += 1
        if state.status.not_found < MAX_STATUS_NOT_FOUND:
            return RETRY
        return self.compatibility.status_cannot_be_written(job, "has no status subresource", state.block)

    async def _report_pruned(
        self, job: T, workload: Workload | None, record: Record, observed: Observed, state: JobState
    ) -> Requeue:
        """Say in the status, and by an event, that the CRD drops the Record."""
        message = self.compatibility.crd_message("drops status.argosy")
        record = replace(record, reason=reasons.INCOMPATIBLE_CRD, message=message)
        status = self._api.dialect.to_status(job, StatusInput(workload, record, observed))
        requeue = self.compatibility.block(state.block)
        try:
            await self._put(job, status)
        except (Conflict, NotFound):
            state.block.until = self._clock.monotonic() + RETRY_SECONDS
            return RETRY
        self._recorder.event(job, "Warning", reasons.INCOMPATIBLE_CRD, message)
        return requeue

    async def _defer(
        self,
        job: T,
        workload: Workload | None,
        before: Record | None,
        plan: Plan,
        observed: Observed,
        state: JobState,
    ) -> bool:
        """Defer the write if it may be deferred; return True if it was."""
        if workload is None:
            return False
        now, status = self._clock.monotonic(), state.status
        burst = self.bursts.for_namespace(workload.namespace)
        if not status.is_flush(plan.record, now):
            burst.observe_job(state.uid, now)
        if status.record_first or not is_recoverable_from_pods(workload, before, plan, observed):
            return False
        if releases_waiting(workload, before, plan.record):
            return False  # waiting pods are answered from what is written, by every replica
        times = self._flush_times(before, plan, status, burst, now)
        if times is None:
            return False
        if not status.is_current:
            status.is_current = await self.term.shows_earlier_writes(job)
        if not status.is_current or self._jobs.get(*key_of(job)) is not job:
            return False
        status.flush_at, status.flush_by = times
        status.deferred = Deferred(plan.record, job.metadata.resource_version)
        return True

    def _flush_times(
        self, before: Record | None, plan: Plan, status: StatusState, burst: BurstDetector, now: float
    ) -> tuple[float, float] | None:
        """Return when a deferred Record is written, and when at the latest; None if it is written now."""
        in_burst = burst.in_burst(now)
        starts_running = (
            before is not None
            and before.first_running_at is None
            and plan.record.first_running_at is not None
        )
        if status.deferred is None:
            if plan.record == before or starts_running or not self.record_support.confirmed or not in_burst:
                return None
            return now + DEFER_SECONDS, now + MAX_DEFER_SECONDS
        if status.flush_at is None or now >= status.flush_at:
            return (status.flush_by, status.flush_by) if in_burst and now < status.flush_by else None
        if starts_running and not in_burst:
            return None
        return status.flush_at, status.flush_by

    async def _is_current(self, job: T, status: StatusState) -> bool:
        """Return True if actions may be executed although no status was written before them."""
        if not status.is_current:
            status.is_current = await self.term.confirm(job)
        return status.is_current


def _missed_running(job: T, status: StatusState, after: Record) -> Record | None:
    """Return the deferred Record of a job that ran, and runs no more, before that was written."""
    deferred = status.deferred.record if status.deferred else None
    if deferred is None or deferred.phase is not Phase.RUNNING or after.phase is Phase.RUNNING:
        return None
    stored = read_record(job)
    return deferred if stored is None or stored.first_running_at is None else None
