"""Prepares new objects, and creates objects of the server itself."""

import asyncio

from argosy.local import namespace_defaults
from argosy.local.apiserver import object_schema
from argosy.local.apiserver.api import Api
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.strategies import COUNTS_GENERATIONS, KEEPS_STATUS_ON_CREATE
from argosy.local.apiserver.timestamps import new_uid, now_text
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import ensure, get_str


def fresh_metadata(metadata: Json) -> None:
    """Set the metadata that only the server sets in a new object."""
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now_text()
    for field in ("resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
        metadata.pop(field, None)


def prepare(obj: Json, served: Served) -> None:
    """Drop fields that a client cannot set in a new object, and set its generation."""
    metadata = ensure(obj, "metadata")
    if served.custom is not None:
        if served.has_status:
            obj.pop("status", None)
        metadata["generation"] = 1
        return
    if served.has_status and served.storage not in KEEPS_STATUS_ON_CREATE and "status" in obj:
        obj["status"] = dict(served.blank_status)
    if served.storage in COUNTS_GENERATIONS:
        metadata["generation"] = 1


async def create_internally(api: Api, served: Served, obj: Json) -> None:
    """Store an object of the server itself, unless it exists."""
    metadata = ensure(obj, "metadata")
    if api.head(served, get_str(metadata, "namespace"), get_str(metadata, "name")) is not None:
        return
    fresh_metadata(metadata)
    status = obj.get("status")
    obj = object_schema.admit_fields(obj, served, "Ignore", [])
    prepare(obj, served)
    if status is not None:
        obj["status"] = status
    await api.put(served, obj)


async def create_namespace_defaults(api: Api, namespace: str) -> None:
    """Create the service account and the CA certificate that pods of the namespace need, where missing."""
    certificate = (api.state / "pki" / "ca.crt").read_text()
    account = namespace_defaults.service_account(namespace)
    authority = namespace_defaults.ca_config_map(namespace, certificate)
    await asyncio.gather(
        create_internally(api, api.registry.builtin("", "serviceaccounts"), account),
        create_internally(api, api.registry.builtin("", "configmaps"), authority),
    )
