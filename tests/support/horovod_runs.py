"""The output of examples/et/train.py, compared with that of a run that nothing has disturbed."""

import os
import re
import subprocess
from itertools import pairwise

import pytest
from msgspec import Struct

from tests.support import framework_venvs
from tests.support.commands import REPOSITORY

SCRIPT = REPOSITORY / "examples/et/train.py"
COMMIT_EVERY = 5


class Step(Struct, frozen=True):
    """A step that rank 0 has computed."""

    number: int
    size: int
    loss: float


def steps_of(output: str) -> list[Step]:
    found = re.findall(r"step (\d+) size (\d+) loss (\S+)", output)
    return [Step(int(number), int(size), float(loss)) for number, size, loss in found]


def assert_result_of_an_undisturbed_run(output: str) -> None:
    """Fail if a step was lost, or computed again although it was committed, or had another result."""
    steps = steps_of(output)
    last = steps[-1].number
    for earlier, later in pairwise(steps):
        after_commit = earlier.number - earlier.number % COMMIT_EVERY + 1
        assert later.number in (earlier.number + 1, after_commit), f"step {later.number} was committed"
    assert {step.number for step in steps} == set(range(1, last + 1)), "no step is lost"
    undisturbed = _run_undisturbed(last)
    losses = {step.number: step.loss for step in steps_of(undisturbed)}
    wanted = [losses[step.number] for step in steps]
    assert [step.loss for step in steps] == pytest.approx(wanted, rel=1e-3, abs=1e-4)
    assert _weights(output) == pytest.approx(_weights(undisturbed), rel=1e-3, abs=1e-4)


def _weights(output: str) -> list[float]:
    found = re.search(r"weights (.*)", output)
    assert found, output[-4000:]
    return [float(weight) for weight in found[1].split()]


def _run_undisturbed(steps: int) -> str:
    """The output of as many steps in one process."""
    venv = framework_venvs.of_framework("horovod")
    assert venv is not None
    variables = {**os.environ, "STEPS": str(steps), "STEP_SECONDS": "0"}
    # It fails if so few steps do not find the slope; its weights count.
    command = [str(venv.python), str(SCRIPT)]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False).stdout
