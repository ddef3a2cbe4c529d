"""What makes a configuration unfit for server-side apply: wrong types, undeclared fields, repeated items."""

from collections.abc import Iterator

from argosy.local.schema.model import Json, Schema
from argosy.local.schema.ssa.typed_shape import KEYED, SET, MergeError, Shape, shape_of, shown
from argosy.local.schema.strategic_merge import GO_TYPES, go_map, go_syntax


def typed_problems(config: Json, schema: Schema, *, repeats: bool = False) -> str:
    """The problems as one text, each with its path; empty when there are none.

    `repeats` when items of a list may repeat: they may in what is stored, but not in what is applied.
    """
    found = sorted(_problems(config, schema, "", is_open=False, repeats=repeats))
    if len(found) > 1:
        return "errors:\n" + "\n".join(f"  {problem}" for problem in found)
    return found[0] if found else ""


_EXPECTED = {
    "object": ((dict,), "map"),
    "array": ((list,), "list"),
    "string": ((str,), "string"),
    "boolean": ((bool,), "boolean"),
    "integer": ((int, float), "numeric (int or float)"),
    "number": ((int, float), "numeric (int or float)"),
}


def _mismatch(value: object, schema: Schema) -> str:
    """What was expected instead of a value of the wrong type."""
    if value is None or schema.type not in _EXPECTED or schema.int_or_string:
        return ""
    kinds, word = _EXPECTED[schema.type]
    if schema.type == "string" and schema.format not in ("", "byte"):
        return ""
    if isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds):
        return ""
    if word == "string":
        return f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
    if word.startswith("numeric"):
        return f"expected {word}, got {GO_TYPES.get(type(value), 'interface {}')}"
    return f"expected {word}, got &{{{go_map(value)}}}"


def _problems(value: object, schema: Schema, path: str, *, is_open: bool, repeats: bool) -> Iterator[str]:
    wrong = _mismatch(value, schema)
    if wrong:
        yield f"{path}: {wrong}"
        return
    shape = shape_of(schema)
    if isinstance(value, dict) and schema.type == "object":
        # Where unknown fields are kept, they are also kept in everything below.
        is_open = is_open or schema.preserve_unknown
        free = is_open or schema.additional is not None or not schema.properties
        for key, item in value.items():
            child = schema.properties.get(key) or schema.additional
            if child is not None:
                yield from _problems(item, child, f"{path}.{key}", is_open=is_open, repeats=repeats)
            elif not free:
                yield f"{path}.{key}: field not declared in schema"
    elif isinstance(value, list) and schema.items is not None:
        if shape.kind in (SET, KEYED):
            yield from _items(value, schema, shape, path, is_open, repeats)
        else:
            for index, item in enumerate(value):
                yield from _problems(item, schema.items, f"{path}[{index}]", is_open=is_open, repeats=repeats)


def _items(
    value: list[object], schema: Schema, shape: Shape, path: str, is_open: bool, repeats: bool
) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        try:
            key = shape.item_key(item)
        except MergeError as error:
            yield f"{path}: element {index}: {error}"
            continue
        if key in seen and not repeats:
            yield f"{path}: duplicate entries for key {shown(key)}"
        seen.add(key)
        if schema.items is not None:
            yield from _problems(item, schema.items, path + shown(key), is_open=is_open, repeats=repeats)
