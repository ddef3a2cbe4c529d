"""Writes src/argosy/local/schema/builtin.json, the table of the built-in kinds of Kubernetes.

`python -m tools.builtin_kinds`. The version is the one that `kubernetes/` pins for the tests. Names, types,
list keys, patch strategies and defaults are from the OpenAPI and discovery documents in the Go module
k8s.io/kubernetes; which fields are omitted when they are empty (`omit`) or written as null (`null`), and the
order of fields, are from the Go types. Descriptions are left out. Needs `go` to download the modules. An
argument is another path of the output.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.assets import Programs

Json = dict[str, Any]
"""A part of a document of Kubernetes, whose form is not checked here."""

ROOT = Path(__file__).parent.parent
VERSION = f"v{Programs().version}"
LIBRARIES = VERSION.replace("v1.", "v0.", 1)
OUTPUT = ROOT / "src/argosy/local/schema/builtin.json"

# group, version -> plurals; `None` means every resource of that group version.
INCLUDED: dict[tuple[str, str], set[str] | None] = {
    ("", "v1"): {
        "bindings",
        "configmaps",
        "events",
        "namespaces",
        "nodes",
        "persistentvolumeclaims",
        "pods",
        "resourcequotas",
        "secrets",
        "serviceaccounts",
        "services",
    },
    ("apps", "v1"): {"deployments", "replicasets"},
    ("batch", "v1"): {"jobs"},
    ("rbac.authorization.k8s.io", "v1"): None,
    ("coordination.k8s.io", "v1"): None,
    ("events.k8s.io", "v1"): None,
    ("discovery.k8s.io", "v1"): None,
    ("apiextensions.k8s.io", "v1"): None,
    ("authentication.k8s.io", "v1"): None,
    ("authorization.k8s.io", "v1"): {
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    },
    ("policy", "v1"): None,
    ("scheduling.k8s.io", "v1"): None,
    ("networking.k8s.io", "v1"): {"networkpolicies"},
    ("admissionregistration.k8s.io", "v1"): {
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    },
}
# Bodies and responses that are not resources.
ALSO = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.api.autoscaling.v1.Scale",
]
KEEP = {
    "type", "format", "default", "required", "enum", "minimum", "maximum",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
    "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key", "x-kubernetes-unions",
    "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields", "oneOf",
}  # fmt: skip
PREFIX = "#/components/schemas/"
META = "io.k8s.apimachinery.pkg.apis.meta.v1"


def main() -> None:
    """Read the modules and write the table."""
    root = module(f"k8s.io/kubernetes@{VERSION}")
    discovery = json.loads((root / "api/discovery/aggregated_v2.json").read_text())
    schemas: dict[str, Json] = {}
    for path in sorted((root / "api/openapi-spec/v3").glob("*.json")):
        schemas.update(json.loads(path.read_text()).get("components", {}).get("schemas", {}))
    by_kind = {
        (g["group"], g["version"], g["kind"]): name
        for name, schema in schemas.items()
        for g in schema.get("x-kubernetes-group-version-kind", [])
        if name.startswith("io.k8s.")
    }
    groups = [core(json.loads((root / "api/discovery/api__v1.json").read_text())), *discovery["items"]]
    kinds = sorted(
        (k for group in groups for v in group["versions"] for k in read_kinds(group, v, by_kind)),
        key=lambda k: (k["group"], k["version"], k["plural"]),
    )
    wanted = [k["definition"] for k in kinds]
    wanted += [s["definition"] for k in kinds for s in k["subresources"] if "definition" in s]
    wanted += ALSO
    definitions = compact(schemas, wanted, go_types())
    write({"kinds": kinds, "definitions": definitions})


def module(name: str) -> Path:
    """Return the folder of a Go module, after downloading it if it is not in the cache."""
    out = subprocess.run(["go", "mod", "download", "-json", name], check=True, capture_output=True, cwd="/")
    return Path(json.loads(out.stdout)["Dir"])


def core(document: Json) -> Json:
    """Convert the document of the core group, which has an older format, to that of aggregated discovery."""
    resources: dict[str, Json] = {}
    for entry in sorted(document["resources"], key=lambda r: r["name"]):
        plural, _, sub = entry["name"].partition("/")
        reply = {"group": entry.get("group", ""), "version": entry.get("version", ""), "kind": entry["kind"]}
        if sub:
            resources[plural]["subresources"].append(
                {"subresource": sub, "responseKind": reply, "verbs": entry["verbs"]}
            )
        else:
            scope = "Namespaced" if entry["namespaced"] else "Cluster"
            resources[plural] = {
                "resource": plural, "singularResource": entry["singularName"], "scope": scope,
                "shortNames": entry.get("shortNames", []), "categories": entry.get("categories", []),
                "responseKind": reply, "verbs": entry["verbs"], "subresources": [],
            }  # fmt: skip
    return {"versions": [{"version": "v1", "resources": list(resources.values())}]}


def read_kinds(group: Json, version: Json, by_kind: dict[tuple[str, str, str], str]) -> list[Json]:
    """Return the kinds of a group version that are in the table."""
    group_name = group.get("metadata", {}).get("name", "")
    included = INCLUDED.get((group_name, version["version"]), set())
    kinds = []
    for resource in version["resources"]:
        if included is not None and resource["resource"] not in included:
            continue
        kind = resource["responseKind"]["kind"]
        subresources = []
        for sub in resource.get("subresources", []):
            reply = sub["responseKind"]
            place = (reply["group"] or group_name, reply["version"] or version["version"], reply["kind"])
            entry = {"name": sub["subresource"], "group": place[0], "version": place[1], "kind": place[2],
                     "verbs": sub["verbs"]}  # fmt: skip
            if place in by_kind:
                entry["definition"] = by_kind[place]
            subresources.append(entry)
        kinds.append(
            {
                "group": group_name,
                "version": version["version"],
                "kind": kind,
                "plural": resource["resource"],
                "singular": resource.get("singularResource", ""),
                "shortNames": resource.get("shortNames", []),
                "categories": resource.get("categories", []),
                "namespaced": resource["scope"] == "Namespaced",
                "verbs": resource["verbs"],
                "subresources": subresources,
                "definition": by_kind[group_name, version["version"], kind],
            }
        )
    return kinds


def compact(schemas: Json, wanted: list[str], go: Json) -> dict[str, Json]:
    """Return the definitions that `wanted` refers to, with the keywords in KEEP only."""
    result: dict[str, Json] = {}
    queue = list(wanted)
    while queue:
        name = queue.pop()
        if name in result:
            continue
        result[name] = strip(schemas[name], queue)
        fields = go.get(name, {})
        properties = result[name].get("properties", {})
        if properties:
            places = {field: index for index, field in enumerate(in_order(name, go))}
            properties = dict(sorted(properties.items(), key=lambda item: places.get(item[0], len(places))))
            result[name]["properties"] = properties
        omit = sorted(p for p, schema in properties.items() if is_omitted(fields.get(p), schema))
        if omit:
            result[name]["omit"] = omit
        null = sorted(p for p, schema in properties.items() if is_null(fields.get(p), schema))
        if null:
            result[name]["null"] = null
    return dict(sorted(result.items()))


def in_order(name: str, go: Json) -> list[str]:
    """Return the fields of a Go struct in their order, including those of embedded structs."""
    fields: list[str] = []
    for field, how in go.get(name, {}).items():
        fields += in_order(how["embedded"], go) if "embedded" in how else [field]
    return fields


def is_omitted(field: Json | None, schema: Json) -> bool:
    """Return whether Go omits the field when it is zero; `omitempty` does not omit structs."""
    if field is None or field["pointer"]:
        return False
    return "omitzero" in field["options"] or ("omitempty" in field["options"] and "$ref" not in schema)


def is_null(field: Json | None, schema: Json) -> bool:
    """Return whether Go writes the field as null when it is not set."""
    if field is None or "omitzero" in field["options"]:
        return False
    if field["go"] in ("metav1.Time", "metav1.MicroTime", "v1.Time", "v1.MicroTime"):
        return "omitempty" not in field["options"] or not field["pointer"]
    nullable = field["pointer"] or schema.get("type") in ("array", "object")
    return nullable and "omitempty" not in field["options"]


def strip(schema: Json, queue: list[str]) -> Json:
    """Return a schema without descriptions and with short references."""
    out = {k: v for k, v in schema.items() if k in KEEP}
    reference = schema.get("$ref") or next((s["$ref"] for s in schema.get("allOf", []) if "$ref" in s), None)
    if reference:
        out["$ref"] = reference.removeprefix(PREFIX)
        queue.append(out["$ref"])
    if "properties" in schema:
        out["properties"] = {k: strip(v, queue) for k, v in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        out["items"] = strip(schema["items"], queue)
    if isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = strip(schema["additionalProperties"], queue)
    return out


def go_types() -> dict[str, dict[str, Json]]:
    """Return how Go writes the JSON fields of each definition, and their named types."""
    places = {
        f"k8s.io/api@{LIBRARIES}": "io.k8s.api",
        f"k8s.io/apimachinery@{LIBRARIES}": "io.k8s.apimachinery",
        f"k8s.io/apiextensions-apiserver@{LIBRARIES}": "io.k8s.apiextensions-apiserver",
    }
    structs: dict[str, dict[str, Json]] = {}
    for name, prefix in places.items():
        root = module(name)
        for path in root.rglob("*types*.go"):
            if path.name.endswith("_test.go") or path.name.startswith("zz_"):
                continue
            package = ".".join((prefix, *path.parent.relative_to(root).parts))
            read_structs(path.read_text(), package, structs)
    return structs


STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.M | re.S)
FIELD = re.compile(r'^\t(?:(\w+)\s+)?([*\[\]\w.]+)\s+`json:"([^"]*)"', re.M)
BASIC = {"string", "bool", "int", "int32", "int64", "float64", "byte"}


def read_structs(source: str, package: str, structs: Json) -> None:
    """Add the structs of a Go file."""
    own = package.rsplit(".", 1)[-1]
    for name, body in STRUCT.findall(source):
        fields = structs.setdefault(f"{package}.{name}", {})
        for _, type_, tag in FIELD.findall(body):
            json_name, *options = tag.split(",")
            base = type_.removeprefix("*")
            if "inline" in options:
                home = META if base.endswith(".TypeMeta") else package
                fields[f"embedded {base}"] = {"embedded": f"{home}.{base.rpartition('.')[2]}"}
            if not json_name or json_name == "-":
                continue
            item = base.removeprefix("[]")
            named = item not in BASIC and not item.startswith(("[", "map"))
            fields[json_name] = {
                "pointer": type_.startswith("*"),
                "options": options,
                "go": (item if "." in item else f"{own}.{item}") if named else "",
            }


def write(table: Json) -> None:
    """Write one kind or definition per line, so that the diff of a new version is readable."""

    def lines(items: list[str]) -> str:
        return ",\n".join(items)

    kinds = lines([json.dumps(k, separators=(",", ":")) for k in table["kinds"]])
    definitions = lines(
        [f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'))}" for k, v in table["definitions"].items()]
    )
    head = f'{{"generated":"by tools.builtin_kinds","kubernetes":"{VERSION}",\n"kinds":[\n{kinds}\n],\n'
    text = f'{head}"definitions":{{\n{definitions}\n}}}}\n'
    (Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT).write_text(text)


if __name__ == "__main__":
    main()
