"""What the status of a CheckpointBackup keeps of its last complete checkpoint."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from argosy.checkpoint.backup_status import with_begin, with_completion, with_failure
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import (
    BuiltImage,
    CheckpointBackup,
    CheckpointBackupStatus,
    CompletedCheckpoint,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = NOON.replace(hour=13)
IMAGE = BuiltImage("main", "team/train:main-1", NOON, pushed=True)
DIGESTS = {"main": f"sha256:{'a' * 64}"}
DONE = CheckpointBackupStatus(
    phase="Completed",
    last_checkpoint_time=NOON,
    completion_time=NOON,
    source_pod_uid="p",
    built_images=[IMAGE],
    digests=DIGESTS,
)
KEPT = CompletedCheckpoint(NOON, NOON, "p", [IMAGE], DIGESTS)
OLDER = replace(KEPT, source_pod_uid="older")

BEGUN: dict[str, tuple[CheckpointBackupStatus, CompletedCheckpoint | None]] = {
    "first checkpoint: nothing to keep": (CheckpointBackupStatus(), None),
    "completed: its images are kept while the next ones are made": (DONE, KEPT),
    "completed with the pod deleted: the same": (replace(DONE, phase="CompletedPodDeleted"), KEPT),
    "completed again: the newer images are kept": (replace(DONE, last_completed=OLDER), KEPT),
    "failed: the images of the checkpoint before it stay": (
        replace(DONE, phase="Failed", built_images=[], last_completed=OLDER),
        OLDER,
    ),
    "not all images were pushed: those of the checkpoint before it stay": (
        replace(
            DONE,
            phase="CompletedWithError",
            built_images=[IMAGE, replace(IMAGE, pushed=False)],
            last_completed=OLDER,
        ),
        OLDER,
    ),
    "only archives were stored: nothing to keep": (replace(DONE, built_images=[]), None),
}


def backup(status: CheckpointBackupStatus) -> CheckpointBackup:
    return CheckpointBackup(ObjectMeta(name="b", namespace="research"), status=status)


@pytest.mark.parametrize(("before", "want"), BEGUN.values(), ids=BEGUN.keys())
def test_begin_keeps_the_last_complete_images(
    before: CheckpointBackupStatus, want: CompletedCheckpoint | None
) -> None:
    begun = with_begin(backup(before), "node-1", "q", {}, 1, LATER)
    assert begun.last_completed == want
    assert begun.built_images == []


def test_failure_keeps_them_and_completion_drops_them() -> None:
    begun = with_begin(backup(DONE), "node-1", "q", {}, 1, LATER)
    assert with_failure(backup(begun), "no room", LATER).last_completed == KEPT
    assert with_completion(backup(begun), "", LATER).last_completed is None
