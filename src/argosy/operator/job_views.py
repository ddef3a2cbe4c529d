"""What pods may learn about their own job, read from the caches that every replica keeps, leader or not."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from argosy.dialects.base import Job, JobApi, T, read_record
from argosy.engine.cache import Cache, Change
from argosy.engine.clock import Clock
from argosy.engine.objects import ApiObject
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.plan.record import UnsupportedVersionError
from argosy.reconcile.caches import Caches
from argosy.reconcile.job_state import WorkloadCache, workload_version
from argosy.reconcile.owners import OWNER, owner_key
from argosy.workload.dependencies import evaluate
from argosy.workload.host_files import LiveFile, render_host_files
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Dependency, Phase, Problems, Workload
from argosy.workload.record import Record
from argosy.workload.saves import last_epoch

R = TypeVar("R")
J = TypeVar("J", bound=ApiObject)

COUNT_UPDATE_SECONDS = 2.0
"""Delay before waiting pods learn about changed pod counts. Reaching the awaited phase is reported
immediately; count updates are batched, because every response makes every waiting pod ask again."""

DEBOUNCE_SECONDS = 0.2
"""Delay between a change of a pod and a new response: pods of a job change in groups."""

MAX_UNKNOWN_WAITS = 64
"""Requests without a valid token that wait at once, in case the cache does not have their job yet."""

MAX_WORKLOADS = 256
"""Jobs whose translation is remembered, so that a change of their status does not translate them again."""

CacheKey: TypeAlias = tuple[str, Phase] | Literal["all roles", "hosts"]
"""Key of a cached response: a role of the job and a phase, never text that a client chose."""


class RoleView(Struct, frozen=True, omit_defaults=True):
    """The state of a role, for a pod that waits for one of its phases."""

    role: str
    phase: str
    reached: bool = False
    unreachable: bool = False
    """The phase will not be reached any more."""
    etag: str = ""
    """Changes whenever this response does; a request with it is answered at the next change."""
    message: str = ""


class HostsView(Struct, frozen=True, rename="camel"):
    """The host files of a launcher, as the Record has them."""

    etag: str
    version: int
    """Of the host list: a client ignores a lower one than it has, which a replica sent whose cache lags."""
    version_file: str
    """The file in the launcher that holds the version, written before the others."""
    files: tuple[LiveFile, ...]


class OrderView(Struct, frozen=True):
    """The order to save a checkpoint, as one replica of a job gets it; the sidecar writes it as it is."""

    version: int
    """Of this form."""
    epoch: int
    action: Literal["Save", "None"]
    reason: str = ""
    by: datetime | None = None
    stop: bool = False


class JobView(Struct, frozen=True):
    """One job as its pods may see it; dropped when the job or one of its pods changes."""

    uid: str
    namespace: str
    status: Struct
    record: Record
    roles: frozenset[str]
    """Roles in the job's spec; none if that is invalid."""
    cached: dict[CacheKey, object] = msgspec.field(default_factory=dict)
    """Responses made from this view."""
    workload: Workload | None = None
    """None if the job's spec is invalid."""
    pods: Sequence[Pod] | None = None
    """The job's pods; None: those whose controller is the job."""

    def has_role(self, role: str) -> bool:
        return role in self.roles or role in self.record.roles


class JobSource(Protocol):
    """Finds the jobs of one API."""

    def uid(self, namespace: str, name: str) -> str:
        """Return the job's uid, or an empty string if there is no such job."""
        ...

    def find(self, namespace: str, name: str) -> JobView | None: ...


class _CachedJobs(Generic[T]):
    """Finds the jobs of one API in its cache."""

    def __init__(self, api: JobApi[T], jobs: Cache[T]) -> None:
        self._api = api
        self._jobs = jobs
        self._workloads: dict[str, WorkloadCache] = {}
        """By uid, of the jobs that were asked for last."""

    def uid(self, namespace: str, name: str) -> str:
        job = self._jobs.get(namespace, name)
        return job.metadata.uid if job is not None else ""

    def find(self, namespace: str, name: str) -> JobView | None:
        job = self._jobs.get(namespace, name)
        if job is None:
            return None
        translated = self._translate(job)
        workload = None if isinstance(translated, Problems) else translated
        roles = frozenset(workload.roles if workload else ())
        return JobView(job.metadata.uid, namespace, job.status, _record(job), roles, workload=workload)

    def _translate(self, job: T) -> Workload | Problems:
        """Return the job as a workload, translated once for each version of what that is made from."""
        meta = job.metadata
        version = workload_version(meta)
        cached = self._workloads.get(meta.uid)
        if cached is None or cached.version != version:
            cached = WorkloadCache(version, self._api.dialect.to_workload(job))
            self._workloads[meta.uid] = cached
            if len(self._workloads) > MAX_WORKLOADS:
                del self._workloads[next(iter(self._workloads))]
        return cached.workload


