"""New objects: what the server alone says about them, and those that it makes itself."""

from argosy.local.apiserver import shape
from argosy.local.apiserver.api import Api
from argosy.local.apiserver.facts import COUNTS_GENERATIONS, KEEPS_STATUS_ON_CREATE
from argosy.local.apiserver.objects import ensure
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.times import new_uid, now_text
from argosy.local.schema.model import Json
from argosy.local.schema.reading import text


def fresh_metadata(metadata: Json) -> None:
    """What the server alone decides about a new object."""
    metadata["uid"] = new_uid()
    metadata["creationTimestamp"] = now_text()
    for field in (
        "resourceVersion",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ):
        metadata.pop(field, None)


def prepare(obj: Json, served: Served) -> None:
    """Take away what a creator may not say, and count the first generation."""
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
    """Store an object of the server's own, if it is not there yet."""
    metadata = ensure(obj, "metadata")
    if api.head(served, text(metadata, "namespace"), text(metadata, "name")) is not None:
        return
    fresh_metadata(metadata)
    status = obj.get("status")
    obj = shape.admit_fields(obj, served, "Ignore", [])
    prepare(obj, served)
    if status is not None:
        obj["status"] = status
    await api.put(served, obj)
