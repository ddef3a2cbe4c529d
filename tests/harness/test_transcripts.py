"""Tests that transcripts have phases, conditions and reasons in order, independent of timing."""

from datetime import UTC, datetime

import pytest

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.trainingrun import TrainingRun, TrainingRunSpec
from argosy.kinds.trainingrun_status import RoleStatus, RunCondition, TrainingRunStatus
from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.transcripts import Transcript, differences

THEN, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def run_status(phase: str, active: int, since: datetime, reason: str = "") -> TrainingRun:
    running = RunCondition("Running", str(phase == "Running"), phase, since)
    role = RoleStatus(phase=phase, active=active)
    status = TrainingRunStatus(
        phase=phase, reason=reason, start_time=since, conditions=[running], roles={"worker": role}
    )
    return TrainingRun(ObjectMeta(name="a"), TrainingRunSpec("custom", {}), status)


def transcript_of(*statuses: TrainingRun) -> str:
    transcript = Transcript()
    for status in statuses:
        transcript.add(status)
    return str(transcript)


def test_every_change_is_recorded_once_in_order() -> None:
    text = transcript_of(
        TrainingRun(ObjectMeta(name="a"), TrainingRunSpec("custom", {})),
        run_status("Starting", 0, THEN, "PodsStarting"),
        run_status("Starting", 1, THEN, "PodsStarting"),
        run_status("Running", 2, THEN),
        run_status("Succeeded", 0, THEN),
    )
    assert text.splitlines() == [
        "run",
        "  Starting PodsStarting",
        "  Running",
        "  Succeeded",
        "role worker",
        "  Starting",
        "  Running",
        "  Succeeded",
        "condition Running",
        "  False Starting",
        "  True Running",
        "  False Succeeded",
    ]


EXPECTED = """\
run
  Starting PodsStarting
  Running
  Succeeded
role worker
  Starting
  Running
"""
COMPARED = {
    "the same transcript: no difference": (EXPECTED, []),
    "subjects in another order: no difference": (
        "role worker\n  Starting\n  Running\nrun\n  Starting PodsStarting\n  Running\n  Succeeded\n",
        [],
    ),
    "a role that is first seen Running: no difference": (
        EXPECTED.replace("worker\n  Starting", "worker"),
        [],
    ),
    "a state in the middle that was never shown: no difference": (EXPECTED.replace("  Running\n", "", 1), []),
    "another last line: difference": (
        EXPECTED.replace("Succeeded", "Running"),
        [
            "run: 'Running' is not expected, or not at this point",
            "run: must end with 'Succeeded', not 'Running'",
        ],
    ),
    "last line is missing: difference": (
        EXPECTED.replace("  Succeeded\n", ""),
        ["run: must end with 'Succeeded', not 'Running'"],
    ),
    "unexpected line: difference": (
        EXPECTED.replace("  Succeeded", "  Restarting\n  Succeeded"),
        ["run: 'Restarting' is not expected, or not at this point"],
    ),
    "two lines in another order: difference": (
        EXPECTED.replace("  Starting PodsStarting\n  Running", "  Running\n  Starting PodsStarting"),
        ["run: 'Starting PodsStarting' is not expected, or not at this point"],
    ),
    "subject is missing: difference": (EXPECTED[: EXPECTED.index("role")], ["role worker: missing"]),
    "additional subject: difference": (EXPECTED + "role other\n  Starting\n", ["role other: not expected"]),
}


@pytest.mark.parametrize(("observed", "want"), COMPARED.values(), ids=COMPARED)
def test_differences(observed: str, want: list[str]) -> None:
    assert differences(EXPECTED, observed) == want


def test_times_and_numbers_are_omitted() -> None:
    assert transcript_of(run_status("Running", 1, THEN)) == transcript_of(run_status("Running", 2, LATER))


def test_transcript_is_finished_with_the_run() -> None:
    transcript = Transcript()
    for phase, finished in (("Running", False), ("Restarting", False), ("Failed", True)):
        transcript.add(run_status(phase, 1, THEN))
        assert transcript.finished is finished


def test_examples_and_transcripts_match() -> None:
    folder = REPOSITORY / "tests" / "conformance" / "transcripts"
    names = {examples.manifest(example)["metadata"]["name"] for example in examples.WANTED}  # type: ignore[index]
    assert {path.stem for path in folder.iterdir()} == names
