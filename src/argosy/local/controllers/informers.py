"""The context that the scheduler and all controllers share: one client, one cache per kind, one clock.

Each kind is watched once, however many controllers read it. A controller subscribes to caches when it is
created, and runs after all caches have synced, so it never decides on partial data.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from typing import Literal, Protocol

from argosy.engine.backoff import Backoff
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.errors import NotFound
from argosy.engine.objects import ApiObject
from argosy.engine.watch import WatchTimings
from argosy.kinds.kubernetes import ConfigMap, Lease, ServiceAccount
from argosy.kinds.labels import POD_GROUP_ANNOTATION
from argosy.kinds.meta import ObjectMeta
from argosy.local import namespace_defaults
from argosy.local.controllers.api_types import (
    ClusterRole,
    Job,
    Namespace,
    Node,
    Pod,
    PodGroup,
    PriorityClass,
)
from argosy.local.controllers.workloads import Deployment, ReplicaSet
from argosy.local.service_types import EndpointSlice, PersistentVolumeClaim, Service

VOLCANO_GROUP_ANNOTATION = "scheduling.volcano.sh/group-name"


class Events(Protocol):
    def event(
        self, obj: ApiObject, type: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None: ...


class Runnable(Protocol):
    """A controller: it runs until cancelled."""

    async def run(self) -> None: ...


class RunnableCache(Protocol):
    """Any cache, whatever it holds."""

    async def run(self) -> None: ...
    async def wait_synced(self) -> None: ...


class ControllerContext:
    def __init__(self, client: Client, events: Events, clock: Clock = SystemClock()) -> None:
        self.client = client
        self.events = events
        self.clock = clock
        self.pods = Cache(
            client,
            Pod,
            indexes={
                "node": _node,
                "owner": _owner,
                "group": _group,
                "namespace": _namespace,
                "label": _labels,
            },
        )
        self.nodes = Cache(client, Node)
        self.namespaces = Cache(client, Namespace)
        self.services = Cache(client, Service, indexes={"selector": _selector})
        self.endpoint_slices = Cache(client, EndpointSlice, indexes={"service": _service})
        self.jobs = Cache(client, Job)
        self.replica_sets = Cache(client, ReplicaSet, indexes={"owner": _owner, "namespace": _namespace})
        self.deployments = Cache(client, Deployment, indexes={"namespace": _namespace})
        self.priority_classes = Cache(client, PriorityClass)
        self.cluster_roles = Cache(client, ClusterRole)
        self.leases = Cache(client, Lease, namespace="kube-node-lease")
        self.claims = Cache(client, PersistentVolumeClaim)
        self.service_accounts = Cache(
            client, ServiceAccount, fields=f"metadata.name={namespace_defaults.SERVICE_ACCOUNT}"
        )
        self.ca_config_maps = Cache(
            client, ConfigMap, fields=f"metadata.name={namespace_defaults.CA_CONFIG_MAP}"
        )
        # The CRD may be installed at any time: retried often, and not waited for.
        timings = WatchTimings(backoff=Backoff(initial=0.2, maximum=2.0))
        self.pod_groups = Cache(client, PodGroup, timings=timings)

    @asynccontextmanager
    async def run_caches(self) -> AsyncIterator[None]:
        """Run the caches; the context is entered when they have synced."""
        caches: tuple[RunnableCache, ...] = (
            self.pods,
            self.nodes,
            self.namespaces,
            self.services,
            self.endpoint_slices,
            self.jobs,
            self.replica_sets,
            self.deployments,
            self.priority_classes,
            self.cluster_roles,
            self.leases,
            self.claims,
            self.service_accounts,
            self.ca_config_maps,
        )
        tasks = [asyncio.create_task(cache.run()) for cache in (*caches, self.pod_groups)]
        try:
            for cache in caches:
                await cache.wait_synced()
            await self._wait_for_pod_groups()
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_pod_groups(self) -> None:
        """Wait until the PodGroups have synced, or the server does not serve the kind."""
        while not self.pod_groups.synced and not isinstance(self.pod_groups.watcher.last_error, NotFound):  # noqa: ASYNC110 - a problem has no event
            await asyncio.sleep(0.02)


async def run_all(context: ControllerContext, runnables: Iterable[Runnable]) -> None:
    """Run the controllers until cancelled, or until one of them fails."""
    async with context.run_caches(), asyncio.TaskGroup() as running:
        for runnable in runnables:
            running.create_task(runnable.run())


async def gather_errors(work: Iterable[Awaitable[object]]) -> list[BaseException]:
    """Await everything concurrently; return the errors."""
    done = await asyncio.gather(*work, return_exceptions=True)
    return [result for result in done if isinstance(result, BaseException)]


def pod_group_name(pod: Pod) -> str:
    """Return the name of the pod's PodGroup, or an empty string."""
    notes = pod.metadata.annotations
    return notes.get(POD_GROUP_ANNOTATION) or notes.get(VOLCANO_GROUP_ANNOTATION, "")


def _node(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()


class _Owned(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


def _owner(obj: _Owned) -> Iterable[str]:
    owner = obj.metadata.controller
    return (owner.uid,) if owner is not None else ()


def _group(pod: Pod) -> Iterable[str]:
    name = pod_group_name(pod)
    return (f"{pod.metadata.namespace}/{name}",) if name else ()


def _namespace(obj: _Owned) -> Iterable[str]:
    return (obj.metadata.namespace,)


def _labels(pod: Pod) -> Iterable[str]:
    namespace = pod.metadata.namespace
    return [f"{namespace}|{key}={value}" for key, value in pod.metadata.labels.items()]


def _selector(service: Service) -> Iterable[str]:
    """Index a service under one label of its selector: a pod that it selects has that label."""
    for key, value in service.spec.selector.items():
        return (f"{service.metadata.namespace}|{key}={value}",)
    return ()


def _service(slice: EndpointSlice) -> Iterable[str]:
    name = slice.metadata.labels.get("kubernetes.io/service-name", "")
    return (f"{slice.metadata.namespace}/{name}",) if name else ()
