"""Lists the unknown fields of a rejected manifest, and suggests the fields that were probably meant.

With `fieldValidation=Strict` the API server rejects such a manifest: a create with 400 and
`unknown field "spec.rols"`, a server-side apply with 500 and `.spec.rols: field not declared in schema`. The
known fields are read from the server's OpenAPI document, so this works for every kind that it serves.
"""

import re
from collections.abc import Mapping

import msgspec

from argosy.cli.local_mounts import Manifest
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.kinds.text import did_you_mean

Schema = Mapping[str, object]

_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"|(?:^|\s)\.(\S+): field not declared in schema', re.M)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_REFERENCE = "#/components/schemas/"


async def explain_unknown_fields(client: Client, manifest: Manifest, error: ApiError) -> list[str]:
    """Return a line for each unknown field that the error names; empty if the error has another cause.

    A line reads `TrainingRun a: spec.rols: unknown field; did you mean "roles"?`.
    """
    paths = [quoted or declared for quoted, declared in _UNKNOWN_FIELD.findall(error.message)]
    if not paths:
        return []
    schemas = await _schemas(client, str(manifest["apiVersion"]))
    root = _schema_of_kind(schemas, str(manifest["apiVersion"]), str(manifest["kind"]))
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else ""
    return [
        f"{manifest['kind']} {name}: {path}: unknown field{_suggestion(schemas, root, path)}"
        for path in dict.fromkeys(paths)
    ]


def _suggestion(schemas: Schema, schema: Schema, path: str) -> str:
    *parents, last = _STEP.findall(path)
    for step in parents:
        schema = _inside(schemas, schema, step)
    return did_you_mean(last, _as_map(_resolve(schemas, schema).get("properties")))


def _inside(schemas: Schema, schema: Schema, step: str) -> Schema:
    """Return the schema of a field, a map's entry or a list's item."""
    schema = _resolve(schemas, schema)
    if step.startswith("["):
        return _as_map(schema.get("items") or schema.get("additionalProperties"))
    return _as_map(_as_map(schema.get("properties")).get(step) or schema.get("additionalProperties"))


def _resolve(schemas: Schema, schema: Schema) -> Schema:
    """Follow a reference, which may be wrapped in an `allOf` next to a default."""
    parts = schema.get("allOf")
    if isinstance(parts, list) and parts:
        schema = _as_map(parts[0])
    reference = schema.get("$ref")
    if isinstance(reference, str):
        return _as_map(schemas.get(reference.removeprefix(_REFERENCE)))
    return schema


def _schema_of_kind(schemas: Schema, api_version: str, kind: str) -> Schema:
    group, _, version = api_version.rpartition("/")
    group_version_kind = {"group": group, "version": version, "kind": kind}
    for schema in map(_as_map, schemas.values()):
        kinds = schema.get("x-kubernetes-group-version-kind")
        if isinstance(kinds, list) and group_version_kind in kinds:
            return schema
    return {}


async def _schemas(client: Client, api_version: str) -> Schema:
    """Return the schemas of a group version; empty if they cannot be read: then nothing is suggested."""
    root = "apis" if "/" in api_version else "api"
    try:
        body = await client.request("GET", f"/openapi/v3/{root}/{api_version}")
        return msgspec.json.decode(body, type=_OpenApi).components.schemas
    except (ApiError, msgspec.MsgspecError):
        return {}


def _as_map(value: object) -> Schema:
    return value if isinstance(value, dict) else {}


class _Components(msgspec.Struct):
    schemas: dict[str, object] = {}


class _OpenApi(msgspec.Struct):
    components: _Components
