"""Deletes the content of a terminating namespace, then removes the namespace's finalizer.

All kinds that can be listed and deleted are deleted repeatedly until nothing is left. Meanwhile the
namespace's conditions show what remains and which finalizers block it. Pods are deleted first: they take
longest.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec import Struct, field

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import ApiError, Conflict, NotFound
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.resource import Resource
from argosy.local.controllers.api_types import Namespace
from argosy.local.controllers.discovery import Catalog, discover
from argosy.local.controllers.informers import ControllerContext

FINALIZER = "kubernetes"
RETRY_SECONDS = 1.0
"""Seconds until a namespace that is not empty is checked again."""

METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class Remaining(Struct):
    """The content that a namespace still has."""

    resources: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    undiscovered: bool = False

    @property
    def empty(self) -> bool:
        return not (self.resources or self.problems or self.undiscovered)


class NamespacesController:
    def __init__(self, context: ControllerContext, again: float = RETRY_SECONDS) -> None:
        self._context = context
        self._retry_seconds = again
        self._controller: Controller[str] = Controller("namespaces", self._reconcile, concurrency=8)
        context.namespaces.subscribe(self._namespace_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _namespace_changed(self, change: Change[Namespace]) -> None:
        if change.new is not None and change.new.metadata.deletion_timestamp is not None:
            self._controller.enqueue(change.new.metadata.name)

    async def _reconcile(self, name: str) -> Requeue | None:
        namespace = self._context.namespaces.get("", name)
        if namespace is None or namespace.metadata.deletion_timestamp is None:
            return None
        if FINALIZER not in namespace.spec.finalizers:
            return None
        remaining = await self._delete_content(name, await discover(self._context.client))
        if remaining.empty:
            await self._finalize(namespace)
            return None
        await self._write_conditions(namespace, remaining)
        return Requeue(after=self._retry_seconds)

    async def _delete_content(self, name: str, catalog: Catalog) -> Remaining:
        remaining = Remaining(undiscovered=not catalog.complete)
        kinds = [
            kind for kind in catalog.kinds if kind.resource.namespaced and {"list", "delete"} <= kind.verbs
        ]
        kinds.sort(
            key=lambda kind: (kind.resource.plural != "pods", kind.resource.group, kind.resource.plural)
        )
        for kind in kinds:
            try:
                await self._delete_kind(name, kind.resource, "deletecollection" in kind.verbs, remaining)
            except NotFound:
                continue  # its CRD was just deleted, and its objects with it
            except ApiError as error:
                remaining.problems.append(f"{kind.resource.plural}: {error.message or error.reason}")
        return remaining

    async def _delete_kind(self, name: str, resource: Resource, at_once: bool, remaining: Remaining) -> None:
        path = resource.path(namespace=name)
        listed = await self._list(path)
        if not listed:
            return
        options = {"propagationPolicy": "Background"}
        if at_once:
            await self._context.client.request("DELETE", path, body=options)
        else:
            for meta in listed:
                await self._delete_one(resource, meta, options)
        label = f"{resource.plural}.{resource.group}" if resource.group else f"{resource.plural}."
        for meta in await self._list(path):
            remaining.resources[label] += 1
            remaining.finalizers.update(meta.finalizers)

    async def _delete_one(self, resource: Resource, meta: ObjectMeta, options: Mapping[str, object]) -> None:
        try:
            await self._context.client.request(
                "DELETE", resource.path(meta.name, meta.namespace), body=options
            )
        except NotFound:
            return

    async def _list(self, path: str) -> list[ObjectMeta]:
        answer = await self._context.client.request("GET", path, headers={"Accept": METADATA_LIST})
        return [item.metadata for item in _decoder.decode(answer).items or ()]

    async def _finalize(self, namespace: Namespace) -> None:
        meta = namespace.metadata
        kept = [item for item in namespace.spec.finalizers if item != FINALIZER]
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {
                "name": meta.name,
                "uid": meta.uid,
                "labels": meta.labels,
                "annotations": meta.annotations,
            },
            "spec": {"finalizers": kept},
        }
        try:
            await self._context.client.request(
                "PUT", Namespace.resource.path(meta.name, None, "finalize"), body=body
            )
        except (NotFound, Conflict):
            return

    async def _write_conditions(self, namespace: Namespace, remaining: Remaining) -> None:
        now = self._context.clock.now().replace(microsecond=0)
        wanted = deletion_conditions(namespace.status.conditions, remaining, now)
        if wanted == namespace.status.conditions:
            return
        patch = {"status": {"conditions": [_without_nulls(condition) for condition in wanted]}}
        try:
            written = await self._context.client.patch(
                Namespace, namespace.metadata.name, patch, subresource="status"
            )
        except NotFound:
            return
        self._context.namespaces.put(written)


def deletion_conditions(existing: list[Condition], remaining: Remaining, now: datetime) -> list[Condition]:
    """Return the five conditions of a terminating namespace; times change only with their status."""
    conditions = _conditions(remaining)
    by_type = {condition.type: condition for condition in existing}
    for condition in conditions:
        old = by_type.get(condition.type)
        same = old is not None and old.status == condition.status
        condition.last_transition_time = old.last_transition_time if old is not None and same else now
    return conditions


def _conditions(remaining: Remaining) -> list[Condition]:
    some = ", ".join(
        f"{kind} has {count} resource instances" for kind, count in sorted(remaining.resources.items())
    )
    held = ", ".join(
        f"{name} in {count} resource instances" for name, count in sorted(remaining.finalizers.items())
    )
    failed = "; ".join(sorted(remaining.problems))
    return [
        _condition(
            "NamespaceDeletionDiscoveryFailure",
            "DiscoveryFailed" if remaining.undiscovered else "",
            "Discovery failed for some groups",
            "ResourcesDiscovered",
            "All resources successfully discovered",
        ),
        _condition(
            "NamespaceDeletionGroupVersionParsingFailure",
            "",
            "",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        _condition(
            "NamespaceDeletionContentFailure",
            "ContentDeletionFailed" if failed else "",
            f"Failed to delete all resource types: {failed}",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
        ),
        _condition(
            "NamespaceContentRemaining",
            "SomeResourcesRemain" if some else "",
            f"Some resources are remaining: {some}",
            "ContentRemoved",
            "All content successfully removed",
        ),
        _condition(
            "NamespaceFinalizersRemaining",
            "SomeFinalizersRemain" if held else "",
            f"Some content in the namespace has finalizers remaining: {held}",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ]


def _condition(type: str, reason: str, message: str, fine: str, fine_message: str) -> Condition:
    if reason:
        return Condition(type, "True", reason, message)
    return Condition(type, "False", fine, fine_message)


def _without_nulls(condition: Condition) -> dict[str, object]:
    encoded: dict[str, object] = msgspec.to_builtins(condition)
    return {name: value for name, value in encoded.items() if value is not None}


class _Item(Struct):
    metadata: ObjectMeta


class _Items(Struct):
    items: list[_Item] | None = None


_decoder = msgspec.json.Decoder(_Items)
