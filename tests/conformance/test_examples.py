"""Every example succeeds, with the same sequence of statuses on every target.

The sequences are in `transcripts/`; an intermediate state may be missing. After an intended change
`ARGOSY_WRITE_TRANSCRIPTS=1` writes them again; they must then match on the other target too.
"""

import difflib
import os
from pathlib import Path

import pytest
import yaml

from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.transcripts import differences, record
from tests.support.user import User

TRANSCRIPTS = Path(__file__).parent / "transcripts"
ON_CLUSTER = ("examples/quickstart/run.yaml",)
LOCAL = (
    *ON_CLUSTER,
    "examples/mpi/openmpi.yaml",
    "examples/pytorch/run.yaml",
    "examples/custom/run.yaml",
    "examples/standalone/run.yaml",
    "examples/bagua/run.yaml",
)
"""Examples that run by default. The others import large libraries and run in `--long`."""


def _marks(example: str) -> list[pytest.MarkDecorator]:
    if example in ON_CLUSTER:
        return []
    return [pytest.mark.long_on_cluster if example in LOCAL else pytest.mark.long]


EXAMPLES = [pytest.param(example, id=example, marks=_marks(example)) for example in examples.WANTED]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_succeeds_with_the_expected_statuses(
    user: User, tmp_path: Path, example: str, request: pytest.FixtureRequest
) -> None:
    if reason := examples.missing(example):
        pytest.fail(reason) if os.environ.get("ARGOSY_REQUIRE_ALL") == "1" else pytest.skip(reason)
    (REPOSITORY / ".argosy/quickstart/checkpoint.npz").unlink(missing_ok=True)
    run = examples.manifest(example)
    name = str(run["metadata"]["name"])  # type: ignore[index]  # an example has one
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(run))
    with record(user.target.kubeconfig, user.namespace, name) as transcript:
        out = user.argosy("run", str(path), timeout=200).stdout
    assert examples.WANTED[example] in out
    assert "Succeeded" in out.splitlines()[-1]
    _compare(TRANSCRIPTS / f"{name}.txt", str(transcript), request.config.getoption("--on"))


def _compare(wanted: Path, transcript: str, target: str) -> None:
    if os.environ.get("ARGOSY_WRITE_TRANSCRIPTS") == "1":
        wanted.parent.mkdir(exist_ok=True)
        wanted.write_text(transcript)
    before = wanted.read_text()
    if problems := differences(before, transcript):
        diff = difflib.unified_diff(
            before.splitlines(),
            transcript.splitlines(),
            wanted.name,
            f"observed on {target}",
            n=99,
            lineterm="",
        )
        pytest.fail("\n".join(["the statuses differ from the transcript:", *problems, *diff]), pytrace=False)