def _record(job: Job) -> Record:
    try:
        return read_record(job) or Record()
    except UnsupportedVersionError:
        return Record()


class TooManyWaitsError(Exception):
    """Too many requests about unknown jobs are waiting; the client should try again later."""


class ChangeSignal:
    """Wakes a request that waits for a change of its job."""

    def __init__(self) -> None:
        self._any = asyncio.Event()
        self._record_changed = asyncio.Event()

    def notify(self, *, record_changed: bool) -> None:
        """Report a change of the job's status, or else of one of its pods only."""
        self._any.set()
        if record_changed:
            self._record_changed.set()

    async def wait(self, deadline: float) -> bool:
        """Return True as soon as something changed, False at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._any.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(DEBOUNCE_SECONDS):
                        await self._record_changed.wait()
        except TimeoutError:
            return False
        self._any.clear()
        self._record_changed.clear()
        return True

    async def wait_for_record(self, deadline: float) -> bool:
        """Return True as soon as the job's status changed, False at the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._record_changed.wait()
        except TimeoutError:
            return False
        self._record_changed.clear()
        return True


class JobViews:
    """The jobs of all APIs, by namespace and name."""

    def __init__(self, caches: Caches, clock: Clock) -> None:
        self.caches = caches
        self._clock = clock
        self.sources: list[JobSource] = []
        self._waiting: dict[tuple[str, str], set[ChangeSignal]] = {}
        self._views: dict[tuple[str, str], dict[str, JobView]] = {}
        """Views by namespace and name, then by uid, until something changes: a thousand pods may send the
        same request. Holds existing jobs only, and only after a request with their token."""
        self._unknown_waits = 0
        self.closing = False
        """True once requests no longer wait."""
        caches.pods.subscribe(self._on_pod_change)

    def release_waiters(self) -> None:
        """Answer all waiting requests with the current state; later ones do not wait."""
        self.closing = True
        for signals in self._waiting.values():
            for signal in signals:
                signal.notify(record_changed=True)

    def add(self, api: JobApi[T], jobs: Cache[T]) -> None:
        self.sources.append(_CachedJobs(api, jobs))
        jobs.subscribe(self._on_job_change)

    def add_source(self, source: JobSource, jobs: Cache[J]) -> None:
        """Answer also the pods of jobs of a kind that is not translated."""
        self.sources.append(source)
        jobs.subscribe(self._on_job_change)

    def pods_changed(self, namespace: str, job: str) -> None:
        """Look again at the pods of a job of such a kind."""
        self._notify(namespace, job, record_changed=False)

    def all_pods(self, job: JobView) -> list[Pod]:
        """Return all pods of a job."""
        if job.pods is not None:
            return list(job.pods)
        return list(self.caches.pods.by(OWNER, owner_key(job.namespace, job.uid)))

    def find(self, namespace: str, name: str, verify: Callable[[str], bool]) -> Sequence[JobView]:
        """Return the jobs of this name whose uid `verify` accepts: at most one of each kind.

        Other jobs are not translated, which takes time that only a job's own pods may cause.
        """
        return [job for source in self.sources if (job := self._view(source, namespace, name, verify))]

    def _view(
        self, source: JobSource, namespace: str, name: str, verify: Callable[[str], bool]
    ) -> JobView | None:
        uid = source.uid(namespace, name)
        if not uid or not verify(uid):
            return None
        views = self._views.get((namespace, name), {})
        if uid not in views:
            job = source.find(namespace, name)
            if job is None:
                return None
            self._views.setdefault((namespace, name), {})[uid] = job
            return job
        return views[uid]

    @contextmanager
    def subscribe(self, namespace: str, name: str) -> Iterator[ChangeSignal]:
        """Yield a signal of changes of the job and its pods."""
        signal = ChangeSignal()
        signals = self._waiting.setdefault((namespace, name), set())
        signals.add(signal)
        try:
            yield signal
        finally:
            signals.discard(signal)
            if not signals:
                self._waiting.pop((namespace, name), None)

    async def wait_for_unknown_job(self, changes: ChangeSignal, deadline: float) -> bool:
        """Wait for a change, on behalf of a client without a valid token; False at the deadline.

        Raises `TooManyWaitsError` if too many clients wait: anyone may ask about jobs that do not exist.
        """
        if self._unknown_waits >= MAX_UNKNOWN_WAITS:
            raise TooManyWaitsError(
                f"too many requests about unknown jobs are waiting ({MAX_UNKNOWN_WAITS}); try again later"
            )
        self._unknown_waits += 1
        try:
            return await changes.wait(deadline)
        finally:
            self._unknown_waits -= 1

    def memoize(self, job: JobView, key: CacheKey, make: Callable[[], R]) -> R:
        """Return a response that is made once, and then reused until the job changes."""
        if key not in job.cached:
            job.cached[key] = make()
        return cast("R", job.cached[key])

    def role(self, job: JobView, role: str, wanted: Phase) -> RoleView:
        """Return the state of one of the job's roles (`has_role`)."""
        state = evaluate(job.record, Dependency(role, wanted), self._clock.now())
        if state.unreachable:  # not memoized: it depends on the time
            phase = job.record.role(role).phase
            return RoleView(role=role, phase=phase, unreachable=True, message=state.unreachable)
        return self.memoize(job, (role, wanted), lambda: self._role(job, role, reached=state.reached))

    def member(self, job: JobView, role: str, index: int) -> RoleView:
        """Return whether the replica is a member of its role; before anything is recorded, all are."""
        last, ended = job.record.role(role), job.record.finished_at is not None
        return RoleView(
            role=role,
            phase=last.phase,
            reached=not ended and (index in last.members or not last.declared),
            unreachable=ended,
            etag=last.members.encode(),
            message="the job has finished" if ended else f"{last.size} of {last.declared} are members",
        )

    def _role(self, job: JobView, role: str, *, reached: bool) -> RoleView:
        record, pods = job.record.role(role), self.pods(job, role)
        running = sum(pod.status.phase == "Running" for pod in pods)
        return RoleView(
            role=role,
            phase=record.phase,
            reached=reached,
            etag=f"{record.phase}-{job.record.phase}-{running}-{len(pods)}",
            message=f"{record.phase}, {running} of {len(pods)} pods running",
        )

    def order(self, job: JobView, role: str, index: int, pod: tuple[int, int] = (0, 0)) -> OrderView:
        """Return the order in force, as far as it concerns this replica; otherwise that there is none.

        `pod` are the attempt and the replacement number of the pod that asks. One that is newer than the
        Record, which lags in this operator's cache, is not asked to stop: its predecessor was.
        """
        record = job.record
        order = record.order_in_force
        if order is None or order.level or record.finished_at is not None:
            return OrderView(1, last_epoch(record), "None")
        is_newer = pod > (record.attempt, record.replacement(role, index))
        stops = index in IndexSet.decode(order.stop.get(role, "")) and not is_newer
        return OrderView(1, order.epoch, "Save", order.reason, order.by, stops)

    def hosts(self, job: JobView) -> HostsView | None:
        """Return the host files of the job's launcher.

        None if no host is listed yet, and if this replica would render other files than the leader has
        recorded: its cache has a spec that the leader has not seen, or it is of another version.
        """
        return self.memoize(job, "hosts", lambda: _hosts(job))

    def pods(self, job: JobView, role: str) -> list[Pod]:
        """Return the pods of a role that are not terminating; pods without an index do not count."""
        return [
            pod
            for pod in self.caches.pods.by(OWNER, owner_key(job.namespace, job.uid))
            if pod.metadata.deletion_timestamp is None
            and pod.metadata.labels.get(labels.INDEX, "").isdecimal()
            and pod.metadata.labels.get(labels.ROLE) == role
        ]

    def _on_pod_change(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        owner = pod.metadata.controller if pod else None
        if pod and owner:
            self._notify(pod.metadata.namespace, owner.name, record_changed=False)

    def _on_job_change(self, change: Change[J]) -> None:
        job = change.new or change.old
        if job is not None:
            self._notify(job.metadata.namespace, job.metadata.name, record_changed=True)

    def _notify(self, namespace: str, name: str, *, record_changed: bool) -> None:
        self._views.pop((namespace, name), None)
        for signal in self._waiting.get((namespace, name), ()):
            signal.notify(record_changed=record_changed)


def _hosts(job: JobView) -> HostsView | None:
    rule = job.workload.rules.host_list if job.workload else None
    files = render_host_files(job.workload, job.record) if job.workload else None
    if rule is None or files is None or not files.digest:
        return None
    last = job.record.role(rule.role)
    if files.digest != last.listed_digest:
        return None
    return HostsView(last.listed_etag, files.version, files.version_file, files.live)


def index_of(pod: Pod) -> int:
    return int(pod.metadata.labels[labels.INDEX])
