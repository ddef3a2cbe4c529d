"""Tests what `argosy rehearse spot --story` refuses before it starts anything."""

import importlib.util
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from argosy.cli.group import cli


def test_story_without_numpy_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    result = CliRunner().invoke(cli, ["rehearse", "spot", "--story"])
    assert result.exit_code == 1
    assert "the training needs NumPy: " in result.output
    assert "-m pip install numpy" in result.output


def test_story_leaves_a_control_plane_that_runs_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands: list[tuple[str, ...]] = []

    def answer(command: list[object], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(tuple(map(str, command[1:])))
        return subprocess.CompletedProcess([], 0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.setattr(subprocess, "run", answer)
    result = CliRunner().invoke(cli, ["rehearse", "spot", "--story"])
    assert result.exit_code == 1
    assert "this needs a control plane of its own; `argosy down` first" in result.output
    assert commands == [("status",)]
