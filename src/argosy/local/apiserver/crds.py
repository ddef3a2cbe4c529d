"""The controller of CustomResourceDefinitions: accepts names, serves kinds, deletes objects of deleted CRDs.

It runs in the API server, so that a kind is served milliseconds after its definition is written, and right
after a restart.
"""

import asyncio

from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Api
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.store import Event
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_map, get_maps, get_str, get_strings

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._changed: asyncio.Queue[str] = asyncio.Queue()

    def restore(self) -> None:
        """Serve the kinds that were established before the server started."""
        for stored in self._api.store.collection(STORAGE).listed(""):
            definition = stored.decoded()
            if established(definition):
                self._api.registry.define(definition)
            self._changed.put_nowait(stored.name)
        self._api.store.listen(self._on_event)

    async def run(self) -> None:
        """Reconcile definitions when they change; never ends."""
        while True:
            await self._reconcile(await self._changed.get())

    def _on_event(self, collection: str, event: Event) -> None:
        if collection == STORAGE:
            if event.type == "DELETED":
                self._api.registry.undefine(event.new.name)
            self._changed.put_nowait(event.new.name)
        elif event.type == "DELETED" and (served := self._terminating(collection)):
            self._changed.put_nowait(served)

    def _terminating(self, collection: str) -> str | None:
        stored = self._api.store.collection(STORAGE).get("", collection)
        return stored.name if stored and b'"deletionTimestamp"' in stored.data else None

    async def _reconcile(self, name: str) -> None:
        served = self._api.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert served is not None
        head = self._api.head(served, "", name)
        if head is None:
            return
        definition = head.decoded()
        if get_str(definition, "metadata", "deletionTimestamp"):
            await self._finish(served, definition)
            return
        changed = self._accept(definition)
        before = head.decoded()
        if changed != before:
            changed = object_schema.track_update(before, changed, served, "kube-apiserver", "status")
            await self._api.put(served, changed)
            definition = changed
        if established(definition):
            self._api.registry.define(definition)

    def _accept(self, definition: Json) -> Json:
        """Return the definition with its status brought up to date."""
        status = ensure(definition, "status")
        names = get_map(definition, "spec", "names")
        taken = self._name_conflict(definition)
        accepted = not taken
        if accepted:
            status["acceptedNames"] = dict(names)
        _set(status, "NamesAccepted", accepted, "NoConflicts", "no conflicts found", taken)
        if accepted or established(definition):
            _set(
                status,
                "Established",
                True,
                "InitialNamesAccepted",
                "the initial names have been accepted",
                "",
            )
        else:
            _set(status, "Established", False, "NotAccepted", "", "not all names are accepted")
        stored = [str(v) for v in get_strings(status, "storedVersions")]
        for version in get_maps(definition, "spec", "versions"):
            if version.get("storage") is True and get_str(version, "name") not in stored:
                stored.append(get_str(version, "name"))
        status["storedVersions"] = stored
        return definition

    def _name_conflict(self, definition: Json) -> str:
        """Return the conflict with the names of another kind of the group; empty if there is none."""
        names, own = get_map(definition, "spec", "names"), get_str(definition, "metadata", "name")
        for served in self._api.registry.all():
            if served.group != get_str(definition, "spec", "group") or (
                served.crd and served.crd.name == own
            ):
                continue
            if served.plural == get_str(names, "plural"):
                return f'"{served.plural}" is already in use'
            if served.kind == get_str(names, "kind"):
                return f'"{served.kind}" is already in use'
        return ""

    async def _finish(self, served: Served, definition: Json) -> None:
        """Delete the objects of a terminating definition, then the definition."""
        name = get_str(definition, "metadata", "name")
        collection = self._api.store.collection(name)
        versions = self._api.registry.versions(name)
        kind = versions[0] if versions else None
        for stored in collection.listed(None):
            await self._delete(kind or served, name, stored.namespace, stored.name)
        if len(collection):
            return
        self._api.registry.undefine(name)
        finalizers = [f for f in get_strings(definition, "metadata", "finalizers") if f != FINALIZER]
        ensure(definition, "metadata")["finalizers"] = finalizers
        await self._api.put(served, definition, delete=not finalizers)

    async def _delete(self, served: Served, collection: str, namespace: str, name: str) -> None:
        head = self._api.store.head(collection, namespace, name)
        if head is None:
            return
        obj = head.decoded()
        metadata = ensure(obj, "metadata")
        held = bool(get_strings(metadata, "finalizers"))
        if held and metadata.get("deletionTimestamp"):
            return
        if held:
            metadata["deletionTimestamp"], metadata["deletionGracePeriodSeconds"] = now_text(), 0
        if served.storage == collection:
            await self._api.put(served, obj, delete=not held)
        else:
            await self._api.store.put(collection, obj, head.labels, head.fields, delete=not held)


def established(definition: Json) -> bool:
    return any(
        get_str(condition, "type") == "Established" and get_str(condition, "status") == "True"
        for condition in get_maps(definition, "status", "conditions")
    )


def _set(status: Json, kind: str, good: bool, reason: str, message: str, problem: str) -> None:
    value = "True" if good else "False"
    if problem:
        reason, message = ("PluralConflict" if kind == "NamesAccepted" else "NotAccepted"), problem
    conditions = get_maps(status, "conditions")
    status["conditions"] = conditions
    condition = next((c for c in conditions if get_str(c, "type") == kind), None)
    if condition is None:
        condition = {"type": kind}
        conditions.append(condition)
    if get_str(condition, "status") != value:
        condition["lastTransitionTime"] = now_text()
    condition.update({"status": value, "reason": reason, "message": message})
