"""Compares and merges objects as structured-merge-diff does."""

from argosy.local.schema.model import Json
from argosy.local.schema.ssa import fieldpath
from argosy.local.schema.ssa.fieldpath import FieldSet
from argosy.local.schema.ssa.typed_shape import (
    DEDUCED,
    KEYED,
    LEAF,
    MAP,
    SET,
    MergeError,
    Shape,
    format_path_element,
)

_MEMBER: FieldSet = {}


def field_set(value: Json, shape: Shape) -> FieldSet:
    """Return the paths of an applied configuration: its leaves, and every item of its maps and lists."""
    return _claims(value, shape)


def _claims(value: object, shape: Shape) -> FieldSet:
    """Return the children of the node of a value."""
    result: FieldSet = {}
    kind = shape.kind
    if isinstance(value, dict) and kind in (MAP, DEDUCED):
        for key, inner in value.items():
            declared = shape.field(key)
            below = _claims(inner, declared or shape.element)
            leaf = _is_leaf(inner, declared or shape.element)
            member = leaf or declared is None or inner is None or inner == {}
            node = fieldpath.node_of(below, member)
            if node is not None:
                result[shape.step(key)[0]] = node
    elif isinstance(value, list) and kind in (SET, KEYED):
        for item in value:
            node = fieldpath.node_of(_claims(item, shape.element), member=True)
            result[shape.item_key(item)] = node
    return result


def _is_leaf(value: object, shape: Shape) -> bool:
    if isinstance(value, dict):
        return shape.kind not in (MAP, DEDUCED)
    if isinstance(value, list):
        return shape.kind not in (SET, KEYED)
    return shape.kind in (LEAF, DEDUCED)


