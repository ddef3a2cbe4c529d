"""Validates custom resources against their schema.

`validate` checks the OpenAPI schema, then that sets and maps have no duplicates, then CEL rules (unless
earlier errors prevent that). In an update, values that did not change are not validated again, so that a
schema can become stricter without blocking updates of existing objects.
"""

import re
from collections.abc import Iterable, Mapping

from argosy.local.schema.crd.cel import below, has_rules, item_key, items_by_key, run_rules
from argosy.local.schema.crd.formats import format_holds
from argosy.local.schema.errors import (
    NO_PATH,
    ErrorType,
    FieldError,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
    type_invalid,
)
from argosy.local.schema.model import Json, Schema

NOT_CHECKED = FieldError(
    ErrorType.INVALID,
    NO_PATH,
    None,
    "some validation rules were not checked because the object was invalid; correct the existing errors to "
    "complete validation",
)
_BLOCKING = {
    ErrorType.NOT_SUPPORTED,
    ErrorType.REQUIRED,
    ErrorType.TOO_LONG,
    ErrorType.TOO_MANY,
    ErrorType.TYPE_INVALID,
}
_MISSING = object()


def validate(
    obj: Json, schema: Schema, old: Json | None = None, also: Iterable[FieldError] = ()
) -> list[FieldError]:
    """Return all errors of an object by its schema; errors in `also` come before those of CEL rules."""
    errors: list[FieldError] = []
    _check(obj, schema, "", errors, old if old is not None else _MISSING)
    errors += also
    return errors + _further_errors(obj, schema, old, errors)


def _further_errors(
    obj: Json, schema: Schema, old: Json | None, before: list[FieldError]
) -> list[FieldError]:
    """Return the errors of sets, maps and CEL rules, which are checked in the whole object."""
    errors: list[FieldError] = []
    if old is None or not list(_list_errors(old, schema, "")):
        errors += _list_errors(obj, schema, "")
    if has_rules(schema):
        if any(error.type in _BLOCKING for error in (*before, *errors)):
            errors.append(NOT_CHECKED)
        else:
            errors += run_rules(obj, schema, old)
    return errors


def validate_status(
    obj: Json, schema: Schema, old: Json | None = None, also: Iterable[FieldError] = ()
) -> list[FieldError]:
    """Return the errors of a write to the status subresource."""
    declared = schema.properties.get("status")
    below_status: list[FieldError] = []
    if declared is not None and "status" in obj:
        before = old.get("status", _MISSING) if old is not None else _MISSING
        _check(obj["status"], declared, "", below_status, before)
    errors = [
        FieldError(e.type, "status" if e.path in ("", NO_PATH) else f"status.{e.path}", e.bad_value, e.detail)
        for e in below_status
    ]
    errors += also
    return errors + _further_errors(obj, schema, old, errors)


def check_schema(value: object, schema: Schema, path: str = "") -> list[FieldError]:
    """Return the errors of a value by the OpenAPI schema alone."""
    errors: list[FieldError] = []
    _check(value, schema, path, errors, _MISSING)
    return errors


def _check(value: object, schema: Schema, path: str, errors: list[FieldError], old: object) -> None:
    if old is not _MISSING and old == value:
        return
    _check_type(value, schema, path, errors)
    _check_combined(value, schema, path, errors)
    if isinstance(value, str):
        _check_text(value, schema, path, errors)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(value, schema, path, errors)
    elif isinstance(value, list):
        _check_list(value, schema, path, errors, old)
    if schema.enum is not None and not any(_equal(value, allowed) for allowed in schema.enum):
        errors.append(not_supported(path, value, schema.enum))
    if isinstance(value, dict):
        _check_object(value, schema, path, errors, old)


def _check_type(value: object, schema: Schema, path: str, errors: list[FieldError]) -> None:
    wanted = "integer,string" if schema.int_or_string else schema.type
    if not wanted:
        return
    actual = type_name(value)
    if value is None:
        if not schema.nullable:
            errors.append(_wrong_type(path, wanted, actual))
        return
    integral = isinstance(value, float) and value.is_integer()
    if actual == wanted or (actual == "integer" and wanted == "number") or (integral and "integer" in wanted):
        return
    if schema.int_or_string and actual in ("integer", "string"):
        return
    errors.append(_wrong_type(path, wanted, actual))


def _wrong_type(path: str, wanted: str, actual: str) -> FieldError:
    return type_invalid(path, actual, _in_body(path, f'must be of type {wanted}: "{actual}"'))


