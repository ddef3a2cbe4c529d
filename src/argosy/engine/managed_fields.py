"""Makes server-side apply remove what our own creation of an object wrote.

Kubernetes tracks separately what a field manager created or updated and what it applied, and an apply
removes only what the same manager applied before. So the fields that our POST wrote would stay when a later
body omits them. Before the first apply we therefore count them as applied, as `kubectl apply --server-side`
does for objects that client-side apply created.
"""

import msgspec
from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import Conflict
from argosy.engine.objects import ApiObject
from argosy.engine.urls import metadata_only_header, path_of
from argosy.kinds.meta import Json


async def claim_created_fields(
    client: Client, kind: type[ApiObject], name: str, namespace: str, uid: str, *, patched: bool = False
) -> None:
    """Count what our field manager created as applied, unless it has applied to this object before.

    With `patched`, also what it has patched since then.

    `Conflict` if there is another object of this name, or if it is changed at the same time.
    """
    answer = await client.request(
        "GET", path_of(kind, name, namespace), headers={"Accept": metadata_only_header()}
    )
    metadata = _decoder.decode(answer).metadata
    if metadata.uid != uid:
        raise Conflict(409, "Conflict", f"{name} is another object: its uid is {metadata.uid}, not {uid}")
    version = kind.resource.api_version
    entries = _as_applied(metadata.managed_fields, client.field_manager, version, patched=patched)
    if entries is not None:
        guard = {"uid": uid, "resourceVersion": metadata.resource_version}
        await client.patch(kind, name, {"metadata": {**guard, "managedFields": entries}}, namespace)


class _Metadata(Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    managed_fields: list[Json] = field(default_factory=list)


class _Object(Struct):
    metadata: _Metadata


_decoder = msgspec.json.Decoder(_Object)


def _as_applied(entries: list[Json], manager: str, api_version: str, *, patched: bool) -> list[Json] | None:
    """Return the entries with what the manager wrote counted as applied; None if nothing is to change."""
    own = [
        entry
        for entry in entries
        if entry.get("manager") == manager
        and entry.get("apiVersion") == api_version
        and not entry.get("subresource")
    ]
    operations = {entry.get("operation") for entry in own}
    if operations <= {"Apply"} or ("Apply" in operations and not patched):
        return None
    fields: Json = {}
    for entry in own:
        fields = _union(fields, entry.get("fieldsV1"))
    applied = {**own[0], "operation": "Apply", "fieldsV1": fields}
    return [*(entry for entry in entries if entry not in own), applied]


def _union(fields: Json, others: object) -> Json:
    """Return the union of two sets of fields."""
    if not isinstance(others, dict):
        return fields
    return {**fields, **{name: _union(_mapping(fields.get(name)), inner) for name, inner in others.items()}}


def _mapping(value: object) -> Json:
    return value if isinstance(value, dict) else {}
