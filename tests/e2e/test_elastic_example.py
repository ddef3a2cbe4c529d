"""`scripts/quickstart elastic` prints what its README shows.

What differs between two runs is replaced in both texts: times, nodes, indexes, and the steps in which workers
come and go. How many states of the job are shown on its way depends on the machine, so those lines are left
out. All others must be the same: no more and no fewer.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.local_control_plane import ControlPlane

EXAMPLE = commands.REPOSITORY / "examples/elastic"
STEP = re.compile(r"step +(\d+)  loss (\S+)  workers (\d+)")
VARIABLE = (
    (r"KUBECONFIG=\S+", "KUBECONFIG=FILE"),
    (r"\d\d:\d\d:\d\d UTC", "TIME"),
    (r"(\d+ ?m ?)?[\d.]+ ?s\b", "DURATION"),
    (r"\bnode-\d", "NODE"),
    (r"\bworker-\d", "WORKER"),
    (r"[ │]+", " "),
)

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(590)]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for the control plane that the example starts; stopped at the end."""
    plane = ControlPlane(Path(tempfile.mkdtemp(prefix="argosy-")))
    yield plane.home
    plane.down()


def expected_output() -> str:
    return (EXAMPLE / "README.md").read_text().split("```\n")[3]


def lines(output: str) -> list[str]:
    """The lines of the output without what differs between two runs, and without steps."""
    found = []
    for line in output.splitlines():
        for pattern, replacement in VARIABLE:
            line = re.sub(pattern, replacement, line)
        found += [line.strip()] if line.strip() and "step" not in line else []
    return found


def losses(output: str) -> dict[str, str]:
    """The loss by step, for those steps that are always printed."""
    return {step: loss for step, loss, _ in STEP.findall(output) if int(step) % 50 == 0}


def lasting(found: list[str]) -> list[str]:
    """The lines without states on the way, which may be over before anybody sees them.

    Events of one second may have any order.
    """
    kept = [line for line in found if not re.match(r"elastic (Pending|Starting|Running)\b", line)]
    events = kept.index("REASON MESSAGE") + 1
    return [*kept[:events], *sorted(kept[events:])]


def test_training_loses_a_node_and_grows_back_as_the_readme_shows(home: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "show.py")]
    variables = commands.environment(ARGOSY_HOME=str(home))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wanted, shown = lines(expected_output()), lines(done.stdout)
    assert lasting(shown) == lasting(wanted), done.stdout
    assert losses(done.stdout) == losses(expected_output()), "no step was lost or computed twice"
    sizes = [size for size, _ in groupby(size for _, _, size in STEP.findall(done.stdout))]
    assert sizes[-3:] == ["3", "2", "3"], done.stdout
