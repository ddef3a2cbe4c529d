"""CustomResourceDefinitions out of our own structs, so that a kind is written down once.

The struct's types, defaults and `Meta` bounds become the structural schema; docstrings of classes and of
attributes become descriptions; `Rule`s in a class's `rules` become CEL validations; `Definition` on the kind
says the rest. What a CRD cannot express (recursion, unions of objects, tuples of mixed types …) is refused
here, at build time, with the path of the field. `python -m argosy.kinds.crd DIR` writes the files.
"""

import ast
import inspect
import itertools
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec import inspect as types

from argosy.kinds.aresjob import AresJobCrd
from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS, CustomResource, PrinterColumn, Rule
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.trainingrun import TrainingRun
from argosy.kinds.volcano import VolcanoPodGroupCrd

Schema = dict[str, object]

CUSTOM_RESOURCES: tuple[type[CustomResource], ...] = (TrainingRun, AresJobCrd, VolcanoPodGroupCrd)
"""Every kind whose CustomResourceDefinition Argosy generates."""

LARGEST = 200_000
"""Bytes. Client-side apply copies the object into an annotation, which has room for 262,144."""

INT_OR_STRING: Schema = {"x-kubernetes-int-or-string": True}


class CrdError(Exception):
    """A struct says something that a CRD cannot."""


def crd_for(kind: type[CustomResource]) -> dict[str, object]:
    """The CustomResourceDefinition of a kind, as a JSON object."""
    resource, definition = kind.resource, kind.crd_options
    names: dict[str, object] = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
    }
    if definition.short_names:
        names["shortNames"] = list(definition.short_names)
    if definition.categories:
        names["categories"] = list(definition.categories)
    crd: dict[str, object] = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "labels": {"app.kubernetes.io/part-of": "argosy"},
        },
        "spec": {
            "group": resource.group,
            "names": names,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [_version(kind)],
        },
    }
    size = len(msgspec.json.encode(crd))
    if size > LARGEST:
        raise CrdError(f"{resource.kind}: the definition has {size} bytes; {LARGEST} is the limit")
    return crd


def dump(crd: Mapping[str, object]) -> str:
    """The YAML that is committed: stable order, and no anchors, which kubectl reads and people do not."""
    import yaml  # only here: a control plane is started without

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    return yaml.dump(dict(crd), Dumper=Plain, sort_keys=False, width=110, allow_unicode=True)


def file_name(kind: type[CustomResource]) -> str:
    return f"{kind.resource.group}_{kind.resource.plural}.yaml"


def schema_of(kind: type) -> Schema:
    """The structural schema of a struct."""
    return _Walker().schema(types.type_info(kind), kind.__name__)


def _version(kind: type[CustomResource]) -> Schema:
    definition = kind.crd_options
    schema = schema_of(kind)
    properties = schema["properties"]
    assert isinstance(properties, dict)
    schema["properties"] = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, **properties}
    schema["required"] = ["spec"]
    version: Schema = {"name": kind.resource.version, "served": True, "storage": True}
    if definition.columns:
        version["additionalPrinterColumns"] = [_column(column) for column in definition.columns]
    subresources: Schema = {}
    if definition.status:
        subresources["status"] = {}
    if definition.scale:
        subresources["scale"] = {
            "specReplicasPath": definition.scale.spec_path,
            "statusReplicasPath": definition.scale.status_path,
            **(
                {"labelSelectorPath": definition.scale.selector_path}
                if definition.scale.selector_path
                else {}
            ),
        }
    if subresources:
        version["subresources"] = subresources
    version["schema"] = {"openAPIV3Schema": schema}
    return version


def _column(column: PrinterColumn) -> Schema:
    one: Schema = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.description:
        one["description"] = column.description
    if column.priority:
        one["priority"] = column.priority
    return one


