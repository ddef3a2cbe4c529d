"""The wheel works when installed by pip into an empty environment with its locked dependencies only.

Everything here runs in that environment, which has no development packages and no access to the clone.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support import commands
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.venvs import install_locked

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

LOCK = REPOSITORY / "requirements-image.lock"
IMPORT_ALL = """
import importlib, pkgutil, sys, argosy
names = [module.name for module in pkgutil.walk_packages(argosy.__path__, "argosy.")]
for name in names:
    if not name.endswith(".__main__"):
        importlib.import_module(name)
print(len(names))
"""
LIST_COMMANDS = """
import importlib, click
from argosy.cli.main import COMMANDS

def walk(words, command):
    print(*words)
    for name in getattr(command, "commands", ()):
        walk((*words, name), command.commands[name])

for name, (place, _) in COMMANDS.items():
    module, attribute = place.split(":")
    walk((name,), getattr(importlib.import_module(module), attribute))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    commands.run(command, commands.environment(), timeout=120)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a fresh environment with the wheel and its locked dependencies."""
    python_of_venv = install_locked(tmp_path_factory.mktemp("user") / "venv", LOCK)
    install = (str(python_of_venv), "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index")
    commands.run((*install, str(wheel)), commands.environment(), timeout=120)
    return python_of_venv


def run(python: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the environment's Python, isolated from the clone and from the user's own packages."""
    return commands.run((str(python), "-I", *words), commands.environment(), code=code, timeout=120)


def test_wheel_contains_no_test_code(wheel: Path) -> None:
    names = ZipFile(wheel).namelist()
    assert "argosy/conformance/kit.py" in names
    assert [name for name in names if "testing" in name or "test_" in name] == []


def test_every_shipped_module_can_be_imported(python: Path, wheel: Path) -> None:
    files = ZipFile(wheel).namelist()
    assert "argosy/rehearsal/examples/spot/train.py" in files, "what `argosy rehearse spot --story` runs"
    modules = [name for name in files if name.startswith("argosy/") and name.endswith(".py")]
    shipped = [name for name in modules if "/examples/" not in name]
    imported = int(run(python, "-c", IMPORT_ALL).stdout)
    assert imported == len(shipped) - 1, "all but the package itself"


def test_every_command_and_subcommand_answers_help(python: Path) -> None:
    listed = [line.split() for line in run(python, "-c", LIST_COMMANDS).stdout.splitlines()]
    assert ["conformance", "framework"] in listed
    for words in listed:
        assert "Usage" in run(python, "-m", "argosy", *words, "--help").stdout, words


@pytest.fixture
def plane(python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """A control plane started by the installed command."""
    monkeypatch.setattr("tests.support.local_control_plane.ARGOSY", python.with_name("argosy"))
    running = ControlPlane.up("--nodes", "2")
    yield running
    running.down()


def test_live_conformance_runs_from_the_wheel(plane: ControlPlane) -> None:
    lines = plane.argosy("conformance", "framework", "jax", "--live", timeout=240).stdout.splitlines()
    wanted = "ok    workers: pods reach each other, restart with the same values, and the job succeeds"
    assert lines[-2:] == [wanted, "jax conforms"]
