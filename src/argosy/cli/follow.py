"""Follows one job to its end: prints every change of its phase, and the output of its pods.

It uses the engine's caches, so that a restart of the API server or a dropped connection does no harm: the
caches resume and report every pod, also those deleted meanwhile, and each log is read to its end.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import ClassVar, Literal

import click
from msgspec import Struct, field

from argosy.cli.container_log import ContainerLog, LogSource
from argosy.cli.jobkinds import pods_of, summarize
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.objects import ApiObject, version_of
from argosy.kinds.kubernetes import ContainerStatus, Pod, PodStatus
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.summary import PodLabels
from argosy.workload.reasons import INVALID_SPEC

Outcome = Literal["Succeeded", "Failed", "Deleted", "Rejected"]

_COLOURS = ("cyan", "yellow", "green", "magenta", "blue", "bright_red", "bright_cyan", "bright_yellow")
_PHASE_COLOURS = {"Succeeded": "green", "Failed": "red", "Running": "cyan", "Restarting": "yellow"}
_DRAIN_SECONDS = 5.0
"""How long to wait for the last lines after a job has ended. The time starts again while a stream is broken,
as when a node restarts, and while the watch of the pods lags behind.
"""
_MAX_DRAIN_SECONDS = 30.0
_CATCH_UP_POLL_SECONDS = 0.1


class _Container(Struct):
    name: str


class _Spec(Struct):
    containers: list[_Container] = field(default_factory=list)


class LogPod(Struct):
    """A pod with the names of its containers, which are known before any status is."""

    resource: ClassVar[Resource] = Pod.resource

    metadata: ObjectMeta
    spec: _Spec = field(default_factory=_Spec)
    status: PodStatus = field(default_factory=PodStatus)


class Printer:
    """Prints lines with their source in front; each pod keeps its colour."""

    def __init__(self, write: Callable[[str], None] = click.echo) -> None:
        self._write = write
        self._colours: dict[str, str] = {}
        self._width = 0

    def phase(self, name: str, phase: str, text: str) -> None:
        styled = click.style(f"{phase:<10}", fg=_PHASE_COLOURS.get(phase), bold=True)
        self._write(f"{click.style(name, bold=True)}  {styled} {text}".rstrip())

    def line(self, source: str, text: str) -> None:
        colour = self._colours.setdefault(source, _COLOURS[len(self._colours) % len(_COLOURS)])
        self._width = max(self._width, len(source))
        self._write(f"{click.style(f'{source:<{self._width}} │', fg=colour)} {text}")


class Follower:
    """Prints the phases and the output of one job until it has ended."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        printer: Printer,
        *,
        kind: type[ApiObject] = TrainingRun,
        role: str | None = None,
        index: int | None = None,
        tail: int | None = None,
        stop_if_rejected: bool = False,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._printer = printer
        self._kind = kind
        self._pods = pods_of(kind)
        self._labels = self._pods.selector(name, role, index)
        self._tail = tail
        self._stop_if_rejected = stop_if_rejected
        self._last_reported = ("", "")
        self._final_status: tuple[str, str] | None = None
        self._logs: dict[tuple[str, str], ContainerLog] = {}
        self._newest_logs: dict[str, ContainerLog] = {}
        """The log of the newest pod of each replica, by the label in front of its lines."""
        self._broken_at = 0.0
        self._outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    async def outcome(self) -> Outcome:
        """Follow the job until it has ended and its last lines are printed; return how it ended."""
        selector = f"metadata.name={self._name}"
        jobs = Cache[ApiObject](self._client, self._kind, namespace=self._namespace, fields=selector)
        jobs.subscribe(self._job_changed)
        pods = Cache(self._client, LogPod, namespace=self._namespace, labels=self._labels)
        pods.subscribe(self._pod_changed)
        tasks = [asyncio.create_task(cache.run()) for cache in (jobs, pods)]
        try:
            outcome = await self._outcome
            await self._drain(pods)
            if self._final_status:
                self._printer.phase(self._name, *self._final_status)
            return outcome
        finally:
            tasks += self._active_reads()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _drain(self, pods: Cache[LogPod]) -> None:
        """Wait for the last lines of all pods, also of those that the cache has not seen yet."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        caught_up = False
        while True:
            if not caught_up and not (caught_up := await self._is_caught_up(pods)):
                self._mark_broken()
            reading = self._active_reads()
            end = min(max(started, self._broken_at) + _DRAIN_SECONDS, started + _MAX_DRAIN_SECONDS)
            left = end - loop.time()
            if left <= 0 or (caught_up and not reading):
                return
            if caught_up:
                await asyncio.wait(reading, timeout=left)
            else:
                await asyncio.sleep(min(left, _CATCH_UP_POLL_SECONDS))

    async def _is_caught_up(self, pods: Cache[LogPod]) -> bool:
        """Return True if the cache has every existing pod, and so has seen every deleted one."""
        try:
            listed = (await self._client.list(LogPod, self._namespace, labels=self._labels)).items
        except ApiError:
            return False
        for pod in listed:
            self._pod_changed(Change(None, pod))
        cached = {pod.metadata.uid: version_of(pod) for pod in pods}
        current = {pod.metadata.uid: version_of(pod) for pod in listed}
        return cached.keys() == current.keys() and all(cached[uid] >= current[uid] for uid in current)

    def _active_reads(self) -> list[asyncio.Task[None]]:
        return [task for transcript in self._logs.values() if (task := transcript.reading)]

    def _mark_broken(self) -> None:
        self._broken_at = asyncio.get_running_loop().time()

    def _job_changed(self, change: Change[ApiObject]) -> None:
        if change.new is None:
            self._set_outcome("Deleted")
            return
        job = summarize(change.new)
        status = (job.phase, job.message or job.reason)
        if job.phase in ("Succeeded", "Failed"):
            self._final_status = status  # printed after the last lines of the pods
            self._set_outcome("Succeeded" if job.phase == "Succeeded" else "Failed")
        elif status != self._last_reported:
            self._last_reported = status
            self._printer.phase(self._name, *status)
            if self._stop_if_rejected and job.reason == INVALID_SPEC and not job.started:
                self._set_outcome("Rejected")

    def _set_outcome(self, outcome: Outcome) -> None:
        if not self._outcome.done():
            self._outcome.set_result(outcome)

    def _pod_changed(self, change: Change[LogPod]) -> None:
        if change.new is not None:
            for container in change.new.status.container_statuses:
                if _has_run(container):
                    self._container_log(change.new, container.name).run_started(container.restart_count)
        elif change.old is not None:
            for declared in change.old.spec.containers:
                self._container_log(change.old, declared.name).pod_deleted()

    def _container_log(self, pod: LogPod, container: str) -> ContainerLog:
        key = (pod.metadata.uid, container)
        if key not in self._logs:
            several = len(pod.spec.containers) > 1
            source = self._pods.replica(pod.metadata.labels, container if several else "")
            self._logs[key] = self._newest_logs[source] = ContainerLog(
                self._client,
                LogSource(self._namespace, pod.metadata.name, pod.metadata.uid, container),
                lambda text: self._printer.line(source, text),
                self._mark_broken,
                self._tail,
                predecessor=self._newest_logs.get(source),
            )
        return self._logs[key]


def sort_pods(pods: Iterable[Pod], labels: PodLabels) -> list[Pod]:
    """Return the pods sorted by role and index."""
    return sorted(pods, key=lambda pod: (*labels.sort_key(pod.metadata.labels), pod.metadata.name))


def _has_run(container: ContainerStatus) -> bool:
    """Return True if the run that `restartCount` counts has started; in a back-off that is the last run."""
    state = container.state
    return bool(state.running or state.terminated or container.last_state.terminated)