class _Walker:
    """Turns msgspec's view of a type into a schema; remembers which structs it is inside of."""

    def __init__(self) -> None:
        self.inside: list[type] = []

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
        if node.cls in self.inside:
            raise CrdError(f"{path}: {node.cls.__name__} contains itself; a CRD cannot say that")
        if node.tag is not None:
            raise CrdError(f"{path}: {node.cls.__name__} is tagged; a CRD has no unions of objects")
        if node.array_like:
            raise CrdError(f"{path}: {node.cls.__name__} is array-like; a CRD needs objects")
        self.inside.append(node.cls)
        told = _attribute_docs(node.cls)
        schema: Schema = {"type": "object"}
        if node.cls.__doc__:
            schema["description"] = _prose(node.cls.__doc__)
        properties: dict[str, Schema] = {}
        for one in node.fields:
            properties[one.encode_name] = self.field(one, told.get(one.name, ""), f"{path}.{one.encode_name}")
        self.inside.pop()
        required = [one.encode_name for one in node.fields if one.required]
        if required:
            schema["required"] = required
        schema["properties"] = properties
        if getattr(node.cls, "preserve", False):
            schema[PRESERVE_UNKNOWN_FIELDS] = True
        rules: Sequence[Rule] = getattr(node.cls, "rules", ())
        if rules:
            schema["x-kubernetes-validations"] = [_rule(rule) for rule in rules]
        return schema

    def field(self, one: types.Field, told: str, path: str) -> Schema:
        schema = self.schema(one.type, path)
        if told:
            schema = {**schema, "description": _prose(told)}
        default = _default(one, schema)
        if default is not None:
            schema["default"] = default
        return schema

    def union(self, node: types.UnionType, path: str) -> Schema:
        branches = [one for one in node.types if not isinstance(one, types.NoneType)]
        plain = [one.type if isinstance(one, types.Metadata) else one for one in branches]
        if len(branches) == 1:
            return self.schema(branches[0], path)
        if len(plain) == 2 and {type(one) for one in plain} == {types.IntType, types.StrType}:
            return dict(INT_OR_STRING)
        raise CrdError(f"{path}: a union of {len(branches)} types; a CRD field has one, or int or string")

    def mapping(self, node: types.DictType, path: str) -> Schema:
        key = node.key_type.type if isinstance(node.key_type, types.Metadata) else node.key_type
        if not isinstance(key, types.StrType):
            raise CrdError(f"{path}: keys of a map must be strings")
        if _anything(node.value_type):
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
            return {"type": "string", "enum": [str(one.value) for one in node.cls]}
        if isinstance(node, types.LiteralType):
            if not all(isinstance(value, str) for value in node.values):
                raise CrdError(f"{path}: only strings can be enumerated")
            return {"type": "string", "enum": [str(value) for value in node.values]}
        if isinstance(node, types.DateTimeType):
            return {"type": "string", "format": "date-time"}
        raise CrdError(f"{path}: {type(node).__name__} has no form in a CRD")


def _anything(node: types.Type) -> bool:
    return isinstance(node, types.AnyType) or (isinstance(node, types.CustomType) and node.cls is object)


def _number(node: types.IntType | types.FloatType) -> Schema:
    bounds = _bounds(node, {"ge": "minimum", "le": "maximum", "multiple_of": "multipleOf"})
    if node.gt is not None:
        bounds |= {"minimum": node.gt, "exclusiveMinimum": True}
    if node.lt is not None:
        bounds |= {"maximum": node.lt, "exclusiveMaximum": True}
    return bounds


def _bounds(node: types.Type, names: Mapping[str, str]) -> Schema:
    found = {word: getattr(node, name, None) for name, word in names.items()}
    return {word: value for word, value in found.items() if value is not None}


def _default(one: types.Field, schema: Schema) -> object:
    """The default worth storing: not what an absent field means anyway (false, empty, unset)."""
    if one.default is not msgspec.NODEFAULT:
        value: object = one.default
    elif one.default_factory is not msgspec.NODEFAULT:
        value = one.default_factory()
    else:
        return None
    if isinstance(value, Struct):
        return {} if _has_defaults(schema) else None
    if value is None or value == "" or value is False or value in ([], {}, ()) or isinstance(value, datetime):
        return None
    return value.value if isinstance(value, Enum) else value


def _has_defaults(schema: Schema) -> bool:
    properties = schema.get("properties", {})
    return isinstance(properties, dict) and any(
        isinstance(one, dict) and "default" in one for one in properties.values()
    )


def _rule(rule: Rule) -> Schema:
    one: Schema = {"rule": rule.rule}
    if rule.message:
        one["message"] = rule.message
    if rule.message_expression:
        one["messageExpression"] = rule.message_expression
    if rule.field_path:
        one["fieldPath"] = rule.field_path
    return one


def _attribute_docs(kind: type) -> dict[str, str]:
    """The string literals that stand below attributes, by attribute name."""
    body = _class_bodies(kind.__module__).get(kind.__name__, [])
    told: dict[str, str] = {}
    for attribute, below in itertools.pairwise(body):
        if not (isinstance(attribute, ast.AnnAssign) and isinstance(attribute.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            told[attribute.target.id] = str(below.value.value)
    return told


@cache
def _class_bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of every class of a module, by its name; parsed once for all of them."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:
        return {}
    return {node.name: node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _prose(text: str) -> str:
    return " ".join(text.split())


def main(arguments: Sequence[str]) -> None:
    """Write the definition of every kind of ours into a folder."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in CUSTOM_RESOURCES:
        (folder / file_name(kind)).write_text(dump(crd_for(kind)))


if __name__ == "__main__":
    main(sys.argv[1:])
