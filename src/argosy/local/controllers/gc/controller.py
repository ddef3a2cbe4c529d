"""The garbage collector: watches the metadata of every kind, including kinds of CRDs created later.

Deletes are conditional on the uid and edits on the resourceVersion, so that an object that was replaced or
changed meanwhile is left alone and checked again. Nothing is decided before all kinds discovered at the start
have synced: an owner in foreground deletion must not be released because its dependents are not known yet.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from typing import cast

import msgspec
from msgspec import Struct, field

from argosy.engine.cache import Cache, Change
from argosy.engine.controller import Controller, Requeue
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.engine.logs import Logger
from argosy.engine.objects import ApiObject
from argosy.kinds.meta import OwnerReference
from argosy.kinds.resource import Resource
from argosy.local.controllers.discovery import Catalog, discover
from argosy.local.controllers.gc.decide import (
    Delete,
    LookUpOwners,
    RemoveFinalizer,
    RemoveOwners,
    WaitForDependents,
    decide,
)
from argosy.local.controllers.gc.graph import Graph, GraphObject
from argosy.local.controllers.informers import ControllerContext, gather_errors

IGNORED_RESOURCES = {("", "events"), ("events.k8s.io", "events")}
REDISCOVERY_SECONDS = 30.0
MAX_ABSENT_OWNERS = 20_000
SYNC_SECONDS = 15.0

log = Logger(__name__)


class Meta(Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None
    owner_references: list[OwnerReference] = field(default_factory=list)
    finalizers: list[str] = field(default_factory=list)


class GarbageCollector:
    def __init__(self, context: ControllerContext, rediscover: float = REDISCOVERY_SECONDS) -> None:
        self._context = context
        self._rediscovery_seconds = rediscover
        self._graph = Graph()
        self._catalog = Catalog(())
        self._monitors: dict[Resource, tuple[Cache[ApiObject], asyncio.Task[None]]] = {}
        self._absent: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._definitions_changed = asyncio.Event()
        self._controller: Controller[str] = Controller("garbage", self._reconcile)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._discover_with_retry()
                await self._wait_for_monitors()
                tasks.create_task(self._keep_discovering())
                tasks.create_task(self._controller.run())
        finally:
            for _, task in self._monitors.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._monitors.values()), return_exceptions=True)

    async def _discover_with_retry(self) -> None:
        while True:
            try:
                return await self._discover()
            except ApiError as error:
                log.warning("discovery failed, trying again", error=str(error))
                await asyncio.sleep(1.0)

    async def _wait_for_monitors(self) -> None:
        try:
            async with asyncio.timeout(SYNC_SECONDS):
                for cache, _ in tuple(self._monitors.values()):
                    await cache.wait_synced()
        except TimeoutError:
            late = [cache.kind.resource.kind for cache, _ in self._monitors.values() if not cache.synced]
            log.warning("some kinds cannot be read yet", kinds=late)

    async def _keep_discovering(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._rediscovery_seconds):
                    await self._definitions_changed.wait()
            except TimeoutError:
                pass
            self._definitions_changed.clear()
            try:
                await self._discover()
            except ApiError as error:
                log.warning("discovery failed", error=str(error))

    async def _discover(self) -> None:
        self._catalog = await discover(self._context.client)
        wanted = {
            served.resource
            for served in self._catalog.kinds
            if served.collectable and (served.resource.group, served.resource.plural) not in IGNORED_RESOURCES
        }
        for resource in wanted - self._monitors.keys():
            self._start_monitor(resource)
        if self._catalog.complete:
            for resource in self._monitors.keys() - wanted:
                self._stop_monitor(resource)

    def _start_monitor(self, resource: Resource) -> None:
        kind = msgspec.defstruct(resource.kind, [("metadata", Meta)], namespace={"resource": resource})
        cache = Cache(self._context.client, cast("type[ApiObject]", kind))
        cache.subscribe(self._listener(resource))
        self._monitors[resource] = (cache, asyncio.create_task(cache.run()))

    def _stop_monitor(self, resource: Resource) -> None:
        """Stop watching a kind that is no longer served, and remove its objects from the graph."""
        _, task = self._monitors.pop(resource)
        task.cancel()
        for obj in self._graph:
            if obj.resource == resource:
                self._object_deleted(obj)

    def _listener(self, resource: Resource) -> Callable[[Change[ApiObject]], None]:
        definitions = resource.plural == "customresourcedefinitions"

        def changed(change: Change[ApiObject]) -> None:
            old = _graph_object(resource, change.old) if change.old is not None else None
            if change.new is None:
                if old is not None:
                    self._object_deleted(old)
            else:
                self._object_changed(_graph_object(resource, change.new))
            if definitions:
                self._definitions_changed.set()

        return changed

    def _object_changed(self, new: GraphObject) -> None:
        old = self._graph.get(new.uid)
        self._graph.put(new)
        if old is None or (old.owners, old.finalizers, old.is_deleting) != (
            new.owners,
            new.finalizers,
            new.is_deleting,
        ):
            if new.owners or new.is_deleting:
                self._controller.enqueue(new.uid)
            if old is not None:
                self._enqueue_deleting_owners(old)
            if new.is_deleting:
                self._enqueue_dependents(new)

    def _object_deleted(self, obj: GraphObject) -> None:
        self._graph.remove(obj.uid)
        self._remember_absent(obj.uid, obj.namespace)
        for dependent in self._graph.dependents(obj.uid):
            self._remember_absent(obj.uid, dependent.namespace)
            self._controller.enqueue(dependent.uid)
        self._enqueue_deleting_owners(obj)

    def _enqueue_deleting_owners(self, obj: GraphObject) -> None:
        for reference in obj.owners:
            owner = self._graph.get(reference.uid)
            if owner is not None and owner.is_deleting:
                self._controller.enqueue(owner.uid)

    def _enqueue_dependents(self, obj: GraphObject) -> None:
        for dependent in self._graph.dependents(obj.uid):
            self._controller.enqueue(dependent.uid)

    def _remember_absent(self, uid: str, namespace: str) -> None:
        self._absent[uid, namespace] = None
        while len(self._absent) > MAX_ABSENT_OWNERS:
            self._absent.popitem(last=False)

    async def _reconcile(self, uid: str) -> Requeue | None:
        obj = self._graph.get(uid)
        if obj is None:
            return None
        action = decide(obj, self._graph, self._absent)
        try:
            match action:
                case LookUpOwners(owners):
                    if await self._find_absent_owners(obj, owners):
                        return Requeue(after=0)
                case Delete(propagation):
                    await self._delete(obj, propagation)
                case RemoveOwners(objects, owners, then):
                    for problem in await gather_errors(
                        self._remove_owner_references(obj, owners) for obj in objects
                    ):
                        raise problem
                    if then:
                        await self._remove_finalizer(obj, then)
                case RemoveFinalizer(finalizer):
                    if not all(cache.synced for cache, _ in self._monitors.values()):
                        return Requeue(after=0.5)
                    await self._remove_finalizer(obj, finalizer)
                case WaitForDependents(objects):
                    for dependent in objects:
                        if not dependent.is_deleting:
                            self._controller.enqueue(dependent.uid)
        except (NotFound, Conflict):
            # The cache was outdated. The watch enqueues the object again unless it has caught up already.
            return Requeue(after=1.0)
        return None

    async def _find_absent_owners(self, obj: GraphObject, owners: tuple[OwnerReference, ...]) -> bool:
        """Look owners up in the API; return True if one is absent. Raises if an owner's kind is unknown."""
        found_absent = False
        for owner in owners:
            resource = self._catalog.find(owner.api_version, owner.kind)
            if resource is None:
                self._definitions_changed.set()
                message = f"{obj}: its owner's kind {owner.api_version} {owner.kind} is not served"
                raise ApiError(404, "UnknownKind", message)
            if not await self._exists(resource, owner, obj.namespace):
                self._remember_absent(owner.uid, obj.namespace)
                found_absent = True
        return found_absent

    async def _exists(self, resource: Resource, owner: OwnerReference, namespace: str) -> bool:
        if resource.namespaced and not namespace:
            return False
        try:
            live = await self._context.client.get(
                dynamic_kind(resource), owner.name, namespace if resource.namespaced else None
            )
        except NotFound:
            return False
        return live.metadata.uid == owner.uid

    async def _delete(self, obj: GraphObject, propagation: str) -> None:
        await self._context.client.delete(
            dynamic_kind(obj.resource),
            obj.name,
            obj.namespace or None,
            uid=obj.uid,
            propagation=propagation,
        )

    async def _remove_owner_references(self, obj: GraphObject, owners: frozenset[str]) -> None:
        kept = [_encode_reference(owner) for owner in obj.owners if owner.uid not in owners]
        try:
            await self._patch_metadata(obj, {"ownerReferences": kept})
        except NotFound:
            return

    async def _remove_finalizer(self, obj: GraphObject, finalizer: str) -> None:
        await self._patch_metadata(
            obj, {"finalizers": [item for item in obj.finalizers if item != finalizer]}
        )

    async def _patch_metadata(self, obj: GraphObject, metadata: dict[str, object]) -> None:
        fixed = {"uid": obj.uid, "resourceVersion": obj.version}
        await self._context.client.patch(
            dynamic_kind(obj.resource), obj.name, {"metadata": fixed | metadata}, obj.namespace or None
        )


def _graph_object(resource: Resource, obj: ApiObject) -> GraphObject:
    meta = obj.metadata
    assert isinstance(meta, Meta)
    return GraphObject(
        resource,
        meta.namespace,
        meta.name,
        meta.uid,
        meta.resource_version,
        tuple(meta.owner_references),
        tuple(meta.finalizers),
        meta.deletion_timestamp is not None,
    )


def _encode_reference(owner: OwnerReference) -> dict[str, object]:
    encoded: dict[str, object] = msgspec.to_builtins(owner)
    return {name: value for name, value in encoded.items() if value is not False}
