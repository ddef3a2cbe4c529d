"""What a pod may ask about its own job, answered from the caches that every replica keeps, leader or not."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Struct

from argosy.dialects.base import Job, JobApi, T, read_record
from argosy.engine.cache import Cache, Change
from argosy.frameworks.common import slots
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.plan.record import UnsupportedVersionError
from argosy.reconcile.caches import Caches
from argosy.reconcile.owners import OWNER, owner_key
from argosy.workload.model import Phase, Problems
from argosy.workload.record import Record

R = TypeVar("R")

_PHASE_ORDER = (Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED)
ROLE_PHASES = (*_PHASE_ORDER, Phase.FAILED)

CacheKey: TypeAlias = tuple[str, Phase] | Literal["all roles"]
"""What an answer is remembered under: a role of the job and a phase, never text that a client chose."""


class RoleView(Struct, frozen=True, omit_defaults=True):
    """Where a role is, and what that means to somebody who waits for a phase of it."""

    role: str
    phase: str
    reached: bool = False
    unreachable: bool = False
    """The phase will not be reached any more."""
    etag: str = ""
    """Changes whenever this reading does; hand it back to be answered at the next change."""
    message: str = ""


class Host(Struct, frozen=True):
    name: str
    """Host name, as the pod itself has it."""
    address: str
    """Full DNS name, or the host name where the role has no service."""
    pod: str
    ip: str
    role: str
    index: int
    slots: int


class JobView(Struct, frozen=True):
    """One job as its pods may see it, until something about it changes."""

    kind: str
    uid: str
    namespace: str
    record: Record
    slots: dict[str, int]
    cached: dict[CacheKey, object] = msgspec.field(default_factory=dict)
    """Answers made from this reading; they are forgotten with it."""

    def has_role(self, role: str) -> bool:
        return role in self.slots or role in self.record.roles


class JobSource(Protocol):
    """Finds jobs of one dialect."""

    def uid(self, namespace: str, name: str) -> str:
        """Return the job's uid, or an empty string if there is no such job."""
        ...

    def find(self, namespace: str, name: str) -> JobView | None: ...


class DialectSource(Generic[T]):
    def __init__(self, api: JobApi[T], jobs: Cache[T]) -> None:
        self.api = api
        self.jobs = jobs

    def uid(self, namespace: str, name: str) -> str:
        job = self.jobs.get(namespace, name)
        return job.metadata.uid if job is not None else ""

    def find(self, namespace: str, name: str) -> JobView | None:
        job = self.jobs.get(namespace, name)
        if job is None:
            return None
        workload = self.api.dialect.to_workload(job)
        roles = {} if isinstance(workload, Problems) else workload.roles
        return JobView(
            kind=self.api.resource.kind,
            uid=job.metadata.uid,
            namespace=namespace,
            record=_record(job),
            slots={name: slots(role) for name, role in roles.items()},
        )


def _record(job: Job) -> Record:
    try:
        return read_record(job) or Record()
    except UnsupportedVersionError:
        return Record()


COUNT_UPDATE_SECONDS = 2.0
"""Seconds for which those who wait may not be told that pods come and go. What they wait for they are told at
once; each answer that is something else brings a new question, from every pod that waits."""

DEBOUNCE_SECONDS = 0.2
"""Seconds from a change of pods to the look at what it means: they come in groups."""


MAX_UNKNOWN_WAITS = 64
"""Questions without a valid token that are held at once, in case their job has only not been seen yet."""


class TooManyWaitsError(Exception):
    """As many questions about unknown jobs are held as may be; the client should ask again later."""


class ChangeSignal:
    """What wakes somebody who has asked about a job and waits."""

    def __init__(self) -> None:
        self._any = asyncio.Event()
        self._record_changed = asyncio.Event()

    def notify(self, *, record_changed: bool) -> None:
        """To the job's pods, or to what the job itself tells."""
        self._any.set()
        if record_changed:
            self._record_changed.set()

    async def wait(self, deadline: float) -> bool:
        """Whether something changed before the deadline."""
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


