"""Writes src/argosy/kinds/template.json: the type of every field of a pod template.

The source is the table of built-in kinds that `tools.builtin_kinds` writes. A type is a basic type (`string`,
`integer32` and others), the name of another entry, a list (`[string]`) or a map (`{string}`).
"""

import json
import sys
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src/argosy/local/schema/builtin.json"
OUTPUT = Path(__file__).parent.parent / "src/argosy/kinds/template.json"
ROOT = "io.k8s.api.core.v1.PodTemplateSpec"
NAMED = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "integer-or-string",
}
BASIC_TYPES = {
    ("string", ""): "string",
    ("boolean", ""): "boolean",
    ("integer", "int32"): "integer32",
    ("integer", "int64"): "integer64",
}
OMITTED = {
    "managedFields": "not written by users",
    "ephemeralContainers": "not allowed when a pod is created",
}


def main() -> None:
    """Write the table to the file given as argument, or to its default path."""
    source = json.loads(SOURCE.read_bytes())
    definitions = source["definitions"]
    table: dict[str, dict[str, str]] = {}
    full: dict[str, str] = {}
    waiting = [ROOT]
    while waiting:
        name = waiting.pop()
        if short(name) in table:
            assert full[short(name)] == name, f"two types are called {short(name)}"
            continue
        full[short(name)] = name
        entry = table[short(name)] = {}
        for field, schema in definitions[name].get("properties", {}).items():
            if field not in OMITTED and (type_name := type_of(schema, definitions, waiting)):
                entry[field] = type_name
    lines = [f"{json.dumps(name)}:{json.dumps(table[name], separators=(',', ':'))}" for name in sorted(table)]
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    head = f'{{"generated":"by tools.template_fields","kubernetes":"{source["kubernetes"]}","types":{{\n'
    output.write_text(head + ",\n".join(lines) + "\n}}\n")


def type_of(schema: dict[str, object], definitions: dict[str, dict[str, object]], waiting: list[str]) -> str:
    """Return the type in the table's notation; empty if any value is allowed or only the server can check."""
    match schema:
        case {"$ref": str(name)} if name in NAMED:
            return NAMED[name]
        case {"$ref": str(name)} if definitions[name].get("type") == "object":
            waiting.append(name)
            return short(name)
        case {"type": "array", "items": dict(items)}:
            return f"[{type_of(items, definitions, waiting)}]"
        case {"type": "object", "additionalProperties": dict(values)}:
            return f"{{{type_of(values, definitions, waiting)}}}"
    return BASIC_TYPES.get((str(schema.get("type", "")), str(schema.get("format", ""))), "")


def short(name: str) -> str:
    return name.rsplit(".", 1)[-1]


if __name__ == "__main__":
    main()
