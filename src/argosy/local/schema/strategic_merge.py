"""Strategic merge patch: a merge patch in which the schema defines how lists merge.

A list with strategy `merge` and a merge key merges item by item; one of scalars merges as a set; other lists
are replaced. `$patch`, `$retainKeys`, `$deleteFromPrimitiveList/…` and `$setElementOrder/…` are supported. A
merged list has the order of the patch, with other items at their relative position if possible.
"""

from collections.abc import Callable, Mapping, Sequence

from argosy.local.schema.json_patch import PatchError
from argosy.local.schema.model import ANY, Json, Schema

DIRECTIVE = "$patch"
RETAIN_KEYS = "$retainKeys"
DELETE_PREFIX = "$deleteFromPrimitiveList"
ORDER_PREFIX = "$setElementOrder"


class PatchFormatError(PatchError):
    """A directive with a value of the wrong form."""


def strategic_merge_patch(target: Mapping[str, object], patch: Mapping[str, object], schema: Schema) -> Json:
    """Return the target with the patch merged in as the schema says."""
    return _merge_map(dict(target), dict(patch), schema)


def _merge_map(original: Json, patch: Json, schema: Schema) -> Json:
    """Merge into `original`, which the caller owns."""
    if DIRECTIVE in patch:
        return _directive(patch)
    _retain_keys(original, patch)
    for key in [k for k in patch if k.startswith(ORDER_PREFIX)]:
        _merge_ordered(original, patch, key, schema)
    for key, value in patch.items():
        deleting = key.startswith(DELETE_PREFIX)
        if deleting:
            key = _without_prefix(key, DELETE_PREFIX, "invalid patch format of primitive list")
        if value is None:
            original.pop(key, None)
            continue
        before = original.get(key)
        child = schema.properties.get(key) or schema.additional or ANY
        if isinstance(before, dict) and isinstance(value, dict) and not deleting:
            if "replace" in child.patch_strategy:
                original[key] = value
            else:
                original[key] = _merge_map(dict(before), dict(value), child)
        elif isinstance(before, list) and isinstance(value, list):
            if deleting:
                _check_types(before, value)
                original[key] = [item for item in before if item not in value]
            elif "merge" in child.patch_strategy:
                original[key] = _merge_list(before, value, child)
            else:
                original[key] = value
        elif not deleting:
            _take(original, key, value)
    return original


def _directive(patch: Json) -> Json:
    directive = patch[DIRECTIVE]
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != DIRECTIVE}
    if directive == "delete":
        return {}
    raise PatchError(f"unknown patch type: {directive}")


def _retain_keys(original: Json, patch: Json) -> None:
    if RETAIN_KEYS not in patch:
        return
    retained = patch.pop(RETAIN_KEYS)
    if not isinstance(retained, list):
        raise PatchFormatError("invalid patch format of retainKeys")
    for key, value in patch.items():
        if value is not None and not key.startswith((DELETE_PREFIX, ORDER_PREFIX)) and key not in retained:
            raise PatchFormatError("invalid patch format of retainKeys")
    for key in [k for k in original if k not in retained]:
        del original[key]


def _merge_ordered(original: Json, patch: Json, key: str, schema: Schema) -> None:
    """Handle a `$setElementOrder/…` and its list; both are removed from the patch."""
    order = _list_in(patch, key) or []
    del patch[key]
    name = _without_prefix(key, ORDER_PREFIX, "invalid patch format of setElementOrder list")
    child = schema.properties.get(name) or ANY
    before, change = _list_in(original, name), _list_in(patch, name)
    merge_key = child.patch_merge_key
    _check_order(change or [], order, merge_key)
    if before is not None and change is not None:
        merged = _merge_list(before, change, child) if "merge" in child.patch_strategy else change
    elif change is not None:
        merged = [_clean(item) for item in change if not _has_directive(item)]
    elif before is not None:
        merged = before
    else:
        return
    _check_types(before or [], change or [])
    original[name] = _arrange(merged, order, before or [], merge_key)
    patch.pop(name, None)


def _list_in(holder: Json, name: str) -> list[object] | None:
    """Return the list with this name; None if it does not exist."""
    if name not in holder:
        return None
    value = holder[name]
    if not isinstance(value, list):
        raise PatchError(f"{name} must be a list")
    return value


def _check_types(before: list[object], change: list[object]) -> None:
    """Check that all items of a merged list have the same type."""
    types = {type(item) for item in (*before, *change)}
    if not types:
        raise PatchError("no elements in any of the given slices")
    if len(types) > 1:
        raise PatchError("list element types are not identical")


