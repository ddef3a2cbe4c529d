"""Renders objects in the requested form: the whole object, a Table, or metadata only.

Whole objects are sent as the stored bytes, with at most another prefix; only for the other forms they are
decoded.
"""

from collections.abc import Iterable, Sequence

import msgspec

from argosy.local.apiserver.events import to_events_group
from argosy.local.apiserver.negotiation import Form
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.store import Stored
from argosy.local.schema.model import Json


def whole(stored: Stored, served: Served) -> bytes:
    """Return the object in the served version."""
    data, prefix = stored.data, served.prefix
    if data.startswith(prefix):
        return data
    obj: Json = msgspec.json.decode(data)
    return msgspec.json.encode(as_served(obj, served))


def as_served(obj: Json, served: Served) -> Json:
    if served.group == "events.k8s.io":
        obj = to_events_group(obj)
    return {**obj, "kind": served.kind, "apiVersion": served.api_version}


def item(stored: Stored, served: Served) -> bytes:
    """Return the object as an item of a list, without kind and version for built-in kinds."""
    data = whole(stored, served)
    return data if served.custom is not None else b"{" + data[len(served.prefix) :]


def metadata_only(obj: Json) -> Json:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj.get("metadata", {}),
    }


def render(
    stored: Stored, served: Served, form: Form, include: str = "Metadata", *, columns: bool = True
) -> bytes:
    """Return an object in a form; `include` is the includeObject of a Table."""
    if form == "object":
        return whole(stored, served)
    if form == "metadata":
        return msgspec.json.encode(metadata_only(stored.decoded()))
    return msgspec.json.encode(
        table([stored], served, {"resourceVersion": str(stored.rv)}, include, columns=columns)
    )


def table(
    objects: Iterable[Stored],
    served: Served,
    metadata: Json,
    include: str = "Metadata",
    *,
    columns: bool = True,
) -> Json:
    from argosy.local.apiserver.tables import table_of

    return table_of(
        served, [as_served(stored.decoded(), served) for stored in objects], metadata, include, columns
    )


def list_start(served: Served, metadata: Json) -> bytes:
    head: Json = {"kind": served.list_kind, "apiVersion": served.api_version, "metadata": metadata}
    return msgspec.json.encode(head)[:-1] + b',"items":['


def metadata_list(objects: Sequence[Stored], metadata: Json) -> Json:
    return {
        "kind": "PartialObjectMetadataList",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "items": [metadata_only(stored.decoded()) for stored in objects] or None,
    }