def type_name(value: object) -> str:
    """Return the JSON Schema type of a value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _check_combined(value: object, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if schema.any_of:
        results = [check_schema(value, option, path) for option in schema.any_of]
        if all(results):
            errors.append(_composition_error(f'"{path}" must validate at least one schema (anyOf)'))
            errors += results[0]
    if schema.one_of:
        results = [check_schema(value, option, path) for option in schema.one_of]
        valid = results.count([])
        if valid != 1:
            count = "Found none valid" if not valid else f"Found {valid} valid alternatives"
            errors.append(
                _composition_error(f'"{path}" must validate one and only one schema (oneOf). {count}')
            )
            if not valid:
                errors += results[0]
    if schema.all_of:
        results = [check_schema(value, option, path) for option in schema.all_of]
        for result in results:
            errors += result
        if any(results):
            none = ". None validated" if all(results) else ""
            errors.append(_composition_error(f'"{path}" must validate all the schemas (allOf){none}'))
    if schema.not_ is not None and not check_schema(value, schema.not_, path):
        errors.append(_composition_error(f'"{path}" must not validate the schema (not)'))


def _composition_error(message: str) -> FieldError:
    return invalid(NO_PATH, "", message)


def _check_text(value: str, schema: Schema, path: str, errors: list[FieldError]) -> None:
    if schema.max_length is not None and len(value) > schema.max_length:
        errors.append(too_long(path, schema.max_length))
    elif schema.min_length is not None and len(value) < schema.min_length:
        detail = _in_body(path, f"should be at least {schema.min_length} chars long")
        errors.append(invalid(path, value, detail))
    elif schema.pattern and not _pattern(schema).search(value):
        errors.append(invalid(path, value, _in_body(path, f"should match '{schema.pattern}'")))
    if schema.format and schema.type in ("", "string") and format_holds(schema.format, value) is False:
        detail = _in_body(path, f'must be of type {schema.format}: "{value}"')
        errors.append(type_invalid(path, value, detail))


def _pattern(schema: Schema) -> re.Pattern[str]:
    pattern = schema.compiled.get("pattern")
    if pattern is None:
        pattern = schema.compiled["pattern"] = re.compile(schema.pattern)
    assert isinstance(pattern, re.Pattern)
    return pattern


def _check_number(value: int | float, schema: Schema, path: str, errors: list[FieldError]) -> None:
    bits = 31 if schema.format == "int32" else 63
    if schema.type == "integer" and not (float(value).is_integer() and -(2**bits) <= value < 2**bits):
        errors.append(invalid(NO_PATH, "", f"{path} must be an integer of {bits + 1} bits"))
    factor = schema.multiple_of
    if factor is not None and not _is_multiple(value, factor):
        errors.append(invalid(path, value, _in_body(path, f"should be a multiple of {_number(factor)}")))
    low, high = schema.minimum, schema.maximum
    if high is not None and (value >= high if schema.exclusive_maximum else value > high):
        word = "less than" if schema.exclusive_maximum else "less than or equal to"
        errors.append(invalid(path, value, _in_body(path, f"should be {word} {_number(high)}")))
    if low is not None and (value <= low if schema.exclusive_minimum else value < low):
        word = "greater than" if schema.exclusive_minimum else "greater than or equal to"
        errors.append(invalid(path, value, _in_body(path, f"should be {word} {_number(low)}")))


def _is_multiple(value: int | float, factor: int | float) -> bool:
    """Return True if a number is a multiple; as in Kubernetes, integers are divided by the integral part."""
    if isinstance(value, int):
        return int(factor) > 0 and value % int(factor) == 0
    return (value / factor).is_integer()


def _check_list(
    value: list[object], schema: Schema, path: str, errors: list[FieldError], old: object
) -> None:
    items = schema.items
    if items is not None:
        previous = items_by_key(old, schema)
        for index, item in enumerate(value):
            before = previous.get(item_key(item, schema), _MISSING) if previous else _MISSING
            _check(item, items, f"{path}[{index}]", errors, before)
    if schema.min_items is not None and len(value) < schema.min_items:
        detail = _in_body(path, f"should have at least {schema.min_items} items")
        errors.append(invalid(path, len(value), detail))
    if schema.max_items is not None and len(value) > schema.max_items:
        errors.append(too_many(path, len(value), schema.max_items))


def _check_object(value: Json, schema: Schema, path: str, errors: list[FieldError], old: object) -> None:
    if schema.min_properties is not None and len(value) < schema.min_properties:
        detail = _in_body(path, f"should have at least {schema.min_properties} properties")
        errors.append(invalid(path, len(value), detail))
    if schema.max_properties is not None and len(value) > schema.max_properties:
        errors.append(too_many(path, len(value), schema.max_properties))
    before: Mapping[str, object] = old if isinstance(old, Mapping) else {}
    properties, additional = schema.properties, schema.additional
    for key, item in value.items():
        child = properties.get(key) or additional
        if child is not None:
            _check(item, child, f"{path}.{key}" if path else key, errors, before.get(key, _MISSING))
    missing = [name for name in _required_fields(schema) if name not in value]
    errors += [required(f"{path}.{name}" if path else name) for name in missing]


def _required_fields(schema: Schema) -> tuple[str, ...]:
    if not schema.embedded_resource:
        return schema.required
    return (*schema.required, *(n for n in ("apiVersion", "kind") if n not in schema.required))


def _list_errors(value: object, schema: Schema, path: str) -> Iterable[FieldError]:
    """Duplicate items of sets and maps."""
    if isinstance(value, dict):
        for key, item in value.items():
            child = schema.properties.get(key) or schema.additional
            if path in ("", "<nil>") and key == "metadata":
                continue  # validated elsewhere
            if child is not None and isinstance(item, dict | list):
                yield from _list_errors(item, child, below(path, key, schema))
    elif isinstance(value, list):
        if schema.list_type in ("set", "map"):
            yield from _repeated_items(value, schema, path)
        if schema.items is not None:
            for index, item in enumerate(value):
                if isinstance(item, dict | list):
                    yield from _list_errors(item, schema.items, f"{path}[{index}]")


def _repeated_items(value: list[object], schema: Schema, path: str) -> Iterable[FieldError]:
    keys: set[object] = set()
    for index, item in enumerate(value):
        if schema.list_type == "map" and not isinstance(item, dict):
            yield invalid(f"{path}[{index}]", item, "must be an object for an array of list-type map")
            continue
        if isinstance(item, dict) and schema.list_type == "map":
            key: object = item_key(item, schema)
            shown: object = {name: item[name] for name in schema.list_map_keys if name in item}
        else:
            key, shown = repr(item), item
        if key in keys:
            yield duplicate(f"{path}[{index}]", shown)
        keys.add(key)


def _equal(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _in_body(path: str, text: str) -> str:
    return f"{path} in body {text}"


def _number(value: int | float) -> str:
    return str(int(value)) if float(value).is_integer() else str(value)