class JobViews:
    def __init__(self, caches: Caches, cluster_domain: str) -> None:
        self.caches = caches
        self.cluster_domain = cluster_domain
        self.sources: list[JobSource] = []
        self._waiting: dict[tuple[str, str], set[ChangeSignal]] = {}
        self._views: dict[tuple[str, str], dict[str, JobView]] = {}
        """Jobs as last read, by name and uid, until something about them changes: a thousand pods may ask the
        same thing. Only jobs that exist are in it, and only once somebody with their token has asked."""
        self._unknown_waits = 0
        self.closing = False
        """Questions are held back no longer."""
        caches.pods.subscribe(self._pod_changed)

    def release_waiters(self) -> None:
        """Have every question that is held back answered with what is known: nobody waits here again."""
        self.closing = True
        for waiting in self._waiting.values():
            for changes in waiting:
                changes.notify(record_changed=True)

    def add(self, api: JobApi[T], jobs: Cache[T]) -> None:
        self.sources.append(DialectSource(api, jobs))
        jobs.subscribe(self._job_changed)

    def find(self, namespace: str, name: str, admits: Callable[[str], bool]) -> Sequence[JobView]:
        """Return the jobs of that name whose uid is admitted: at most one of each kind.

        The others are not looked at: translating a job takes time that only its own pods may ask for.
        """
        return [job for source in self.sources if (job := self._view(source, namespace, name, admits))]

    def _view(
        self, source: JobSource, namespace: str, name: str, admits: Callable[[str], bool]
    ) -> JobView | None:
        uid = source.uid(namespace, name)
        if not uid or not admits(uid):
            return None
        known = self._views.get((namespace, name), {})
        if uid not in known:
            job = source.find(namespace, name)
            if job is None:
                return None
            self._views.setdefault((namespace, name), {})[uid] = job
            return job
        return known[uid]

    @contextmanager
    def subscribe(self, namespace: str, name: str) -> Iterator[ChangeSignal]:
        """Hears of whatever happens to the job."""
        changes = ChangeSignal()
        waiting = self._waiting.setdefault((namespace, name), set())
        waiting.add(changes)
        try:
            yield changes
        finally:
            waiting.discard(changes)
            if not waiting:
                self._waiting.pop((namespace, name), None)

    async def wait_for_unknown_job(self, changes: ChangeSignal, deadline: float) -> bool:
        """Wait, for a client whose job is not known, whether something changes before the deadline.

        Raises `TooManyWaitsError` at once when too many do: anybody may ask about jobs that do not exist.
        """
        if self._unknown_waits >= MAX_UNKNOWN_WAITS:
            raise TooManyWaitsError(
                f"{MAX_UNKNOWN_WAITS} questions about unknown jobs are waiting; ask again"
            )
        self._unknown_waits += 1
        try:
            return await changes.wait(deadline)
        finally:
            self._unknown_waits -= 1

    def memoize(self, job: JobView, question: CacheKey, make: Callable[[], R]) -> R:
        """An answer, made once for all who ask the same until something about the job changes."""
        if question not in job.cached:
            job.cached[question] = make()
        return cast("R", job.cached[question])

    def role(self, job: JobView, role: str, wanted: Phase) -> RoleView:
        """Where a role is that the job has (`has_role`)."""
        return self.memoize(job, (role, wanted), lambda: self._role(job, role, wanted))

    def _role(self, job: JobView, role: str, wanted: Phase) -> RoleView:
        record, pods = job.record.role(role), self.pods(job, role)
        running = sum(pod.status.phase == "Running" for pod in pods)
        reached = is_reached(wanted, record.phase)
        ended = job.record.phase.terminal or record.phase.terminal
        text = f"{record.phase}, {running} of {len(pods)} pods running"
        if ended and not reached:
            text = f"role {role} is {record.phase} and the job {job.record.phase}"
        return RoleView(
            role=role,
            phase=record.phase,
            reached=reached,
            unreachable=ended and not reached,
            etag=f"{record.phase}-{job.record.phase}-{running}-{len(pods)}",
            message=text,
        )

    def hosts(self, job: JobView, role: str = "") -> list[Host]:
        """The job's pods in the order of their places; one that is on its way out is no host."""
        hosts = [
            Host(
                name=pod.spec.hostname,
                address=self._address(pod),
                pod=pod.metadata.name,
                ip=pod.status.pod_ip,
                role=pod.metadata.labels.get(labels.ROLE, ""),
                index=index_of(pod),
                slots=job.slots.get(pod.metadata.labels.get(labels.ROLE, ""), 1),
            )
            for pod in self.pods(job, role)
            if pod.status.phase not in ("Succeeded", "Failed")
        ]
        return sorted(hosts, key=lambda host: (host.role, host.index))

    def _address(self, pod: Pod) -> str:
        if not pod.spec.subdomain:
            return pod.spec.hostname
        names = (pod.spec.hostname, pod.spec.subdomain, pod.metadata.namespace, "svc", self.cluster_domain)
        return ".".join(names)

    def pods(self, job: JobView, role: str) -> list[Pod]:
        """Those that are not on their way out. One whose labels do not say which place it has has none."""
        return [
            pod
            for pod in self.caches.pods.by(OWNER, owner_key(job.namespace, job.uid))
            if pod.metadata.deletion_timestamp is None
            and pod.metadata.labels.get(labels.INDEX, "").isdecimal()
            and (not role or pod.metadata.labels.get(labels.ROLE) == role)
        ]

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        owner = pod.metadata.controller if pod else None
        if pod and owner:
            self._notify(pod.metadata.namespace, owner.name, told=False)

    def _job_changed(self, change: Change[T]) -> None:
        job = change.new or change.old
        if job is not None:
            self._notify(job.metadata.namespace, job.metadata.name, told=True)

    def _notify(self, namespace: str, name: str, *, told: bool) -> None:
        self._views.pop((namespace, name), None)
        for changes in self._waiting.get((namespace, name), ()):
            changes.notify(record_changed=told)


def index_of(pod: Pod) -> int:
    return int(pod.metadata.labels[labels.INDEX])


def is_reached(wanted: Phase, phase: Phase) -> bool:
    """A later phase is as good as the wanted one, but only Failed is Failed."""
    if wanted == phase:
        return True
    return (
        wanted in _PHASE_ORDER
        and phase in _PHASE_ORDER
        and _PHASE_ORDER.index(wanted) < _PHASE_ORDER.index(phase)
    )
