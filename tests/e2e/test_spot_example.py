"""`argosy rehearse spot --story` prints what the README of its files shows, and a lost machine changes no bit
of the result.

What differs between two runs is replaced in both texts: numbers, times and the home. What happens in one run
and not in another is left out: states of the job on its way, checkpoints by the interval, and what little
time was spent on something.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import commands
from tests.support.local_control_plane import ControlPlane
from tests.support.servers import free_port

EXAMPLE = commands.REPOSITORY / "examples/spot"
WEIGHTS = re.compile(r"weights ([0-9a-f]{16}) after (\d+) steps")
VARIABLE = (
    (r"weights [0-9a-f]{16}", "weights HASH"),
    (r"(KUBECONFIG=|--local )\S+", r"\1PATH"),
    (r"\S+/argosy-checkpoints/\S+", "STORE"),
    (r"(\d+ ?m ?)?\d[\d.:]*( ?(s|m|KiB|UTC)\b)?", "N"),
    (r"[ │]+", " "),
)
OPTIONAL = (
    r"rented (Pending|Starting|Running)\b",
    r"worker-N saved step N, because of: Interval",
    r"API server ready",
    r"(Training|Waiting|Restoring|Saving|Starting|Lost) N",
    r"N Normal CheckpointCompleted",
    r"spot-tN-N-N RUNNING",
)
EVENTS = ("LAST SEEN TYPE REASON MESSAGE", "REASON MESSAGE")

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
    """The lines without what differs between two runs; events of one second may have any order."""
    found = []
    for line in output.splitlines():
        for pattern, replacement in VARIABLE:
            line = re.sub(pattern, replacement, line.strip())
        if line and not any(re.match(pattern, line) for pattern in OPTIONAL):
            found.append(line)
    for header in EVENTS:
        start = found.index(header)
        end = next(place for place in range(start, len(found)) if found[place].startswith("$"))
        found[start:end] = sorted(found[start:end])
    return found


def undisturbed_weights() -> tuple[str, str]:
    """What two workers end with that are processes of this machine, without anything that takes one away.

    A variable of this process could choose another implementation of the matrix product than pods have.
    """
    variables = {
        **{name: value for name, value in os.environ.items() if not name.startswith("OPENBLAS_")},
        "ROLE_WORKER": "127.0.0.1,127.0.0.1",
        "ROLE_WORKER_SIZE": "2",
        "PORT": str(free_port()),
        "PACE": "0",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, str(EXAMPLE / "train.py")]
    second = subprocess.Popen(command, env={**variables, "INDEX": "1"})
    try:
        first = subprocess.run(
            command, env={**variables, "INDEX": "0"}, capture_output=True, text=True, timeout=120, check=True
        )
        assert second.wait(60) == 0
    finally:
        second.kill()
    return weights(first.stdout)


def weights(output: str) -> tuple[str, str]:
    [found] = WEIGHTS.findall(output)
    assert isinstance(found, tuple)
    return found


def test_training_outlives_its_spot_machine_as_the_readme_shows(home: Path) -> None:
    command = [str(commands.ARGOSY), "rehearse", "spot", "--story"]
    variables = commands.environment(ARGOSY_HOME=str(home))
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines(done.stdout) == lines(expected_output()), done.stdout
    assert weights(done.stdout) == undisturbed_weights()
    [saved] = re.findall(r"saved step (\d+), because of: Preempted", done.stdout)
    assert re.findall(r"workers, resumed from step (\d+)", done.stdout) == [saved], done.stdout
