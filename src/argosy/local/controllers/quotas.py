"""Recounts what a ResourceQuota has used when objects are deleted or the quota changes.

The API server counts objects as they are created. A count is taken after the quota was read and written with
its resourceVersion, so that no object created in between is lost.
"""

import asyncio
from typing import ClassVar

from msgspec import Struct, field

from argosy.engine.cache import Cache, Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.local.controllers.api_types import Pod
from argosy.local.controllers.discovery import discover, metadata_type
from argosy.local.controllers.informers import ControllerContext

COUNT_PREFIX = "count/"
UNFINISHED_PODS = "status.phase!=Succeeded,status.phase!=Failed"


class QuotaSpec(Struct):
    hard: dict[str, str] = field(default_factory=dict)


class QuotaStatus(Struct):
    hard: dict[str, str] = field(default_factory=dict)
    used: dict[str, str] = field(default_factory=dict)


class ResourceQuota(Struct):
    resource: ClassVar[Resource] = Resource("", "v1", "ResourceQuota", "resourcequotas")

    metadata: ObjectMeta
    spec: QuotaSpec = field(default_factory=QuotaSpec)
    status: QuotaStatus = field(default_factory=QuotaStatus)


class QuotasController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._quotas = Cache(context.client, ResourceQuota, indexes={"namespace": _namespace})
        self._followed: dict[Resource, asyncio.Task[None]] = {}
        self._controller: Controller[Key] = Controller("quotas", self._reconcile)
        self._quotas.subscribe(self._quota_changed)
        context.pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._quotas.run())
                await self._quotas.wait_synced()
                tasks.create_task(self._controller.run())
        finally:
            for task in self._followed.values():
                task.cancel()
            await asyncio.gather(*self._followed.values(), return_exceptions=True)

    def _quota_changed(self, change: Change[ResourceQuota]) -> None:
        new, old = change.new, change.old
        if new is not None and (old is None or old.spec != new.spec or new.status.hard != new.spec.hard):
            self._controller.enqueue(Key(new.metadata.namespace, new.metadata.name))

    def _pod_changed(self, change: Change[Pod]) -> None:
        old, new = change.old, change.new
        if old is not None and (new is None or (new.finished and not old.finished)):
            self._recount(old.metadata.namespace)

    def _object_changed(self, change: Change[ApiObject]) -> None:
        if change.new is None and change.old is not None:
            self._recount(change.old.metadata.namespace)

    def _recount(self, namespace: str) -> None:
        for quota in self._quotas.by("namespace", namespace):
            self._controller.enqueue(Key(namespace, quota.metadata.name))

    async def _reconcile(self, key: Key) -> Requeue | None:
        try:
            quota = await self._context.client.get(ResourceQuota, key.name, key.namespace)
            used = await self._count(quota)
            status = QuotaStatus(quota.spec.hard, used)
            if status == quota.status:
                return None
            patch = {
                "metadata": {"resourceVersion": quota.metadata.resource_version},
                "status": _status_patch(quota.status, status),
            }
            written = await self._context.client.patch(
                ResourceQuota, key.name, patch, key.namespace, subresource="status"
            )
        except NotFound:
            return None
        except Conflict:
            return Requeue(after=0.02)  # an object was created meanwhile: count again
        self._quotas.put(written)
        return None

    async def _count(self, quota: ResourceQuota) -> dict[str, str]:
        """Count the objects of each kind that the quota limits and the server serves."""
        used: dict[str, str] = {}
        for name in quota.spec.hard:
            resource = await self._resource(name)
            if resource is None:
                continue
            fields = UNFINISHED_PODS if name == "pods" else ""
            kind, namespace = metadata_type(resource), quota.metadata.namespace
            try:
                objects = await self._context.client.list(kind, namespace, fields=fields)
            except NotFound:  # its CRD was deleted
                self._unfollow(resource)
                continue
            self._follow(resource)
            used[name] = str(len(objects.items))
        return used

    async def _resource(self, name: str) -> Resource | None:
        plural, _, group = name.removeprefix(COUNT_PREFIX).partition(".")
        for resource in self._followed:
            if (resource.group, resource.plural) == (group, plural):
                return resource
        catalog = await discover(self._context.client)
        return next(
            (
                served.resource
                for served in catalog.kinds
                if served.collectable and (served.resource.group, served.resource.plural) == (group, plural)
            ),
            None,
        )

    def _follow(self, resource: Resource) -> None:
        """Watch a kind from when a quota first names it; pods are watched already."""
        if resource == Pod.resource or resource in self._followed:
            return
        objects = Cache(self._context.client, metadata_type(resource))
        objects.subscribe(self._object_changed)
        self._followed[resource] = asyncio.create_task(objects.run())

    def _unfollow(self, resource: Resource) -> None:
        if resource in self._followed:
            self._followed.pop(resource).cancel()


def _status_patch(old: QuotaStatus, new: QuotaStatus) -> dict[str, object]:
    """Return the merge patch from one status to the other."""
    return {
        part: {**dict.fromkeys(before), **after}
        for part, before, after in (("hard", old.hard, new.hard), ("used", old.used, new.used))
    }


def _namespace(quota: ResourceQuota) -> tuple[str]:
    return (quota.metadata.namespace,)
