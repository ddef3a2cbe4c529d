"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386), with the deviations of kube-apiserver.

Neither changes its arguments.
"""

import copy
from collections.abc import Mapping, Sequence

from argosy.local.schema.model import Json


class PatchError(Exception):
    """A patch that does not apply; the text is for the client."""


def merge_patch(target: Mapping[str, object], patch: Mapping[str, object]) -> Json:
    """Return the target with the patch merged in: null removes, objects merge, everything else replaces.

    As in Kubernetes, nulls are removed from the objects of a list that replaces another value.
    """
    result = dict(target)
    for key, value in patch.items():
        before = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = merge_patch(before if isinstance(before, dict) else {}, value)
        else:
            result[key] = value if isinstance(before, dict) else _without_nulls(value)
    return result


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value


def json_patch(target: Json, operations: Sequence[object]) -> Json:
    """Return the target after all operations; raise PatchError for the first that does not apply."""
    root: Json = {"": copy.deepcopy(target)}
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchError("an operation must be an object")
        _run(root, operation)
    document = root[""]
    if not isinstance(document, dict):
        raise PatchError("the patched document is not an object")
    return document


def _run(root: Json, operation: Json) -> None:
    """Carry out one operation. The document is the field "" of `root`, so that it has a parent too."""
    keys = _keys(operation, "path")
    match operation.get("op"):
        case "add":
            _add(root, keys, operation.get("value"))
        case "remove":
            _remove(root, keys)
        case "replace":
            parent = _parent(root, keys)
            # Kubernetes also replaces a field that does not exist; an item of a list must exist.
            if isinstance(parent, list):
                parent[_index(parent, keys[-1])] = operation.get("value")
            else:
                parent[keys[-1]] = operation.get("value")
        case "move":
            source = _keys(operation, "from")
            value = _get(root, source)
            _remove(root, source)
            _add(root, keys, value)
        case "copy":
            _add(root, keys, copy.deepcopy(_get_or_null(root, _keys(operation, "from"))))
        case "test":
            if not _same(_get_or_null(root, keys), operation.get("value")):
                raise PatchError(f"test failed: {operation.get('path')}")
        case other:
            raise PatchError(f"unknown operation: {other}")


def _keys(operation: Json, field: str) -> list[str]:
    """Return the steps of a JSON Pointer from the root, of which the first is always the document, ""."""
    path = operation.get(field)
    if not isinstance(path, str):
        raise PatchError(f"operation without {field}")
    return [key.replace("~1", "/").replace("~0", "~") for key in ["", *path.split("/")[1:]]]


def _get(root: Json, keys: Sequence[str]) -> object:
    node: object = root
    for key in keys:
        if isinstance(node, list):
            node = node[_index(node, key)]
        elif isinstance(node, dict) and key in node:
            node = node[key]
        else:
            raise PatchError(f"path not found: {'/'.join(keys)}")
    return node


def _get_or_null(root: Json, keys: Sequence[str]) -> object:
    """Return a value; null for a field that an existing object does not have, as in Kubernetes."""
    parent = _parent(root, keys)
    return parent.get(keys[-1]) if isinstance(parent, dict) else parent[_index(parent, keys[-1])]


def _parent(root: Json, keys: Sequence[str]) -> Json | list[object]:
    parent = _get(root, keys[:-1])
    if not isinstance(parent, dict | list):
        raise PatchError(f"path not found: {'/'.join(keys)}")
    return parent


def _add(root: Json, keys: Sequence[str], value: object) -> None:
    parent, key = _parent(root, keys), keys[-1]
    if isinstance(parent, dict):
        parent[key] = value
    elif key == "-":
        parent.append(value)
    else:
        parent.insert(_index(parent, key, size=len(parent) + 1), value)


def _remove(root: Json, keys: Sequence[str]) -> None:
    parent, key = _parent(root, keys), keys[-1]
    if len(keys) == 1 or (isinstance(parent, dict) and key not in parent):
        raise PatchError(f"path not found: {'/'.join(keys)}")
    if isinstance(parent, dict):
        del parent[key]
    else:
        del parent[_index(parent, key)]


def _index(items: Sequence[object], key: str, size: int | None = None) -> int:
    """Return a list index; as in Kubernetes, a negative one counts from the end."""
    size = len(items) if size is None else size
    try:
        index = int(key)
    except ValueError:
        raise PatchError(f"invalid index {key!r}") from None
    if not -size <= index < size:
        raise PatchError(f"index {index} is out of range")
    return index + size if index < 0 else index


def _same(left: object, right: object) -> bool:
    """Return True if two JSON values are equal: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return left == right
