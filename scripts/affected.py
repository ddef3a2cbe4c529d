"""Chooses which test folders a change affects, for `scripts/test --since REVISION`.

The tests of a package run if the package changed, or a package that it imports, directly or not. Suites that
test the product as a whole (conformance, e2e, reliability) run on every change of the package. A changed file
that no rule covers, for example `pyproject.toml` or anything in `tests/support`, selects all tests.
"""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp

PACKAGE = "src/argosy/"
DOCUMENTATION = ("docs/", "README.md", "CONTRIBUTING.md", "LICENSE")
WHOLE = (PACKAGE, "examples/", "charts/")
SUITES: Mapping[str, tuple[str, ...]] = {
    "tests/bench/": ("bench/", PACKAGE),
    "tests/conformance/": WHOLE,
    "tests/control_planes/": (f"{PACKAGE}local/", f"{PACKAGE}kinds/", "kubernetes/"),
    "tests/differential/": (f"{PACKAGE}local/", f"{PACKAGE}kinds/", "kubernetes/", "tools/fuzzer/"),
    "tests/e2e/": WHOLE,
    "tests/harness/": (),
    "tests/install/": (f"{PACKAGE}install/", f"{PACKAGE}operator/", "charts/", "deploy/", "Containerfile"),
    "tests/reliability/": (PACKAGE,),
    "tests/scripts/": ("scripts/",),
    "tests/sdk/": ("src/argosy_sdk/", "examples/checkpoint/"),
    "tests/tools/": ("tools/",),
}
"""Folders of tests that are not named after one package, and the paths that they depend on."""
ALWAYS = (
    *("tests/test_gotemplate.py", "tests/test_image.py", "tests/test_quickstart.py", "tests/test_release.py"),
    *("tests/test_repository.py", "tests/operator/test_metrics.py"),
)
"""Quick tests of the repository as a whole, and the one that compares metrics with the documentation."""


def changed_files(revision: str, root: Path) -> list[str]:
    """All files that differ from a revision, committed or not, and files that are not tracked yet."""
    listed = [
        ["git", "diff", "--name-only", revision],
        ["git", "ls-files", "--others", "--exclude-standard"],
    ]
    runs = [subprocess.run(words, cwd=root, check=True, capture_output=True, text=True) for words in listed]
    return sorted({line for run in runs for line in run.stdout.splitlines()})


def affected_tests(changed: Iterable[str], root: Path, imports: Mapping[str, set[str]]) -> list[str]:
    """The folders and files of tests to run; empty means all of them.

    `imports` has for each package of `src/argosy` the packages that it imports, directly or not.
    """
    changed = [path for path in changed if not path.startswith(DOCUMENTATION)]
    rules = {
        **{
            f"tests/{package}/": (f"{PACKAGE}{package}", *(f"{PACKAGE}{below}" for below in sorted(below)))
            for package, below in imports.items()
        },
        **SUITES,
    }
    covered = [*(prefix for prefixes in rules.values() for prefix in prefixes), *rules]
    if any(not path.startswith(tuple(covered)) and path not in ALWAYS for path in changed):
        return []
    chosen = [
        folder
        for folder, prefixes in rules.items()
        if (root / folder).is_dir() and any(path.startswith((folder, *prefixes)) for path in changed)
    ]
    return [*sorted(chosen), *(path for path in ALWAYS if (root / path).exists())]


def package_imports() -> dict[str, set[str]]:
    """For each package or module directly below `argosy`, those that it imports, directly or not."""
    graph = grimp.build_graph("argosy")
    found: dict[str, set[str]] = {}
    for package in graph.find_children("argosy"):
        modules = graph.find_upstream_modules(package, as_package=True)
        found[package.split(".")[1]] = {module.split(".")[1] for module in modules if module.count(".")}
    return found
