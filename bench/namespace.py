"""One namespace of a benchmark, watched: when each pod and each job was first seen in which state.

All times are taken by one watcher, the same for the operator and for the baseline client.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import ClassVar

from msgspec import Struct

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds import kubernetes
from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.resource import Resource
from bench.baseline_client import IN_FLIGHT
from bench.load import per_second
from tests.support.simulator import RELEASED

TIMEOUT_SECONDS = 180.0
WORKER = "worker"
"""The role of most pods, whatever the API."""


class _Status(Struct, frozen=True):
    phase: str = ""


class WatchedPod(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    status: _Status = _Status()


class WatchedJob(Struct):
    resource: ClassVar[Resource]

    metadata: ObjectMeta
    status: _Status = _Status()


def worker_of(pod: WatchedPod) -> tuple[str, str] | None:
    """Return the job and the index of a worker; None for a pod of another role."""
    labels = pod.metadata.labels
    return (labels.get(JOB, ""), labels.get(INDEX, "")) if labels.get(ROLE) == WORKER else None


def _job_type(job_resource: Resource) -> type[WatchedJob]:
    class Kind(WatchedJob):
        resource: ClassVar[Resource] = job_resource

    return Kind


class Namespace:
    """The jobs and pods of one namespace, and when they changed."""

    def __init__(self, client: Client, name: str, job_resource: Resource) -> None:
        self.client = client
        self.name = name
        self._job_type = _job_type(job_resource)
        self.pods = Cache(client, WatchedPod, namespace=name)
        self.jobs = Cache(client, self._job_type, namespace=name)
        self.created: dict[str, float] = {}
        """When each pod was first seen, by uid."""
        self.running: dict[str, float] = {}
        """When each pod was first seen Running, by uid."""
        self.succeeded: dict[str, float] = {}
        """When each pod was first seen Succeeded, by uid."""
        self.worker_running: dict[str, float] = {}
        """When the newest worker of a job was first seen Running."""
        self.phases: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """When each job was first seen in a phase, by phase and name."""
        self._changed = asyncio.Event()
        self.pods.subscribe(self._pod_changed)
        self.jobs.subscribe(self._job_changed)

    async def wait_until(self, condition: Callable[[], bool], description: str) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            phases = {phase: len(jobs) for phase, jobs in self.phases.items()}
            state = f"{len(self.created)} pods created, {len(self.running)} running, jobs {phases}"
            raise TimeoutError(f"timeout: {description}: {state}") from None

    def notify(self) -> None:
        """Evaluate the conditions again that are waited for."""
        self._changed.set()

    async def wait_for_pods(self, count: int) -> None:
        await self.wait_until(lambda: len(self.running) >= count, f"{count} pods run")

    async def wait_for_phase(self, phase: str, jobs: int) -> None:
        await self.wait_until(lambda: len(self.phases[phase]) >= jobs, f"{jobs} jobs are {phase}")

    async def submit(self, jobs: Sequence[Json]) -> float:
        """Create the jobs as fast as the server accepts them; return the time before the first."""
        start = time.perf_counter()
        await per_second(
            len(jobs), lambda number: self.client.create(self._job_type, jobs[number], self.name), IN_FLIGHT
        )
        return start

    async def release(self) -> float:
        """Let the pods end that run until their namespace is released; return the time before."""
        start = time.perf_counter()
        patch = {"metadata": {"annotations": {RELEASED: ""}}}
        await self.client.patch(kubernetes.Namespace, self.name, patch)
        return start

    async def clear(self) -> None:
        """Delete everything; no controller of the API server does."""
        await self._delete(self._job_type, [job.metadata.name for job in self.jobs])
        await self._delete(WatchedPod, [pod.metadata.name for pod in self.pods])
        await self.client.request("DELETE", kubernetes.Service.resource.path(None, self.name))
        await self.wait_until(lambda: not len(self.pods) and not len(self.jobs), "everything is deleted")

    async def _delete(self, kind: type[ApiObject], names: Sequence[str]) -> None:
        async def delete(number: int) -> None:
            with contextlib.suppress(NotFound):
                await self.client.delete(kind, names[number], self.name, grace_seconds=0)

        await per_second(len(names), delete, IN_FLIGHT)

    def _pod_changed(self, change: Change[WatchedPod]) -> None:
        self._changed.set()
        pod = change.new
        if pod is None:
            return
        now, meta = time.perf_counter(), pod.metadata
        self.created.setdefault(meta.uid, now)
        if pod.status.phase == "Running" and meta.uid not in self.running:
            self.running[meta.uid] = now
            if worker := worker_of(pod):
                self.worker_running[worker[0]] = now
        if pod.status.phase == "Succeeded":
            self.succeeded.setdefault(meta.uid, now)

    def _job_changed(self, change: Change[WatchedJob]) -> None:
        self._changed.set()
        if change.new is not None:
            phase, name = change.new.status.phase, change.new.metadata.name
            self.phases[phase].setdefault(name, time.perf_counter())


@contextlib.asynccontextmanager
async def watched_namespace(client: Client, name: str, job_resource: Resource) -> AsyncIterator[Namespace]:
    """Create a namespace and watch its pods and its jobs of one kind; the objects in it are kept."""
    await client.apply(kubernetes.Namespace, {"metadata": {"name": name}}, force=True)
    await client.apply(kubernetes.ServiceAccount, {"metadata": {"name": "default"}}, name, force=True)
    namespace = Namespace(client, name, job_resource)
    watches = [asyncio.create_task(cache.run()) for cache in (namespace.pods, namespace.jobs)]
    try:
        await namespace.pods.wait_synced()
        await namespace.jobs.wait_synced()
        yield namespace
    finally:
        for task in watches:
            task.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


def seconds_to_last(times: Mapping[str, float], start: float) -> float:
    """Return the seconds from the start to the last of these times; 0 if there are none."""
    return max(times.values(), default=start) - start
