"""`scripts/release`: build the wheel, and write an SBOM for it, one for the image, and checksums of all.

The SBOMs are CycloneDX 1.6 in JSON, made from the lock of the image: name, version, purl, the SHA-256 of
every file that the lock allows, licenses as installed packages declare them, and who depends on whom. The
same clone gives the same bytes; only with SOURCE_DATE_EPOCH set do the SBOMs hold a time.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

Json = dict[str, object]

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "argosy"
IMAGE_LOCK = ROOT / "requirements-image.lock"
KUBECTL_PINS = ROOT / "kubectl.sha256"
CHECKSUMS = "SHA256SUMS"
MAX_LICENSE_CHARS = 80
"""A longer field `License` holds the text of a license and not its name."""

_PACKAGE = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?==([^\s;]+)(?: ; ([^\\\n]+?))? *(?:\\?\n|$)")
_BASE = re.compile(r"(?P<name>[\w./:-]+?)(?::(?P<tag>[\w.-]+))?@sha256:(?P<digest>[0-9a-f]{64})")


@dataclass(frozen=True)
class Package:
    """One package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    required_by: frozenset[str] = frozenset()
    marker: str = ""
    """On which systems it is installed; on all if empty."""

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def main() -> int:
    options = _options()
    output: Path = options.output
    output.mkdir(parents=True, exist_ok=True)
    wheel = build_wheel(output)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    packages = read_lock(IMAGE_LOCK.read_text())
    core = reachable(packages, {requirement_name(text) for text in project["dependencies"]})
    argosy = wheel_component(project["version"], wheel)
    documents = {
        "wheel": sbom(argosy, core),
        "image": sbom(image_component(project["version"]), packages, [argosy, *image_parts(options.base)]),
    }
    files = [wheel]
    for suffix, document in documents.items():
        files.append(output / f"{PROJECT}-{project['version']}.{suffix}.cdx.json")
        files[-1].write_text(json.dumps(document, indent=2) + "\n")
    write_checksums(output / CHECKSUMS, files)
    if not options.base:
        sys.stderr.write("warning: no --base IMAGE@sha256:…: the image's SBOM does not name its base\n")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/release", description="Make the files of a release.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="where to; dist by default")
    parser.add_argument("--base", type=_base, help="the image's base with its digest, as given to the build")
    return parser.parse_args()


def _base(text: str) -> str:
    if not _BASE.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be NAME[:TAG]@sha256: and 64 hexadecimal digits")
    return text


