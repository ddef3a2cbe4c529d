"""Tests for the options that select a cluster and a namespace."""

from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from argosy.cli.cluster_access import cluster_options

CASES: dict[str, tuple[list[str], str]] = {
    "no option: namespace of the current context": ([], "team-a"),
    "--context: namespace of that context": (["--context", "b"], "team-b"),
    "context without a namespace: default": (["--context", "plain"], "default"),
    "-n: that namespace, whatever the context": (["-n", "mine", "--context", "b"], "mine"),
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    contexts = {"a": {"namespace": "team-a"}, "b": {"namespace": "team-b"}, "plain": {}}
    config = {
        "current-context": "a",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": name, "context": {"cluster": "c", **rest}} for name, rest in contexts.items()],
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


@click.command()
@cluster_options
def show(kubeconfig: str | None, context: str | None, namespace: str) -> None:
    del kubeconfig, context
    click.echo(namespace)


@pytest.mark.parametrize(("options", "want"), CASES.values(), ids=CASES)
def test_namespace(kubeconfig: Path, options: list[str], want: str) -> None:
    result = CliRunner().invoke(show, ["--kubeconfig", str(kubeconfig), *options])
    assert (result.exit_code, result.output) == (0, f"{want}\n")


def test_missing_kubeconfig_is_reported(tmp_path: Path) -> None:
    result = CliRunner().invoke(show, ["--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 1
    assert "`argosy up` starts a control plane" in result.output
