"""How values merge, computed once per schema node.

Scalars and atomic lists and maps are leaves, other maps merge by key, lists of type `set` by value and of
type `map` by their key fields. Where the schema says nothing, maps merge by key and lists are leaves.
"""

import msgspec
from msgspec import UNSET

from argosy.local.schema.model import ANY, Json, Schema

LEAF, MAP, SET, KEYED, DEDUCED = range(5)
RAW_EXTENSION = "io.k8s.apimachinery.pkg.runtime.RawExtension"


class MergeError(Exception):
    """An object that cannot be merged; the text names the path."""


class Shape:
    """How values of one schema node merge."""

    __slots__ = ("_element", "_fields", "_key_start", "_schema", "defaults", "keys", "kind", "steps")

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._fields: dict[str, Shape | None] = {}
        self._element: Shape | None = None
        self.kind = _kind(schema)
        self.keys = tuple(sorted(_keys(schema))) if self.kind == KEYED else ()
        self._key_start = f"k:{{{_compact(self.keys[0])}:" if self.keys else ""
        # A cache of `step`, which every write uses.
        self.steps: dict[str, tuple[str, Shape]] = {}
        self.defaults: Json = {}
        if self.keys and schema.items is not None:
            properties = schema.items.properties
            self.defaults = {
                key: properties[key].default
                for key in self.keys
                if key in properties and properties[key].default is not UNSET
            }

    def field(self, name: str) -> "Shape | None":
        """Return the shape of a declared field; None for keys of a map and undeclared fields."""
        try:
            return self._fields[name]
        except KeyError:
            declared = self._schema.properties.get(name)
            shape = self._fields[name] = shape_of(declared) if declared is not None else None
            return shape

    @property
    def element(self) -> "Shape":
        """The shape of map values and list items."""
        if self._element is None:
            schema = self._schema
            inner = schema.items if self.kind in (SET, KEYED) else schema.additional
            self._element = shape_of(inner) if inner is not None else shape_of(ANY)
        return self._element

    def step(self, key: str) -> "tuple[str, Shape]":
        """Return the path element of a key of a map, and the shape of its value."""
        declared = self.field(key)
        if declared is None:
            return f"f:{key}", self.element
        step = self.steps[key] = (f"f:{key}", declared)
        return step

    def item_key(self, item: object) -> str:
        """Return the path element of an item of a list."""
        if self.kind == SET:
            if isinstance(item, dict | list) or item is None:
                raise MergeError("associative list without keys has an element that is not a scalar")
            return "v:" + _compact(item)
        if not isinstance(item, dict):
            raise MergeError("associative list with keys may not have non-map elements")
        if len(self.keys) == 1 and (value := item.get(self.keys[0])) is not None:
            return f"{self._key_start}{_compact(value)}}}"
        values = {key: self.defaults.get(key) if item.get(key) is None else item[key] for key in self.keys}
        values = {key: value for key, value in values.items() if value is not None}
        if not values:
            raise MergeError(f"list item has none of the key fields {', '.join(self.keys)}")
        return "k:" + _compact(values)


def shape_of(schema: Schema) -> Shape:
    """Return the shape of a schema node, computed once."""
    shape = schema.compiled.get("shape")
    if shape is None:
        shape = schema.compiled["shape"] = Shape(schema)
    assert isinstance(shape, Shape)
    return shape


def _kind(schema: Schema) -> int:
    if schema.structure.reference == RAW_EXTENSION:
        return LEAF
    if schema.int_or_string or schema.one_of:
        return LEAF
    if schema.type == "object":
        return LEAF if schema.map_type == "atomic" else MAP
    if schema.type == "array":
        if schema.list_type == "map" or (not schema.list_type and _merges(schema) and schema.patch_merge_key):
            return KEYED
        if schema.list_type == "set" or (not schema.list_type and _merges(schema)):
            return SET
        return LEAF
    if not schema.type:
        return DEDUCED
    return LEAF


def _merges(schema: Schema) -> bool:
    return "merge" in schema.patch_strategy


def _keys(schema: Schema) -> tuple[str, ...]:
    return schema.list_map_keys or (schema.patch_merge_key,)


def format_path_element(key: str) -> str:
    """Return a path element as error messages print it: `.spec`, `[name="a"]`, `["x"]`."""
    kind, content = key[0], key[2:]
    if kind == "f":
        return f".{content}"
    if kind == "k":
        fields = msgspec.json.decode(content)
        return "[" + ",".join(f"{name}={_compact(value)}" for name, value in fields.items()) + "]"
    if kind == "v":
        return f"[={content}]"
    return f"[{content}]"


def _compact(value: object) -> str:
    return msgspec.json.encode(value).decode()
