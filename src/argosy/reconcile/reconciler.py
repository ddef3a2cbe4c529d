"""Reconciles the jobs of one API: observe, decide, write the status with the Record, execute.

The order is what makes it safe; `status_writer` says why. Decisions are made by pure functions in `workload`;
this module fetches what they need and does what they return.
"""

from collections import Counter
from datetime import datetime
from typing import Generic, Protocol

from msgspec.structs import replace

from argosy.dialects.base import JobApi, T, read_record
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger, add_log_context
from argosy.engine.objects import Key, key_of
from argosy.plan.actions import Exec
from argosy.plan.record import UnsupportedVersionError
from argosy.reconcile.adoption import PodAdopter
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.caches import Caches
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.fixed_point import decide_again
from argosy.reconcile.job_state import JobState, RetryState, WorkloadCache, workload_version
from argosy.reconcile.pod_groups import WaitingJob
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.scale_requests import FindRequests, no_requests
from argosy.reconcile.status_writer import RETRY, StatusWriter, Written
from argosy.reconcile.undecodable import UndecodableJobs
from argosy.workload import reasons
from argosy.workload.decide import decide, plan_invalid, plan_invalid_cleanup
from argosy.workload.gang_schedulers.registry import BUILTIN, choose
from argosy.workload.model import Json, Problems, RestartPolicy, RestartScope, Workload
from argosy.workload.notice_saves import heeds_cordons
from argosy.workload.observed import Observed
from argosy.workload.plan import CreatePod, Plan
from argosy.workload.process_saves import chooses_by_node
from argosy.workload.record import Record

log = Logger(__name__)

FOLLOW_UP_SECONDS = 0.05
"""Delay of the next reconcile after one that deleted something, or whose new Record leads to more changes."""

CREATED_RECHECK_SECONDS = 30.0
"""Delay of the next reconcile after one that created pods, if no change of a pod triggers it sooner."""


