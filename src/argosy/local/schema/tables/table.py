"""Tables, which `kubectl get` prints.

`builtin_columns` and `custom_columns` return the columns of a kind, and `table_for` the Table. Rows contain
only metadata unless the client requests more, so that lists are small.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal, TypeAlias

from msgspec import Struct

from argosy.local.schema.crd.jsonpath import JsonPath, JsonPathError, text_of
from argosy.local.schema.model import Json
from argosy.local.schema.tables.cells import Column, age, name, parse_time
from argosy.local.schema.tables.columns import COLUMNS, NAME
from argosy.local.schema.tables.pod_row import POD_COLUMNS, pod_cells
from argosy.local.schema.unstructured import get_map

_CREATED_AT = (
    Column(name="Created At", type="date"),
    lambda item, _now: get_map(item, "metadata").get("creationTimestamp"),
)
Include: TypeAlias = Literal["None", "Metadata", "Object"]


class Columns(Struct, frozen=True):
    """The columns of a kind, and the function that returns the cells of a row."""

    definitions: tuple[Column, ...]
    cells: Callable[[Json, datetime], Sequence[object]]
    pod_conditions: bool = False


def builtin_columns(group: str, kind: str) -> Columns:
    """Return the columns of a built-in kind; by default its name and creation time."""
    if (group, kind) == ("", "Pod"):
        return Columns(POD_COLUMNS, pod_cells, pod_conditions=True)
    fields = COLUMNS.get((group, kind), (NAME, _CREATED_AT))
    return Columns(
        tuple(column for column, _ in fields), lambda item, now: [cell(item, now) for _, cell in fields]
    )


def custom_columns(declared: Sequence[Mapping[str, object]] = ()) -> Columns:
    """Return the columns of a custom resource by its `additionalPrinterColumns`; by default its age."""
    if not declared:
        declared = ({"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},)
    definitions = [NAME[0]]
    paths: list[tuple[JsonPath, str]] = []
    for entry in declared:
        path, type_ = str(entry.get("jsonPath", "")), str(entry.get("type", ""))
        try:
            paths.append((JsonPath(path), type_))
        except JsonPathError:
            break
        described = f"Custom resource definition column (in JSONPath format): {path}"
        priority = entry.get("priority")
        definitions.append(
            Column(
                name=str(entry.get("name", "")),
                type=type_,
                format=str(entry.get("format") or ""),
                description=str(entry.get("description") or described),
                priority=priority if isinstance(priority, int) else 0,
            )
        )

    def cells(item: Json, now: datetime) -> list[object]:
        return [name(item), *(_custom_cell(path, type_, item, now) for path, type_ in paths)]

    return Columns(tuple(definitions), cells)


def table_for(
    columns: Columns,
    objects: Iterable[Json],
    *,
    now: datetime,
    metadata: Json | None = None,
    include: Include = "Metadata",
    headers: bool = True,
) -> Json:
    """Return a `meta.k8s.io/v1` Table of these objects; `metadata` is that of the list."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata or {},
        "columnDefinitions": [definition.json() for definition in columns.definitions] if headers else None,
        "rows": [_row(columns, item, now, include) for item in objects],
    }


def partial_metadata(item: Json) -> Json:
    """Return the object as `PartialObjectMetadata`."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": item.get("metadata", {}),
    }


def _row(columns: Columns, item: Json, now: datetime, include: Include) -> Json:
    row: Json = {"cells": columns.cells(item, now)}
    if columns.pod_conditions:
        conditions = _pod_conditions(item)
        if conditions:
            row["conditions"] = conditions
    if include == "Object":
        row["object"] = item
    elif include == "Metadata":
        row["object"] = partial_metadata(item)
    else:
        row["object"] = None
    return row


def _pod_conditions(pod: Json) -> list[Json]:
    phase = get_map(pod, "status").get("phase")
    messages = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    if not isinstance(phase, str) or phase not in messages:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": messages[phase]}]


def _custom_cell(path: JsonPath, type: str, item: Json, now: datetime) -> object:
    results = path.find(item)
    if not results:
        return None
    value = results[0]
    if type == "string":
        return text_of(value)
    if type == "integer" and isinstance(value, int | float) and not isinstance(value, bool):
        return int(value)
    if type == "number" and isinstance(value, int | float) and not isinstance(value, bool):
        return value
    if type == "boolean" and isinstance(value, bool):
        return value
    if type == "date" and isinstance(value, str):
        return age(value, now) if parse_time(value) is not None else "<invalid>"
    return None
