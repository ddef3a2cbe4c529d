"""CustomResourceDefinitions at work: names accepted, kinds served, objects deleted with their definition.

Runs inside the server, on its own store: a definition is served within milliseconds of being written, and
again right after a restart.
"""

import asyncio

from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Api
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.store import Event
from argosy.local.apiserver.timestamps import now_text
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, part, parts, strings, text

STORAGE = "customresourcedefinitions.apiextensions.k8s.io"
FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


class Definitions:
    def __init__(self, api: Api) -> None:
        self._api = api
        self._changed: asyncio.Queue[str] = asyncio.Queue()

    def restore(self) -> None:
        """Serve what was established before the server started."""
        for stored in self._api.store.collection(STORAGE).listed(""):
            definition = stored.decoded()
            if established(definition):
                self._api.registry.define(definition)
            self._changed.put_nowait(stored.name)
        self._api.store.listen(self._heard)

    async def run(self) -> None:
        """Follow definitions as they change; never ends."""
        while True:
            await self._settle(await self._changed.get())

    def _heard(self, collection: str, event: Event) -> None:
        if collection == STORAGE:
            if event.type == "DELETED":
                self._api.registry.undefine(event.new.name)
            self._changed.put_nowait(event.new.name)
        elif event.type == "DELETED" and (served := self._terminating(collection)):
            self._changed.put_nowait(served)

    def _terminating(self, collection: str) -> str | None:
        stored = self._api.store.collection(STORAGE).get("", collection)
        return stored.name if stored and b'"deletionTimestamp"' in stored.data else None

    async def _settle(self, name: str) -> None:
        served = self._api.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert served is not None
        head = self._api.head(served, "", name)
        if head is None:
            return
        definition = head.decoded()
        if text(definition, "metadata", "deletionTimestamp"):
            await self._finish(served, definition)
            return
        settled = self._accept(definition)
        before = head.decoded()
        if settled != before:
            settled = object_schema.track_update(before, settled, served, "kube-apiserver", "status")
            await self._api.put(served, settled)
            definition = settled
        if established(definition):
            self._api.registry.define(definition)

    def _accept(self, definition: Json) -> Json:
        """The definition with its status as it should be."""
        status = ensure(definition, "status")
        names = part(definition, "spec", "names")
        taken = self._taken(definition)
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
        stored = [str(v) for v in strings(status, "storedVersions")]
        for version in parts(definition, "spec", "versions"):
            if version.get("storage") is True and text(version, "name") not in stored:
                stored.append(text(version, "name"))
        status["storedVersions"] = stored
        return definition

    def _taken(self, definition: Json) -> str:
        """Which of the names another kind of the same group already has."""
        names, own = part(definition, "spec", "names"), text(definition, "metadata", "name")
        for served in self._api.registry.all():
            if served.group != text(definition, "spec", "group") or (served.crd and served.crd.name == own):
                continue
            if served.plural == text(names, "plural"):
                return f'"{served.plural}" is already in use'
            if served.kind == text(names, "kind"):
                return f'"{served.kind}" is already in use'
        return ""

    async def _finish(self, served: Served, definition: Json) -> None:
        """Delete the objects of a definition that is being deleted, then let it go."""
        name = text(definition, "metadata", "name")
        collection = self._api.store.collection(name)
        versions = self._api.registry.versions(name)
        kind = versions[0] if versions else None
        for stored in collection.listed(None):
            await self._delete(kind or served, name, stored.namespace, stored.name)
        if len(collection):
            return
        self._api.registry.undefine(name)
        finalizers = [f for f in strings(definition, "metadata", "finalizers") if f != FINALIZER]
        ensure(definition, "metadata")["finalizers"] = finalizers
        await self._api.put(served, definition, delete=not finalizers)

    async def _delete(self, served: Served, collection: str, namespace: str, name: str) -> None:
        head = self._api.store.head(collection, namespace, name)
        if head is None:
            return
        obj = head.decoded()
        metadata = ensure(obj, "metadata")
        held = bool(strings(metadata, "finalizers"))
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
        text(condition, "type") == "Established" and text(condition, "status") == "True"
        for condition in parts(definition, "status", "conditions")
    )


def _set(status: Json, kind: str, good: bool, reason: str, message: str, problem: str) -> None:
    value = "True" if good else "False"
    if problem:
        reason, message = ("PluralConflict" if kind == "NamesAccepted" else "NotAccepted"), problem
    conditions = parts(status, "conditions")
    status["conditions"] = conditions
    found = next((c for c in conditions if text(c, "type") == kind), None)
    if found is None:
        found = {"type": kind}
        conditions.append(found)
    if text(found, "status") != value:
        found["lastTransitionTime"] = now_text()
    found.update({"status": value, "reason": reason, "message": message})
