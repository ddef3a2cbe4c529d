"""Objects in the form that was asked for: whole, as a Table, or metadata only.

Whole objects leave as the bytes that are stored, with at most their first bytes exchanged; only the other two
forms are decoded.
"""

from collections.abc import Iterable, Sequence

import msgspec

from argosy.local.apiserver.events import to_events_group
from argosy.local.apiserver.negotiation import Form
from argosy.local.apiserver.registry import Served
from argosy.local.apiserver.store import Stored
from argosy.local.schema.model import Json


def whole(stored: Stored, served: Served) -> bytes:
    """The object in the served version."""
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
    """The object inside a list: built-in kinds leave out what the list already says."""
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
    """One object in a form; `include` is what a Table's rows carry."""
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