def build_wheel(output: Path) -> Path:
    """Build the wheel into a folder, from which wheels of other versions are removed first."""
    for old in output.glob("argosy-*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(output.absolute())]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (wheel,) = output.glob("argosy-*.whl")
    return wheel


def read_lock(text: str) -> list[Package]:
    """Return the packages of a lock as `uv pip compile --generate-hashes` writes it, in its order."""
    packages = []
    for part in re.split(r"\n(?=\S)", text):
        if not (found := _PACKAGE.match(part)):
            continue
        name, version, marker = found.groups()
        hashes = tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", part))
        comments = re.findall(r"^ +# +(?:via +)?(\S+)", part, re.MULTILINE)
        required_by = {normalize(word) for word in comments if word not in ("via", "-c", "-r")}
        packages.append(Package(normalize(name), version, hashes, frozenset(required_by), marker or ""))
    return packages


def normalize(name: str) -> str:
    """Return the name of a package as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_name(requirement: str) -> str:
    return normalize(re.split(r"[\s<>=!~;\[(]", requirement, maxsplit=1)[0])


def reachable(packages: Iterable[Package], roots: set[str]) -> list[Package]:
    """Return the packages that are named in `roots` or needed by one that is."""
    packages, wanted = list(packages), set(roots)
    while more := {one.name for one in packages if one.required_by & wanted} - wanted:
        wanted |= more
    return [one for one in packages if one.name in wanted]


def wheel_component(version: str, wheel: Path) -> Json:
    component = _component("application", PROJECT, version, f"pkg:pypi/{PROJECT}@{version}")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return {**component, "hashes": [_hash(digest)], "licenses": [{"expression": "Apache-2.0"}]}


def image_component(version: str) -> Json:
    return _component("container", "argosy/argosy", version, f"pkg:docker/argosy/argosy@{version}")


def image_parts(base: str | None) -> list[Json]:
    """Return what is in the image beside Python packages: kubectl for each architecture, and the base."""
    parts = []
    for line in KUBECTL_PINS.read_text().splitlines():
        if not line.startswith("#"):
            digest, name = line.split()
            _, version, system, architecture = name.split("-", 3)
            purl = f"pkg:generic/kubectl@{version}?arch={architecture}&os={system}"
            part = _component("application", "kubectl", version.removeprefix("v"), purl)
            parts.append({**part, "hashes": [_hash(digest)], "licenses": [{"expression": "Apache-2.0"}]})
    if base and (found := _BASE.fullmatch(base)):
        name, tag, digest = found["name"], found["tag"] or "", found["digest"]
        purl = f"pkg:docker/{name}@sha256%3A{digest}" + (f"?tag={tag}" if tag else "")
        part = _component("container", name, tag or f"sha256:{digest}", purl)
        parts.append({**part, "hashes": [_hash(digest)]})
    return parts


def sbom(subject: Json, packages: Iterable[Package], parts: Iterable[Json] = ()) -> Json:
    """Return the CycloneDX document of a subject that consists of these packages and other parts."""
    packages, parts = list(packages), list(parts)
    content: Json = {
        "metadata": {**_timestamp(), "lifecycles": [{"phase": "build"}], "component": subject},
        "components": [*parts, *map(_package_component, packages)],
        "dependencies": _dependencies(subject, packages, parts),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        **content,
    }


def _component(kind: str, name: str, version: str, purl: str) -> Json:
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _package_component(package: Package) -> Json:
    """Return a package, with the hashes of its files: a lock allows the source and a wheel per platform."""
    files = {
        "type": "distribution",
        "url": package.purl,
        "comment": "SHA-256 of each file of this version that may be installed",
        "hashes": [_hash(digest) for digest in package.hashes],
    }
    component = _component("library", package.name, package.version, package.purl)
    if package.marker:
        component |= {"scope": "optional", "properties": [{"name": "marker", "value": package.marker}]}
    return {**component, **_licenses(package.name), "externalReferences": [files]}


def _hash(digest: str) -> Json:
    return {"alg": "SHA-256", "content": digest}


def _licenses(name: str) -> Json:
    """Return the license that the installed package declares; nothing if it is not installed."""
    try:
        declared = metadata.metadata(name).json
    except metadata.PackageNotFoundError:
        return {}
    if expression := declared.get("license_expression"):
        return {"licenses": [{"expression": expression}]}
    classifiers = declared.get("classifier", [])
    names = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: ")]
    text = str(declared.get("license", "")).strip()
    if text and "\n" not in text and len(text) <= MAX_LICENSE_CHARS:
        names = [text]
    return {"licenses": [{"license": {"name": one}} for one in names]} if names else {}


def _dependencies(subject: Json, packages: list[Package], parts: list[Json]) -> list[Json]:
    """Return who needs whom: the subject its parts, Argosy and each package what the lock says they need."""
    refs = {str(part["name"]): str(part["bom-ref"]) for part in (subject, *parts)}
    graph: dict[str, list[str]] = {str(part["bom-ref"]): [] for part in (subject, *parts)}
    graph[str(subject["bom-ref"])] = [str(part["bom-ref"]) for part in parts]
    for needing, ref in [(PROJECT, refs[PROJECT]), *((one.name, one.purl) for one in packages)]:
        needed = [other.purl for other in packages if needing in other.required_by]
        graph[ref] = [*graph.get(ref, ()), *needed]
    return [{"ref": ref, "dependsOn": sorted(needed)} for ref, needed in graph.items()]


def _timestamp() -> Json:
    if seconds := os.environ.get("SOURCE_DATE_EPOCH"):
        return {"timestamp": datetime.fromtimestamp(int(seconds), UTC).isoformat()}
    return {}


def write_checksums(target: Path, files: Iterable[Path]) -> None:
    """Write the SHA-256 of files that stand beside the target, as `sha256sum --check` reads it."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    target.write_text("".join(lines))


if __name__ == "__main__":
    sys.exit(main())
