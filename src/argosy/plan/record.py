"""Decodes the Record of a kind: what it must remember between reconciles, stored as `status.argosy`."""

from collections.abc import Mapping
from functools import cache
from typing import TypeVar

import msgspec
from msgspec import Struct

R = TypeVar("R", bound=Struct)


class UnsupportedVersionError(Exception):
    """A later version of the operator wrote the Record, and this one must not overwrite it."""


def decode_record(raw: object, kind: type[R]) -> R | None:
    """Return the Record in a stored status; None if there is none, or if it is garbled and must be rebuilt.

    The default of the field `version` of `kind` is the newest version that can be read. A Record of a later
    one raises `UnsupportedVersionError`: the operator that wrote it will be back.
    """
    if not isinstance(raw, Mapping) or not raw:
        return None
    version, newest = raw.get("version"), _newest_version(kind)
    if isinstance(version, int) and version > newest:
        raise UnsupportedVersionError(f"version {version}; version {newest} is the newest known")
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError:
        return None


@cache
def _newest_version(kind: type[Struct]) -> int:
    """Return the default of `version`. Listing the fields of a type costs more than decoding a Record."""
    defaults = (
        struct_field.default
        for struct_field in msgspec.structs.fields(kind)
        if struct_field.name == "version"
    )
    newest = next(defaults, None)
    if not isinstance(newest, int):
        raise TypeError(f"{kind.__name__} has no field `version` with the newest version as its default")
    return newest
