"""The bodies of patches: what they ask for, and what in them Kubernetes warns of or refuses.

Kubernetes reads a patch twice: strictly, where fields are validated, and then with a library that patches.
Where they are not, the library alone tells what is wrong, in words of its own.
"""

from typing import cast

import msgspec

from argosy.local.apiserver.body import NO_KIND, STRUCT, duplicate_fields, go_kind, parse_json, parse_value
from argosy.local.apiserver.options import FieldValidation, invalid_error
from argosy.local.apiserver.status import StatusError, bad_request
from argosy.local.schema.codec.field_order import in_order
from argosy.local.schema.errors import invalid
from argosy.local.schema.json_patch import json_patch, merge_patch
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.strategic_merge import PatchError, go_map, strategic_merge_patch

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_MOST_OPERATIONS = 10_000
_PREFIX = "error decoding patch: "
_FIELDS = ("op", "path", "from", "value")
_BAD_FORMATS = tuple(
    f"invalid patch format of {what}" for what in ("primitive list", "retainKeys", "setElementOrder list")
)


class PatchBody(msgspec.Struct, frozen=True):
    """A JSON, merge or strategic patch that has been read."""

    kind: str
    value: object
    shown: str
    """How messages show it."""
    problems: list[str] = []
    """Fields that it should not have, and such as stand twice."""


def read_patch(raw: bytes, kind: str, validation: FieldValidation) -> PatchBody:
    """The patch in the body of a request."""
    strict = validation != "Ignore"
    if kind == JSON_PATCH:
        operations = _operations(raw, strict=strict)
        problems = _operation_problems(raw, operations) if strict else []
        return PatchBody(kind, operations, raw.decode("utf-8", "replace"), problems)
    patch = _merge(raw, strict=strict) if kind == MERGE_PATCH else _strategic(raw)
    problems = [f'duplicate field "{path}"' for path in duplicate_fields(raw, patch)] if strict else []
    return PatchBody(kind, patch, go_map(patch), problems)


def patch_json(current: Json, body: PatchBody, schema: Schema) -> Json:
    """`current` with the patch applied."""
    try:
        if body.kind == JSON_PATCH:
            ordered = cast("Json", in_order(current, schema))
            return json_patch(ordered, cast("list[object]", body.value))
        if body.kind == MERGE_PATCH:
            return merge_patch(current, cast("Json", body.value))
        return strategic_merge_patch(current, cast("Json", body.value), schema)
    except PatchError as error:
        if body.kind == JSON_PATCH:
            raise StatusError(
                422, "Invalid", "the server rejected our request due to an error in our request", {}
            ) from error
        if str(error) in _BAD_FORMATS:
            raise bad_request(str(error)) from error
        raise StatusError(500, "", str(error)) from error


def _strategic(raw: bytes) -> Json:
    return {} if raw.strip() == b"null" else parse_json(raw, "")


def _merge(raw: bytes, *, strict: bool) -> Json:
    if strict and raw.strip() != b"null":
        return parse_json(raw, _PREFIX)
    try:
        value = parse_value(raw, "")
    except StatusError as error:
        raise bad_request("Invalid JSON Patch") from error
    if isinstance(value, list):
        # The library takes it for the whole object, which is then none.
        why = f"{NO_KIND}json: cannot unmarshal array into Go value of type {STRUCT}"
        raise invalid_error("", "", "", [invalid("patch", go_map(value), why)])
    if not isinstance(value, dict):
        raise bad_request("Invalid JSON Patch")
    return value


def _operations(raw: bytes, *, strict: bool) -> list[object]:
    prefix, whole, one = "", "jsonpatch.Patch", "jsonpatch.Operation"
    if strict:
        prefix, whole, one = _PREFIX, "[]handlers.jsonPatchOp", "handlers.jsonPatchOp"
    operations = parse_value(raw, prefix)
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise bad_request(
            f"{prefix}json: cannot unmarshal {go_kind(operations)} into Go value of type {whole}"
        )
    for operation in operations:
        if operation is not None and not isinstance(operation, dict):
            why = f"json: cannot unmarshal {go_kind(operation)} into Go value of type {one}"
            raise bad_request(prefix + why)
        if strict:
            _check_texts(operation or {})
    if len(operations) > _MOST_OPERATIONS:
        why = f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", why)
    return operations


def _check_texts(operation: Json) -> None:
    for field in ("op", "from", "path"):
        value = operation.get(field)
        if value is not None and not isinstance(value, str):
            into = f"Go struct field jsonPatchOp.{field} of type string"
            raise bad_request(f"{_PREFIX}json: cannot unmarshal {go_kind(value)} into {into}")


def _operation_problems(raw: bytes, operations: list[object]) -> list[str]:
    doubled = duplicate_fields(raw, operations)
    problems: list[str] = []
    for index, operation in enumerate(operations):
        unknown = [name for name in operation if name not in _FIELDS] if isinstance(operation, dict) else []
        problems += [f'json patch unknown field "[{index}].{name}"' for name in unknown]
        problems += [
            f'json patch duplicate field "{path}"' for path in doubled if path.startswith(f"[{index}].")
        ]
    return problems
