"""TrainingJobs of one namespace, watched: their scalers, and which host lists their launchers have."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import Struct

from argosy.engine.cache import Cache, Change
from argosy.kinds.labels import HOSTS_ACK, JOB, ROLE
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.kinds.trainingjob import LAUNCHER, WORKER, TrainingJob
from bench.baseline_client import IN_FLIGHT
from bench.job_apis import BenchApi
from bench.load import per_second
from bench.namespace import Namespace, WatchedPod
from bench.rig import Rig

TIMEOUT_SECONDS = 600
"""Of scalers: on a busy machine the default of a ScaleOut may pass, which would be measured then."""

Scaler = type[ScaleIn] | type[ScaleOut]


class _Status(Struct, frozen=True):
    phase: str = ""


class _WatchedScaleIn(Struct):
    resource: ClassVar[Resource] = ScaleIn.resource

    metadata: ObjectMeta
    status: _Status = _Status()


class _WatchedScaleOut(Struct):
    resource: ClassVar[Resource] = ScaleOut.resource

    metadata: ObjectMeta
    status: _Status = _Status()


class ElasticNamespace:
    """A namespace, and when its launchers acknowledged a host list and its scalers finished."""

    def __init__(self, namespace: Namespace) -> None:
        self.plain = namespace
        self.client, self.name = namespace.client, namespace.name
        self.acknowledged: dict[str, tuple[str, float]] = {}
        """The ETag that the launcher of a job has acknowledged last, and when."""
        self.scaled: dict[str, float] = {}
        """When each scaler was first seen ScaleSucceeded, by name."""
        self._failed: set[str] = set()
        self.scale_ins = Cache(self.client, _WatchedScaleIn, namespace=self.name)
        self.scale_outs = Cache(self.client, _WatchedScaleOut, namespace=self.name)
        namespace.pods.subscribe(self._pod_changed)
        self.scale_ins.subscribe(self._scaler_changed)
        self.scale_outs.subscribe(self._scaler_changed)

    def _pod_changed(self, change: Change[WatchedPod]) -> None:
        if change.new is None or change.new.metadata.labels.get(ROLE) != LAUNCHER:
            return
        job = change.new.metadata.labels[JOB]
        etag = change.new.metadata.annotations.get(HOSTS_ACK, "")
        if etag and self.acknowledged.get(job, ("",))[0] != etag:
            self.acknowledged[job] = etag, time.perf_counter()

    def _scaler_changed(self, change: Change[_WatchedScaleIn] | Change[_WatchedScaleOut]) -> None:
        scaler = change.new
        if scaler is None:
            return
        if scaler.status.phase == "ScaleFailed":
            self._failed.add(scaler.metadata.name)
        if scaler.status.phase == "ScaleSucceeded":
            self.scaled.setdefault(scaler.metadata.name, time.perf_counter())
        self.plain.notify()

    async def start(self, api: BenchApi, jobs: int, workers: int) -> None:
        """Start jobs, and wait until each launcher has the list of its workers."""
        await self.plain.submit(api.jobs(jobs, workers))
        await self.plain.wait_for_phase("Running", jobs)
        await self.plain.wait_until(lambda: len(self.acknowledged) >= jobs, "all launchers have a list")

    async def scale(self, kind: Scaler, count: int, jobs: Sequence[str]) -> float:
        """Create a scaler for each of these jobs at once; return the time before the first."""
        field = "toAdd" if kind is ScaleOut else "toDelete"
        start = time.perf_counter()

        async def create(number: int) -> None:
            selector = {"name": jobs[number]}
            spec: Json = {"selector": selector, field: {"count": count}, "timeout": TIMEOUT_SECONDS}
            body = {"metadata": {"name": scaler_name(kind, jobs[number])}, "spec": spec}
            await self.client.create(kind, body, self.name)

        await per_second(len(jobs), create, IN_FLIGHT)
        return start

    async def wait_for_new_lists(self, before: Mapping[str, tuple[str, float]]) -> None:
        """Wait until every launcher has acknowledged another list than then."""
        await self.plain.wait_until(
            lambda: all(self.acknowledged[job][0] != etag for job, (etag, _) in before.items()),
            "all launchers have a new list",
        )

    async def wait_until_scaled(self, names: Iterable[str]) -> None:
        wanted = set(names)
        await self.plain.wait_until(lambda: self._are_scaled(wanted), "all scalers have succeeded")

    def _are_scaled(self, names: set[str]) -> bool:
        if self._failed:
            raise RuntimeError(f"failed: {', '.join(sorted(self._failed)[:3])}")
        return names <= self.scaled.keys()

    async def hosts(self, job: str) -> list[str]:
        """Return the hosts in the ConfigMap of a job."""
        path = f"/api/v1/namespaces/{self.name}/configmaps/{job}-config"
        config_map = msgspec.json.decode(await self.client.request("GET", path))
        return [line.partition(":")[0] for line in config_map["data"]["hostfile"].splitlines()]

    def workers(self, job: str) -> list[str]:
        """Return the names of the running workers of a job."""
        return [
            pod.metadata.name
            for pod in self.plain.pods
            if pod.metadata.labels.get(JOB) == job
            and pod.metadata.labels.get(ROLE) == WORKER
            and pod.status.phase == "Running"
        ]

    async def clear(self) -> None:
        for resource in (ScaleIn.resource, ScaleOut.resource):
            await self.client.request("DELETE", resource.path(None, self.name))
        await self.plain.clear()
        for plural in ("configmaps", "secrets"):
            await self.client.request("DELETE", f"/api/v1/namespaces/{self.name}/{plural}")


def scaler_name(kind: Scaler, job: str) -> str:
    return f"{kind.resource.kind.lower()}-{job}"


@contextlib.asynccontextmanager
async def elastic_namespace(rig: Rig, api: BenchApi) -> AsyncIterator[ElasticNamespace]:
    """Create a namespace for TrainingJobs and watch it."""
    assert api.api.kind is TrainingJob
    async with rig.namespace(api) as plain:
        namespace = ElasticNamespace(plain)
        watches = [asyncio.create_task(cache.run()) for cache in (namespace.scale_ins, namespace.scale_outs)]
        try:
            await namespace.scale_ins.wait_synced()
            await namespace.scale_outs.wait_synced()
            yield namespace
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
