"""Runs the caches of all APIs, and their controllers while this replica leads.

Caches are filled before the first reconcile, so that nothing is decided on incomplete information. Kinds that
the cluster does not serve yet are not waited for (see `watched_kinds`).
"""

import asyncio
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Protocol

from argosy.dialects.base import JobApi, keep_whole
from argosy.dialects.base import T as JobT
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Controller
from argosy.engine.events import Recorder
from argosy.engine.gc_tuning import collect_and_freeze, refreeze_periodically
from argosy.engine.logs import Logger
from argosy.engine.objects import Key
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.pod_groups import PodGroup
from argosy.operator.drain_gate import DrainGate, Reconcile
from argosy.operator.job_metrics import JobMetrics, PlanSinks
from argosy.operator.job_views import JobViews
from argosy.operator.quarantine import Quarantine
from argosy.operator.triggers import Triggers
from argosy.operator.watched_kinds import AnyCache, Definitions, WatchedKind, crd_name
from argosy.plan.children import KubernetesObject
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.background_pool import BackgroundPool
from argosy.reconcile.caches import LAUNCHER_KINDS, Caches
from argosy.reconcile.drivers import Drivers
from argosy.reconcile.object_writer import T
from argosy.reconcile.pod_exec import PodExec
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.reconciler import Reconciler
from argosy.reconcile.runner import R, ReconciledKind, Runner
from argosy.reconcile.scale_requests import ScaleRequests
from argosy.reconcile.sources import Sources
from argosy.reconcile.views import Views
from argosy.workload.announcements import NoticeRules
from argosy.workload.gang_schedulers.volcano import VOLCANO
from argosy.workload.quarantine import QuarantineRules

log = Logger(__name__)

DRAIN_SECONDS = 10.0
"""How long running reconciles may take to end when this replica stops leading."""


class _TermReconciler(Protocol):
    """A reconciler of any kind, as far as leadership is concerned."""

    async def begin_term(self) -> None: ...
    def end_term(self) -> None: ...
    def on_crd_changed(self) -> list[Key]: ...


