"""OpenAPI v3 documents, one per group version, for `kubectl explain`, `apply` and validation by clients.

A document has the schemas of its kinds with all referenced definitions, and the paths and parameters from
which kubectl detects features of the server (such as `fieldValidation`). Callers cache the encoded documents,
which only change when definitions do.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from argosy.local.schema.builtin import SCALE, KindInfo, Subresource, builtin_kinds, definition_json
from argosy.local.schema.crd.definition import CrdInfo, CrdVersion
from argosy.local.schema.model import Json

PREFIX = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_OWN_KEYWORDS = ("omit", "null")
_WRITE = ("dryRun", "fieldManager", "fieldValidation")
_METHODS = {"get": "get", "update": "put", "patch": "patch", "delete": "delete"}
_PATCHES = (
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
)
_STRATEGIC = "application/strategic-merge-patch+json"
"""Built-in kinds only; custom resources do not support it."""
_TYPE_FIELDS: Json = {
    "apiVersion": {
        "type": "string",
        "description": "The version of the schema that this object follows, as group/version.",
    },
    "kind": {"type": "string", "description": "The kind of object that this is."},
}


class PublishedKind(Struct, frozen=True, kw_only=True):
    """A kind as documents show it."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: tuple[str, ...]
    subresources: tuple[Subresource, ...]
    component: str
    list_component: str
    declared: Json | None = None
    selectable: tuple[str, ...] = ()

    @property
    def place(self) -> Json:
        return _place(self.group, self.version, self.kind)


def published(info: KindInfo) -> PublishedKind:
    """Return a built-in kind."""
    return PublishedKind(
        group=info.group,
        version=info.version,
        kind=info.kind,
        plural=info.plural,
        namespaced=info.namespaced,
        verbs=info.verbs,
        subresources=tuple(sub for sub in info.subresources if sub.definition),
        component=info.definition,
        list_component=f"{info.definition}List",
    )


def published_custom(info: CrdInfo, version: CrdVersion) -> PublishedKind:
    """Return a version of a custom resource."""
    prefix = ".".join([*reversed(info.group.split(".")), version.name])
    component = f"{prefix}.{info.kind}"
    shown = {"status": component if version.has_status else "", "scale": SCALE if version.scale else ""}
    return PublishedKind(
        group=info.group,
        version=version.name,
        kind=info.kind,
        plural=info.plural,
        namespaced=info.namespaced,
        verbs=("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
        subresources=tuple(
            Subresource(
                name=name,
                group=info.group,
                version=version.name,
                kind=info.kind,
                verbs=("get", "patch", "update"),
                definition=definition,
            )
            for name, definition in shown.items()
            if definition
        ),
        component=component,
        list_component=f"{prefix}.{info.list_kind}",
        declared=version.declared,
        selectable=version.selectable,
    )


def document(kinds: Iterable[PublishedKind], kubernetes: str) -> Json:
    """Return the document of the kinds of one group version."""
    listed = sorted(kinds, key=lambda kind: kind.plural)
    schemas: Json = {}
    needed = [META + "DeleteOptions", META + "Status", META + "ListMeta", META + "ObjectMeta"]
    needed += [sub.definition for kind in listed for sub in kind.subresources]
    for kind in listed:
        if kind.declared is None:
            needed.append(kind.component)
        else:
            schemas[kind.component] = _custom(kind)
        if "list" in kind.verbs:
            schemas[kind.list_component] = _list_of(kind)
    _collect(needed, schemas)
    for name, places in _places(listed).items():
        if isinstance(component := schemas.get(name), dict):
            schemas[name] = {**component, "x-kubernetes-group-version-kind": places}
    paths: Json = {path: item for kind in listed for path, item in _paths(kind)}
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": kubernetes},
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items()))},
    }


def encode_document(kinds: Iterable[PublishedKind], kubernetes: str) -> bytes:
    return msgspec.json.encode(document(kinds, kubernetes))


def _place(group: str, version: str, kind: str) -> Json:
    return {"group": group, "version": version, "kind": kind}


def _places(listed: Iterable[PublishedKind]) -> dict[str, list[Json]]:
    """Return the group, version and kind of definitions, including those of subresources and errors."""
    builtin = builtin_kinds()
    defined: list[KindInfo | Subresource] = [
        *builtin,
        *(sub for info in builtin for sub in info.subresources),
    ]
    places = {
        resource.definition: [_place(resource.group, resource.version, resource.kind)] for resource in defined
    }
    places |= {kind.component: [kind.place] for kind in listed}
    served = sorted({("", "v1")} | {(kind.group, kind.version) for kind in listed if kind.declared is None})
    places[META + "DeleteOptions"] = [_place(group, version, "DeleteOptions") for group, version in served]
    places[META + "Status"] = [_place("", "v1", "Status")]
    return places


