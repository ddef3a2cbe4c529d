"""Parses and validates CustomResourceDefinitions.

Paths in errors follow kube-apiserver, which reports what all versions share at `spec.validation`,
`spec.subresources` and so on, and only what differs at `spec.versions[i]`.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from argosy.local.schema.builtin import definition
from argosy.local.schema.crd.structural import schema_errors
from argosy.local.schema.errors import FieldError, invalid, invalid_each, not_supported, required
from argosy.local.schema.model import Json, Schema
from argosy.local.schema.unstructured import get_map, get_maps, get_str, get_strings
from argosy.local.schema.validation.names import service_problems, subdomain_problems

OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")


class ScalePaths(Struct, frozen=True):
    """The JSON paths of the scale subresource."""

    spec_replicas: str
    status_replicas: str
    label_selector: str = ""


class CrdVersion(Struct, frozen=True, kw_only=True):
    name: str
    served: bool
    storage: bool
    schema: Schema
    """The declared schema with apiVersion, kind and metadata."""
    declared: Json
    columns: tuple[Json, ...] = ()
    has_status: bool = False
    scale: ScalePaths | None = None
    selectable: tuple[str, ...] = ()


class CrdInfo(Struct, frozen=True, kw_only=True):
    """The kind that a definition defines."""

    name: str
    group: str
    kind: str
    list_kind: str
    plural: str
    singular: str
    namespaced: bool
    versions: tuple[CrdVersion, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    raw: Json

    @property
    def storage_version(self) -> str:
        return next((version.name for version in self.versions if version.storage), "")


def parse_crd(crd: Json) -> CrdInfo:
    """Parse a valid definition."""
    spec = get_map(crd, "spec")
    names = get_map(spec, "names")
    kind = get_str(names, "kind")
    return CrdInfo(
        name=get_str(crd, "metadata", "name"),
        group=get_str(spec, "group"),
        kind=kind,
        list_kind=get_str(names, "listKind") or f"{kind}List",
        plural=get_str(names, "plural"),
        singular=get_str(names, "singular") or kind.lower(),
        namespaced=get_str(spec, "scope") == "Namespaced",
        versions=tuple(_version(raw) for raw in get_maps(spec, "versions")),
        short_names=tuple(get_strings(names, "shortNames")),
        categories=tuple(get_strings(names, "categories")),
        raw=crd,
    )


def object_schema(declared: Json) -> Schema:
    """Return a declared schema with apiVersion, kind and metadata, also in embedded resources."""
    return Schema(_with_metadata(declared, root=True), definition)


def _version(raw: Json) -> CrdVersion:
    declared = get_map(raw, "schema", "openAPIV3Schema")
    scale = get_map(raw, "subresources").get("scale")
    paths = None
    if isinstance(scale, dict):
        paths = ScalePaths(
            get_str(scale, "specReplicasPath"),
            get_str(scale, "statusReplicasPath"),
            get_str(scale, "labelSelectorPath"),
        )
    return CrdVersion(
        name=get_str(raw, "name"),
        served=raw.get("served") is True,
        storage=raw.get("storage") is True,
        schema=object_schema(declared),
        declared=declared,
        columns=tuple(get_maps(raw, "additionalPrinterColumns")),
        has_status="status" in get_map(raw, "subresources"),
        scale=paths,
        selectable=tuple(get_str(f, "jsonPath").removeprefix(".") for f in get_maps(raw, "selectableFields")),
    )


def _with_metadata(raw: Mapping[str, object], *, root: bool = False) -> Json:
    result = dict(raw)
    properties = raw.get("properties")
    if isinstance(properties, Mapping):
        result["properties"] = {
            name: _with_metadata(child) if isinstance(child, Mapping) else child
            for name, child in properties.items()
        }
    for keyword in ("items", "additionalProperties"):
        child = raw.get(keyword)
        if isinstance(child, Mapping):
            result[keyword] = _with_metadata(child)
    if root or raw.get("x-kubernetes-embedded-resource") is True:
        declared = get_map(result, "properties")
        meta = get_map(declared, "metadata")
        result["properties"] = {
            **declared,
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {**meta, "type": "object", "properties": _metadata_fields(meta)},
        }
    return result


def _metadata_fields(declared: Json) -> Json:
    """Return the fields of metadata; a definition can restrict names."""
    fields: Json = dict(get_map(dict(definition(OBJECT_META).raw), "properties"))
    for name, child in get_map(declared, "properties").items():
        if isinstance(child, dict):
            fields[name] = {**get_map(fields, name), **child}
    return fields


def crd_errors(crd: Json) -> Iterator[FieldError]:
    """Yield all errors of a definition, which was decoded and defaulted."""
    spec = get_map(crd, "spec")
    names = get_map(spec, "names")
    group, plural = get_str(spec, "group"), get_str(names, "plural")
    name = get_str(crd, "metadata", "name")
    if name != f"{plural}.{group}":
        yield invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group')
    yield from _group_errors(crd, group)
    scope = get_str(spec, "scope")
    if not scope:
        yield required("spec.scope")
    if scope not in ("Cluster", "Namespaced"):
        yield not_supported("spec.scope", scope, ("Cluster", "Namespaced"))
    yield from _version_errors(spec)
    yield from _name_errors(names)
    if spec.get("preserveUnknownFields") is True:
        yield invalid(
            "spec.preserveUnknownFields",
            True,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
            "instead",
        )
    yield from _conversion_errors(get_map(spec, "conversion"))
    yield from _contents_errors(spec)
    yield from _stored_errors(crd)


def _conversion_errors(conversion: Json) -> Iterator[FieldError]:
    strategy, path = get_str(conversion, "strategy"), "spec.conversion.strategy"
    if conversion and not strategy:
        yield required(path)
    elif conversion and strategy not in ("None", "Webhook"):
        yield not_supported(path, strategy, ("None", "Webhook"))


def _group_errors(crd: Json, group: str) -> Iterator[FieldError]:
    if not group:
        yield required("spec.group")
        return
    yield from invalid_each("spec.group", group, subdomain_problems(group))
    if "." not in group:
        yield invalid("spec.group", group, "should be a domain with at least one dot")
    if group.endswith((".k8s.io", ".kubernetes.io")) or group in ("k8s.io", "kubernetes.io"):
        annotation = "api-approved.kubernetes.io"
        if annotation not in get_map(crd, "metadata", "annotations"):
            yield required(
                f"metadata.annotations[{annotation}]",
                'protected groups must have approval annotation "api-approved.kubernetes.io", see '
                "https://github.com/kubernetes/enhancements/pull/1111",
            )


def _version_errors(spec: Json) -> Iterator[FieldError]:
    versions = get_maps(spec, "versions")
    names = [get_str(version, "name") for version in versions]
    for index, name in enumerate(names):
        yield from invalid_each(f"spec.versions[{index}].name", name, service_problems(name))
    if len(set(names)) != len(names):
        yield invalid("spec.versions", names, "must contain unique version names")
    if sum(version.get("storage") is True for version in versions) != 1:
        yield invalid("spec.versions", names, "must have exactly one version marked as storage version")
    for name in names[:1]:
        yield from invalid_each("spec.version", name, service_problems(name))


def _name_errors(names: Json) -> Iterator[FieldError]:
    for field in ("plural", "singular", "kind", "listKind"):
        name = get_str(names, field)
        if not name:
            yield required(f"spec.names.{field}")
            continue
        checked = name.lower() if field in ("kind", "listKind") else name
        yield from invalid_each(f"spec.names.{field}", name, service_problems(checked))
    if get_str(names, "kind") and get_str(names, "kind") == get_str(names, "listKind"):
        yield invalid(
            "spec.names.listKind", get_str(names, "listKind"), "kind and listKind may not be the same"
        )
    for field in ("shortNames", "categories"):
        for index, name in enumerate(get_strings(names, field)):
            yield from invalid_each(f"spec.names.{field}[{index}]", name, service_problems(name))


def _contents_errors(spec: Json) -> Iterator[FieldError]:
    """Yield the errors of schemas, columns, subresources and selectable fields of all versions."""
    versions = get_maps(spec, "versions")
    for field, top in (
        ("schema", "spec.validation"),
        ("subresources", "spec.subresources"),
        ("additionalPrinterColumns", "spec.additionalPrinterColumns"),
        ("selectableFields", "spec.selectableFields"),
    ):
        shared = all(version.get(field) == versions[0].get(field) for version in versions)
        for index, version in enumerate(versions[:1] if shared else versions):
            where = top if shared else f"spec.versions[{index}].{field}"
            if field == "schema" and not get_map(version, "schema", "openAPIV3Schema"):
                yield required(f"spec.versions[{index}].schema.openAPIV3Schema")
            elif field == "schema":
                declared = get_map(version, "schema", "openAPIV3Schema")
                yield from schema_errors(declared, f"{where}.openAPIV3Schema")
            elif field == "subresources":
                yield from _scale_errors(version, where)
            elif field == "additionalPrinterColumns":
                yield from _column_errors(version, where)
            else:
                yield from _selectable_errors(version, where)


def _scale_errors(version: Json, path: str) -> Iterator[FieldError]:
    scale = get_map(version, "subresources").get("scale")
    if not isinstance(scale, dict):
        return
    roots = {"specReplicasPath": ".spec.", "statusReplicasPath": ".status."}
    for field, root in roots.items():
        if not get_str(scale, field):
            yield required(f"{path}.scale.{field}")
        elif not get_str(scale, field).startswith(root):
            yield invalid(
                f"{path}.scale.{field}", get_str(scale, field), f"must be a JSON path under {root[:-1]}"
            )
    selector = get_str(scale, "labelSelectorPath")
    if selector and not selector.startswith((".spec.", ".status.")):
        why = "must be a JSON path under .spec or .status"
        yield invalid(f"{path}.scale.labelSelectorPath", selector, why)


def _column_errors(version: Json, path: str) -> Iterator[FieldError]:
    for index, column in enumerate(get_maps(version, "additionalPrinterColumns")):
        where = f"{path}[{index}]"
        if not get_str(column, "name"):
            yield required(f"{where}.name")
        kind, json_path = get_str(column, "type"), get_str(column, "jsonPath")
        if not kind:
            yield required(f"{where}.type")
        elif kind not in COLUMN_TYPES:
            yield invalid(f"{where}.type", kind, f"must be one of {', '.join(COLUMN_TYPES)}")
        if not json_path:
            yield required(f"{where}.JSONPath")
        elif not json_path.startswith("."):
            yield invalid(f"{where}.JSONPath", json_path, "must be a simple json path starting with .")


def _selectable_errors(version: Json, path: str) -> Iterator[FieldError]:
    declared = Schema(get_map(version, "schema", "openAPIV3Schema"))
    for index, field in enumerate(get_maps(version, "selectableFields")):
        value = get_str(field, "jsonPath")
        node = declared.at(*value.split(".")[1:])
        if node is None:
            message = "is an invalid path: does not refer to a valid field"
            yield invalid(f"{path}[{index}].jsonPath", value, message)


def _stored_errors(crd: Json) -> Iterator[FieldError]:
    if "status" not in crd:
        return
    stored = get_strings(crd, "status", "storedVersions")
    if not stored:
        yield invalid("status.storedVersions", None, "must have at least one stored version")
        return
    unmet = dict.fromkeys(stored)
    for version in get_maps(crd, "spec", "versions"):
        name = get_str(version, "name")
        if version.get("storage") is True and name not in unmet:
            yield invalid("status.storedVersions", stored, f"must have the storage version {name}")
        unmet.pop(name, None)
    for index, name in enumerate(stored):
        if name in unmet:
            why = f"{name} was a storage version, and must remain in spec.versions"
            yield invalid(f"status.storedVersions[{index}]", name, why)
