"""The pass: observe, lower, decide, write status with the Record, perform.

The Record is written first, at the version that was decided on. Refused, nothing is performed: whoever
wrote in between is heard first. So a crash anywhere, an old cache or a second operator can neither count a
failure twice nor forget why something was done. In a crowd of jobs a Record that says nothing but what the
pods say themselves may follow later (see `crowd`).
"""

from collections import Counter
from datetime import datetime
from typing import Generic, Protocol

from msgspec import Struct
from msgspec.structs import replace

from argosy.dialects.base import JobApi, JobView, StatusChange, T, read_record
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Requeue
from argosy.engine.errors import Conflict, Invalid, NotFound
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger, add_log_context
from argosy.engine.objects import Key, key_of
from argosy.reconcile.adoption import PodAdopter
from argosy.reconcile.caches import Caches
from argosy.reconcile.crd_check import RecordSupport
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.incompatible_crd import CrdCompatibility
from argosy.reconcile.job_state import Deferred, JobState
from argosy.reconcile.pod_groups import WaitingJob
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.status import status_body, write_interval
from argosy.reconcile.status_deferral import BurstDetectors
from argosy.reconcile.term import Term
from argosy.reconcile.undecodable import UndecodableJobs
from argosy.workload.decide import decide, end_invalid, refuse
from argosy.workload.gang_schedulers.own import OWN
from argosy.workload.gang_schedulers.registry import choose
from argosy.workload.model import Json, Phase, Problems, Restart, Scope, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod, Emit, Plan
from argosy.workload.pods import expected
from argosy.workload.record import LaterRecordError, Record

log = Logger(__name__)

SETTLE = 0.05
"""Seconds to the next pass after one whose Record asks for something by itself, or that took something
away."""

CREATED = 30.0
"""Seconds to the next pass after one that made pods, if none of them does anything that brings it sooner."""

UNFOUND = 3
"""Times, a second between them, that a status is not found to write, though no watch says that its job has
gone: then its kind has none."""


class _UnwritableError(Exception):
    """The kind's definition is not one that a status of ours can be written under."""


