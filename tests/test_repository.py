"""Tests for the repository itself: pins without hosts, no absolute paths, scripts that run."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

from scripts import stages

ROOT = Path(__file__).parent.parent
LOCKS = sorted(ROOT.glob("requirements*.lock"))
OTHER_PINS = sorted(
    [*ROOT.glob("tests/*.lock"), *ROOT.glob("examples/*/requirements.txt"), *ROOT.glob("kubernetes/*/go.*")]
)
SCRIPTS = [
    *sorted(path for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix),
    ROOT / ".ci" / "run",
]
PINNED = re.compile(r"^[a-zA-Z0-9._-]+(?:\[[\w,]+\])?==\S+")


def committed() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a clone with git")
    return [ROOT / name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("lock", [*LOCKS, *OTHER_PINS], ids=lambda path: str(path.relative_to(ROOT)))
def test_lock_names_no_host(lock: Path) -> None:
    assert not re.findall(r"https?://\S+|--(?:extra-)?index-url|--find-links", lock.read_text())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_pins_every_package_with_hashes(lock: Path) -> None:
    packages = [part for part in re.split(r"\n(?=\S)", lock.read_text()) if not part.startswith("#")]
    assert packages
    for package in packages:
        assert PINNED.match(package), package
        assert "--hash=sha256:" in package, package


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_lock_is_a_subset_of_the_development_lock(lock: Path) -> None:
    """Otherwise an image would contain versions that were not tested."""
    theirs, developers = (
        set(re.findall(r"^([\w.-]+==\S+)", path.read_text(), re.MULTILINE))
        for path in (lock, ROOT / "requirements-dev.lock")
    )
    assert theirs
    assert theirs <= developers


def test_no_file_contains_a_path_of_a_machine() -> None:
    pattern = re.compile(r"(?:/home/|/Users/)(?!user\b|you\b|me\b|x\b)\w+/|/root/\.(?!ssh\b)")
    offences = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in committed()
        if path != Path(__file__)
        for match in pattern.finditer(path.read_text(errors="replace"))
    ]
    assert not offences


def test_no_test_asserts_a_duration() -> None:
    """Durations depend on the machine: see CONTRIBUTING.md, Tests."""
    cpu = r"process_time|thread_time|perf_counter|getrusage"
    elapsed = r"assert [^\n]*time\(\) - \w+ <=? *[\d.]+"
    offences = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if path != Path(__file__)
        for match in re.finditer(f"{cpu}|{elapsed}", path.read_text())
    ]
    assert not offences


@pytest.mark.parametrize("marker", stages.WITHIN)
def test_tests_with_a_marker_are_in_the_folders_where_its_stage_looks_for_them(marker: str) -> None:
    marked = re.compile(rf"\bmark\.{marker}\b")
    files = {
        str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.py") if marked.search(path.read_text())
    }
    assert files
    others = [folder for name in ("e2e", "cluster") for folder in stages.WITHIN[name] if marker == "root"]
    folders = (
        *stages.WITHIN[marker],
        *others,
        stages.CONFORMANCE,
        "tests/scripts/",
        "tests/test_repository.py",
    )
    elsewhere = sorted(file for file in files if not file.startswith(folders))
    assert not elsewhere, f"add their folder to WITHIN[{marker!r}] in scripts/stages.py"


MAX_FUNCTION_LINES, MAX_MODULE_LINES = 50, 400


@pytest.mark.parametrize(
    "folder",
    ["argosy_sdk", *sorted(f"argosy/{path.name}" for path in (ROOT / "src" / "argosy").iterdir())],
)
def test_functions_and_modules_are_short(folder: str) -> None:
    path = ROOT / "src" / folder
    too_long = []
    for module in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        if module.suffix != ".py":
            continue
        source = module.read_text()
        name = module.relative_to(ROOT)
        if (lines := source.count("\n")) > MAX_MODULE_LINES:
            too_long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{name}: {node.name} has {lines} lines")
    assert not too_long


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_script_is_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)
    first, *_ = script.read_text().splitlines()
    assert first in ("#!/usr/bin/env bash", "#!/usr/bin/env python3")
    if "bash" in first:
        subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize("line", ["1.35", "1.36"])
def test_pinned_modules_of_kubernetes_have_one_version(line: str) -> None:
    """The staging modules of Kubernetes follow its version: 1.36.3 and 0.36.3."""
    pins = (ROOT / "kubernetes" / line / "go.mod").read_text()
    version = re.search(r"^\s*k8s\.io/kubernetes v1\.(\S+)", pins, re.MULTILINE)
    assert version
    assert f"1.{version[1]}".startswith(f"{line}.")
    replaced = re.findall(r"^(?:replace|\t)\s*k8s\.io/\S+ => k8s\.io/\S+ v(\S+)", pins, re.MULTILINE)
    assert len(replaced) > 20
    assert set(replaced) == {f"0.{version[1]}"}


def test_links_between_documents_exist() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in committed()
        if path.suffix == ".md"
        for target in re.findall(r"\]\((?!\w+:)([^)#\s]+)", path.read_text())
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_anchors_in_links_between_documents_exist() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}#{anchor}"
        for path in committed()
        if path.suffix == ".md"
        for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#([^)\s]+)\)", path.read_text())
        if anchor not in _anchors(path.parent / target if target else path)
    ]
    assert not broken


def _anchors(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as GitHub generates them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
