"""Every example has a test. The quickstart runs as its comment says in `--long`;."""

import pytest

from tests.support import examples
from tests.support.local_control_plane import REPOSITORY, ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

EXAMPLES = sorted(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "examples").glob("*/*.yaml"))


def test_every_example_has_a_test() -> None:
    tested_elsewhere = {
        examples.ADAPTER,
        examples.ADAPTIVE_DASK,
        examples.ELASTIC,
        examples.ELASTIC_HOROVOD,
        examples.ELASTIC_TORCH,
        examples.FIRST_ARES,
        examples.GANG,
        examples.ESCALATION,
        examples.CHECKPOINTED,
        examples.ELASTIC_CHECKPOINTS,
        examples.SIGTERM,
        examples.CHECKPOINTED_ARES,
        examples.CHECKPOINTED_ET,
        *examples.SPOT,
        *examples.RENTED,
        examples.SPOT_BUCKET,
        examples.SPOT_CHECKPOINTED,
    }
    tested = {*examples.WANTED, *examples.ARES, *tested_elsewhere}
    assert set(EXAMPLES) == tested


@pytest.mark.long
def test_quickstart_runs_with_the_command_of_its_comment(plane: ControlPlane) -> None:
    example = "examples/quickstart/run.yaml"
    (REPOSITORY / ".argosy/quickstart/checkpoint.npz").unlink(missing_ok=True)
    out = plane.argosy("run", "--mount-cwd", example, timeout=170).stdout
    assert examples.WANTED[example] in out
    assert "Succeeded" in out.splitlines()[-1]
