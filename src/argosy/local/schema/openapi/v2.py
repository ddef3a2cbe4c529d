"""The OpenAPI v2 document: all kinds in one, for what kubectl checks by itself before it sends anything.

kubectl leaves checking to the server only for kinds that it finds can be patched; for the others, reviews and
`kind: List` above all, it wants this. The document is the one of v3 in the words of v2: what v2 cannot say is
left out, defaults too, as Kubernetes does. Where kubectl would refuse what the server takes (null, unknown
fields that are kept) the type goes as well, so that kubectl lets anything pass.
"""

from collections.abc import Iterable, Mapping

from argosy.local.schema.model import Json
from argosy.local.schema.openapi.v3 import META, PREFIX, PublishedKind, document

_DEFINITIONS = "#/definitions/"
_LEFT_OUT = frozenset(
    ("$ref", "allOf", "anyOf", "default", "items", "not", "nullable", "oneOf", "properties", "required")
)
_WRITTEN_AS_TEXT = (
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
)
_KIND = "x-kubernetes-group-version-kind"
_OPEN = "x-kubernetes-preserve-unknown-fields"
_KEPT_OF_OPERATIONS = ("tags", "operationId", "x-kubernetes-action", _KIND)


def document_v2(kinds: Iterable[PublishedKind], kubernetes: str) -> Json:
    """The document of all kinds that are served."""
    whole = document(kinds, kubernetes)
    components, paths = whole["components"], whole["paths"]
    assert isinstance(components, dict)
    assert isinstance(paths, dict)
    definitions = {name: _definition(name, schema) for name, schema in components["schemas"].items()}
    return {
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": kubernetes.removeprefix("v").rpartition(".")[0]},
        "paths": {path: _path(item) for path, item in paths.items()},
        "definitions": definitions,
    }


def _definition(name: str, raw: Mapping[str, object]) -> Json:
    """A schema with a name. One that takes any field names none: kubectl would refuse the rest."""
    if raw.get(_OPEN) is True:
        kept = {key: value for key, value in raw.items() if key in (_KIND, "x-kubernetes-selectable-fields")}
        return {"type": "object", **kept}
    return {**_schema(raw), "type": "string"} if name in _WRITTEN_AS_TEXT else _schema(raw)


def _schema(raw: Mapping[str, object]) -> Json:
    result: Json = {key: value for key, value in raw.items() if key not in _LEFT_OUT}
    if reference := _reference(raw):
        return {**result, "$ref": reference.replace(PREFIX, _DEFINITIONS)}
    free, nullable = raw.get(_OPEN) is True, raw.get("nullable") is True
    properties, items, additional = (raw.get(key) for key in ("properties", "items", "additionalProperties"))
    children = properties if isinstance(properties, Mapping) else {}
    if isinstance(items, Mapping) and not (free or nullable):
        result["items"] = _schema(items)
    if isinstance(additional, Mapping):
        result["additionalProperties"] = _schema(additional)
    if (
        nullable
        or (raw.get("type") == "array" and "items" not in result)
        or (free and raw.get("type") == "object")
    ):
        result.pop("type", None)
    required = _required(raw, {} if nullable or free else children)
    fields = {name: _schema(child) for name, child in children.items()} if not (nullable or free) else {}
    if raw.get("x-kubernetes-embedded-resource") is True and not free:
        fields |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
        fields["metadata"] = {"$ref": f"{_DEFINITIONS}{META}ObjectMeta"}
        required += [name for name in ("kind", "apiVersion") if name not in required]
    return {
        **result,
        **({"required": required} if required else {}),
        **({"properties": fields} if fields else {}),
    }


def _required(raw: Mapping[str, object], children: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Without the fields that may be null: kubectl takes null for missing."""
    required = raw.get("required")
    names = required if isinstance(required, list) else []
    return [name for name in names if children.get(name, {}).get("nullable") is not True]


def _reference(raw: Mapping[str, object]) -> str:
    """Where a schema refers to; v3 wraps the reference when something stands beside it."""
    wrapped = raw.get("allOf")
    inner = wrapped[0] if isinstance(wrapped, list) and len(wrapped) == 1 else raw
    return str(inner.get("$ref", ""))


def _path(item: Mapping[str, object]) -> Json:
    return {
        key: [_parameter(each) for each in value] if isinstance(value, list) else _operation(value)
        for key, value in item.items()
        if value and isinstance(value, list | dict)
    }


def _operation(raw: Json) -> Json:
    parameters, body, responses = (raw.get(key) for key in ("parameters", "requestBody", "responses"))
    shown = [_parameter(each) for each in parameters] if isinstance(parameters, list) else []
    consumes = ["*/*"]
    if isinstance(body, dict):
        consumes = list(body["content"])
        schema = _schema(body["content"][consumes[0]]["schema"])
        shown.insert(0, {"name": "body", "in": "body", "required": True, "schema": schema})
    assert isinstance(responses, dict)
    return {
        **{key: raw[key] for key in _KEPT_OF_OPERATIONS},
        "consumes": consumes,
        "produces": ["application/json", "application/yaml"],
        "schemes": ["https"],
        **({"parameters": shown} if shown else {}),
        "responses": {code: _response(response) for code, response in responses.items()},
    }


def _response(raw: Json) -> Json:
    content = raw["content"]
    assert isinstance(content, dict)
    (reply,) = content.values()
    return {"description": raw["description"], "schema": _schema(reply["schema"])}


def _parameter(raw: Mapping[str, object]) -> Json:
    schema = raw["schema"]
    assert isinstance(schema, dict)
    return {**{key: value for key, value in raw.items() if key != "schema"}, **schema}