class Comparison:
    """The paths that differ between two versions of an object."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: FieldSet = {}
        self.modified: FieldSet = {}
        self.removed: FieldSet = {}


def compare(old: Json, new: Json, shape: Shape) -> Comparison:
    """Return the added, modified and removed paths."""
    result = Comparison()
    result.added, result.modified, result.removed = _compare(old, new, shape)
    return result


def _compare(old: object, new: object, shape: Shape) -> tuple[FieldSet, FieldSet, FieldSet]:
    """Return the children of the added, modified and removed node of a path that exists before and after."""
    if isinstance(old, dict) or isinstance(new, dict):
        before = old if isinstance(old, dict) else {}
        after = new if isinstance(new, dict) else {}
        return _compare_maps(before, after, shape)
    before_items = old if isinstance(old, list) else []
    after_items = new if isinstance(new, list) else []
    return _compare_lists(before_items, after_items, shape)


def _compare_maps(old: Json, new: Json, shape: Shape) -> tuple[FieldSet, FieldSet, FieldSet]:
    added: FieldSet = {}
    modified: FieldSet = {}
    removed: FieldSet = {}
    steps = shape.steps
    for key, after in new.items():
        name, inner = steps.get(key) or shape.step(key)
        if key not in old:
            added[name] = all_paths(after, inner)
            continue
        before = old[key]
        # Most of an object does not change; whole trees are compared much faster than they are walked.
        if before is after or (before == after and before.__class__ is after.__class__):
            continue
        _compare_values(before, after, inner, name, added, modified, removed)
    for key, before in old.items():
        if key not in new:
            name, inner = shape.step(key)
            removed[name] = all_paths(before, inner)
    return added, modified, removed


def _compare_lists(old: list[object], new: list[object], shape: Shape) -> tuple[FieldSet, FieldSet, FieldSet]:
    added: FieldSet = {}
    modified: FieldSet = {}
    removed: FieldSet = {}
    before = _items_by_key(old, shape)
    after = _items_by_key(new, shape)
    for key, items in after.items():
        previous = before.get(key)
        if previous is None:
            added[key] = all_paths(items[0], shape.element) if len(items) == 1 else _MEMBER
        elif len(items) == 1 and len(previous) == 1:
            if previous[0] != items[0] or previous[0].__class__ is not items[0].__class__:
                _compare_values(previous[0], items[0], shape.element, key, added, modified, removed)
        elif len(items) > 1 and len(previous) > 1:
            if items != previous:
                modified[key] = _MEMBER
        elif len(previous) > 1:
            added[key] = all_paths(items[0], shape.element)
            removed[key] = _MEMBER
        else:
            removed[key] = all_paths(previous[0], shape.element)
            added[key] = _MEMBER
    for key, previous in before.items():
        if key not in after:
            removed[key] = all_paths(previous[0], shape.element) if len(previous) == 1 else _MEMBER
    return added, modified, removed


def _items_by_key(items: list[object], shape: Shape) -> dict[str, list[object]]:
    by_key: dict[str, list[object]] = {}
    for item in items:
        by_key.setdefault(shape.item_key(item), []).append(item)
    return by_key


def _compare_values(
    before: object,
    after: object,
    shape: Shape,
    name: str,
    added: FieldSet,
    modified: FieldSet,
    removed: FieldSet,
) -> None:
    if not before and not after:
        # Empty values and null are leaves, and differ from each other.
        if before != after or type(before) is not type(after):
            modified[name] = _MEMBER
        return
    if _opaque(before, shape) or _opaque(after, shape):
        if before != after or type(before) is not type(after):
            modified[name] = _MEMBER
        if shape.kind != DEDUCED:
            return
        # If a map replaces a scalar, or the other way round, its fields are added or removed.
        before, after = (value if isinstance(value, dict) else {} for value in (before, after))
        for target, below in zip((added, removed), _compare_maps(before, after, shape)[::2], strict=True):
            if below:
                target[name] = below
        return
    for target, below in zip((added, modified, removed), _compare(before, after, shape), strict=True):
        if below:
            target[name] = below


def _opaque(value: object, shape: Shape) -> bool:
    """Return True if a value is a leaf; null has the type of the value that it is compared with."""
    return value is not None and _is_leaf(value, shape)


def all_paths(value: object, shape: Shape) -> FieldSet:
    """Return the node of a value with everything below it."""
    kind = shape.kind
    if kind == LEAF or not value:
        return _MEMBER
    if isinstance(value, dict):
        if kind in (MAP, DEDUCED):
            node: FieldSet = {".": _MEMBER}
            steps = shape.steps
            for key, inner in value.items():
                name, below = steps.get(key) or shape.step(key)
                node[name] = all_paths(inner, below) if below.kind != LEAF else _MEMBER
            return node
    elif isinstance(value, list) and kind in (SET, KEYED):
        node = {".": _MEMBER}
        item_key, element = shape.item_key, shape.element
        for item in value:
            name = item_key(item)
            node[name] = _MEMBER if name in node else all_paths(item, element)
        return node
    return _MEMBER


def merge(old: object, new: object, shape: Shape) -> object:
    """Merge new into old; a null does not replace a map or list that merges."""
    merges = shape.kind in (MAP, SET, KEYED) or (shape.kind == DEDUCED and isinstance(old, dict))
    if new is None and old and merges:
        return old
    if isinstance(old, dict) and isinstance(new, dict) and shape.kind in (MAP, DEDUCED):
        if not old and not new:
            return new
        result = dict(old)
        for key, value in new.items():
            if key in old:
                result[key] = merge(old[key], value, shape.field(key) or shape.element)
            else:
                result[key] = value
        return result
    if isinstance(old, list) and isinstance(new, list) and shape.kind in (SET, KEYED):
        return _merge_lists(old, new, shape)
    return new


def _merge_items(previous: list[object] | None, item: object, shape: Shape) -> object:
    """Merge a list item into the old item with its key; duplicates are replaced."""
    return merge(previous[0], item, shape) if previous is not None and len(previous) == 1 else item


def _merge_lists(old: list[object], new: list[object], shape: Shape) -> list[object]:
    """Return the common items in the order of new, other items of old at their relative position."""
    ours, theirs = _unique_items(new, shape), _items_by_key(old, shape)
    old_keys = [shape.item_key(item) for item in old]
    new_keys = list(ours)
    shared = [key for key in new_keys if key in theirs]
    wanted = shared.pop(0) if shared else None
    done: set[str] = set()
    result: list[object] = []
    left, right = 0, 0
    while left < len(old_keys) or right < len(new_keys):
        if left < len(old_keys) and right < len(new_keys):
            key = old_keys[left]
            if key == new_keys[right]:
                done.add(key)
                result.append(_merge_items(theirs.get(key), ours[key], shape.element))
                left, right = left + 1, right + 1
                wanted = shared.pop(0) if shared else None
                continue
            if key in ours and wanted is not None and wanted != key:
                left += 1
                continue
        if left < len(old_keys):
            key = old_keys[left]
            if key not in ours:
                result.append(old[left])
                left += 1
                continue
            if key in done:
                left += 1
        if right < len(new_keys):
            key = new_keys[right]
            done.add(key)
            result.append(_merge_items(theirs.get(key), ours[key], shape.element))
            right += 1
            if wanted == key:
                wanted = shared.pop(0) if shared else None
    return result


def _unique_items(items: list[object], shape: Shape) -> dict[str, object]:
    """Return the items by key; raises MergeError if two have the same key."""
    by_key: dict[str, object] = {}
    for item in items:
        key = shape.item_key(item)
        if key in by_key:
            raise MergeError(f"duplicate entries for key {format_path_element(key)}")
        by_key[key] = item
    return by_key


def remove(value: object, fields: FieldSet, shape: Shape) -> object:
    """Return the value without the paths of the set; None if it is then empty."""
    if isinstance(value, dict) and shape.kind in (MAP, DEDUCED):
        result: Json = {}
        for key, inner in value.items():
            node = fieldpath.child(fields, "f:" + key)
            if node is None:
                result[key] = inner
            elif not fieldpath.is_member(node):
                # Null remains if everything below is removed: another manager may own the field itself.
                result[key] = remove(inner, node, shape.field(key) or shape.element)
        return result or None
    if isinstance(value, list) and shape.kind in (SET, KEYED):
        items: list[object] = []
        for item in value:
            node = fieldpath.child(fields, shape.item_key(item))
            if node is None:
                items.append(item)
            elif not fieldpath.is_member(node):
                items.append(remove(item, node, shape.element))
        return items or None
    return None if isinstance(value, dict | list) else value


def with_named_fields(fields: FieldSet, shape: Shape) -> FieldSet:
    """Return the set, with every declared field that has paths below it as a member."""
    result: FieldSet = {}
    for key in fields:
        if key == fieldpath.SELF:
            continue
        node = fieldpath.child(fields, key)
        assert node is not None
        declared = shape.field(key[2:]) if key.startswith("f:") and shape.kind in (MAP, DEDUCED) else None
        inner = declared or shape.element
        below = with_named_fields(fieldpath.children(node), inner)
        made = fieldpath.node_of(below, fieldpath.is_member(node) or declared is not None)
        if made is not None:
            result[key] = made
    return result
