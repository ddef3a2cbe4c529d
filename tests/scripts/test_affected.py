"""`scripts/test --since`: which tests a change selects."""

from pathlib import Path

import pytest

from scripts import affected
from scripts.affected import ALWAYS, affected_tests

ROOT = Path(__file__).parents[2]
IMPORTS = {
    "kinds": set[str](),
    "engine": {"kinds"},
    "workload": {"kinds"},
    "local": {"engine", "kinds"},
}

SELECTED: dict[str, tuple[list[str], set[str], set[str]]] = {
    "package changed: its own tests and those of packages that import it": (
        ["src/argosy/engine/cache.py"],
        {"tests/engine/", "tests/local/", "tests/conformance/", "tests/e2e/"},
        {"tests/kinds/", "tests/workload/", "tests/differential/"},
    ),
    "local API server changed: compared with Kubernetes": (
        ["src/argosy/local/apiserver/app.py"],
        {"tests/local/", "tests/differential/"},
        {"tests/engine/", "tests/install/"},
    ),
    "chart changed: installation, and what runs on a cluster": (
        ["charts/argosy/values.yaml"],
        {"tests/install/", "tests/conformance/"},
        {"tests/engine/", "tests/local/"},
    ),
    "test file changed: its folder": (
        ["tests/workload/test_gang.py"],
        {"tests/workload/"},
        {"tests/engine/", "tests/conformance/"},
    ),
    "documentation changed: tests of the repository only": (
        ["docs/contributors/testing.md", "README.md"],
        set(ALWAYS),
        {"tests/engine/", "tests/conformance/"},
    ),
}


@pytest.mark.parametrize(("changed", "selected", "left_out"), SELECTED.values(), ids=SELECTED.keys())
def test_selected(changed: list[str], selected: set[str], left_out: set[str]) -> None:
    chosen = set(affected_tests(changed, ROOT, IMPORTS))
    assert selected <= chosen
    assert not left_out & chosen


@pytest.mark.parametrize("path", ["pyproject.toml", "tests/support/waiting.py", "tests/conftest.py"])
def test_a_file_that_no_rule_covers_selects_all_tests(path: str) -> None:
    assert affected_tests([path], ROOT, IMPORTS) == []


def test_every_folder_of_tests_has_a_rule() -> None:
    """A folder without one would never be selected by a change of what it tests."""
    folders = {path.parent.relative_to(ROOT).parts[1] for path in (ROOT / "tests").glob("*/**/test_*.py")}
    named = {folder.split("/")[1] for folder in affected.SUITES}
    packages = {path.name for path in (ROOT / "src/argosy").iterdir() if path.is_dir()}
    assert folders - named - packages == set()


def test_the_imports_of_packages_are_those_of_the_code() -> None:
    imports = affected.package_imports()
    assert "wire" in imports["engine"]
    assert "local" not in imports["workload"]