class Manager:
    """Caches and controllers of one replica, for the kinds that APIs add to it."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str | None,
        clock: Clock,
        recorder: Recorder,
        pods: PodRenderer,
        job_metrics: JobMetrics,
        concurrency: int,
        gang_backend: str = VOLCANO.name,
        notices: NoticeRules = NoticeRules(),
        quarantine: QuarantineRules = QuarantineRules(),
        remote_exec: bool = True,
        endpoint_only: bool = False,
        extra_caches: Sequence[AnyCache] = (),
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.clock = clock
        self.recorder = recorder
        self.pods = pods
        self.job_metrics = job_metrics
        self.concurrency = concurrency
        self.definitions = Definitions(client)
        self.notices = notices
        self.caches = Caches(client, clock, namespace, gang_backend, notices)
        pods.avoided_nodes = self.caches.quarantined.for_namespace
        self.quarantine = Quarantine(client, self.caches, clock, recorder, quarantine, job_metrics.nodes)
        job_metrics.nodes.unconfirmed.set_function(lambda: self.caches.node_health.unconfirmed)
        self.sources = Sources(client, namespace)
        self.triggers = Triggers(self.caches)
        self.job_views = JobViews(self.caches, self.clock)
        self.gate = DrainGate()
        self.drivers = Drivers(client)
        self.views = Views(self.drivers, clock, client.metrics)
        self.background = BackgroundPool(PodExec(client).run, client.metrics, run_call=self.drivers.run)
        self._kinds = [WatchedKind(cache) for cache in self.caches.pod_groups.caches.values()]
        self.caches.pod_groups.is_crd_installed = self._is_crd_installed
        self.definitions.crds.subscribe(lambda _: self.triggers.enqueue_waiting_gangs())
        self._wanted_children: dict[type[KubernetesObject], asyncio.Event] = {}
        self._wanted_caches: dict[AnyCache, asyncio.Event] = {}
        """Caches that are watched once there is an object of any kind that reads them."""
        self._reconcilers: list[_TermReconciler] = []
        self._remote_exec = remote_exec
        self._endpoint_only = endpoint_only
        self._extra_caches = extra_caches

    def add_jobs(self, api: JobApi[JobT]) -> None:
        """Serve the jobs of one kind."""
        self.caches.propagated_keys += api.propagated_annotations
        self.caches.pod_groups.propagated_keys = self.caches.propagated_keys
        for kind in api.child_kinds:
            if (children := self.caches.add_children(self.client, kind, self.namespace)) is not None:
                self.triggers.watch_children(children)
        jobs = Cache(self.client, api.kind, namespace=self.namespace, transform=api.compact_finished)
        if api.compact_finished is keep_whole:
            self.sources.share(jobs)
        self._watch_on_demand(api, jobs)
        requests = ScaleRequests(api.requests, self.sources)
        self._kinds += [WatchedKind(cache) for cache in requests.caches]
        reconciler = Reconciler(
            api,
            jobs,
            self.caches,
            self.client,
            self.clock,
            self.recorder,
            self.pods,
            PlanSinks(self.job_metrics, self.quarantine),
            BackgroundCalls(self.background),
            requests.for_job,
        )
        controller = self._add_controller(jobs, reconciler, reconciler.reconcile, requests.caches)
        requests.subscribe(controller)
        self.triggers.add(reconciler, controller)
        self.job_views.add(api, jobs)

    def _watch_on_demand(self, api: JobApi[JobT], jobs: Cache[JobT]) -> None:
        """Watch kinds of children once a job needs them, and enqueue their owners at every change."""
        if self._endpoint_only:
            return  # it creates no children, and may not list them
        for kind, is_needed in api.on_demand_children.items():
            if (children := self.caches.add_children(self.client, kind, self.namespace)) is not None:
                self.triggers.watch_children(children, every_change=True)
                self._wanted_children[kind] = asyncio.Event()
                self._kinds.append(WatchedKind(children, wanted=self._wanted_children[kind]))
            jobs.subscribe(partial(_want, self._wanted_children[kind], is_needed))

    def add_kind(self, kind: ReconciledKind[T, R]) -> None:
        """Serve a kind without a Workload. A replica that only answers pods has no use for it."""
        if self._endpoint_only:
            return
        objects = self.sources.shared(kind.kind)
        if objects is None:
            objects = Cache(self.client, kind.kind, namespace=self.namespace)
            if kind.kind in kind.needed:
                self.sources.share(objects)
        self._kinds = [watched for watched in self._kinds if watched.cache is not objects]
        earlier_caches = self.sources.caches
        self.drivers.add(kind.drivers)
        calls = BackgroundCalls(self.background)
        runner = Runner(
            kind, objects, self.sources, self.client, self.clock, self.recorder, calls, self.views
        )
        runner.is_served = self.definitions.may_be_served
        new_caches = [cache for cache in self.sources.caches if cache not in earlier_caches]
        self._kinds += [self._watched_kind(cache, kind.on_demand) for cache in new_caches]
        for cache in runner.caches:
            wanted = self._wanted_caches.get(cache)
            if wanted is not None and cache.kind in kind.on_demand:
                objects.subscribe(partial(_set_wanted, wanted))
            elif wanted is not None:
                wanted.set()
        runner.subscribe(self._add_controller(objects, runner, runner.reconcile, runner.required_caches))

    def watch(self, kind: type[T]) -> Cache[T]:
        """Return the cache of all objects of a kind, which every replica keeps from the start.

        It is shared with the reconcilers that need the kind.
        """
        self.sources.declare((), {kind: {}})
        cache = self.sources.shared(kind)
        assert cache is not None
        for watched in self._kinds:
            if watched.cache is cache:
                watched.wanted = None
                return cache
        self._kinds.append(WatchedKind(cache))
        return cache

    def _watched_kind(self, cache: AnyCache, on_demand: Container[type[KubernetesObject]]) -> WatchedKind:
        """Return a kind that is watched at once, or once somebody reads its cache."""
        if cache.kind not in on_demand:
            return WatchedKind(cache)
        return WatchedKind(cache, wanted=self._wanted_caches.setdefault(cache, asyncio.Event()))

    def _add_controller(
        self,
        cache: AnyCache,
        reconciler: _TermReconciler,
        reconcile: Reconcile,
        required: Sequence[AnyCache] = (),
    ) -> Controller[Key]:
        """Run a reconciler while this replica leads; when its CRD changes, retry what the old one blocked."""
        resource = cache.kind.resource
        controller = Controller(
            resource.kind,
            self.gate.guard(reconcile),
            concurrency=self.concurrency,
            clock=self.clock,
            metrics=self.client.metrics,
        )
        self._reconcilers.append(reconciler)
        self._kinds.append(WatchedKind(cache, controller, required))

        def crd_changed(change: Change[CustomResourceDefinition]) -> None:
            if change.new is not None and change.new.metadata.name == crd_name(resource):
                for key in reconciler.on_crd_changed():
                    controller.enqueue(key)

        self.definitions.crds.subscribe(crd_changed)
        return controller

    async def run_caches(self) -> None:
        """Keep all caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.definitions.crds.run())
            for cache in self._core_caches():
                tasks.create_task(cache.run())
            for kind in self._kinds:
                tasks.create_task(self._watch_when_served(kind))
            tasks.create_task(self._watch_capacity())
            tasks.create_task(self.caches.node_health.run())
            for group in self.caches.pod_groups.caches.values():
                tasks.create_task(self._enqueue_gangs_when_synced(group))
            tasks.create_task(self._freeze_heap_when_ready())

    async def run_controllers(self) -> None:
        """Reconcile until cancelled, then let running reconciles end."""
        await self.wait_ready()
        await asyncio.gather(*(reconciler.begin_term() for reconciler in self._reconcilers))
        self.background.begin_term()
        self.views.begin_term()
        self.gate.open()
        controllers = [
            asyncio.create_task(kind.run_controller()) for kind in self._kinds if kind.controller is not None
        ]
        try:
            # Not gather, which would cancel running reconciles together with this task.
            await asyncio.wait(controllers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await asyncio.gather(self.background.end_term(), self.gate.drain(DRAIN_SECONDS))
            await self.views.end_term()
            await self.drivers.close()
            for controller in controllers:
                controller.cancel()
            await asyncio.gather(*controllers, return_exceptions=True)
            for reconciler in self._reconcilers:
                reconciler.end_term()
            self.job_metrics.clear()
        for controller in controllers:
            controller.result()

    async def wait_ready(self) -> None:
        while missing := self.not_ready():
            log.debug("waiting", missing=missing)
            await asyncio.sleep(0.02)

    def not_ready(self) -> str:
        """Return what is missing before this replica can reconcile; empty if nothing is."""
        waiting = [cache.kind.resource.kind for cache in self._core_caches() if not cache.synced]
        if not self.definitions.synced:
            waiting.append(CustomResourceDefinition.resource.kind)
        waiting += [
            kind.resource.kind
            for kind in self._kinds
            if kind.wanted is None
            and self.definitions.may_be_served(kind.resource)
            and not (kind.cache.synced or kind.is_not_served)
        ]
        return f"not synced: {', '.join(waiting)}" if waiting else ""

    @property
    def stalled(self) -> float:
        """Seconds for which keys have waited while no reconcile started or ended; 0 while not leading."""
        return self._longest(lambda controller: controller.stalled)

    @property
    def longest_running(self) -> float:
        """Seconds that the oldest running reconcile has taken so far; 0 while not leading."""
        return self._longest(lambda controller: controller.longest_running)

    def _longest(self, seconds: Callable[[Controller[Key]], float]) -> float:
        """Return the highest of these values over the controllers that run."""
        if not self.gate.is_open:
            return 0.0
        running = (kind.controller for kind in self._kinds if kind.controller and kind.is_running)
        return max(map(seconds, running), default=0.0)

    def oldest_cache(self) -> tuple[str, float]:
        """Return the kind whose watch has been silent for longest, and for how many seconds."""
        watched = (*self._core_caches(), *(kind.cache for kind in self._kinds))
        ages = [(cache.seconds_since_event, cache.kind.resource.kind) for cache in watched if cache.synced]
        age, kind = max(ages, default=(0.0, ""))
        return kind, age

    def _core_caches(self) -> Sequence[AnyCache]:
        caches = self.caches
        if self._endpoint_only:
            return (caches.pods,)
        children = [
            cache
            for kind, cache in caches.children.items()
            if (self._remote_exec or kind not in LAUNCHER_KINDS) and kind not in self._wanted_children
        ]
        return (caches.pods, caches.nodes, *children, *self._extra_caches)

    def _is_crd_installed(self, name: str) -> bool:
        return self.definitions.forbidden or self.definitions.has_crd(name)

    async def _watch_when_served(self, kind: WatchedKind) -> None:
        if kind.wanted is not None:
            await kind.wanted.wait()
        await self.definitions.wait_until_served(kind.resource)
        log.info("watching", kind=kind.resource.kind)
        await kind.cache.run()

    async def _watch_capacity(self) -> None:
        await self.caches.capacity.requested.wait()
        await self.caches.capacity.pods.run()

    async def _enqueue_gangs_when_synced(self, groups: Cache[PodGroup]) -> None:
        await groups.wait_synced()
        self.triggers.enqueue_waiting_gangs()

    async def _freeze_heap_when_ready(self) -> None:
        await self.wait_ready()
        collect_and_freeze()
        await refreeze_periodically()


def _set_wanted(wanted: asyncio.Event, change: Change[T]) -> None:
    del change
    wanted.set()


def _want(wanted: asyncio.Event, is_needed: Callable[[JobT], bool], change: Change[JobT]) -> None:
    if change.new is not None and is_needed(change.new):
        wanted.set()
