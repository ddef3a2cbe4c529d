"""One namespace of a benchmark: jobs and pods in it, and when each was first seen to be how.

Times are those of one watcher's clock, the same for the operator and for the bare client it is compared with.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import ClassVar

import msgspec
from msgspec import Struct

from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Namespace, Service, ServiceAccount
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.kinds.trainingrun import TrainingRun
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Problems
from argosy.workload.plan import CreatePod
from bench.load import per_second
from bench.raw import RawPod
from tests.support.scheduler_objects import Json
from tests.support.simulator import RUN_SECONDS, RUN_TOGETHER

PATIENCE = 180.0
ROLE = "worker"


class _Status(Struct, frozen=True):
    phase: str = ""


class SeenPod(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "Pod", "pods")

    metadata: ObjectMeta
    status: _Status = _Status()


class SeenRun(Struct):
    resource: ClassVar[Resource] = TrainingRun.resource

    metadata: ObjectMeta
    status: _Status = _Status()


class Scene:
    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self.pods = Cache(client, SeenPod, namespace=namespace)
        self.runs = Cache(client, SeenRun, namespace=namespace)
        self.existed: dict[str, float] = {}
        """When a pod was first seen, by uid."""
        self.ran: dict[str, float] = {}
        self.ran_at_place: dict[str, float] = {}
        """When the pod of a name was last seen to begin to run."""
        self.phases: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """When a job was first seen in a phase: phase, then name."""
        self._changed = asyncio.Event()
        self.pods.subscribe(self._pod)
        self.runs.subscribe(self._run)

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            phases = {phase: len(jobs) for phase, jobs in self.phases.items()}
            seen = f"{len(self.existed)} pods, {len(self.ran)} ran, jobs {phases}"
            raise TimeoutError(f"waited in vain until {what}: {seen}") from None

    async def until_phase(self, phase: str, jobs: int) -> None:
        await self.until(lambda: len(self.phases[phase]) >= jobs, f"{jobs} jobs are {phase}")

    async def submit(self, runs: Sequence[Json]) -> float:
        """Make runs as quickly as the server takes them; the moment before the first."""
        began = time.perf_counter()
        await per_second(
            len(runs), lambda number: self.client.create(SeenRun, runs[number], self.namespace), 64
        )
        return began

    async def clear(self) -> None:
        """Take away all that was made; there is nobody else to do it."""
        await self._delete(SeenRun, [run.metadata.name for run in self.runs])
        await self._delete(SeenPod, [pod.metadata.name for pod in self.pods])
        await self.client.request("DELETE", Service.resource.path(None, self.namespace))
        await self.until(lambda: not len(self.pods) and not len(self.runs), "all is gone")

    async def _delete(self, kind: type[ApiObject], names: Sequence[str]) -> None:
        async def one(number: int) -> None:
            with contextlib.suppress(NotFound):
                await self.client.delete(kind, names[number], self.namespace, grace_seconds=0)

        await per_second(len(names), one, 64)

    def _pod(self, change: Change[SeenPod]) -> None:
        self._changed.set()
        pod = change.new
        if pod is None:
            return
        now, meta = time.perf_counter(), pod.metadata
        self.existed.setdefault(meta.uid, now)
        if pod.status.phase == "Running" and meta.uid not in self.ran:
            self.ran[meta.uid] = self.ran_at_place[meta.name] = now

    def _run(self, change: Change[SeenRun]) -> None:
        self._changed.set()
        if change.new is not None:
            phase, name = change.new.status.phase, change.new.metadata.name
            self.phases[phase].setdefault(name, time.perf_counter())


@contextlib.asynccontextmanager
async def scene(client: Client, namespace: str) -> AsyncIterator[Scene]:
    """A namespace of that name, watched; what is in it stays, unless it is cleared."""
    await client.apply(Namespace, {"metadata": {"name": namespace}}, force=True)
    await client.apply(ServiceAccount, {"metadata": {"name": "default"}}, namespace, force=True)
    shown = Scene(client, namespace)
    watching = [asyncio.create_task(cache.run()) for cache in (shown.pods, shown.runs)]
    try:
        await shown.pods.wait_synced()
        await shown.runs.wait_synced()
        yield shown
    finally:
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)


def runs(count: int, workers: int, run_seconds: float | None = None) -> list[Json]:
    """Jobs without a framework, whose pods run for ever or for so long after all of them run."""
    return [run(f"job-{number}", workers, run_seconds) for number in range(count)]


def run(name: str, workers: int, run_seconds: float | None = None) -> Json:
    container = {"name": "main", "image": "local", "command": ["python", "-m", "train"]}
    template: Json = {"spec": {"containers": [container], "automountServiceAccountToken": False}}
    if run_seconds is not None:
        template["metadata"] = {"annotations": {RUN_SECONDS: str(run_seconds), RUN_TOGETHER: str(workers)}}
    role = {"replicas": workers, "restart": "OnFailure", "template": template}
    return {"metadata": {"name": name}, "spec": {"framework": "custom", "roles": {ROLE: role}}}


def raw_pods(bodies: Sequence[Json], namespace: str) -> list[RawPod]:
    """The pods that the operator makes for these runs, for a client that is not to think."""
    made: list[RawPod] = []
    api = training_run_api()
    maker = PodRenderer(RenderContext(Helper("helper"), "https://operator"), lambda _: "")
    for body in bodies:
        written = msgspec.convert(body, TrainingRun)
        meta = ObjectMeta(written.metadata.name, namespace, f"raw-{namespace}-{written.metadata.name}")
        workload = api.dialect.to_workload(TrainingRun(meta, written.spec))
        assert not isinstance(workload, Problems), str(workload)
        pods = maker.for_job(workload, api.inject)
        for index in range(workload.roles[ROLE].replicas):
            name = api.pod_name(workload, ROLE, index, 1, 0)
            encoded = msgspec.json.encode(pods.render(CreatePod(ROLE, index, 1, 0), name))
            made.append(RawPod(name, namespace, msgspec.Raw(encoded)))
    return made


def last(times: Mapping[str, float], since: float) -> float:
    """Seconds to the last of them; none if there are none."""
    return max(times.values(), default=since) - since
