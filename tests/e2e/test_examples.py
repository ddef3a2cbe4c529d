"""Every example is known, and the first one runs as its comment says; all run in tests/conformance."""

import pytest

from tests.support import examples
from tests.support.local_control_plane import REPOSITORY, ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXAMPLES = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "examples").glob("*/*.yaml"))


def test_every_example_is_known_here() -> None:
    told = {examples.ADAPTER, examples.FIRST_ARES, examples.GANG, examples.ESCALATION}
    known = {*examples.WANTED, *examples.ARES, *told}
    assert set(EXAMPLES) == known


def test_the_first_one_runs_as_its_comment_says(plane: ControlPlane) -> None:
    example = "examples/quickstart/run.yaml"
    (REPOSITORY / ".argosy/quickstart/checkpoint.npz").unlink(missing_ok=True)
    out = plane.argosy("run", "--mount-cwd", example, timeout=170).stdout
    assert examples.WANTED[example] in out
    assert "Succeeded" in out.splitlines()[-1]
