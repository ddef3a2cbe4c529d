"""Writes src/argosy/local/apiserver/protobuf.json: the field numbers of the messages of Kubernetes.

`python -m tools.protobuf_fields`. kubectl sends the bodies of some commands as protobuf. Numbers, names and
types are from the .proto files of the Go modules k8s.io/api and k8s.io/apimachinery, in the version of the
table that `tools.builtin_kinds` writes, for the messages of its kinds. A field whose own fields JSON writes
in its place is marked `^`, a repeated one `*`, a map `%`. An argument is another path of the output.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = ROOT / "src/argosy/local/schema/builtin.json"
OUTPUT = ROOT / "src/argosy/local/apiserver/protobuf.json"
FIELD = re.compile(r"^\s*(optional|repeated)?\s*(map<(\w+), *([.\w]+)>|[.\w]+) (\w+) = (\d+)")


def main() -> None:
    """Read the modules and write the table."""
    table = json.loads(KINDS.read_text())
    version = table["kubernetes"].replace("v1.", "v0.", 1)
    messages: dict[str, dict[str, str]] = {}
    for module in ("k8s.io/api", "k8s.io/apimachinery"):
        for path in sorted(folder(f"{module}@{version}").rglob("generated.proto")):
            messages.update(read(path.read_text()))
    definitions = table["definitions"]
    wanted = [kind["definition"] for kind in table["kinds"]]
    subresources = [sub for kind in table["kinds"] for sub in kind["subresources"]]
    wanted += [sub["definition"] for sub in subresources if sub.get("definition")]
    wanted += ["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]
    kept: dict[str, dict[str, str]] = {}
    while wanted:
        name = wanted.pop()
        if name in kept or name not in messages:
            continue
        kept[name] = mark_inline(messages[name], definitions.get(name))
        wanted += [field.split()[-1] for field in kept[name].values()]
    lines = [f"{json.dumps(name)}:{json.dumps(kept[name], separators=(',', ':'))}" for name in sorted(kept)]
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else OUTPUT
    head = f'{{"generated":"by tools.protobuf_fields","kubernetes":"{table["kubernetes"]}","messages":{{\n'
    output.write_text(head + ",\n".join(lines) + "\n}}\n")


def folder(module: str) -> Path:
    command = ["go", "mod", "download", "-json", module]
    process = subprocess.run(command, check=True, capture_output=True, text=True)
    return Path(json.loads(process.stdout)["Dir"])


def read(source: str) -> dict[str, dict[str, str]]:
    """Return the messages of a file: `[mark]name type` by field number."""
    declaration = re.search(r"^package ([\w.]+);", source, re.M)
    assert declaration is not None
    package = declaration[1]
    messages: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for line in source.splitlines():
        if start := re.match(r"message (\w+) {", line):
            current = messages.setdefault(openapi(f"{package}.{start[1]}"), {})
        elif line == "}":
            current = None
        elif current is not None and (field := FIELD.match(line)):
            mark = "*" if field[1] == "repeated" else "%" if field[3] else ""
            type_ = field[4] or field[2]
            if "." in type_:
                type_ = openapi(type_.lstrip("."))
            elif type_[0].isupper():
                type_ = openapi(f"{package}.{type_}")
            current[field[6]] = f"{mark}{field[5]} {type_}"
    return messages


def openapi(name: str) -> str:
    return re.sub(r"^k8s\.io\.", "io.k8s.", name)


def mark_inline(fields: dict[str, str], definition: dict[str, object] | None) -> dict[str, str]:
    properties = (definition or {}).get("properties")
    if not isinstance(properties, dict):
        return fields
    marked = {}
    for number, field in fields.items():
        name, type_ = field.split()
        inline = name.lstrip("*%") not in properties and "." in type_ and name[0] not in "*%"
        marked[number] = f"^{field}" if inline else field
    return marked


if __name__ == "__main__":
    main()
