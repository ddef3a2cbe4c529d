"""Every example runs to its end as its own comment says."""

import os
import subprocess
from pathlib import Path

import pytest

from argosy.testing.controlplane import REPOSITORY, ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXAMPLES = sorted(path.relative_to(REPOSITORY) for path in (REPOSITORY / "examples").glob("*/*.yaml"))
WANTED = {
    "examples/quickstart/run.yaml": "accuracy 0.9",
    "examples/pytorch/run.yaml": "found the slope",
    "examples/pytorch/elastic.yaml": "found the slope",
    "examples/custom/run.yaml": "all have counted",
    "examples/mpi/openmpi.yaml": "pi is about 3.14",
}
NEEDED = {"pytorch": "torch", "mpi": "mpi4py"}
"""What the examples of a folder import."""


def test_every_example_is_known_here() -> None:
    assert {str(path) for path in EXAMPLES} == set(WANTED)


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_example(plane: ControlPlane, path: Path) -> None:
    if path.parts[1] in NEEDED and not _importable(NEEDED[path.parts[1]]):
        module = NEEDED[path.parts[1]]
        reason = f"{module} for /usr/bin/python3 is not installed (Debian: apt install python3-{module})"
        pytest.fail(reason) if os.environ.get("ARGOSY_REQUIRE_ALL") == "1" else pytest.skip(reason)
    (REPOSITORY / ".argosy/quickstart/checkpoint.npz").unlink(missing_ok=True)
    out = plane.argosy("run", "--here", str(path), timeout=170).stdout
    assert WANTED[str(path)] in out
    assert "Succeeded" in out.splitlines()[-1]


def _importable(module: str) -> bool:
    command = ["/usr/bin/python3", "-c", f"import {module}"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
