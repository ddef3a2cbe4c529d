"""A transcript tells phases, conditions and reasons in their order, and nothing that moves with time."""

from datetime import UTC, datetime

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.trainingrun import (
    RoleStatus,
    RunCondition,
    TrainingRun,
    TrainingRunSpec,
    TrainingRunStatus,
)
from argosy.testing import examples
from argosy.testing.commands import REPOSITORY
from argosy.testing.transcripts import Transcript

THEN, LATER = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)


def seen(phase: str, active: int, since: datetime, reason: str = "") -> TrainingRun:
    running = RunCondition("Running", str(phase == "Running"), phase, since)
    role = RoleStatus(phase=phase, active=active)
    status = TrainingRunStatus(
        phase=phase, reason=reason, start_time=since, conditions=[running], roles={"worker": role}
    )
    return TrainingRun(ObjectMeta(name="a"), TrainingRunSpec("custom", {}), status)


def told(*statuses: TrainingRun) -> str:
    transcript = Transcript()
    for status in statuses:
        transcript.see(status)
    return str(transcript)


def test_what_changes_is_told_once_and_in_its_order() -> None:
    text = told(
        TrainingRun(ObjectMeta(name="a"), TrainingRunSpec("custom", {})),
        seen("Starting", 0, THEN, "PodsStarting"),
        seen("Starting", 1, THEN, "PodsStarting"),
        seen("Running", 2, THEN),
        seen("Succeeded", 0, THEN),
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


def test_times_and_numbers_are_left_out() -> None:
    assert told(seen("Running", 1, THEN)) == told(seen("Running", 2, LATER))


def test_it_has_ended_when_the_run_has() -> None:
    transcript = Transcript()
    for phase, ended in (("Running", False), ("Restarting", False), ("Failed", True)):
        transcript.see(seen(phase, 1, THEN))
        assert transcript.ended is ended


def test_every_example_has_a_transcript_and_every_transcript_an_example() -> None:
    folder = REPOSITORY / "tests" / "conformance" / "transcripts"
    names = {examples.manifest(example)["metadata"]["name"] for example in examples.WANTED}  # type: ignore[index]
    assert {path.stem for path in folder.iterdir()} == names
