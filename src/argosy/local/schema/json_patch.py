"""The patches of the Kubernetes API: JSON Patch (RFC 6902), Merge Patch (RFC 7386), strategic merge patch.

None of them changes its arguments: what a patch touches is copied, the rest is shared with the original.
Errors are `PatchError`s whose text is the message a client of kube-apiserver gets.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from argosy.local.schema.model import Json
from argosy.local.schema.strategic_merge import PatchError, strategic_merge_patch

__all__ = ["PatchError", "create_merge_patch", "json_patch", "merge_patch", "strategic_merge_patch"]

Container: TypeAlias = dict[str, object] | list[object]

MISSING = "missing value"
BAD_INDEX = "invalid index referenced"


def merge_patch(target: Mapping[str, object], patch: Mapping[str, object]) -> Json:
    """The target with the patch merged in: null removes, objects merge, everything else replaces.

    As in Kubernetes, a list that replaces one has no nulls in its objects.
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


def create_merge_patch(old: Mapping[str, object], new: Mapping[str, object]) -> Json:
    """The smallest merge patch that turns old into new; nulls inside new cannot be expressed."""
    patch: Json = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if key in old and _same(before, value):
            continue
        if isinstance(before, dict) and isinstance(value, dict):
            patch[key] = create_merge_patch(before, value)
        else:
            patch[key] = value
    return patch


def json_patch(target: Json, operations: Sequence[object]) -> Json:
    """The target after all operations, or a PatchError naming the first that does not apply."""
    document: object = target
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchError("json: cannot unmarshal array into Go value of type jsonpatch.Patch")
        document = _OPERATIONS.get(str(operation.get("op")), _unknown)(document, operation)
    if not isinstance(document, dict):
        raise PatchError("the patched document is not an object")
    return document


def _add(document: object, operation: Json) -> object:
    path = _path(operation)
    if not path:
        return _value(operation)
    return _edit(document, path, "add", lambda parent, key: _insert(parent, key, _value(operation), path))


def _remove(document: object, operation: Json) -> object:
    path = _path(operation)
    return _edit(document, path, "remove", lambda parent, key: _delete(parent, key, path, "remove"))


def _replace(document: object, operation: Json) -> object:
    path = _path(operation)
    if not path:
        return _value(operation)

    def put(parent: Container, key: str) -> None:
        if isinstance(parent, dict):
            # Kubernetes' library does not mind that there was nothing to replace.
            parent[key] = _value(operation)
        else:
            index = _index(
                parent, key, f"replace operation does not apply: doc is missing key: {path}: {MISSING}"
            )
            parent[index] = _value(operation)

    return _edit(document, path, "replace", put)


def _move(document: object, operation: Json) -> object:
    source, path = _source(operation), _path(operation)
    value = _get(
        document, source, f"move operation does not apply: doc is missing from path: {source}: {MISSING}"
    )
    document = _edit(document, source, "move", lambda parent, key: _delete(parent, key, source, "move"))
    return _edit(document, path, "move", lambda parent, key: _insert(parent, key, value, path))


def _copy(document: object, operation: Json) -> object:
    source, path = _source(operation), _path(operation)
    missing = f"copy operation does not apply: doc is missing from path: {source}: {MISSING}"
    parent = _get(document, source.rpartition("/")[0], missing)
    # Kubernetes' library does not mind that an object has no such field, and copies nothing.
    absent = isinstance(parent, dict) and _keys(source)[-1] not in parent
    # A copy of its own, so that reading the one does not change the other.
    value = None if absent else copy.deepcopy(_get(document, source, missing))
    return _edit(document, path, "copy", lambda parent, key: _insert(parent, key, value, path))


def _test(document: object, operation: Json) -> object:
    path = _path(operation)
    found = document
    if path:
        missing = f"test operation for path does not apply: is missing path: {path}: {MISSING}"
        parent = _get(document, path.rpartition("/")[0], missing)
        # What an object does not have is null, as Kubernetes' library has it; a list must have it.
        absent = isinstance(parent, dict) and _keys(path)[-1] not in parent
        found = None if absent else _get(document, path, missing)
    if not _same(found, operation.get("value")):
        raise PatchError(f"testing value {path} failed: test failed")
    return document


