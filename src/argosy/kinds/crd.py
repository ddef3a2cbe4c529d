"""Generates CustomResourceDefinitions from structs.

Types, defaults and `Meta` bounds become the structural schema. Docstrings of classes and attributes become
descriptions. The `rules` of a class become CEL validations, the fields that it lists in `always_written` are
required although decoding has defaults for them, and the kind's `CrdOptions` become everything else. What a
CRD cannot express (recursion, unions of objects, tuples of mixed types) is a `CrdError` with the path of the
field. `python -m tools.chart` writes the chart's files.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from argosy.kinds.crd_options import (
    PART_OF,
    PART_OF_ARGOSY,
    PRESERVE_UNKNOWN_FIELDS,
    CustomResource,
    PrinterColumn,
    Rule,
)
from argosy.kinds.meta import ObjectMeta

Schema = dict[str, object]

MAX_CRD_BYTES = 200_000
"""Client-side apply copies the whole object into an annotation, whose limit is 262,144 bytes."""

INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}


class CrdError(Exception):
    """A struct cannot be expressed as a CRD."""


def crd_for(kind: type[CustomResource]) -> dict[str, object]:
    """Return the CustomResourceDefinition of a kind, as a JSON object."""
    resource, options = kind.resource, kind.crd_options
    names: dict[str, object] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if options.short_names:
        names["shortNames"] = list(options.short_names)
    if options.categories:
        names["categories"] = list(options.categories)
    crd: dict[str, object] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "labels": {PART_OF: PART_OF_ARGOSY},
        },
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": _versions(kind),
        },
    }
    size = len(msgspec.json.encode(crd))
    if size > MAX_CRD_BYTES:
        raise CrdError(f"{resource.kind}: the CRD has {size} bytes; must be at most {MAX_CRD_BYTES}")
    return crd


def dump(crd: Mapping[str, object]) -> str:
    """Return the CRD as YAML, in stable order and without anchors, which are hard to read."""
    import yaml  # imported here because the local control plane starts faster without it

    # That of the C library is ten times as fast.
    class NoAliasDumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    return yaml.dump(dict(crd), Dumper=NoAliasDumper, sort_keys=False, width=110, allow_unicode=True)


def file_name(kind: type[CustomResource]) -> str:
    return f"{kind.resource.group}_{kind.resource.plural}.yaml"


def schema_of(kind: type) -> Schema:
    """Return the structural schema of a struct."""
    return _SchemaBuilder().schema(types.type_info(kind), kind.__name__)


def _versions(kind: type[CustomResource]) -> list[Schema]:
    """Return the stored version, and those that differ from it in nothing but the name."""
    stored = _version(kind)
    others = ({**stored, "name": name, "storage": False} for name in kind.crd_options.also_served)
    return [stored, *others]


def _version(kind: type[CustomResource]) -> Schema:
    options = kind.crd_options
    schema = schema_of(kind)
    properties = schema["properties"]
    assert isinstance(properties, dict)
    schema["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **properties}
    schema["required"] = ["spec"]
    version: Schema = {"name": kind.resource.version, "served": True, "storage": True}
    if options.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in options.columns]
    subresources: Schema = {}
    if options.status:
        subresources["status"] = {}
    if options.scale:
        subresources["scale"] = {
            "specReplicasPath": options.scale.spec_path,
            "statusReplicasPath": options.scale.status_path,
            **({"labelSelectorPath": options.scale.selector_path} if options.scale.selector_path else {}),
        }
    if subresources:
        version["subresources"] = subresources
    version["schema"] = {"openAPIV3Schema": schema}
    return version


def _column(column: PrinterColumn) -> Schema:
    schema: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        schema["description"] = column.description
    if column.priority:
        schema["priority"] = column.priority
    return schema


class _SchemaBuilder:
    """Converts msgspec's description of a type into a schema."""

    def __init__(self) -> None:
        self.enclosing: list[type] = []
        """The structs around the current one, to detect recursion."""

    def schema(self, node: types.Type, path: str) -> Schema:
        if isinstance(node, types.Metadata):
            return self.metadata(node, path)
        if isinstance(node, types.StructType):
            return self.struct(node, path)
        if isinstance(node, types.UnionType):
            return self.union(node, path)
        if isinstance(node, types.ListType | types.VarTupleType | types.CollectionType):
            items = self.schema(node.item_type, f"{path}[]")
            return {
                "type": "array",
                **_bounds(node, {"min_length": "minItems", "max_length": "maxItems"}),
                "items": items,
            }
        if isinstance(node, types.DictType):
            return self.mapping(node, path)
        return self.leaf(node, path)

    def metadata(self, node: types.Metadata, path: str) -> Schema:
        return {**self.schema(node.type, path), **(node.extra_json_schema or {})}

    def struct(self, node: types.StructType, path: str) -> Schema:
        if node.cls is ObjectMeta:
            return {"type": "object"}
        if node.cls in self.enclosing:
            raise CrdError(
                f"{path}: {node.cls.__name__} contains itself; recursion is not supported in a CRD"
            )
        if node.tag is not None:
            raise CrdError(
                f"{path}: {node.cls.__name__} is tagged; unions of objects are not supported in a CRD"
            )
        if node.array_like:
            raise CrdError(f"{path}: {node.cls.__name__} is array-like; must be an object in a CRD")
        self.enclosing.append(node.cls)
        docs = _attribute_docs(node.cls)
        schema: Schema = {"type": "object"}
        if node.cls.__doc__:
            schema["description"] = _prose(node.cls.__doc__)
        always_written: Sequence[str] = getattr(node.cls, "always_written", ())
        properties: dict[str, Schema] = {}
        for item in node.fields:
            name = item.encode_name
            field_schema = self.field(item, docs.get(item.name, ""), f"{path}.{name}")
            if item.name in always_written:
                field_schema.pop("default", None)
            properties[name] = field_schema
        self.enclosing.pop()
        required = [item.encode_name for item in node.fields if item.required or item.name in always_written]
        if required:
            schema["required"] = required
        schema["properties"] = properties
        if getattr(node.cls, "preserve", False):
            schema[PRESERVE_UNKNOWN_FIELDS] = True
        rules: Sequence[Rule] = getattr(node.cls, "rules", ())
        if rules:
            schema["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
        return schema

    def field(self, item: types.Field, doc: str, path: str) -> Schema:
        schema = self.schema(item.type, path)
        if doc:
            schema = {**schema, "description": _prose(doc)}
        default = _default(item, schema)
        if default is not None:
            schema["default"] = default
        return schema

    def union(self, node: types.UnionType, path: str) -> Schema:
        branches = [branch for branch in node.types if not isinstance(branch, types.NoneType)]
        bare = [branch.type if isinstance(branch, types.Metadata) else branch for branch in branches]
        if len(branches) == 1:
            return self.schema(branches[0], path)
        if len(bare) == 2 and {type(branch) for branch in bare} == {types.IntType, types.StrType}:
            return dict(INT_OR_STRING)
        raise CrdError(f"{path}: a union of {len(branches)} types; must be one type, or int and str")

    def mapping(self, node: types.DictType, path: str) -> Schema:
        key = node.key_type.type if isinstance(node.key_type, types.Metadata) else node.key_type
        if not isinstance(key, types.StrType):
            raise CrdError(f"{path}: the keys of a map must be strings")
        if _is_any(node.value_type):
            return {"type": "object", PRESERVE_UNKNOWN_FIELDS: True}
        return {
            "type": "object",
            **_bounds(node, {"min_length": "minProperties", "max_length": "maxProperties"}),
            "additionalProperties": self.schema(node.value_type, f"{path}.*"),
        }

    def leaf(self, node: types.Type, path: str) -> Schema:
        if isinstance(node, types.BoolType):
            return {"type": "boolean"}
        if isinstance(node, types.IntType):
            return {"type": "integer", **_number(node)}
        if isinstance(node, types.FloatType):
            return {"type": "number", **_number(node)}
        if isinstance(node, types.StrType):
            names = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
            return {"type": "string", **_bounds(node, names)}
        if isinstance(node, types.EnumType):
            return {"type": "string", "enum": [str(member.value) for member in node.cls]}
        if isinstance(node, types.LiteralType):
            if not all(isinstance(value, str) for value in node.values):
                raise CrdError(f"{path}: the values of a Literal must be strings")
            return {"type": "string", "enum": [str(value) for value in node.values]}
        if isinstance(node, types.DateTimeType):
            return {"type": "string", "format": "date-time"}
        if _is_any(node):
            return {PRESERVE_UNKNOWN_FIELDS: True}
        raise CrdError(f"{path}: {type(node).__name__} is not supported in a CRD")


def _is_any(node: types.Type) -> bool:
    return isinstance(node, types.AnyType) or (isinstance(node, types.CustomType) and node.cls is object)


def _number(node: types.IntType | types.FloatType) -> Schema:
    bounds = _bounds(node, {"ge": "minimum", "le": "maximum", "multiple_of": "multipleOf"})
    if node.gt is not None:
        bounds |= {"minimum": node.gt, "exclusiveMinimum": True}
    if node.lt is not None:
        bounds |= {"maximum": node.lt, "exclusiveMaximum": True}
    return bounds


def _bounds(node: types.Type, names: Mapping[str, str]) -> Schema:
    bounds = {keyword: getattr(node, name, None) for name, keyword in names.items()}
    return {keyword: value for keyword, value in bounds.items() if value is not None}


def _default(item: types.Field, schema: Schema) -> object:
    """Return the default for the schema; None if it equals an absent field (false, empty, unset)."""
    if item.default is not msgspec.NODEFAULT:
        value: object = item.default
    elif item.default_factory is not msgspec.NODEFAULT:
        value = item.default_factory()
    else:
        return None
    if isinstance(value, Struct):
        return {} if _has_defaults(schema) and not schema.get("required") else None
    if value is None or value == "" or value is False or value in ([], {}, ()) or isinstance(value, datetime):
        return None
    return value.value if isinstance(value, Enum) else value


def _has_defaults(schema: Schema) -> bool:
    properties = schema.get("properties", {})
    return isinstance(properties, dict) and any(
        isinstance(item, dict) and "default" in item for item in properties.values()
    )


def _rule(rule: Rule) -> Schema:
    schema: Schema = {"rule": rule.rule}
    if rule.message:
        schema["message"] = rule.message
    if rule.message_expression:
        schema["messageExpression"] = rule.message_expression
    if rule.field_path:
        schema["fieldPath"] = rule.field_path
    return schema


def _attribute_docs(kind: type) -> dict[str, str]:
    """Return the string literals below attributes, by attribute name."""
    body = _class_bodies(kind.__module__).get(kind.__name__, [])
    docs: dict[str, str] = {}
    for attribute, below in itertools.pairwise(body):
        if not (isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            docs[attribute.target.id] = str(below.value.value)
    return docs


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """Return the statements of every class of a module, by class name. Each module is parsed once."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {node.name: node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _prose(text: str) -> str:
    return " ".join(text.split())
