"""Parses and applies JSON patches, merge patches and strategic merge patches."""

from typing import cast

import msgspec

from argosy.local.apiserver.body import duplicate_fields, parse_json, parse_value
from argosy.local.apiserver.options import FieldValidation, invalid_error
from argosy.local.apiserver.status import StatusError, bad_request
from argosy.local.schema.errors import invalid
from argosy.local.schema.json_patch import PatchError, json_patch, merge_patch
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.strategic_merge import PatchFormatError, strategic_merge_patch

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
MAX_OPERATIONS = 10_000
_OPERATION_FIELDS = ("op", "path", "from", "value")


class PatchBody(msgspec.Struct, frozen=True):
    """A parsed JSON, merge or strategic merge patch."""

    kind: str
    value: object
    text: str
    """The patch as error messages show it."""
    problems: list[str] = []
    """Unknown and duplicate fields, for field validation."""


def read_patch(raw: bytes, kind: str, validation: FieldValidation) -> PatchBody:
    """Return the patch in the body of a request."""
    strict = validation != "Ignore"
    text = raw.decode("utf-8", "replace")
    if kind == JSON_PATCH:
        operations = _operations(raw, strict=strict)
        return PatchBody(kind, operations, text, _operation_problems(raw, operations) if strict else [])
    patch = _merge(raw, strict=strict) if kind == MERGE_PATCH else _strategic(raw)
    problems = [f'duplicate field "{path}"' for path in duplicate_fields(raw, patch)] if strict else []
    return PatchBody(kind, patch, text, problems)


def patch_json(current: Json, body: PatchBody, schema: Schema) -> Json:
    """Return `current` with the patch applied."""
    try:
        if body.kind == JSON_PATCH:
            return json_patch(current, cast("list[object]", body.value))
        if body.kind == MERGE_PATCH:
            return merge_patch(current, cast("Json", body.value))
        return strategic_merge_patch(current, cast("Json", body.value), schema)
    except PatchFormatError as error:
        raise bad_request(str(error)) from error
    except PatchError as error:
        if body.kind == JSON_PATCH:
            message = "the server rejected our request due to an error in our request"
            raise StatusError(422, "Invalid", message, {}) from error
        raise StatusError(500, "", str(error)) from error


def _strategic(raw: bytes) -> Json:
    return {} if raw.strip() == b"null" else parse_json(raw)


def _merge(raw: bytes, *, strict: bool) -> Json:
    if not strict and isinstance(value := parse_value(raw), list):
        # Kubernetes takes it for the whole object, which it then cannot decode.
        raise invalid_error("", "", "", [invalid("patch", value, "must be an object")])
    return parse_json(raw)


def _operations(raw: bytes, *, strict: bool) -> list[object]:
    operations = parse_value(raw)
    if operations is None:
        return []
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    for operation in operations:
        if not isinstance(operation, dict | None):
            raise bad_request("an operation of a JSON patch must be an object")
        for field in ("op", "from", "path") if strict else ():
            if not isinstance((operation or {}).get(field), str | None):
                raise bad_request(f"{field} of an operation of a JSON patch must be a string")
    if len(operations) > MAX_OPERATIONS:
        why = f"a JSON patch may have {MAX_OPERATIONS} operations, got {len(operations)}"
        raise StatusError(413, "RequestEntityTooLarge", why)
    return operations


def _operation_problems(raw: bytes, operations: list[object]) -> list[str]:
    problems = [f'json patch duplicate field "{path}"' for path in duplicate_fields(raw, operations)]
    for index, operation in enumerate(operations):
        names = operation if isinstance(operation, dict) else ()
        unknown = [name for name in names if name not in _OPERATION_FIELDS]
        problems += [f'json patch unknown field "[{index}].{name}"' for name in unknown]
    return problems
