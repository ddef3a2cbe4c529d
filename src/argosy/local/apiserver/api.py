"""What request handlers use: the store, the registry of kinds, and the state folder."""

import asyncio
from pathlib import Path

import msgspec

from argosy.local.apiserver.http import Request
from argosy.local.apiserver.rbac import Authorizer
from argosy.local.apiserver.registry import Registry, Served
from argosy.local.apiserver.requestinfo import Target
from argosy.local.apiserver.status import StatusError, internal, not_found
from argosy.local.apiserver.store import NotDurableError, Store, Stored
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import labels_of

SERVICE_RANGE = "10.96.0.0/16"


class Api(msgspec.Struct, frozen=True, eq=False):
    store: Store
    registry: Registry
    state: Path
    authorizer: Authorizer

    def head(self, served: Served, namespace: str, name: str) -> Stored | None:
        """Return the newest version of an object, durable or not, on which a write is based."""
        return self.store.head(served.storage, namespace if served.namespaced else "", name)

    async def put(self, served: Served, obj: Json, *, delete: bool = False) -> Stored:
        """Write an object, or its last version; return when it is durable."""
        try:
            return await self.put_soon(served, obj, delete=delete)
        except NotDurableError as error:
            raise storage_failed(error) from error

    async def mark_and_delete(self, served: Served, obj: Json) -> Stored:
        """Write an object with its deletionTimestamp and delete it: watchers see both events."""
        marked, gone = self.put_soon(served, obj), self.put_soon(served, obj, delete=True)
        try:
            _, last = await asyncio.gather(marked, gone)
        except NotDurableError as error:
            raise storage_failed(error) from error
        return last

    def put_soon(self, served: Served, obj: Json, *, delete: bool = False) -> asyncio.Future[Stored]:
        obj = arranged(obj, served)
        return self.store.put(
            served.storage, obj, labels_of(obj, "metadata", "labels"), served.fields_of(obj), delete=delete
        )


class Call(msgspec.Struct, frozen=True, eq=False):
    """A request to a kind."""

    api: Api
    request: Request
    target: Target
    served: Served

    @property
    def namespace(self) -> str:
        return self.target.namespace if self.served.namespaced else ""

    def head(self) -> Stored:
        """Return the newest version of the requested object, durable or not; 404 if it does not exist."""
        head = self.api.head(self.served, self.namespace, self.target.name)
        if head is None:
            raise not_found(self.served.group, self.served.plural, self.target.name)
        return head


def arranged(obj: Json, served: Served) -> Json:
    """Return the object with kind, version and metadata first, so that its encoding has a fixed prefix."""
    content = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion", "metadata")}
    return {"kind": served.kind, "apiVersion": served.storage_version, "metadata": obj["metadata"], **content}


def storage_failed(error: NotDurableError) -> StatusError:
    return internal(f"the write could not be made durable: {error}")
