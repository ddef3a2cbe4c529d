"""A third-party adapter installed by pip into an environment with Argosy is found and works.

The environment is a fresh one that sees the packages of this one, so that nothing is downloaded.
"""

import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import commands, examples
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Argosy and, installed by pip, the adapter."""
    prefix = tmp_path_factory.mktemp("user") / "venv"
    python_of_user = prefix / "bin" / "python"
    commands.run((sys.executable, "-m", "venv", str(prefix)), commands.environment(), timeout=120)
    libraries = sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)})
    sites = f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n"
    (Path(libraries) / "argosy-under-test.pth").write_text(sites)
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    command = (str(python_of_user), "-m", "pip", "install", "-q", *offline, "./examples/adapter")
    commands.run(command, commands.environment(), timeout=120)
    return python_of_user


def argosy(python: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    return commands.run((str(python), "-m", "argosy", *words), commands.environment(), code=code, timeout=150)


def test_adapter_is_listed_with_its_package(python: Path) -> None:
    listed = argosy(python, "frameworks").stdout.splitlines()
    assert [line.split() for line in listed if line.startswith("ring")] == [
        ["ring", "argosy-ring", "1.0", "port"]
    ]
    assert "ring" not in argosy(Path(sys.executable), "frameworks").stdout


def test_adapter_conforms(python: Path) -> None:
    lines = argosy(python, "conformance", "framework", "ring").stdout.splitlines()
    assert lines[-1] == "ring conforms"
    assert "ok    three in a ring: ranks are unique and dense" in lines


@pytest.fixture
def plane(python: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    """A control plane of that Python, so that its operator has the adapter."""
    program = python.with_name("argosy-under-test")
    program.write_text(f'#!/bin/sh\nexec "{python}" -m argosy "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr("tests.support.local_control_plane.ARGOSY", program)
    running = ControlPlane.up("--nodes", "2")
    yield running
    running.down()


def test_adapter_conforms_live_and_its_example_succeeds(plane: ControlPlane) -> None:
    lines = plane.argosy("conformance", "framework", "ring", "--live", timeout=150).stdout.splitlines()
    wanted = (
        "ok    three in a ring: pods reach each other, restart with the same values, and the job succeeds"
    )
    assert lines[-2:] == [wanted, "ring conforms"]
    out = plane.argosy("run", "--mount-cwd", examples.ADAPTER, timeout=150).stdout
    assert "rank 0 got 3 back: the ring is closed" in out
    assert "Succeeded" in out.splitlines()[-1]
    assert (REPOSITORY / examples.ADAPTER).exists()
