"""The garbage collector at work: follows the metadata of every kind there is, also of CRDs made later.

Deletes carry the uid, edits the resourceVersion, so that an object that was replaced or claimed meanwhile
is left alone and looked at again. Nothing is decided before every kind known at the start is in: an owner
that waits for its dependents must not be let go because they were not seen yet.
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
from argosy.local.controllers.gc.decide import Await, Delete, Disown, Finish, Look, decide
from argosy.local.controllers.gc.graph import Graph, Thing
from argosy.local.controllers.informers import Shared, each

IGNORED = {("", "events"), ("events.k8s.io", "events")}
REDISCOVER = 30.0
REMEMBERED_ABSENT = 20_000
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
    def __init__(self, shared: Shared, rediscover: float = REDISCOVER) -> None:
        self._shared = shared
        self._rediscover = rediscover
        self._graph = Graph()
        self._catalog = Catalog(())
        self._monitors: dict[Resource, tuple[Cache[ApiObject], asyncio.Task[None]]] = {}
        self._absent: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._definitions_changed = asyncio.Event()
        self._controller: Controller[str] = Controller("garbage", self._pass)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._discover_at_last()
                await self._all_in()
                tasks.create_task(self._keep_discovering())
                tasks.create_task(self._controller.run())
        finally:
            for _, task in self._monitors.values():
                task.cancel()
            await asyncio.gather(*(task for _, task in self._monitors.values()), return_exceptions=True)

    async def _discover_at_last(self) -> None:
        while True:
            try:
                return await self._discover()
            except ApiError as error:
                log.warning("discovery failed, trying again", error=str(error))
                await asyncio.sleep(1.0)

    async def _all_in(self) -> None:
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
                async with asyncio.timeout(self._rediscover):
                    await self._definitions_changed.wait()
            except TimeoutError:
                pass
            self._definitions_changed.clear()
            try:
                await self._discover()
            except ApiError as error:
                log.warning("discovery failed", error=str(error))

    async def _discover(self) -> None:
        self._catalog = await discover(self._shared.client)
        wanted = {
            served.resource
            for served in self._catalog.served
            if served.collectable and (served.resource.group, served.resource.plural) not in IGNORED
        }
        for resource in wanted - self._monitors.keys():
            self._follow(resource)
        if self._catalog.complete:
            for resource in self._monitors.keys() - wanted:
                self._unfollow(resource)

    def _follow(self, resource: Resource) -> None:
        kind = msgspec.defstruct(resource.kind, [("metadata", Meta)], namespace={"resource": resource})
        cache = Cache(self._shared.client, cast("type[ApiObject]", kind))
        cache.subscribe(self._listener(resource))
        self._monitors[resource] = (cache, asyncio.create_task(cache.run()))

    def _unfollow(self, resource: Resource) -> None:
        """The kind is gone, and all its objects with it."""
        _, task = self._monitors.pop(resource)
        task.cancel()
        for thing in self._graph:
            if thing.resource == resource:
                self._lost(thing)

    def _listener(self, resource: Resource) -> Callable[[Change[ApiObject]], None]:
        definitions = resource.plural == "customresourcedefinitions"

        def changed(change: Change[ApiObject]) -> None:
            old = _thing(resource, change.old) if change.old is not None else None
            if change.new is None:
                if old is not None:
                    self._lost(old)
            else:
                self._seen(_thing(resource, change.new))
            if definitions:
                self._definitions_changed.set()

        return changed

    def _seen(self, new: Thing) -> None:
        old = self._graph.get(new.uid)
        self._graph.put(new)
        if old is None or (old.owners, old.finalizers, old.deleting) != (
            new.owners,
            new.finalizers,
            new.deleting,
        ):
            if new.owners or new.deleting:
                self._controller.enqueue(new.uid)
            if old is not None:
                self._look_at_owners(old)
            if new.deleting:
                self._look_at_dependents(new)

    def _lost(self, thing: Thing) -> None:
        self._graph.remove(thing.uid)
        self._remember_absent(thing.uid, thing.namespace)
        for dependent in self._graph.dependents(thing.uid):
            self._remember_absent(thing.uid, dependent.namespace)
            self._controller.enqueue(dependent.uid)
        self._look_at_owners(thing)

    def _look_at_owners(self, thing: Thing) -> None:
        for reference in thing.owners:
            owner = self._graph.get(reference.uid)
            if owner is not None and owner.deleting:
                self._controller.enqueue(owner.uid)

    def _look_at_dependents(self, thing: Thing) -> None:
        for dependent in self._graph.dependents(thing.uid):
            self._controller.enqueue(dependent.uid)

    def _remember_absent(self, uid: str, namespace: str) -> None:
        self._absent[uid, namespace] = None
        while len(self._absent) > REMEMBERED_ABSENT:
            self._absent.popitem(last=False)

    async def _pass(self, uid: str) -> Requeue | None:
        thing = self._graph.get(uid)
        if thing is None:
            return None
        action = decide(thing, self._graph, self._absent)
        try:
            match action:
                case Look(owners):
                    if await self._look(thing, owners):
                        return Requeue(after=0)
                case Delete(propagation):
                    await self._delete(thing, propagation)
                case Disown(things, owners, then):
                    for problem in await each(self._disown(each_thing, owners) for each_thing in things):
                        raise problem
                    if then:
                        await self._finish(thing, then)
                case Finish(finalizer):
                    if not all(cache.synced for cache, _ in self._monitors.values()):
                        return Requeue(after=0.5)
                    await self._finish(thing, finalizer)
                case Await(things):
                    for dependent in things:
                        if not dependent.deleting:
                            self._controller.enqueue(dependent.uid)
        except (NotFound, Conflict):
            return Requeue(
                after=1.0
            )  # seen too late: the watch brings the truth; this is in case it did already
        return None

    async def _look(self, thing: Thing, owners: tuple[OwnerReference, ...]) -> bool:
        """Looks owners up in the API; True if one of them is absent. An unknown kind is no proof: it
        raises.
        """
        found_absent = False
        for owner in owners:
            resource = self._catalog.find(owner.api_version, owner.kind)
            if resource is None:
                self._definitions_changed.set()
                message = f"{thing}: its owner's kind {owner.api_version} {owner.kind} is not served"
                raise ApiError(404, "UnknownKind", message)
            if not await self._exists(resource, owner, thing.namespace):
                self._remember_absent(owner.uid, thing.namespace)
                found_absent = True
        return found_absent

    async def _exists(self, resource: Resource, owner: OwnerReference, namespace: str) -> bool:
        if resource.namespaced and not namespace:
            return False
        try:
            live = await self._shared.client.get(
                dynamic_kind(resource), owner.name, namespace if resource.namespaced else None
            )
        except NotFound:
            return False
        return live.metadata.uid == owner.uid

    async def _delete(self, thing: Thing, propagation: str) -> None:
        await self._shared.client.delete(
            dynamic_kind(thing.resource),
            thing.name,
            thing.namespace or None,
            uid=thing.uid,
            propagation=propagation,
        )

    async def _disown(self, thing: Thing, owners: frozenset[str]) -> None:
        kept = [_encoded(owner) for owner in thing.owners if owner.uid not in owners]
        try:
            await self._edit(thing, {"ownerReferences": kept})
        except NotFound:
            return

    async def _finish(self, thing: Thing, finalizer: str) -> None:
        await self._edit(thing, {"finalizers": [item for item in thing.finalizers if item != finalizer]})

    async def _edit(self, thing: Thing, metadata: dict[str, object]) -> None:
        fixed = {"uid": thing.uid, "resourceVersion": thing.version}
        await self._shared.client.patch(
            dynamic_kind(thing.resource), thing.name, {"metadata": fixed | metadata}, thing.namespace or None
        )


def _thing(resource: Resource, obj: ApiObject) -> Thing:
    meta = obj.metadata
    assert isinstance(meta, Meta)
    return Thing(
        resource,
        meta.namespace,
        meta.name,
        meta.uid,
        meta.resource_version,
        tuple(meta.owner_references),
        tuple(meta.finalizers),
        meta.deletion_timestamp is not None,
    )


def _encoded(owner: OwnerReference) -> dict[str, object]:
    encoded: dict[str, object] = msgspec.to_builtins(owner)
    return {name: value for name, value in encoded.items() if value is not False}
