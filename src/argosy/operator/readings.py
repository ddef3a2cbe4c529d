"""What a pod may ask about its own job, answered from the caches that every replica keeps, leader or not."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, Protocol, TypeVar, cast

from msgspec import Struct

from argosy.dialects.base import Dialect
from argosy.engine.cache import Cache, Change
from argosy.frameworks.common import slots
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.reconcile.caches import OWNER, Caches
from argosy.reconcile.run import T
from argosy.workload.model import Phase, Problems
from argosy.workload.record import LaterRecordError, Record

R = TypeVar("R")

_ORDER = (Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED)


class RoleReading(Struct, frozen=True, omit_defaults=True):
    """Where a role is, and what that means to somebody who waits for a phase of it."""

    role: str
    phase: str
    reached: bool = False
    hopeless: bool = False
    """The phase will not be reached any more."""
    state: str = ""
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


class JobReading(Struct, frozen=True):
    """One job as its pods may see it."""

    kind: str
    uid: str
    namespace: str
    record: Record
    slots: dict[str, int]


class Source(Protocol):
    """Finds jobs of one dialect."""

    def find(self, namespace: str, name: str) -> JobReading | None: ...


class DialectSource(Generic[T]):
    def __init__(self, dialect: Dialect[T], jobs: Cache[T]) -> None:
        self.dialect = dialect
        self.jobs = jobs

    def find(self, namespace: str, name: str) -> JobReading | None:
        job = self.jobs.get(namespace, name)
        if job is None:
            return None
        workload = self.dialect.lower(job)
        roles = {} if isinstance(workload, Problems) else workload.roles
        return JobReading(
            kind=self.dialect.resource.kind,
            uid=job.metadata.uid,
            namespace=namespace,
            record=_record(self.dialect, job),
            slots={name: slots(role) for name, role in roles.items()},
        )


def _record(dialect: Dialect[T], job: T) -> Record:
    try:
        return dialect.record(job) or Record()
    except LaterRecordError:
        return Record()


NEWS = 2.0
"""Seconds for which those who wait may not be told that pods come and go. What they wait for they are told at
once; each answer that is something else brings a new question, from every pod that waits."""

BREATH = 0.2
"""Seconds from a change of pods to the look at what it means: they come in groups."""


class Changes:
    """What wakes somebody who has asked about a job and waits."""

    def __init__(self) -> None:
        self._any = asyncio.Event()
        self._told = asyncio.Event()

    def happened(self, *, told: bool) -> None:
        """To the job's pods, or to what the job itself tells."""
        self._any.set()
        if told:
            self._told.set()

    async def happen(self, deadline: float) -> bool:
        """Whether something changed before the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await self._any.wait()
                with suppress(TimeoutError):
                    async with asyncio.timeout(BREATH):
                        await self._told.wait()
        except TimeoutError:
            return False
        self._any.clear()
        self._told.clear()
        return True


class Readings:
    def __init__(self, caches: Caches, cluster_domain: str) -> None:
        self.caches = caches
        self.cluster_domain = cluster_domain
        self.sources: list[Source] = []
        self._waiting: dict[tuple[str, str], set[Changes]] = {}
        self._known: dict[tuple[str, str], list[JobReading]] = {}
        """Jobs as last read, until something about them changes: a thousand pods may ask the same thing."""
        self._made: dict[str, dict[str, object]] = {}
        """Answers made from them, by the job's uid and what was asked."""
        self.closing = False
        """Questions are held back no longer."""
        caches.pods.subscribe(self._pod_changed)

    def let_go(self) -> None:
        """Have every question that is held back answered with what is known: nobody waits here again."""
        self.closing = True
        for waiting in self._waiting.values():
            for changes in waiting:
                changes.happened(told=True)

    def add(self, dialect: Dialect[T], jobs: Cache[T]) -> None:
        self.sources.append(DialectSource(dialect, jobs))
        jobs.subscribe(self._job_changed)

    def find(self, namespace: str, name: str) -> Sequence[JobReading]:
        """The jobs of that name: at most one of each kind."""
        known = self._known.get((namespace, name))
        if known is None:
            found = (source.find(namespace, name) for source in self.sources)
            known = [job for job in found if job is not None]
            if known:
                self._known[namespace, name] = known
        return known

    @contextmanager
    def changes(self, namespace: str, name: str) -> Iterator[Changes]:
        """Hears of whatever happens to the job."""
        changes = Changes()
        waiting = self._waiting.setdefault((namespace, name), set())
        waiting.add(changes)
        try:
            yield changes
        finally:
            waiting.discard(changes)
            if not waiting:
                self._waiting.pop((namespace, name), None)

    def once(self, job: JobReading, asked: str, make: Callable[[], R]) -> R:
        """An answer, made once for all who ask the same until something about the job changes."""
        made = self._made.setdefault(job.uid, {})
        if asked not in made:
            made[asked] = make()
        return cast("R", made[asked])

    def role(self, job: JobReading, role: str, wanted: str) -> RoleReading | None:
        """None if the job has no such role."""
        return self.once(job, f"{role}={wanted}", lambda: self._role(job, role, wanted))

    def _role(self, job: JobReading, role: str, wanted: str) -> RoleReading | None:
        if role not in job.slots and role not in job.record.roles:
            return None
        record, pods = job.record.role(role), self.pods(job, role)
        running = sum(pod.status.phase == "Running" for pod in pods)
        reached = _reached(wanted, record.phase)
        ended = job.record.phase.terminal or record.phase.terminal
        text = f"{record.phase}, {running} of {len(pods)} pods running"
        if ended and not reached:
            text = f"role {role} is {record.phase} and the job {job.record.phase}"
        return RoleReading(
            role=role,
            phase=record.phase,
            reached=reached,
            hopeless=ended and not reached,
            state=f"{record.phase}-{job.record.phase}-{running}-{len(pods)}",
            message=text,
        )

    def hosts(self, job: JobReading, role: str = "") -> list[Host]:
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

    def pods(self, job: JobReading, role: str) -> list[Pod]:
        """Those that are not on their way out. One whose labels do not say which place it has has none."""
        return [
            pod
            for pod in self.caches.pods.by(OWNER, job.uid)
            if pod.metadata.deletion_timestamp is None
            and pod.metadata.labels.get(labels.INDEX, "").isdecimal()
            and (not role or pod.metadata.labels.get(labels.ROLE) == role)
        ]

    def _pod_changed(self, change: Change[Pod]) -> None:
        pod = change.new or change.old
        owner = pod.metadata.controller if pod else None
        if pod and owner:
            self._wake(pod.metadata.namespace, owner.name, told=False)

    def _job_changed(self, change: Change[T]) -> None:
        job = change.new or change.old
        if job is not None:
            self._wake(job.metadata.namespace, job.metadata.name, told=True)

    def _wake(self, namespace: str, name: str, *, told: bool) -> None:
        for job in self._known.pop((namespace, name), ()):
            self._made.pop(job.uid, None)
        for changes in self._waiting.get((namespace, name), ()):
            changes.happened(told=told)


def index_of(pod: Pod) -> int:
    return int(pod.metadata.labels[labels.INDEX])


def _reached(wanted: str, phase: Phase) -> bool:
    """A later phase is as good as the wanted one, but only Failed is Failed."""
    if wanted == phase:
        return True
    known: Iterable[str] = _ORDER
    return wanted in known and phase in _ORDER and _ORDER.index(Phase(wanted)) < _ORDER.index(phase)
