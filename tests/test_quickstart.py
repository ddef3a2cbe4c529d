"""Tests for the text of the quickstart, without the control plane that it starts."""

import runpy
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "examples/quickstart/show.py"


def test_quickstart_explains_the_assertions_of_mpiexec_after_a_kill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    commands: list[Sequence[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    monkeypatch.chdir(tmp_path)
    script = runpy.run_path(str(SCRIPT))
    checkpoint = tmp_path / script["CHECKPOINT"]
    checkpoint.parent.mkdir(parents=True)
    checkpoint.touch()
    script["kill_a_worker"](threading.Event())
    killing, explanation = capsys.readouterr().out.splitlines()
    assert "killing every process in quickstart-worker-1" in killing
    assert "mpiexec reports the lost worker as failed assertions" in explanation
    assert "expected" in explanation
    assert commands[0][-1] == "kill -9 -1"