def _collect(names: list[str], schemas: Json) -> None:
    """Add the built-in definitions with these names, and those that they refer to."""
    table = definition_json()
    while names:
        name = names.pop()
        if name not in schemas and name in table:
            schemas[name] = _expand(table[name], names)


def _expand(raw: Mapping[str, object], names: list[str]) -> Json:
    """Return a definition of the table in the format of OpenAPI."""
    result: Json = {}
    for key, value in raw.items():
        if key in _OWN_KEYWORDS or key == "$ref":
            continue
        if key == "properties" and isinstance(value, dict):
            result[key] = {name: _expand(child, names) for name, child in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            result[key] = _expand(value, names)
        else:
            result[key] = value
    reference = raw.get("$ref")
    if isinstance(reference, str):
        names.append(reference)
        target: Json = {"$ref": PREFIX + reference}
        return {**result, "allOf": [target]} if result else target
    return result


def _custom(kind: PublishedKind) -> Json:
    declared = kind.declared or {}
    properties = declared.get("properties")
    metadata: Json = {"$ref": f"{PREFIX}{META}ObjectMeta"}
    fields = properties if isinstance(properties, dict) else {}
    properties = {**fields, **_TYPE_FIELDS, "metadata": metadata}
    return {**declared, "type": "object", "properties": properties, **_selectable(kind)}


def _selectable(kind: PublishedKind) -> Json:
    fields = [{"fieldPath": path} for path in kind.selectable]
    return {"x-kubernetes-selectable-fields": fields} if fields else {}


def _list_of(kind: PublishedKind) -> Json:
    default: Json = {"default": {}} if kind.declared is None else {}
    place = {**kind.place, "kind": kind.list_component.rpartition(".")[2]}
    return {
        "type": "object",
        "required": ["items"],
        "properties": {
            **_TYPE_FIELDS,
            "items": {"type": "array", "items": {"allOf": [{"$ref": PREFIX + kind.component}], **default}},
            "metadata": {"allOf": [{"$ref": f"{PREFIX}{META}ListMeta"}], **default},
        },
        "x-kubernetes-group-version-kind": [place],
        **_selectable(kind),
    }


def _paths(kind: PublishedKind) -> Iterator[tuple[str, Json]]:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    base = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
    collection: Json = {}
    if "list" in kind.verbs:
        collection["get"] = _operation(kind, "list", kind.list_component)
    if "create" in kind.verbs:
        collection["post"] = _operation(kind, "post", kind.component, write=True)
    yield f"{base}/{kind.plural}", {**collection, **_path_parameters(kind, named=False)}
    item: Json = {
        method: _operation(kind, verb, kind.component, write=verb in ("update", "patch"))
        for verb, method in _METHODS.items()
        if verb in kind.verbs
    }
    if item:
        yield f"{base}/{kind.plural}/{{name}}", {**item, **_path_parameters(kind, named=True)}
    for sub in kind.subresources:
        place = _place(sub.group, sub.version, sub.kind)
        operations: Json = {
            method: {
                **_operation(kind, verb, sub.definition, write=verb != "get", suffix=sub.name.title()),
                "x-kubernetes-group-version-kind": place,
            }
            for verb, method in _METHODS.items()
            if verb in sub.verbs and "patch" in sub.verbs
        }
        path = f"{base}/{kind.plural}/{{name}}/{sub.name}"
        if operations:
            yield path, {**operations, **_path_parameters(kind, named=True)}


def _operation(
    kind: PublishedKind, verb: str, component: str, *, write: bool = False, suffix: str = ""
) -> Json:
    reply = {"content": {"application/json": {"schema": {"$ref": PREFIX + component}}}, "description": "OK"}
    operation: Json = {
        "tags": [f"{kind.group.split('.')[0] or 'core'}_{kind.version}"],
        "operationId": f"{verb}{kind.version}{kind.kind}{suffix}",
        "responses": {"200": reply},
        "x-kubernetes-action": "put" if verb == "update" else verb,
        "x-kubernetes-group-version-kind": kind.place,
    }
    if write:
        operation["parameters"] = [_parameter(name) for name in _WRITE]
        if verb == "patch":
            operation["parameters"] = [*map(_parameter, _WRITE), _parameter("force", "boolean")]
        types = _patches(kind) if verb == "patch" else ("application/json",)
        body: Json = {"$ref": PREFIX + component} if verb != "patch" else {"type": "object"}
        operation["requestBody"] = {"content": {name: {"schema": body} for name in types}, "required": True}
    return operation


def _patches(kind: PublishedKind) -> tuple[str, ...]:
    return _PATCHES if kind.declared is not None else (*_PATCHES, _STRATEGIC)


def _parameter(name: str, type: str = "string") -> Json:
    return {"name": name, "in": "query", "schema": {"type": type, "uniqueItems": True}}


def _path_parameters(kind: PublishedKind, *, named: bool) -> Json:
    names = (["name"] if named else []) + (["namespace"] if kind.namespaced else [])
    return {
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names
        ]
    }
