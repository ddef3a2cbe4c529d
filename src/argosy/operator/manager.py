"""The operator put together: caches that every replica keeps, and controllers that work while it leads.

A kind is served as soon as the cluster has its definition: an operator installed before its CRDs is healthy
and waits for them. Caches are filled before the first pass, so that nothing is decided on half a picture.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from argosy.dialects.base import JobApi, T
from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import ApiError, Forbidden, NotFound
from argosy.engine.events import Recorder
from argosy.engine.gc_tuning import collect_and_freeze, refreeze_periodically
from argosy.engine.logs import Logger
from argosy.engine.objects import ApiObject, Key
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.pod_groups import KubernetesPodGroup, PodGroup
from argosy.kinds.resource import Resource
from argosy.operator.job_metrics import JobMetrics
from argosy.operator.job_views import JobViews
from argosy.operator.triggers import Triggers
from argosy.reconcile.caches import LAUNCHER_KINDS, Caches
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.reconciler import Reconciler
from argosy.workload.gang_schedulers.volcano import VOLCANO

log = Logger(__name__)

DRAIN_SECONDS = 10.0

BUILT_IN_GROUPS = frozenset({KubernetesPodGroup.resource.group})
"""API groups of Kubernetes' own that may be switched off."""


class Manager:
    """One replica's share: everything between the client and the leader's election."""

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
        remote_exec: bool = True,
        endpoint_only: bool = False,
        extra_caches: "Sequence[AnyCache]" = (),
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.clock = clock
        self.recorder = recorder
        self.pods = pods
        self.job_metrics = job_metrics
        self.concurrency = concurrency
        self.crds = Cache(client, CustomResourceDefinition)
        self.caches = Caches(client, clock, namespace, gang_backend)
        job_metrics.nodes_unconfirmed.set_function(lambda: self.caches.node_health.unconfirmed)
        self.triggers = Triggers(self.caches)
        self.job_views = JobViews(self.caches)
        self.gate = DrainGate()
        self._kinds = [
            _WatchedKind(cache.kind.resource, cache) for cache in self.caches.pod_groups.caches.values()
        ]
        self.caches.pod_groups.is_crd_installed = lambda name: self._crds_forbidden() or self._has_crd(name)
        self.crds.subscribe(lambda _: self.triggers.enqueue_waiting_gangs())
        self._reconcilers: list[_TermReconciler] = []
        self._remote_exec = remote_exec
        self._endpoint_only = endpoint_only
        self._extra_caches = extra_caches

    def add(self, api: JobApi[T]) -> None:
        """Serve the jobs of this API."""
        self.caches.propagated_keys += api.propagated_annotations
        self.caches.pod_groups.propagated_keys = self.caches.propagated_keys
        jobs = Cache(self.client, api.kind, namespace=self.namespace, transform=api.compact_finished)
        reconciler = Reconciler(
            api, jobs, self.caches, self.client, self.clock, self.recorder, self.pods, self.job_metrics
        )
        controller = Controller(
            api.resource.kind,
            self.gate.guard(reconciler.reconcile),
            concurrency=self.concurrency,
            clock=self.clock,
            metrics=self.client.metrics,
        )
        self.triggers.add(reconciler, controller)
        self.job_views.add(api, jobs)
        self._reconcilers.append(reconciler)
        self._kinds.append(_WatchedKind(api.resource, jobs, controller))

        def definition(change: Change[CustomResourceDefinition]) -> None:
            if change.new is not None and change.new.metadata.name == _crd_name(api.resource):
                for key in reconciler.on_crd_changed():
                    controller.enqueue(key)

        self.crds.subscribe(definition)

    async def run_caches(self) -> None:
        """Keep all caches current until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.crds.run())
            for cache in self._core_caches():
                tasks.create_task(cache.run())
            for kind in self._kinds:
                tasks.create_task(self._watch_when_defined(kind))
            tasks.create_task(self._watch_capacity())
            tasks.create_task(self.caches.node_health.run())
            for group in self.caches.pod_groups.caches.values():
                tasks.create_task(self._enqueue_gangs_when_synced(group))
            tasks.create_task(self._freeze_heap_when_ready())

    async def run_controllers(self) -> None:
        """Work until cancelled; then let the passes under way come to their end."""
        await self.wait_ready()
        await asyncio.gather(*(reconciler.begin_term() for reconciler in self._reconcilers))
        self.gate.open()
        controllers = [asyncio.create_task(kind.run_controller()) for kind in self._kinds]
        try:
            # Not gather: that would cancel the passes under way together with us.
            await asyncio.wait(controllers, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            await self.gate.drain(DRAIN_SECONDS)
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
        """What is still missing before this replica could work; empty when nothing is."""
        waiting = [cache.kind.resource.kind for cache in self._core_caches() if not cache.synced]
        if not self.crds.synced and not self._crds_forbidden():
            waiting.append(CustomResourceDefinition.resource.kind)
        waiting += [
            kind.resource.kind
            for kind in self._kinds
            if (self._crds_forbidden() or self._is_defined(kind.resource))
            and not (kind.synced or kind.not_served)
        ]
        return f"not synced: {', '.join(waiting)}" if waiting else ""

    @property
    def stalled(self) -> float:
        """Seconds for which jobs have waited while no reconcile began or ended; 0 while not leading."""
        return max((one.stalled for one in self._active_controllers()), default=0.0)

    @property
    def longest_running(self) -> float:
        """Seconds that the oldest reconcile under way has taken so far; 0 while not leading."""
        return max((one.longest_running for one in self._active_controllers()), default=0.0)

    def _active_controllers(self) -> Sequence[Controller[Key]]:
        """Those at work."""
        if not self.gate.is_open:
            return ()
        return [kind.controller for kind in self._kinds if kind.controller is not None]

    def oldest_cache(self) -> tuple[str, float]:
        """The kind of which nothing was heard for longest, and for how many seconds."""
        watched = (*self._core_caches(), *(kind.cache for kind in self._kinds))
        ages = [(cache.seconds_since_event, cache.kind.resource.kind) for cache in watched if cache.synced]
        age, kind = max(ages, default=(0.0, ""))
        return kind, age

    def _core_caches(self) -> "Sequence[AnyCache]":
        caches = self.caches
        if self._endpoint_only:
            return (caches.pods,)
        children = [
            cache
            for kind, cache in caches.children.items()
            if self._remote_exec or kind not in LAUNCHER_KINDS
        ]
        return (caches.pods, caches.nodes, *children, *self._extra_caches)

    async def _watch_capacity(self) -> None:
        await self.caches.capacity.requested.wait()
        await self.caches.capacity.pods.run()

    async def _enqueue_gangs_when_synced(self, groups: Cache[PodGroup]) -> None:
        await groups.wait_synced()
        self.triggers.enqueue_waiting_gangs()

    async def _watch_when_defined(self, kind: "_WatchedKind") -> None:
        changed = asyncio.Event()

        def listen(_: Change[CustomResourceDefinition]) -> None:
            changed.set()

        self.crds.subscribe(listen)
        while not self._is_defined(kind.resource) and not self._crds_forbidden():
            changed.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    await changed.wait()
        log.info("serving", kind=kind.resource.kind)
        await kind.watch()

    def _is_defined(self, resource: Resource) -> bool:
        """A kind of Kubernetes' own has no definition to be seen: it is tried, and may not be served."""
        return resource.group in BUILT_IN_GROUPS or self._has_crd(_crd_name(resource))

    def _has_crd(self, definition: str) -> bool:
        return self.crds.get("", definition) is not None

    def _crds_forbidden(self) -> bool:
        """Whether we may not look at definitions: then every kind is simply tried."""
        return isinstance(self.crds.watcher.last_error, Forbidden)

    async def _freeze_heap_when_ready(self) -> None:
        await self.wait_ready()
        collect_and_freeze()
        await refreeze_periodically()


