"""A reconciler of one job with a fake client, which a test drives reconcile by reconcile."""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, cast

import msgspec

from argosy.dialects.base import JobApi
from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import ApiError, Conflict, Forbidden, NotFound
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject, Key
from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import Json
from argosy.operator.triggers import Triggers
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.background_pool import BackgroundPool
from argosy.reconcile.bursts import BURST_JOBS
from argosy.reconcile.caches import Caches
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.reconciler import Reconciler
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Workload
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from tests.support.aresjobs import apply_merge_patch
from tests.support.fake_exec import FakeExec
from tests.support.manual_clock import ManualClock

KEY = Key("default", "mnist")


class FakeApi:
    """A fake client: stores what is written, and logs one line per write."""

    def __init__(self, kind: type[ApiObject], clock: ManualClock) -> None:
        self.kind = kind
        self.clock = clock
        self.version = self.run_version = 100
        self.write_seconds = 0.0
        """Seconds that a write takes."""
        self.latest = 0
        """The latest version when this replica became the leader."""
        self.quota: int | None = None
        """The number of pods that may still be created."""
        self.log: list[str] = []
        self.error: ApiError | None = None
        self.delete_error: ApiError | None = None
        self.prunes = False
        self.run: dict[str, object] = {}

    async def replace(
        self, kind: type[ApiObject], body: Mapping[str, object], namespace: str, *, subresource: str
    ) -> Any:
        assert (kind, namespace, subresource) == (self.kind, "default", "status")
        self.clock.seconds += self.write_seconds
        if self.error is not None:
            raise self.error
        wire = msgspec.json.decode(msgspec.json.encode(body))
        if self.prunes:
            wire["status"].pop("argosy")
        if wire["metadata"]["resourceVersion"] != str(self.run_version):
            raise Conflict(409, "Conflict", "the object has been modified")
        self.version += 1
        self.run_version = self.version
        self.run = {**self.run, "status": wire["status"]}
        self.log.append(f"status {wire['status'].get('phase')}")
        return self.stored()

    async def patch(
        self, kind: type[ApiObject], name: str, body: Mapping[str, object], namespace: str
    ) -> Any:
        assert (kind, name, namespace) == (self.kind, "mnist", "default")
        self.version += 1
        self.run_version = self.version
        metadata = cast("dict[str, object]", self.run["metadata"])
        generation = cast("int", metadata["generation"]) + 1
        spec = copy.deepcopy(cast("Json", self.run["spec"]))
        apply_merge_patch(spec, cast("Json", body.get("spec", {})))
        self.run = {**self.run, "spec": spec, "metadata": {**metadata, "generation": generation}}
        self.log.append("patch spec")
        return self.stored()

    async def create(
        self, kind: type[ApiObject], body: dict[str, object], namespace: str, **options: bool
    ) -> object:
        del namespace, options
        if kind is Pod and self.quota is not None:
            if self.quota == 0:
                raise Forbidden(403, "Forbidden", "exceeded quota")
            self.quota -= 1
        self.version += 1
        metadata = {**cast("dict[str, object]", body["metadata"]), "resourceVersion": str(self.version)}
        metadata |= {"uid": f"uid-{self.version}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        self.log.append(f"create {kind.resource.kind} {metadata['name']}")
        return msgspec.convert({**body, "metadata": metadata}, kind)

    async def get(self, kind: type[ApiObject], name: str, namespace: str) -> ApiObject:
        raise NotFound(404, "NotFound", f"{kind.resource.kind} {namespace}/{name}")

    async def delete(self, kind: type[ApiObject], name: str, namespace: str, **options: object) -> None:
        del namespace, options
        if self.delete_error is not None:
            raise self.delete_error
        self.log.append(f"delete {kind.resource.kind} {name}")

    async def latest_version(self, kind: type[ApiObject], namespace: str | None) -> int:
        del kind, namespace
        return self.latest

    def writes(self) -> list[str]:
        return [line for line in self.log if line.startswith("status")]

    def stored(self) -> Any:
        metadata = cast("dict[str, object]", self.run["metadata"])
        metadata = {**metadata, "resourceVersion": str(self.run_version)}
        return msgspec.convert({**self.run, "metadata": metadata}, self.kind)


class FakeRecorder:
    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def event(self, obj: ApiObject, type: str, reason: str, message: str) -> None:
        del obj, type
        self.events.append((reason, message))

    def forget(self, uid: str) -> None: ...
    def record_plan(
        self, dialect: str, key: Key, workload: Workload | None, before: Record | None, plan: Plan
    ) -> None: ...
    def forget_job(self, dialect: str, key: Key) -> None: ...


class ReconcilerHarness:
    """A reconciler of one job with a fake client, and caches that the test fills."""

    def __init__(self, job: Json, api: JobApi[Any] | None = None, clock: Clock | None = None) -> None:
        job_api = api or training_run_api()
        self.clock, self.recorder = ManualClock(), FakeRecorder()
        self.api = FakeApi(job_api.kind, self.clock)
        self.reconciles = 0
        clock = clock or self.clock
        unreachable = Client(Connection(server="https://127.0.0.1:1"))
        self.caches = Caches(unreachable, clock)
        self.jobs = Cache(unreachable, job_api.kind)
        self.api.run = dict(job)
        meta = {"uid": "u", "generation": 1, "namespace": "default", "name": "mnist"}
        self.api.run["metadata"] = meta
        self.jobs.put(self.api.stored())
        self.exec = FakeExec()
        self.background = BackgroundPool(self.exec.run)
        self.background.begin_term()
        self.reconciler = Reconciler(
            job_api,
            self.jobs,
            self.caches,
            cast("Client", self.api),
            clock,
            cast("Recorder", self.recorder),
            PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid),
            self.recorder,
            BackgroundCalls(self.background),
        )

    async def reconcile(self) -> float | None:
        """Reconcile once; `api.log` then contains only the writes of this reconcile."""
        self.api.log.clear()
        requeue = await self.reconciler.reconcile(KEY)
        return requeue.after if requeue else None

    @asynccontextmanager
    async def running_controller(self) -> AsyncIterator[None]:
        """Reconcile during the block whenever the operator would."""
        controller: Controller[Key] = Controller("test", self._reconcile, clock=self.reconciler.clock)
        Triggers(self.caches).add(self.reconciler, controller)
        controller.enqueue(KEY)
        task = asyncio.create_task(controller.run())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _reconcile(self, key: Key) -> Requeue | None:
        self.reconciles += 1
        return await self.reconciler.reconcile(key)

    def remove_pod(self, index: int) -> None:
        self.caches.pods._store(Key("default", f"mnist-worker-{index}"), None)

    def set_unschedulable(self, index: int, message: str) -> None:
        """Set the condition PodScheduled of a pod to False with a reason."""
        pod = self.caches.pods.get("default", f"mnist-worker-{index}")
        assert pod is not None
        raw = msgspec.to_builtins(pod)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        raw["status"] |= {"phase": "Pending", "conditions": [condition]}
        self.api.version += 1
        raw["metadata"]["resourceVersion"] = str(self.api.version)
        self.caches.pods.put(msgspec.convert(raw, Pod))

    def set_phase(self, phase: str, *indexes: int) -> None:
        for index in indexes:
            pod = self.caches.pods.get("default", f"mnist-worker-{index}")
            assert pod is not None
            raw = msgspec.to_builtins(pod)
            raw["status"]["phase"] = phase
            self.api.version += 1
            raw["metadata"]["resourceVersion"] = str(self.api.version)
            self.caches.pods.put(msgspec.convert(raw, Pod))


@contextmanager
def in_burst(harness: ReconcilerHarness) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(BURST_JOBS):
            stack.enter_context(harness.reconciler.status.bursts.for_namespace(KEY[0]))
        yield
