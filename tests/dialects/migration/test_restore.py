"""Pods of CheckpointRestores, by backup, pod and what the API server says."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from argosy.dialects.migration.restore import RestoreReconciler
from argosy.kinds.kubernetes import Pod, PodStatus
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import (
    BackupReference,
    BuiltImage,
    CheckpointBackup,
    CheckpointBackupSpec,
    CheckpointBackupStatus,
    CheckpointRestore,
    CheckpointRestoreSpec,
    CheckpointRestoreStatus,
    ContainerImage,
    RegistryTarget,
)
from argosy.plan.actions import ActionResult, ActionStatus, Apply
from argosy.plan.contract import Decision, Inputs, Ref

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BACKUP = Ref(CheckpointBackup, "backup", "research")
TEMPLATE: dict[str, object] = {
    "metadata": {"labels": {"app": "train"}},
    "spec": {
        "restartPolicy": "Never",
        "containers": [
            {"name": "main", "image": "train:v1", "command": ["python", "train.py"]},
            {"name": "logs", "image": "logs:v1"},
        ],
    },
}
RESTORE = CheckpointRestore(
    ObjectMeta(name="restore", namespace="research", uid="r", generation=1),
    CheckpointRestoreSpec(backup_ref=BackupReference("backup"), pod_name="train-0"),
)


def backup(phase: str = "Completed", *, registry: bool = True, pushed: bool = True) -> CheckpointBackup:
    target = RegistryTarget("https://registry.example/", "team/train") if registry else None
    name = "team/train:main-1" if registry else "localhost/checkpoint-train-0-main:1"
    status = CheckpointBackupStatus(
        phase=phase,
        message="no room",
        node_name="node-1",
        built_images=[BuiltImage("main", name, pushed=pushed)],
        checkpointed_pod_template=TEMPLATE,
    )
    return CheckpointBackup(ObjectMeta(name="backup"), CheckpointBackupSpec(registry=target), status)


def pod(phase: str) -> Pod:
    return Pod(ObjectMeta(name="train-0", uid="p"), status=PodStatus(phase=phase))


def decide(
    restore: CheckpointRestore = RESTORE,
    source: CheckpointBackup | None = None,
    child: Pod | None = None,
    failure: ActionStatus | None = None,
) -> Decision:
    inputs = Inputs(
        children=(child,) if child else (),
        found={BACKUP: (source,) if source else ()},
        failures=(ActionResult("Pod", "train-0", failure, "quota exceeded"),) if failure else (),
    )
    return RestoreReconciler().decide(restore, None, inputs, NOON)


def shown(decision: Decision) -> tuple[str, str, str]:
    status = decision.status
    assert isinstance(status, CheckpointRestoreStatus)
    [ready] = status.conditions
    return status.phase, ready.status, ready.reason


CASES = {
    "no backup: waits": (decide(), ("Pending", "False", "BackupNotFound"), False),
    "backup in progress: waits": (
        decide(source=backup("ImagePushing")),
        ("Pending", "False", "BackupNotReady"),
        False,
    ),
    "backup not begun: waits": (decide(source=backup("")), ("Pending", "False", "BackupNotReady"), False),
    "backup failed: fails": (decide(source=backup("Failed")), ("Failed", "False", "BackupFailed"), False),
    "backup completed: creates the pod": (
        decide(source=backup()),
        ("Restoring", "False", "PodPending"),
        True,
    ),
    "backup completed and its pod deleted: creates the pod": (
        decide(source=backup("CompletedPodDeleted")),
        ("Restoring", "False", "PodPending"),
        True,
    ),
    "image not pushed: fails": (
        decide(source=backup(pushed=False)),
        ("Failed", "False", "PodInvalid"),
        False,
    ),
    "pod of that name exists: fails": (
        decide(source=backup(), failure=ActionStatus.NAME_CONFLICT),
        ("Failed", "False", "PodExists"),
        False,
    ),
    "API server calls the pod invalid: fails": (
        decide(source=backup(), failure=ActionStatus.INVALID),
        ("Failed", "False", "PodInvalid"),
        False,
    ),
    "API server forbids the pod, such as by a quota: creates it again": (
        decide(source=backup(), failure=ActionStatus.FORBIDDEN),
        ("Restoring", "False", "PodPending"),
        True,
    ),
    "pod is pending: restoring, and nothing is created": (
        decide(source=backup(), child=pod("Pending")),
        ("Restoring", "False", "PodPending"),
        False,
    ),
    "pod runs: restored": (
        decide(source=backup(), child=pod("Running")),
        ("Restored", "True", "Restored"),
        False,
    ),
    "pod runs and the backup is gone: restored": (
        decide(child=pod("Running")),
        ("Restored", "True", "Restored"),
        False,
    ),
    "pod has succeeded already: restored": (
        decide(source=backup(), child=pod("Succeeded")),
        ("Restored", "True", "Restored"),
        False,
    ),
    "pod failed before it was seen running: fails": (
        decide(source=backup(), child=pod("Failed")),
        ("Failed", "False", "PodLost"),
        False,
    ),
    "pod deleted before it was seen running: fails": (
        decide(replace(RESTORE, status=CheckpointRestoreStatus("Restoring", pod_uid="p")), backup()),
        ("Failed", "False", "PodLost"),
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_phase(case: str) -> None:
    decision, want, want_created = CASES[case]
    assert shown(decision) == want
    assert any(isinstance(action, Apply) for action in decision.actions) == want_created


def test_refusal_of_the_api_server_is_in_the_message() -> None:
    decision = decide(source=backup(), failure=ActionStatus.FORBIDDEN)
    assert getattr(decision.status, "message", "") == "quota exceeded"


@pytest.mark.parametrize("phase", ["Restored", "Failed"])
def test_finished_restore_never_changes(phase: str) -> None:
    finished = replace(RESTORE, status=CheckpointRestoreStatus(phase, "done"))
    assert decide(finished, backup()) == Decision(finished.status)
    assert RestoreReconciler().needs(finished, None) == ()


def created(decision: Decision) -> dict[str, object]:
    [action] = decision.actions
    assert isinstance(action, Apply)
    assert action.child.name == "train-0"
    return dict(action.child.body)


def test_pod_has_the_template_with_the_images_of_the_checkpoint() -> None:
    assert created(decide(source=backup())) == {
        "metadata": {
            "labels": {"app": "train"},
            "annotations": {"argosy.dev/restored-containers": "main"},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/team/train:main-1",
                    "command": ["python", "train.py"],
                },
                {"name": "logs", "image": "logs:v1"},
            ],
        },
    }


def test_images_of_the_spec_take_precedence() -> None:
    images = [ContainerImage("logs", "other.example/logs:7")]
    restore = replace(RESTORE, spec=replace(RESTORE.spec, containers=images))
    spec = created(decide(restore, backup()))["spec"]
    assert isinstance(spec, dict)
    assert [item["image"] for item in spec["containers"]] == ["train:v1", "other.example/logs:7"]


def test_unknown_container_fails() -> None:
    restore = replace(RESTORE, spec=replace(RESTORE.spec, containers=[ContainerImage("mian", "a:1")]))
    decision = decide(restore, backup())
    assert shown(decision) == ("Failed", "False", "PodInvalid")
    assert 'unknown container "mian"' in getattr(decision.status, "message", "")


def test_image_that_was_not_pushed_anywhere_keeps_the_pod_on_its_node() -> None:
    spec = created(decide(source=backup(registry=False, pushed=False)))["spec"]
    assert isinstance(spec, dict)
    assert spec["containers"][0]["image"] == "localhost/checkpoint-train-0-main:1"
    assert spec["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert "node-1" in str(spec["affinity"])


def test_backup_without_template_gives_a_pod_of_its_images() -> None:
    found = backup()
    found = replace(found, status=replace(found.status, checkpointed_pod_template={}))
    assert created(decide(source=found))["spec"] == {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "registry.example/team/train:main-1"}],
    }
