"""The steps of a CheckpointBackup, by what its status says."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.checkpoint.backup import (
    Begin,
    Build,
    Dump,
    EnterPhase,
    Finish,
    Push,
    Step,
    Store,
    Wait,
    next_step,
    target_image,
)
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import (
    BuiltImage,
    CheckpointBackup,
    CheckpointBackupSpec,
    CheckpointBackupStatus,
    CheckpointFile,
    ContainerImage,
    PodReference,
    RegistryTarget,
)
from argosy.kinds.status_condition import StatusCondition

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
READY = StatusCondition("Ready", "False", "CheckpointInProgress", "", NOON, 1)
REGISTRY = RegistryTarget("localhost:5000", "team/train")
IMAGES = [ContainerImage("a", "team/train:a-1"), ContainerImage("b", "team/train:b-1")]
PUSHED = CheckpointBackupSpec(
    schedule="immediately", pod_ref=PodReference("train-0"), registry=REGISTRY, containers=IMAGES
)
STORED = replace(PUSHED, build_image=False)
LOCAL = replace(PUSHED, registry=None)
CRON = replace(PUSHED, schedule="@hourly")
A, B = CheckpointFile("a", "/x/a.tar"), CheckpointFile("b", "/x/b.tar")
IMAGE_A, IMAGE_B = BuiltImage("a", "team/train:a-1"), BuiltImage("b", "team/train:b-1")
FULL_A = "localhost:5000/team/train:a-1"


def status(phase: str, *files: CheckpointFile, images: tuple[BuiltImage, ...] = ()) -> CheckpointBackupStatus:
    return CheckpointBackupStatus(
        phase=phase, conditions=[READY], checkpoint_files=list(files), built_images=list(images)
    )


def backup(
    spec: CheckpointBackupSpec, state: CheckpointBackupStatus, generation: int = 1
) -> CheckpointBackup:
    meta = ObjectMeta(name="b", namespace="research", generation=generation, creation_timestamp=NOON)
    return CheckpointBackup(meta, spec, state)


STEPS: dict[str, tuple[CheckpointBackupSpec, CheckpointBackupStatus, Step]] = {
    "backup without a status: a checkpoint begins": (PUSHED, CheckpointBackupStatus(), Begin()),
    "no archive yet: dumps the first container": (PUSHED, status("Checkpointing"), Dump("a")),
    "archive of the first of two containers: dumps the second": (
        PUSHED,
        status("Checkpointing", A),
        Dump("b"),
    ),
    "archives of all containers: phase Checkpointed": (
        PUSHED,
        status("Checkpointing", A, B),
        EnterPhase("Checkpointed"),
    ),
    "buildImage: phase ImageBuilding after the archives": (
        PUSHED,
        status("Checkpointed", A, B),
        EnterPhase("ImageBuilding"),
    ),
    "buildImage false: phase StoringCheckpoint after the archives": (
        STORED,
        status("Checkpointed", A, B),
        EnterPhase("StoringCheckpoint"),
    ),
    "first of two archives stored: stores the second": (
        STORED,
        status("StoringCheckpoint", replace(A, storage_path="/s"), B),
        Store("b"),
    ),
    "all archives stored: phase CheckpointStored": (
        STORED,
        status("StoringCheckpoint", replace(A, storage_path="/s")),
        EnterPhase("CheckpointStored"),
    ),
    "archives stored: finishes": (STORED, status("CheckpointStored", A), Finish()),
    "images of all containers built: phase ImageBuilt": (
        PUSHED,
        status("ImageBuilding", A, images=(IMAGE_A,)),
        EnterPhase("ImageBuilt"),
    ),
    "images built, registry given: phase ImagePushing": (
        PUSHED,
        status("ImageBuilt", A, images=(IMAGE_A,)),
        EnterPhase("ImagePushing"),
    ),
    "images built, no registry: finishes": (LOCAL, status("ImageBuilt", A, images=(IMAGE_A,)), Finish()),
    "all images pushed: phase ImagePushed": (
        PUSHED,
        status("ImagePushing", A, images=(replace(IMAGE_A, pushed=True),)),
        EnterPhase("ImagePushed"),
    ),
    "images pushed: finishes": (PUSHED, status("ImagePushed", A), Finish()),
    "completed backup with schedule immediately: no further step": (PUSHED, status("Completed"), Wait()),
    "completed with its pod deleted, cron schedule: no further step": (
        CRON,
        status("CompletedPodDeleted"),
        Wait(),
    ),
    "failed, cron schedule: no further step": (CRON, status("Failed"), Wait()),
    "completed, cron schedule: waits for the next time": (
        CRON,
        status("Completed"),
        Wait(NOON + timedelta(hours=1)),
    ),
    "unknown phase, set by another agent: no further step": (PUSHED, status("Compressing"), Wait()),
}


@pytest.mark.parametrize("case", STEPS)
def test_next_step(case: str) -> None:
    spec, state, want = STEPS[case]
    assert next_step(backup(spec, state), ["a", "b"], NOON) == want


def test_first_unbuilt_and_first_unpushed_container_with_their_images() -> None:
    building = backup(PUSHED, status("ImageBuilding", A, B, images=(IMAGE_B,)))
    pushing = backup(PUSHED, status("ImagePushing", A, B, images=(IMAGE_A, replace(IMAGE_B, pushed=True))))
    build, push = (next_step(item, ["a", "b"], NOON) for item in (building, pushing))
    assert isinstance(build, Build)
    assert isinstance(push, Push)
    assert (build.container, str(build.image)) == (push.container, str(push.image)) == ("a", FULL_A)


def test_schedule_after_a_long_absence_is_due_once() -> None:
    late = NOON + timedelta(days=3, minutes=5)
    assert next_step(backup(CRON, status("Completed")), ["a"], late) == Begin()
    since = replace(READY, status="True", last_transition_time=late)
    done = replace(status("Completed"), conditions=[since])
    assert next_step(backup(CRON, done), ["a"], late) == Wait(NOON + timedelta(days=3, hours=1))


@pytest.mark.parametrize(("observed", "want"), [(1, Begin()), (2, Wait()), (0, Wait())])
def test_failed_backup_begins_again_after_a_change_that_is_known_to_be_one(observed: int, want: Step) -> None:
    known = replace(status("Failed"), observed_generation=observed, conditions=[])
    assert next_step(backup(PUSHED, known, generation=2), ["a"], NOON) == want


def test_image_without_a_name_in_the_spec_has_the_time_of_the_beginning() -> None:
    unnamed = backup(replace(PUSHED, containers=[]), status("Checkpointing"))
    assert str(target_image(unnamed, "a")) == f"localhost:5000/team/train:a-{int(NOON.timestamp())}"