def _crd_name(resource: Resource) -> str:
    return f"{resource.plural}.{resource.group}"


class DrainGate:
    """Lets passes through, or none; knows how many are under way."""

    def __init__(self) -> None:
        self._open = False
        self._active = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        self._open = True

    async def drain(self, seconds: float) -> None:
        """Let no pass begin any more, and wait for those under way."""
        self._open = False
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._idle.wait()

    def guard(
        self, reconcile: Callable[[Key], Awaitable[Requeue | None]]
    ) -> Callable[[Key], Awaitable[Requeue | None]]:
        async def guarded(key: Key) -> Requeue | None:
            if not self._open:
                return Requeue(1.0)
            self._active += 1
            self._idle.clear()
            try:
                return await reconcile(key)
            finally:
                self._active -= 1
                if not self._active:
                    self._idle.set()

        return guarded


class _TermReconciler(Protocol):
    """A reconciler of whatever kind, as far as leadership goes."""

    async def begin_term(self) -> None: ...
    def end_term(self) -> None: ...


class _AnyWatcher(Protocol):
    @property
    def last_error(self) -> ApiError | None: ...


class AnyCache(Protocol):
    """A cache of whatever kind, as far as keeping it current goes."""

    @property
    def synced(self) -> bool: ...
    @property
    def seconds_since_event(self) -> float: ...
    @property
    def watcher(self) -> "_AnyWatcher": ...
    @property
    def kind(self) -> type[ApiObject]: ...
    async def run(self) -> None: ...


class _WatchedKind:
    """A kind that is watched once it is defined, and worked on if it has a controller."""

    def __init__(
        self, resource: Resource, cache: AnyCache, controller: Controller[Key] | None = None
    ) -> None:
        self.resource = resource
        self.controller = controller
        self.cache = cache

    @property
    def synced(self) -> bool:
        return self.cache.synced

    @property
    def not_served(self) -> bool:
        """Defined, and not in the version that is ours, or switched off. Others do not wait for it."""
        return isinstance(self.cache.watcher.last_error, NotFound)

    async def watch(self) -> None:
        await self.cache.run()

    async def run_controller(self) -> None:
        if self.controller is not None:
            await self.controller.run()