def _unknown(_: object, operation: Json) -> object:
    raise PatchError(f"Unexpected kind: {operation.get('op', 'unknown')}")


_OPERATIONS = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _edit(document: object, path: str, name: str, change: object) -> object:
    """The document with containers along the path copied and `change(parent, key)` done to the last one.

    As in Kubernetes, objects along the path have their fields in order then, and others as they were.
    """
    keys = _keys(path)
    missing = f"{name} operation does not apply: doc is missing path: {_shown(name, path)}: {MISSING}"
    if not keys:
        raise PatchError(missing)
    root = _shallow(document, missing)
    parent, touched = root, [root]
    for key in keys[:-1]:
        if isinstance(parent, dict):
            if key not in parent:
                raise PatchError(missing)
            child = parent[key] = _shallow(parent[key], missing)
        else:
            index = _index(parent, key, missing)
            child = parent[index] = _shallow(parent[index], missing)
        parent = child
        touched.append(child)
    assert callable(change)
    change(parent, keys[-1])
    for container in touched:
        if isinstance(container, dict):
            ordered = sorted(container.items())
            container.clear()
            container.update(ordered)
    return root


def _shown(name: str, path: str) -> str:
    return f'"{path}"' if name in ("add", "remove") else path


def _insert(parent: Container, key: str, value: object, path: str) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    elif key == "-":
        parent.append(value)
    else:
        try:
            index = int(key)
        except ValueError:
            raise PatchError(
                f"error in add for path: '{path}': value was not a proper array index: '{key}': "
                f'strconv.Atoi: parsing "{key}": invalid syntax'
            ) from None
        size = len(parent) + 1
        if index >= size or index < -size:
            raise PatchError(
                f"error in add for path: '{path}': Unable to access invalid index: {index}: {BAD_INDEX}"
            )
        parent.insert(index if index >= 0 else index + size, value)


def _delete(parent: Container, key: str, path: str, name: str) -> None:
    if isinstance(parent, dict):
        if key not in parent:
            raise PatchError(
                f"error in {name} for path: '{path}': Unable to remove nonexistent key: {key}: {MISSING}"
            )
        del parent[key]
    else:
        del parent[_index(parent, key, "", f"error in {name} for path: '{path}': ")]


def _index(parent: list[object], key: str, missing: str, prefix: str = "") -> int:
    try:
        index = int(key)
    except ValueError:
        raise PatchError(missing or f'{prefix}strconv.Atoi: parsing "{key}": invalid syntax') from None
    if index >= len(parent) or index < -len(parent):
        raise PatchError(missing or f"{prefix}Unable to access invalid index: {index}: {BAD_INDEX}")
    return index


def _get(document: object, path: str, missing: str) -> object:
    node = document
    for key in _keys(path):
        if isinstance(node, dict):
            if key not in node:
                raise PatchError(missing)
            node = node[key]
        elif isinstance(node, list):
            node = node[_index(node, key, missing)]
        else:
            raise PatchError(missing)
    return node


def _shallow(value: object, missing: str) -> Container:
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, list):
        return list(value)
    raise PatchError(missing)


def _keys(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _path(operation: Json) -> str:
    path = operation.get("path")
    if not isinstance(path, str):
        raise PatchError(f"operation missing path field: {MISSING}")
    return path


def _source(operation: Json) -> str:
    path = operation.get("from")
    if not isinstance(path, str):
        raise PatchError(f"operation, missing from field: {MISSING}")
    return path


def _value(operation: Json) -> object:
    """A value that is not given is null, as Kubernetes' library has it."""
    return operation.get("value")


def _same(left: object, right: object) -> bool:
    """Equality of JSON values: true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_same(a, b) for a, b in zip(left, right, strict=True))
    return left == right
