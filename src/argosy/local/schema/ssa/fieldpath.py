"""Sets of field paths, in the format of `managedFields`.

A set is a nested dict: `{"f:spec": {"f:replicas": {}}}`. Below a key, an empty dict means that the path
itself is in the set; the key `"."` means the same if paths below it are in the set too. Sets are never
changed in place, so objects and versions can share them.
"""

from collections.abc import Iterator
from typing import TypeAlias, cast

FieldSet: TypeAlias = dict[str, object]

SELF = "."
_EMPTY: FieldSet = {}


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    if not right:
        return left
    if not left:
        return right
    result = dict(left)
    for key, theirs in right.items():
        ours = result.get(key)
        result[key] = theirs if ours is None else _join(_below(ours), _below(theirs))
    return result


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for key, ours in left.items():
        theirs = right.get(key)
        if theirs is None:
            continue
        a, b = _below(ours), _below(theirs)
        node = node_of(intersection(children(a), children(b)), is_member(a) and is_member(b))
        if node is not None:
            result[key] = node
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of left that are not in right; a path does not stand for those below it."""
    if not right or left.keys().isdisjoint(right):
        return left
    result: FieldSet = {}
    for key, ours in left.items():
        theirs = right.get(key)
        if theirs is None:
            result[key] = ours
            continue
        a, b = _below(ours), _below(theirs)
        node = node_of(difference(children(a), children(b)), is_member(a) and not is_member(b))
        if node is not None:
            result[key] = node
    return result


def without(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths of left that are neither in right nor below a path of right."""
    result: FieldSet = {}
    for key, ours in left.items():
        theirs = right.get(key)
        if theirs is None:
            result[key] = ours
            continue
        a, b = _below(ours), _below(theirs)
        if is_member(b):
            continue
        node = node_of(without(children(a), children(b)), is_member(a))
        if node is not None:
            result[key] = node
    return result


def has(fields: FieldSet, path: tuple[str, ...]) -> bool:
    node = fields
    for step in path:
        child = node.get(step)
        if child is None:
            return False
        node = _below(child)
    return bool(path) and is_member(node)


def insert(fields: FieldSet, path: tuple[str, ...]) -> FieldSet:
    node: FieldSet = {}
    for step in reversed(path):
        node = {step: node}
    return union(fields, node)


def paths(fields: FieldSet) -> Iterator[tuple[str, ...]]:
    """Yield every path of the set, sorted: one level before those below, fields before list items."""
    keys = sorted((key for key in fields if key != SELF), key=_order)
    for key in keys:
        if is_member(_below(fields[key])):
            yield (key,)
    for key in keys:
        for below in paths(_below(fields[key])):
            yield (key, *below)


def is_member(node: FieldSet) -> bool:
    """Return True if the path that leads to this node is itself in the set."""
    return not node or SELF in node


def child(fields: FieldSet, key: str) -> FieldSet | None:
    """Return the node below a key, if the set has one."""
    node = fields.get(key)
    return None if node is None else _below(node)


_ORDER = {"f": 0, "k": 1, "v": 2, "i": 3}


def _order(key: str) -> tuple[int, str]:
    return (_ORDER.get(key[0], 9), key[2:])


def _below(node: object) -> FieldSet:
    return cast("FieldSet", node)


def children(node: FieldSet) -> FieldSet:
    """Return the node without `.`."""
    if SELF not in node:
        return node
    return {key: value for key, value in node.items() if key != SELF}


def node_of(children: FieldSet, member: bool) -> FieldSet | None:
    """Return a node with these children; None if it would be empty."""
    if not children:
        return _EMPTY if member else None
    if member:
        return {SELF: _EMPTY, **children}
    return children


def _join(left: FieldSet, right: FieldSet) -> FieldSet:
    node = node_of(union(children(left), children(right)), is_member(left) or is_member(right))
    return node if node is not None else {}