class JobMetricsSink(Protocol):
    """Counts what happens to jobs."""

    def record_plan(
        self, dialect: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None: ...
    def forget_job(self, dialect: str, key: Key) -> None: ...


class Reconciler(Generic[T]):
    """Reconciles all jobs of one API; each job has a JobState while it is active."""

    def __init__(
        self,
        api: JobApi[T],
        jobs: Cache[T],
        caches: Caches,
        client: Client,
        clock: Clock,
        recorder: Recorder,
        pods: PodRenderer,
        metrics: JobMetricsSink,
        background: BackgroundCalls,
        requests: FindRequests = no_requests,
    ) -> None:
        self.api = api
        self.kind = api.resource.kind
        self.jobs = jobs
        self.caches = caches
        self.client = client
        self.clock = clock
        self.recorder = recorder
        self.pods = pods
        self.metrics = metrics
        self.background = background
        self.requests = requests
        self.states: dict[Key, JobState] = {}
        self.status = StatusWriter(api, jobs, client, clock, recorder)
        self.adopter = PodAdopter(client, clock, caches)
        self.undecodable = UndecodableJobs(api, client, clock, recorder)
        jobs.subscribe(self._clear_undecodable)
        jobs.on_undecodable(self.undecodable.add)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Reconcile one job; return when to do so again, or None to wait for the next change."""
        if key in self.undecodable:
            return await self.undecodable.report(key)
        with self.status.bursts.for_namespace(key.namespace):
            await self.status.record_support.wait_for_first_write()
            job = self.jobs.get(*key)
            if job is None:
                self._forget(key)
                return None
            try:
                return await self._reconcile_job(key, job)
            finally:
                if self.jobs.get(*key) is None:
                    self.on_job_deleted(job)  # it was deleted meanwhile

    async def _reconcile_job(self, key: Key, job: T) -> Requeue | None:
        """Observe, decide, write the status, execute; each step returns early if the next must not happen."""
        state = self._state(key, job)
        if seconds := self.status.compatibility.blocked_for(state.block):
            return Requeue(seconds)
        now = self.clock.now()
        workload = self._workload(job, state)
        try:
            before = await self._load_record(job, workload, state)
        except UnsupportedVersionError as error:
            return self.status.compatibility.record_is_unsupported(job, str(error), state.block)
        add_log_context(attempt=before.attempt if before else 1)
        observed = self._observe(job, workload, before, state)
        plan = self._decide(job, workload, before, observed, now)
        valid_workload = workload if isinstance(workload, Workload) else None
        self._track_gang(key, valid_workload, plan)
        deferred = await self.status.defer(job, valid_workload, before, plan, observed, state)
        if deferred is None and (patch := self.api.spec_patch(job)) is not None:
            return await self._patch_spec(job, patch, state)
        written = deferred or await self.status.write(job, valid_workload, plan, observed, state)
        if isinstance(written, Requeue):
            return written
        self._report(key, valid_workload, before, plan, written)
        timed = self.api.timed_patch(written.job)
        if timed is not None and timed.at <= now and deferred is None:
            return await self._patch_spec(written.job, timed.patch, state)
        await self._execute(written.job, valid_workload or self.api.ended_workload(job), plan, state)

        def observe() -> Observed:
            return self._observe(written.job, workload, plan.record, state)

        last: Plan | None = plan
        if plan.record != before:
            last = decide_again(valid_workload, plan, observed, observe, now)
            plan = replace(plan, requeue_at=last.requeue_at) if last else plan
        if timed is not None and timed.at > now:
            plan = plan.with_requeue_at(timed.at)
        return self._requeue_after(key, plan, observed, state, now, has_converged=last is not None)

    def _workload(self, job: T, state: JobState) -> Workload | Problems:
        """Return the job as a workload, translated once per generation, deletion and set of annotations."""
        version = workload_version(job.metadata)
        if state.workload is None or state.workload.version != version:
            state.workload = WorkloadCache(version, self.api.dialect.to_workload(job))
            state.retries = RetryState()  # what was rejected before may be valid now
        return state.workload.workload

    async def _load_record(self, job: T, workload: Workload | Problems, state: JobState) -> Record | None:
        """Return the Record to continue from: deferred, stored, or adopted from another operator."""
        stored = read_record(job)
        if stored is not None:
            self.status.record_support.confirm_read()
        deferred = state.status.deferred_record(job.metadata.resource_version)
        if deferred is not None or stored is not None:
            return deferred or stored
        adoption = self.api.adoption
        adopted = adoption.record(job) if adoption else None
        if adoption is not None and adopted is not None and isinstance(workload, Workload):
            await self.adopter.adopt(workload, adoption.replica)
        return adopted

    def _observe(
        self, job: T, workload: Workload | Problems, before: Record | None, state: JobState
    ) -> Observed:
        """Return what the caches show, with what the API server has answered that they do not show yet."""
        observation = self.caches.observe(
            job.metadata,
            failures=tuple(state.retries.failures.values()),
            confirmed_absent=state.hints.take_confirmed_absent(),
            deleted_uids=state.hints.deleted_uids,
            exec_results=self.background.exec_results(key_of(job), job.metadata.uid),
            noticed_nodes=[notice.node for notice in before.notices] if before else (),
            cordons=isinstance(workload, Workload) and heeds_cordons(workload),
            restores=isinstance(workload, Workload) and chooses_by_node(workload),
            capacity=self._needs_capacity(workload, before),
            scale_requests=self.requests(workload) if isinstance(workload, Workload) else (),
            in_burst=self.status.bursts.for_namespace(job.metadata.namespace).in_burst(
                self.clock.monotonic()
            ),
        )
        observed = observation.observed
        state.hints.keep_deleted(observed.pods)
        state.written.keep_only({child.metadata.uid for child in observed.children})
        confirmed_at = self.caches.node_health.confirm(observed.nodes_unconfirmed)
        times = [at for at in (observation.recheck_at, confirmed_at) if at is not None]
        state.recheck_at = min(times, default=None)
        return observed

    def _needs_capacity(self, workload: Workload | Problems, before: Record | None) -> bool:
        """Return True for a gang that waits for free capacity because no other scheduler admits it."""
        if isinstance(workload, Problems) or workload.gang is None or workload.suspended:
            return False
        started = before is not None and (
            before.attempt_started_at is not None or before.finished_at is not None
        )
        backend = before.gang_scheduler if before else ""
        return not started and BUILTIN.name in (backend, choose(*self.caches.pod_groups.choices))

    def _decide(
        self,
        job: T,
        workload: Workload | Problems,
        before: Record | None,
        observed: Observed,
        now: datetime,
    ) -> Plan:
        if isinstance(workload, Workload):
            return decide(workload, before, observed, now)
        meta = job.metadata
        if self.api.minimal_workload is not None and meta.deletion_timestamp is None:
            return plan_invalid_cleanup(self.api.minimal_workload(job), before, workload, observed, now)
        return plan_invalid(before, workload, meta.generation, now)

    def _track_gang(self, key: Key, workload: Workload | None, plan: Plan) -> None:
        """Register a waiting gang for new capacity, and reserve capacity for pods that are created now.

        Called before anything is awaited: other jobs must not be given the same capacity meanwhile.
        """
        if workload is None:
            return
        waiting = plan.record.waiting
        if waiting and waiting.reason in (reasons.QUEUED, reasons.GANG_SCHEDULER_MISSING):
            self.caches.pod_groups.waiting.add(self._waiting_job(key))
        else:
            self.caches.pod_groups.waiting.discard(self._waiting_job(key))
        created = Counter(action.role for action in plan.actions if isinstance(action, CreatePod))
        if created and plan.record.gang_scheduler == BUILTIN.name:
            self.caches.capacity.reserve(workload, created)

    def _report(
        self, key: Key, workload: Workload | None, before: Record | None, plan: Plan, written: Written[T]
    ) -> None:
        """Update metrics and the log, and emit events."""
        self.metrics.record_plan(self.kind, key, workload, before, plan)
        _log_phase_change(before, plan.record)
        for change in written.changes:
            for event in self.api.status_events(change):
                self.recorder.event(written.job, event.type, event.reason, event.message)

    async def _execute(self, job: T, workload: Workload, plan: Plan, state: JobState) -> None:
        """Start what runs in the background, and execute the rest.

        Even without actions: answers and failures of actions that are no longer planned are forgotten.
        """
        actions = [action for action in plan.actions if not isinstance(action, Exec)]
        execs = [action for action in plan.actions if isinstance(action, Exec)]
        recorded = state.status.flush_at is None or state.status.deferred is not None
        self.background.update(key_of(job), state.uid, execs, recorded=recorded)
        if not actions and not state.retries.failures:
            return
        executor = ActionExecutor(
            self.client,
            self.clock,
            self.caches,
            workload,
            self.api.kind,
            state,
            self.pods.for_job(workload, self.api.inject, plan.record).render,
            lambda *replica: self.api.pod_name(workload, *replica),
            self.pods.bodies,
            self.pods.context.features,
        )
        results = await executor.execute(actions)
        for event in self.api.action_events(job, results):
            self.recorder.event(job, event.type, event.reason, event.message)

    async def _patch_spec(self, job: T, patch: Json, state: JobState) -> Requeue:
        """Patch the object itself, unless somebody else wrote it; the next reconcile sees the result.

        Not while the status is deferred: in a burst, pods are created before defaults are written.
        """
        meta = job.metadata
        metadata = patch.get("metadata")
        precondition = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        body = {**patch, "metadata": {**(metadata if isinstance(metadata, dict) else {}), **precondition}}
        try:
            patched = await self.client.patch(self.api.kind, meta.name, body, meta.namespace)
        except (Conflict, NotFound):
            return RETRY  # the watch brings what was written in between, or the deletion
        self.jobs.put(patched, own=True)
        state.status.rebase_deferred(meta.resource_version, patched.metadata.resource_version)
        return Requeue(0.0)

    def _requeue_after(
        self,
        key: Key,
        plan: Plan,
        observed: Observed,
        state: JobState,
        now: datetime,
        *,
        has_converged: bool,
    ) -> Requeue | None:
        """Return when to reconcile again if nothing changes before; None for never."""
        retries = state.retries
        if state.hints.confirmed_absent or tuple(retries.failures.values()) != observed.failed_actions:
            return Requeue(0.0)  # the answers are input of the next reconcile
        monotonic = self.clock.monotonic()
        times = (state.status.flush_at, state.recheck_at, retries.next_retry_at())
        delays = [at - monotonic for at in times if at is not None]
        if any(isinstance(action, CreatePod) for action in plan.actions):
            probe_at = retries.slow_start.probe_at
            wait = CREATED_RECHECK_SECONDS if probe_at is None else probe_at - monotonic
            delays.append(0.0 if retries.slow_start.unfinished else wait)
        elif not has_converged:
            delays.append(FOLLOW_UP_SECONDS)
        if plan.requeue_at is not None:
            delays.append((plan.requeue_at - now).total_seconds())
        if plan.record.finished_at and not delays:
            self.states.pop(key, None)
        return Requeue(max(min(delays), 0.0)) if delays else None

    async def begin_term(self) -> None:
        """Prepare for a new term of leadership."""
        await self.status.term.begin()

    def end_term(self) -> None:
        """Forget what was decided and not written: it must not be written in a later term."""
        self.states.clear()
        self.background.clear()
        self.status.term.end()

    def on_removal(self, key: Key, uid: str) -> bool:
        """Return True if a child that was removed was removed by us: nothing waits for that."""
        state = self.states.get(key)
        return state is not None and uid in state.written.removed

    def on_pod_terminating(self, key: Key, role_name: str, uid: str) -> bool:
        """Note that a pod terminates; return True if nothing happens before it is gone.

        That is so if it was deleted by us, or if only that pod is replaced.
        """
        state = self.states.get(key)
        workload = state.workload.workload if state is not None and state.workload is not None else None
        if state is None or not isinstance(workload, Workload) or role_name not in workload.roles:
            return False
        if uid in state.hints.deleted_uids:
            return True
        self.status.bursts.for_namespace(key.namespace).observe_job(state.uid, self.clock.monotonic())
        role = workload.roles[role_name]
        refilled = workload.restart_scope(role) is RestartScope.POD and not role.replacement.next_index
        return refilled and role.restart is not RestartPolicy.NEVER

    def on_crd_changed(self) -> list[Key]:
        """Unblock all jobs; return those that were blocked."""
        self.status.record_support.on_crd_changed(jobs_were_read=self.jobs.synced)
        unblock = self.status.compatibility.unblock
        return [key for key, state in self.states.items() if unblock(state.block)]

    def on_job_deleted(self, job: T) -> None:
        self._forget(key_of(job))
        self.recorder.forget(job.metadata.uid)

    def _forget(self, key: Key) -> None:
        self.states.pop(key, None)
        self.background.forget(key)
        self.caches.pod_groups.waiting.discard(self._waiting_job(key))
        self.metrics.forget_job(self.kind, key)

    def _state(self, key: Key, job: T) -> JobState:
        state = self.states.get(key)
        if state is None or state.uid != job.metadata.uid:
            state = self.states[key] = JobState(uid=job.metadata.uid)
        return state

    def _waiting_job(self, key: Key) -> WaitingJob:
        return self.api.resource.group, self.api.resource.kind, key

    def _clear_undecodable(self, change: Change[T]) -> None:
        if change.new is not None:
            self.undecodable.clear(key_of(change.new))


def _log_phase_change(before: Record | None, after: Record) -> None:
    """Log every change of phase and every new attempt."""
    old_phase = before.phase if before else ""
    if old_phase == after.phase and (before is None or before.attempt == after.attempt):
        return
    add_log_context(attempt=after.attempt)
    log.info(
        "phase changed",
        phase=after.phase,
        previous_phase=old_phase,
        reason=after.reason,
        message=after.message,
    )
