"""One schema type for built-in kinds and custom resources.

A `Schema` is built once per kind and used for pruning, defaulting, validation, patches, server-side apply
and OpenAPI. Trees of built-in kinds are lazy (`properties` of a definition are built on first access), so
that kinds without objects cost nothing, and because some definitions contain themselves.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from msgspec import UNSET, Struct

Json: TypeAlias = dict[str, object]

Lookup: TypeAlias = Callable[[str], "Schema"]


class Rule(Struct, frozen=True, kw_only=True):
    """One entry of `x-kubernetes-validations`."""

    rule: str
    message: str = ""
    message_expression: str = ""
    reason: str = ""
    field_path: str = ""
    optional_old_self: bool | None = None


class Schema:
    """A node of a schema tree; immutable outside this module."""

    __slots__ = (
        "_additional",
        "_compiled",
        "_items",
        "_lookup",
        "_properties",
        "_raw",
        "_structure",
        "all_of",
        "any_of",
        "default",
        "embedded_resource",
        "enum",
        "exclusive_maximum",
        "exclusive_minimum",
        "format",
        "int_or_string",
        "list_map_keys",
        "list_type",
        "map_type",
        "max_items",
        "max_length",
        "max_properties",
        "maximum",
        "min_items",
        "min_length",
        "min_properties",
        "minimum",
        "multiple_of",
        "not_",
        "null",
        "nullable",
        "omit",
        "one_of",
        "patch_merge_key",
        "patch_strategy",
        "pattern",
        "preserve_unknown",
        "reference",
        "required",
        "rules",
        "type",
    )

    def __init__(self, raw: Mapping[str, object], lookup: Lookup | None = None, reference: str = "") -> None:
        """Parse a JSON Schema as Kubernetes writes it; `lookup` resolves `$ref`s of the built-in table."""
        self._raw = raw
        self._lookup = lookup
        self._properties: dict[str, Schema] | None = None
        self._items: Schema | None = None
        self._additional: Schema | None = None
        self._structure: Schema | None = None
        self._compiled: dict[str, object] = {}
        self.reference = reference
        self.type = _text(raw, "type")
        self.format = _text(raw, "format")
        self.nullable = raw.get("nullable") is True
        self.default: object = raw.get("default", UNSET)
        self.required: tuple[str, ...] = _texts(raw.get("required"))
        enum = raw.get("enum")
        self.enum: tuple[object, ...] | None = tuple(enum) if isinstance(enum, list) else None
        self.minimum = _number(raw, "minimum")
        self.maximum = _number(raw, "maximum")
        self.exclusive_minimum = raw.get("exclusiveMinimum") is True
        self.exclusive_maximum = raw.get("exclusiveMaximum") is True
        self.multiple_of = _number(raw, "multipleOf")
        self.min_length = _integer(raw, "minLength")
        self.max_length = _integer(raw, "maxLength")
        self.pattern = _text(raw, "pattern")
        self.min_items = _integer(raw, "minItems")
        self.max_items = _integer(raw, "maxItems")
        self.min_properties = _integer(raw, "minProperties")
        self.max_properties = _integer(raw, "maxProperties")
        self.all_of = self._many("allOf")
        self.any_of = self._many("anyOf")
        self.one_of = self._many("oneOf")
        negated = raw.get("not")
        self.not_ = self._child(negated) if isinstance(negated, Mapping) else None
        self.list_type = _text(raw, "x-kubernetes-list-type")
        self.list_map_keys = _texts(raw.get("x-kubernetes-list-map-keys"))
        self.map_type = _text(raw, "x-kubernetes-map-type")
        strategy = _text(raw, "x-kubernetes-patch-strategy")
        self.patch_strategy = tuple(strategy.split(",")) if strategy else ()
        self.patch_merge_key = _text(raw, "x-kubernetes-patch-merge-key")
        self.preserve_unknown = raw.get("x-kubernetes-preserve-unknown-fields") is True
        self.int_or_string = raw.get("x-kubernetes-int-or-string") is True or self.format == "int-or-string"
        self.embedded_resource = raw.get("x-kubernetes-embedded-resource") is True
        self.rules = _rules(raw.get("x-kubernetes-validations"))
        # Fields that Kubernetes leaves out when they are empty, and fields that it writes as null.
        self.omit = frozenset(_texts(raw.get("omit")))
        self.null = frozenset(_texts(raw.get("null")))

    @property
    def structure(self) -> "Schema":
        """The schema with the fields of this value: the referenced definition, or this node itself."""
        if self._structure is None:
            target = self._raw.get("$ref")
            if isinstance(target, str) and self._lookup is not None:
                self._structure = self._lookup(target)
            else:
                self._structure = self
        return self._structure

    @property
    def properties(self) -> dict[str, "Schema"]:
        """The named fields of an object."""
        if self._properties is None:
            raw = self._raw.get("properties")
            if isinstance(raw, Mapping):
                self._properties = {name: self._child(child) for name, child in raw.items()}
            else:
                structure = self.structure
                self._properties = {} if structure is self else structure.properties
        return self._properties

    @property
    def items(self) -> "Schema | None":
        """The schema of a list's items."""
        if self._items is None:
            raw = self._raw.get("items")
            if isinstance(raw, Mapping):
                self._items = self._child(raw)
            elif self.structure is not self:
                self._items = self.structure.items
        return self._items

    @property
    def additional(self) -> "Schema | None":
        """The schema of a map's values; a schema without a type where any value is allowed."""
        if self._additional is None:
            raw = self._raw.get("additionalProperties")
            if isinstance(raw, Mapping):
                self._additional = self._child(raw)
            elif raw is True:
                self._additional = Schema({"x-kubernetes-preserve-unknown-fields": True})
            elif self.structure is not self:
                self._additional = self.structure.additional
        return self._additional

    @property
    def raw(self) -> Mapping[str, object]:
        """The JSON that this node was parsed from."""
        return self._raw

    @property
    def compiled(self) -> dict[str, object]:
        """A cache in which other modules of this package keep what they compute once for this node."""
        return self._compiled

    def at(self, *path: str) -> "Schema | None":
        """Return the schema at a path below this node; `[]` is a step into a list."""
        node: Schema | None = self
        for step in path:
            if node is None:
                return None
            node = node.items if step == "[]" else node.properties.get(step) or node.additional
        return node

    def _child(self, raw: object) -> "Schema":
        if not isinstance(raw, Mapping):
            return Schema({})
        target = raw.get("$ref")
        if isinstance(target, str) and self._lookup is not None:
            if len(raw) == 1:
                return self._lookup(target)
            merged = {**self._lookup(target).flat, **raw}
            return Schema(merged, self._lookup)
        return Schema(raw, self._lookup)

    @property
    def flat(self) -> dict[str, object]:
        """The keywords of this node without those of its children."""
        return {
            k: v for k, v in self._raw.items() if k not in ("properties", "items", "additionalProperties")
        }

    def _many(self, keyword: str) -> tuple["Schema", ...]:
        raw = self._raw.get(keyword)
        return tuple(self._child(child) for child in raw) if isinstance(raw, list) else ()


def _text(raw: Mapping[str, object], key: str) -> str:
    value = raw.get(key)
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(v for v in value if isinstance(v, str)) if isinstance(value, Iterable) else ()


def _number(raw: Mapping[str, object], key: str) -> float | int | None:
    value = raw.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _integer(raw: Mapping[str, object], key: str) -> int | None:
    value = raw.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _rules(value: object) -> tuple[Rule, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(
        Rule(
            rule=_text(entry, "rule"),
            message=_text(entry, "message"),
            message_expression=_text(entry, "messageExpression"),
            reason=_text(entry, "reason"),
            field_path=_text(entry, "fieldPath"),
            optional_old_self=entry["optionalOldSelf"]
            if isinstance(entry.get("optionalOldSelf"), bool)
            else None,
        )
        for entry in value
        if isinstance(entry, Mapping)
    )


ANY = Schema({"x-kubernetes-preserve-unknown-fields": True})
"""The schema of untyped and preserved parts of an object: any value is valid."""
