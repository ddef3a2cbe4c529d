"""Reads the spec of an AresJob: as types, its unknown fields, and the fields that defaults add.

Defaults are written back, so that the stored spec shows them: only unset fields are sent, and nothing of what
the user wrote.
"""

from collections.abc import Iterator, Mapping
from typing import get_args, get_type_hints

import msgspec
from msgspec import Struct

from argosy.kinds.aresjob import AresJobSpec
from argosy.kinds.text import did_you_mean
from argosy.workload.model import Json, Problem


def read(raw: Json) -> AresJobSpec | Problem:
    """Return the spec, or the first field of a wrong type; our CRD rejects those."""
    try:
        return msgspec.convert(dict(raw), AresJobSpec)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `")
        return Problem(f"spec{where.removesuffix('`').removeprefix('$')}", message[:1].lower() + message[1:])


def additions(raw: Json, full: AresJobSpec) -> Json:
    """Return a merge patch with the fields that the stored spec lacks."""
    return _missing_fields(raw, msgspec.to_builtins(full))


def unknown(raw: Json) -> Iterator[tuple[str, str]]:
    """Yield the path of each unknown field, and a suggestion if a known one is close.

    Templates are left out: their fields are those of Kubernetes.
    """
    yield from _unknown(raw, AresJobSpec, "spec")


def _missing_fields(raw: Json, full: Mapping[str, object]) -> Json:
    patch: dict[str, object] = {}
    for name, value in full.items():
        written = raw.get(name)
        if isinstance(value, dict) and isinstance(written, dict):
            if (below := _missing_fields(written, value)) and name != "template":
                patch[name] = below
        elif written != value:
            patch[name] = value
    return patch


def _unknown(raw: object, kind: type[Struct], path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(raw, dict):
        return
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    hints = get_type_hints(kind)
    for name, value in raw.items():
        if name not in fields:
            yield f"{path}.{name}", did_you_mean(name, fields)
            continue
        inner, mapped = _struct_in(hints[fields[name]])
        if inner is not None and mapped:
            for key, entry in value.items() if isinstance(value, dict) else ():
                yield from _unknown(entry, inner, f"{path}.{name}.{key}")
        elif inner is not None:
            yield from _unknown(value, inner, f"{path}.{name}")


def _struct_in(hint: object, mapped: bool = False) -> tuple[type[Struct] | None, bool]:
    """Return the struct type of a field, and whether the field is a map of such structs."""
    if isinstance(hint, type) and issubclass(hint, Struct):
        return hint, mapped
    arguments = get_args(hint)
    for argument in arguments:
        struct, is_map = _struct_in(argument, mapped or getattr(hint, "__origin__", None) is dict)
        if struct is not None:
            return struct, is_map
    return None, mapped
