"""Tests that a former leader does not write what it decided while it led.

Two real reconcilers, each with its own caches, share a store that checks resourceVersions.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import cast

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, Conflict, LeaseExpired, NotFound
from argosy.engine.events import Recorder
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import ApiObject, Key
from argosy.kinds.kubernetes import Pod
from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.job_metrics import JobMetrics
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.background_pool import BackgroundPool
from argosy.reconcile.bursts import BURST_JOBS
from argosy.reconcile.caches import Caches
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.reconciler import Reconciler
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.reconcile.status_writer import MAX_DEFER_SECONDS
from tests.support.builders import run
from tests.support.fake_exec import FakeExec
from tests.support.manual_clock import ManualClock

KEY = Key("default", "mnist")
Json = dict[str, object]


class Api:
    """A store of one job and its pods; a status is written only at the stored version."""

    def __init__(self) -> None:
        self.version = 1
        self.run = run().role("worker", 2).having(cleanup="All").build()
        self.metadata: Json = {"uid": "u", "generation": 1, "namespace": "default", "name": "mnist"}
        self._touch()
        self.pods: dict[str, Json] = {}
        self.lease_is_lost = False
        """Whether creations of pods are rejected, as the lease of the client has expired."""
        self.log: list[str] = []

    def _next(self) -> str:
        self.version += 1
        return str(self.version)

    def _touch(self) -> None:
        self.metadata = {**self.metadata, "resourceVersion": self._next()}
        self.run = {**self.run, "metadata": self.metadata}

    @property
    def status(self) -> Json:
        return cast("Json", self.run["status"])

    async def latest_version(self, kind: type[ApiObject], namespace: str | None) -> int:
        del kind, namespace
        return self.version

    async def replace(
        self, kind: type[TrainingRun], body: Mapping[str, object], namespace: str, *, subresource: str
    ) -> TrainingRun:
        del namespace, subresource
        sent = msgspec.json.decode(msgspec.json.encode(body))
        if sent["metadata"]["resourceVersion"] != self.metadata["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        self.run = {**self.run, "status": sent["status"]}
        self._touch()
        self.log.append(f"PUT {sent['status']['phase']}")
        return msgspec.convert(self.run, kind)

    async def create(self, kind: type[ApiObject], body: Json, namespace: str, **options: bool) -> object:
        del namespace, options
        metadata = cast("Json", body["metadata"])
        name = str(metadata["name"])
        fresh = {"resourceVersion": self._next(), "creationTimestamp": "2026-01-01T00:00:00Z"}
        fresh["uid"] = f"uid-{self.version}"
        created = {**body, "metadata": {**metadata, **fresh}}
        if kind is Pod:
            if self.lease_is_lost:
                raise LeaseExpired
            if name in self.pods:
                raise AlreadyExists(409, "AlreadyExists", name)
            self.pods[name] = created
            self.log.append(f"POST {name}")
        return msgspec.convert(created, kind)

    async def delete(self, kind: type[ApiObject], name: str, namespace: str, **options: object) -> None:
        del namespace, options
        if kind is not Pod:
            raise NotFound(404, "NotFound", name)
        self.pods.pop(name, None)
        self.log.append(f"DELETE {name}")

    async def get(self, kind: type[ApiObject], name: str, namespace: str) -> object:
        del namespace
        if kind is TrainingRun:
            return msgspec.convert(self.run, TrainingRun)
        if kind is not Pod or name not in self.pods:
            raise NotFound(404, "NotFound", name)
        return msgspec.convert(self.pods[name], kind)

    def edit(self) -> None:
        """Change the annotations of the job as a user does."""
        self.metadata = {**self.metadata, "annotations": {"note": "looked at"}}
        self._touch()

    def pods_become(self, phase: str) -> None:
        for name, pod in self.pods.items():
            metadata = {**cast("Json", pod["metadata"]), "resourceVersion": self._next()}
            self.pods[name] = {**pod, "metadata": metadata, "status": {"phase": phase}}


class Silent:
    def event(self, *_: object) -> None: ...
    def forget(self, uid: str) -> None: ...


class Replica:
    """One operator process."""

    def __init__(self, api: Api, clock: ManualClock) -> None:
        self.api = api
        nowhere = Client(Connection(server="https://127.0.0.1:1"))
        self.caches = Caches(nowhere, clock)
        self.jobs = Cache(nowhere, TrainingRun)
        self.reconciler = Reconciler(
            training_run_api(),
            self.jobs,
            self.caches,
            cast("Client", api),
            clock,
            cast("Recorder", Silent()),
            PodRenderer(RenderContext(Helper("helper"), "https://x"), lambda uid: uid),
            JobMetrics(CollectorRegistry()),
            BackgroundCalls(BackgroundPool(FakeExec().run)),
        )
        self.reconciler.status.record_support.confirm_write()

    def watch(self) -> None:
        """Update the caches from the store."""
        self.jobs.put(msgspec.convert(self.api.run, TrainingRun))
        for name in {pod.metadata.name for pod in self.caches.pods} - set(self.api.pods):
            self.caches.pods._store(Key("default", name), None)
        for pod in self.api.pods.values():
            self.caches.pods.put(msgspec.convert(pod, Pod))

    async def lead(self) -> None:
        await self.reconciler.begin_term()

    async def go(self, *, burst: bool = False) -> list[str]:
        """Reconcile once with current caches; return what was written."""
        self.watch()
        return await self.go_on_old_caches(burst=burst)

    async def go_on_old_caches(self, *, burst: bool = False) -> list[str]:
        self.api.log.clear()
        with self._burst() if burst else ExitStack():
            await self.reconciler.reconcile(KEY)
        return list(self.api.log)

    @contextmanager
    def _burst(self) -> Iterator[None]:
        with ExitStack() as others:
            for _ in range(BURST_JOBS):
                others.enter_context(self.reconciler.status.bursts.for_namespace(KEY[0]))
            yield


class Cluster:
    def __init__(self) -> None:
        self.api, self.clock = Api(), ManualClock()
        self.first, self.second = Replica(self.api, self.clock), Replica(self.api, self.clock)

    async def create_pods_in_a_burst(self, replica: Replica) -> None:
        """Create the pods of a new job in a burst, before its Record is written."""
        await replica.lead()
        self.api.edit()  # as a job that was created after this term began
        assert await replica.go(burst=True) == ["POST mnist-worker-0", "POST mnist-worker-1"]
        assert replica.reconciler.states[KEY].status.deferred is not None

    async def finish_job(self, replica: Replica) -> None:
        """Let the job run, succeed and be cleaned up, with this replica as the leader."""
        for phase in ("Running", "Succeeded"):
            self.api.pods_become(phase)
            for _ in range(4):
                await replica.go()
                self.clock.advance(2.0)
        assert self.api.status["phase"] == "Succeeded"
        assert not self.api.pods


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.mark.parametrize("burst", [False, True], ids=["alone", "in a burst"])
async def test_a_job_that_finished_under_another_leader_is_not_run_again(
    cluster: Cluster, burst: bool
) -> None:
    await cluster.create_pods_in_a_burst(cluster.first)
    cluster.first.reconciler.end_term()
    await cluster.second.lead()
    await cluster.finish_job(cluster.second)
    cluster.second.reconciler.end_term()
    await cluster.first.lead()
    cluster.clock.advance(MAX_DEFER_SECONDS)
    assert await cluster.first.go(burst=burst) == []
    assert cluster.api.status["phase"] == "Succeeded"


@pytest.mark.parametrize("burst", [False, True], ids=["alone", "in a burst"])
async def test_a_job_that_finished_under_a_second_installation_is_not_run_again(
    cluster: Cluster, burst: bool
) -> None:
    """Both lead all the time, each with its own Lease."""
    await cluster.second.lead()
    await cluster.create_pods_in_a_burst(cluster.first)
    await cluster.finish_job(cluster.second)
    cluster.clock.advance(MAX_DEFER_SECONDS)
    assert await cluster.first.go(burst=burst) == []
    assert cluster.api.status["phase"] == "Succeeded"


async def test_a_new_leader_with_lagging_caches_creates_no_pods_for_a_finished_job(
    cluster: Cluster,
) -> None:
    cluster.second.watch()  # and nothing more, while the first works
    await cluster.create_pods_in_a_burst(cluster.first)
    await cluster.finish_job(cluster.first)
    await cluster.second.lead()
    assert await cluster.second.go_on_old_caches(burst=True) == []
    assert not cluster.api.pods


async def test_a_leader_that_lost_the_lease_creates_no_recorded_pods_after_the_job_has_finished(
    cluster: Cluster,
) -> None:
    """Its Record needs no write, so only the confirmed version prevents the creation."""
    await cluster.first.lead()
    cluster.api.lease_is_lost = True
    with pytest.raises(LeaseExpired):
        await cluster.first.go()
    assert cluster.api.status["phase"] == "Starting"
    cluster.api.lease_is_lost = False
    cluster.first.reconciler.end_term()
    await cluster.second.lead()
    await cluster.second.go()
    await cluster.finish_job(cluster.second)
    await cluster.first.lead()
    assert await cluster.first.go_on_old_caches() == []
    assert await cluster.first.go_on_old_caches() == []
    assert not cluster.api.pods


async def test_a_record_that_was_deferred_is_decided_again_after_the_job_was_edited(
    cluster: Cluster,
) -> None:
    await cluster.create_pods_in_a_burst(cluster.first)
    cluster.api.edit()
    cluster.api.pods_become("Running")
    assert await cluster.first.go(burst=True) == ["PUT Running"]
    assert cluster.first.reconciler.states[KEY].status.record_first


async def test_records_of_a_job_are_deferred_again_in_the_next_term(cluster: Cluster) -> None:
    await cluster.create_pods_in_a_burst(cluster.first)
    cluster.api.edit()
    await cluster.first.go(burst=True)
    cluster.first.reconciler.end_term()
    await cluster.first.lead()
    cluster.api.pods_become("Running")
    await cluster.first.go()
    cluster.api.edit()
    del cluster.api.pods["mnist-worker-1"]
    assert await cluster.first.go(burst=True) == ["POST mnist-worker-1"]