class JobMetricsSink(Protocol):
    """Who counts what happens to jobs."""

    def record_pass(
        self, dialect: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None: ...
    def forget_job(self, dialect: str, key: Key) -> None: ...


class Reconciler(Generic[T]):
    """Passes over the jobs of one dialect."""

    def __init__(
        self,
        api: JobApi[T],
        jobs: Cache[T],
        caches: Caches,
        client: Client,
        clock: Clock,
        recorder: Recorder,
        pods: PodRenderer,
        statistics: JobMetricsSink,
    ) -> None:
        self.api = api
        self.kind = api.resource.kind
        self.jobs = jobs
        self.caches = caches
        self.client = client
        self.clock = clock
        self.recorder = recorder
        self.pods = pods
        self.statistics = statistics
        self.memories: dict[Key, JobState] = {}
        self.proof = RecordSupport()
        self.crowds = BurstDetectors(self.proof)
        self.term = Term(client, jobs)
        self.takeover = PodAdopter(client, clock, caches)
        self.unreadable = UndecodableJobs(api, client, clock, recorder)
        self.unfit = CrdCompatibility(api.resource, clock, recorder)
        jobs.subscribe(self._readable)
        jobs.on_undecodable(self.unreadable.add)
        self.writing = False
        """True while the cache takes in what a pass itself wrote: no news to anybody who listens for
        changes."""

    async def reconcile(self, key: Key) -> Requeue | None:
        if key in self.unreadable:
            return await self.unreadable.report(key)
        with self.crowds.of(key[0]):
            await self.proof.wait_for_first_write()
            job = self.jobs.get(*key)
            if job is None:
                self._forget(key)
                return None
            try:
                return await self._pass(key, job)
            finally:
                if self.jobs.get(*key) is None:
                    self.on_job_deleted(job)  # meanwhile: what was kept of it since goes too

    async def _pass(self, key: Key, job: T) -> Requeue | None:
        memory = self._memory(key, job)
        if memory.blocked_until > self.clock.monotonic():
            return Requeue(memory.blocked_until - self.clock.monotonic())
        if (patch := self.api.spec_patch(job)) is not None:
            return await self._patch_spec(job, patch)
        now = self.clock.now()
        lowered = self._lower(job, memory)
        try:
            stored = read_record(job)
        except LaterRecordError as error:
            return self.unfit.record_is_later(job, str(error), memory)
        if stored is not None:
            self.proof.confirm_read()
        memory.drop_outdated(job.metadata.resource_version)
        deferred = memory.deferred.record if memory.deferred else None
        before = deferred or stored or await self._inherited(job, lowered)
        seen = self.caches.observe(job.metadata, memory, room=self._needs_room(lowered, before))
        self.caches.confirm_nodes(seen, memory)
        add_log_context(attempt=before.attempt if before else 1)
        if isinstance(lowered, Problems):
            workload, plan = None, self._refuse(job, before, lowered, seen, now)
        else:
            workload, plan = lowered, decide(lowered, before, seen, now)
            self._note_gang(key, lowered, plan)
        if unheard := _ran_unheard(stored, deferred, plan.record):
            plan = Plan(unheard)  # what has happened since is told by the next pass
        written: T | None = job
        if not unheard and await self._may_defer(job, workload, before, plan, seen, memory):
            memory.deferred = Deferred(plan.record, job.metadata.resource_version)
        else:
            try:
                with self.proof.first_write():
                    written = await self._write(
                        job, workload, plan.record, expected(seen, plan.actions), memory
                    )
            except _UnwritableError as error:
                return self.unfit.status_is_unwritable(job, str(error), memory)
        if written is None:
            return Requeue(1.0)  # refused: the watch brings what was written in between
        if written is job and plan.actions and not memory.current:
            memory.current = await self.term.confirm(job)
            if not memory.current:
                return Requeue(1.0)  # decided on an old version: the watch brings what was written since
        if written is not job:
            if read_record(written) != plan.record:
                return await self._report_pruned(written, workload, plan.record, seen, memory)
            self.proof.confirm_write()
        self.statistics.record_pass(self.kind, key, workload, before, plan)
        _log(before, plan.record)
        for event in self.api.status_events(StatusChange(job, written, plan, workload)):
            self.recorder.event(written, event.type, event.reason, event.message)
        if plan.actions:
            remains = workload or self.api.ended_workload(job)
            performer = self._performer(remains, memory, plan.record.gang_backend)
            for event in self.api.action_events(written, await performer.execute(plan.actions)):
                self.recorder.event(written, event.type, event.reason, event.message)
        settled = not unheard and (plan.record == before or _settled(workload, plan, seen, now))
        return self._next(key, plan, seen, memory, now, settled=settled)

    async def begin_term(self) -> None:
        """This replica leads from now on."""
        await self.term.begin()

    def end_term(self) -> None:
        """Forget what was decided and not written: it must not be written in a later term."""
        self.memories.clear()
        self.term.end()

    def on_pod_terminating(self, key: Key, role: str) -> bool:
        """A pod of this role is on its way out; whether it is merely replaced by itself, once it is gone."""
        memory = self.memories.get(key)
        lowered = memory.lowered[1] if memory is not None and memory.lowered is not None else None
        if memory is None or not isinstance(lowered, Workload) or role not in lowered.roles:
            return False
        self.crowds.of(key[0]).observe_job(memory.uid, self.clock.monotonic())
        return lowered.rules.restart_scope is Scope.POD and lowered.roles[role].restart is not Restart.NEVER

    def on_crd_changed(self) -> list[Key]:
        """The kind's CRD is another now: the jobs to try again that were given up because of the old one."""
        self.proof.on_crd_changed(jobs_were_read=self.jobs.synced)
        waiting = [key for key, memory in self.memories.items() if memory.blocked_until > 0]
        for key in waiting:
            self.memories[key].blocked_until = float("-inf")
            self.memories[key].block_count = 0
        return waiting

    def _readable(self, change: Change[T]) -> None:
        if change.new is not None:
            self.unreadable.clear(key_of(change.new))

    def _lower(self, job: T, memory: JobState) -> Workload | Problems:
        """Lowered once per generation: nothing but the definition, its deletion and annotations matter to
        it."""
        meta = job.metadata
        version = (meta.generation, meta.deletion_timestamp is not None, meta.annotations)
        if memory.lowered is None or memory.lowered[0] != version:
            memory.lowered = (version, self.api.dialect.to_workload(job))
            memory.reset_retries()
        return memory.lowered[1]

    async def _inherited(self, job: T, lowered: Workload | Problems) -> Record | None:
        """What another operator of the API has left of the job, after its pods were made ours."""
        adoption = self.api.adoption
        record = adoption.record(job) if adoption else None
        if adoption is not None and record is not None and isinstance(lowered, Workload):
            await self.takeover.adopt(lowered, adoption.replica)
        return record

    def _needs_room(self, lowered: Workload | Problems, before: Record | None) -> bool:
        """Whether the pass must know what is free in the cluster: a gang that nobody else places waits."""
        if isinstance(lowered, Problems) or lowered.gang is None or lowered.suspended:
            return False
        chosen = before.gang_backend if before else ""
        begun = before is not None and (before.began is not None or before.finished is not None)
        return not begun and (chosen == OWN.name or choose(*self.caches.pod_groups.choices) == OWN.name)

    def _note_gang(self, key: Key, workload: Workload, plan: Plan) -> None:
        """A gang that waits is to hear of room; others must count with pods that are made now."""
        waiting = plan.record.waiting
        if waiting and waiting.reason in ("Queued", "GangSchedulerMissing"):
            self.caches.pod_groups.waiting.add(self._waiter(key))
        else:
            self.caches.pod_groups.waiting.discard(self._waiter(key))
        made = Counter(action.role for action in plan.actions if isinstance(action, CreatePod))
        if made and plan.record.gang_backend == OWN.name:
            self.caches.capacity.reserve(workload, made)

    def _waiter(self, key: Key) -> WaitingJob:
        return self.api.resource.group, self.api.resource.kind, key

    async def _may_defer(
        self,
        job: T,
        workload: Workload | None,
        before: Record | None,
        plan: Plan,
        seen: Observed,
        memory: JobState,
    ) -> bool:
        """Return True if the Record may be written with a later pass, after the actions of this one."""
        monotonic = self.clock.monotonic()
        if workload is None:
            return False
        crowd = self.crowds.of(workload.namespace)
        if not crowd.puts_off(workload, before, plan, seen, memory, monotonic):
            return False
        if not memory.current:
            memory.current = await self.term.shows_earlier_writes(job)
        return memory.current and self.jobs.get(*key_of(job)) is job

    async def _write(
        self, job: T, workload: Workload | None, record: Record, seen: Observed, memory: JobState
    ) -> T | None:
        """The job with its status up to date, or None if somebody wrote in between."""
        status = self.api.dialect.to_status(job, JobView(workload, record, seen))
        if status == job.status:
            memory.flush_at = memory.deferred = None
            return job
        due = memory.written_at + write_interval(job.status, status)
        if self.clock.monotonic() < due:
            memory.flush_at = due
            return job
        try:
            written = await self._replace_status(job, status)
        except Conflict:
            memory.deferred, memory.record_first = None, True
            return None
        except NotFound:
            memory.status_not_found += 1
            if memory.status_not_found >= UNFOUND:
                raise _UnwritableError("has no status subresource") from None
            return None
        except Invalid as error:
            raise _UnwritableError(f"refuses the status ({error.message})") from None
        memory.status_not_found = 0
        memory.deferred, memory.current = None, True
        memory.written_at = self.clock.monotonic()
        memory.flush_at = None
        return written

    async def _replace_status(self, job: T, status: Struct) -> T:
        meta = job.metadata
        if field := self.api.write_time_field:
            status = replace(status, **{field: self.clock.now()})
        body = status_body(meta, status)
        written = await self.client.replace(self.api.kind, body, meta.namespace, subresource="status")
        self.writing = True
        self.jobs.put(written)
        self.writing = False
        return written

    async def _report_pruned(
        self, job: T, workload: Workload | None, record: Record, seen: Observed, memory: JobState
    ) -> Requeue:
        message = self.unfit.crd_message("drops status.argosy")
        record = replace(record, reason="RecordPruned", message=message)
        status = self.api.dialect.to_status(job, JobView(workload, record, seen))
        wake = self.unfit.block(memory)
        try:
            await self._replace_status(job, status)
        except (Conflict, NotFound):
            memory.blocked_until = self.clock.monotonic() + 1.0
            return Requeue(1.0)
        self.recorder.event(job, "Warning", "RecordPruned", message)
        return wake

    async def _patch_spec(self, job: T, patch: Json) -> Requeue:
        """Write into the object itself, unless somebody else does; the next pass looks at what came of it."""
        meta = job.metadata
        metadata = patch.get("metadata")
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**patch, "metadata": {**(metadata if isinstance(metadata, dict) else {}), **guard}}
        try:
            self.jobs.put(await self.client.patch(self.api.kind, meta.name, body, meta.namespace))
        except (Conflict, NotFound):
            return Requeue(1.0)  # the watch brings what was written in between, or that it is gone
        return Requeue(0.0)

    def _refuse(
        self, job: T, before: Record | None, problems: Problems, seen: Observed, now: datetime
    ) -> Plan:
        meta = job.metadata
        if self.api.minimal_workload is not None and meta.deletion_timestamp is None:
            return end_invalid(self.api.minimal_workload(job), before, problems, seen, now)
        return refuse(before, problems, meta.generation, now)

    def _performer(self, workload: Workload, memory: JobState, gang_backend: str) -> ActionExecutor:
        return ActionExecutor(
            self.client,
            self.clock,
            self.caches,
            workload,
            self.api.kind,
            memory,
            self.pods.for_job(workload, self.api.inject, gang_backend).render,
            lambda *place: self.api.pod_name(workload, *place),
            self.pods.bodies,
            self.pods.site.features,
        )

    def _next(
        self, key: Key, plan: Plan, seen: Observed, memory: JobState, now: datetime, *, settled: bool
    ) -> Requeue | None:
        if memory.confirmed_absent or tuple(memory.outcomes.values()) != seen.outcomes:
            return Requeue(0.0)  # answers that the next pass must hear
        monotonic = self.clock.monotonic()
        times = (memory.flush_at, memory.recheck_at, memory.next_retry_at())
        delays = [at - monotonic for at in times if at is not None]
        if any(isinstance(action, CreatePod) for action in plan.actions):
            slow_start = memory.slow_start
            wait = CREATED if slow_start.probe_at is None else slow_start.probe_at - monotonic
            delays.append(0.0 if slow_start.unfinished else wait)
        elif not settled:
            delays.append(SETTLE)
        if plan.wake_at is not None:
            delays.append((plan.wake_at - now).total_seconds())
        if plan.record.finished and not delays:
            self.memories.pop(key, None)
        return Requeue(max(min(delays), 0.0)) if delays else None

    def _memory(self, key: Key, job: T) -> JobState:
        memory = self.memories.get(key)
        if memory is None or memory.uid != job.metadata.uid:
            memory = self.memories[key] = JobState(uid=job.metadata.uid)
        return memory

    def on_job_deleted(self, job: T) -> None:
        """The job was deleted: nothing is kept of it."""
        self._forget(key_of(job))
        self.recorder.forget(job.metadata.uid)

    def _forget(self, key: Key) -> None:
        self.memories.pop(key, None)
        self.caches.pod_groups.waiting.discard(self._waiter(key))
        self.statistics.forget_job(self.kind, key)


def _log(before: Record | None, after: Record) -> None:
    """A line for every change of phase and every new attempt."""
    was = before.phase if before else ""
    if was == after.phase and (before is None or before.attempt == after.attempt):
        return
    add_log_context(attempt=after.attempt)
    log.info("phase changed", phase=after.phase, was=was, reason=after.reason, message=after.message)


def _ran_unheard(stored: Record | None, deferred: Record | None, after: Record) -> Record | None:
    """The Record of a job that ran while nobody was told, if it does no more: nobody shall miss that."""
    if deferred is None or deferred.phase is not Phase.RUNNING or after.phase is Phase.RUNNING:
        return None
    return deferred if stored is None or stored.ran is None else None


def _settled(workload: Workload | None, plan: Plan, seen: Observed, now: datetime) -> bool:
    """Whether deciding once more, on what has just been remembered, would change nothing."""
    if workload is None or seen.absent or not all(isinstance(action, Emit) for action in plan.actions):
        return False
    again = decide(workload, plan.record, seen, now)
    return again.record == plan.record and not again.actions
