"""The programs in examples/checkpoint: killed at random moments, they end with the same result.

They run as processes of the test, without an operator: what is tested is that nothing depends on one.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from argosy_sdk.manifest import read
from tests.support.commands import REPOSITORY

EXAMPLES = REPOSITORY / "examples" / "checkpoint"
STEPS = 40


def start(program: str, folder: Path, **variables: str) -> subprocess.Popen[str]:
    environ = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "src"),
        "ARGOSY_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "ARGOSY_CHECKPOINT_INTERVAL": "0",
        "ARGOSY_ORDERS": str(folder / "orders.json"),
        **variables,
    }
    command = [sys.executable, str(EXAMPLES / program), str(STEPS)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def run_until(process: subprocess.Popen[str], lines: int, act: Callable[[], object]) -> list[str]:
    """Read the output, and do something after so many lines; returns all lines."""
    assert process.stdout is not None
    output = []
    for number, line in enumerate(process.stdout, 1):
        output.append(line.strip())
        if number == lines:
            act()
    process.wait(60)
    process.stdout.close()
    return output


def result_of(program: str, folder: Path) -> str:
    """Return the last line of an undisturbed run."""
    return run_until(start(program, folder), 0, lambda: None)[-1]


@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("program", ["train.py", "without_sdk.py"])
def test_a_program_that_is_killed_ends_with_the_same_result(tmp_path: Path, program: str, kills: int) -> None:
    want = result_of(program, tmp_path / "undisturbed")
    assert want.startswith(("found the slope 1.99", "found the slope 2.0"))
    drawn = random.Random(7)
    resumed = 0
    for _ in range(kills):
        process = start(program, tmp_path)
        output = run_until(process, drawn.randrange(1, STEPS // 2), process.kill)
        assert process.returncode == -signal.SIGKILL
        resumed += output[0].startswith("continuing after step")
    assert result_of(program, tmp_path) == want
    assert resumed > 0


def test_without_the_sdk_an_order_and_a_signal_are_answered(tmp_path: Path) -> None:
    order = {"version": 1, "epoch": 8, "action": "Save", "reason": "Preempted", "by": None, "stop": True}
    (tmp_path / "orders.json").write_text(json.dumps(order))
    process = start("without_sdk.py", tmp_path)
    run_until(process, 3, process.terminate)
    assert process.returncode == 128 + signal.SIGTERM
    folders = sorted((tmp_path / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    assert folders[0].name == "step-1"
    assert [read(folder)["epoch"] for folder in folders] == [8] * len(folders)
    assert result_of("without_sdk.py", tmp_path) == result_of("without_sdk.py", tmp_path / "undisturbed")