def _check_order(change: list[object], order: list[object], merge_key: str) -> None:
    """Check that the items of the patch are in the order list, in the same order."""
    identity = _identity(merge_key)
    position = 0
    wanted = [identity(item) for item in change if not _has_directive(item)]
    for entry in order:
        if position < len(wanted) and identity(entry) == wanted[position]:
            position += 1
    if order and position < len(wanted):
        raise PatchError(f"the order of the patch list does not match its {ORDER_PREFIX} list")


def _merge_list(before: list[object], change: list[object], schema: Schema) -> list[object]:
    if not before and not change:
        return before
    _check_types(before, change)
    first = (before or change)[0]
    if not isinstance(first, dict):
        merged = list(dict.fromkeys([*before, *change]))
        return _arrange(merged, change, before, "")
    merge_key = schema.patch_merge_key
    if not merge_key:
        raise PatchError(f"cannot merge lists without merge key for {schema.structure.reference}")
    kept, plain = _special_items(before, change, merge_key)
    items = list(kept)
    identity = _identity(merge_key)
    places = {identity(item): index for index, item in reversed(list(enumerate(items)))}
    for item in plain:
        assert isinstance(item, dict)
        place = places.get(identity(item))
        if place is None:
            places[identity(item)] = len(items)
            items.append(_clean(item))
        else:
            existing = items[place]
            assert isinstance(existing, dict)
            items[place] = _merge_map(dict(existing), dict(item), schema.items or ANY)
    return _arrange(items, plain, kept, merge_key)


def _special_items(
    before: list[object], change: list[object], merge_key: str
) -> tuple[list[object], list[object]]:
    """Handle the directives of list items; return the remaining items of both lists."""
    plain: list[object] = []
    kept = before
    replace = False
    for item in change:
        if not isinstance(item, dict):
            raise PatchError("list element types are not identical")
        directive = item.get(DIRECTIVE)
        if DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            if merge_key not in item:
                raise PatchError(f"list item without its merge key {merge_key}")
            kept = [
                old for old in kept if not (isinstance(old, dict) and old.get(merge_key) == item[merge_key])
            ]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch")
        else:
            raise PatchError(f"unknown patch type: {directive}")
    return (plain, []) if replace else (kept, plain)


def _arrange(
    merged: list[object], order: Sequence[object], server: list[object], merge_key: str
) -> list[object]:
    """Return the items of `order` in that order; others keep their relative position in the server's list."""
    identity = _identity(merge_key)
    wanted = {identity(entry): index for index, entry in reversed(list(enumerate(order)))}
    live = {identity(entry): index for index, entry in reversed(list(enumerate(server)))}
    last = len(wanted) + len(live)
    ours = sorted(
        (item for item in merged if identity(item) in wanted), key=lambda item: wanted[identity(item)]
    )
    theirs = sorted(
        (item for item in merged if identity(item) not in wanted),
        key=lambda item: live.get(identity(item), last),
    )
    result: list[object] = []
    left, right = 0, 0
    while left < len(theirs) or right < len(ours):
        exhausted = right >= len(ours)
        if exhausted or (left < len(theirs) and _before(live, identity(theirs[left]), identity(ours[right]))):
            result.append(theirs[left])
            left += 1
        else:
            result.append(ours[right])
            right += 1
    return result


def _before(live: dict[object, int], left: object, right: object) -> bool:
    return left in live and right in live and live[left] < live[right]


def _identity(merge_key: str) -> Callable[[object], object]:
    if not merge_key:
        return lambda item: item

    def key_of(item: object) -> object:
        if not isinstance(item, dict):
            raise PatchError("value for key is not a map")
        if merge_key not in item:
            raise PatchError(f"list item without its merge key {merge_key}")
        return item[merge_key]

    return key_of


def _take(original: Json, key: str, value: object) -> None:
    """Set a value of the patch, without its directives and nulls."""
    if _has_directive(value):
        original.pop(key, None)
    else:
        original[key] = _clean(value)


def _has_directive(value: object) -> bool:
    return isinstance(value, dict) and DIRECTIVE in value


def _clean(value: object) -> object:
    if isinstance(value, dict):
        return {k: _clean(v) for k, v in value.items() if v is not None and not _has_directive(v)}
    if isinstance(value, list):
        return [_clean(v) for v in value if not _has_directive(v)]
    return value


def _without_prefix(key: str, prefix: str, error: str) -> str:
    head, slash, field = key.partition("/")
    if head != prefix or not slash:
        raise PatchFormatError(error)
    return field
