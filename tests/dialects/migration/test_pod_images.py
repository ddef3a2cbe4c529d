"""From which checkpoint a new pod of a Job starts: by backups, Job, CronJob and pod."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.dialects.migration.job_targets import (
    ActiveJob,
    BatchJob,
    BatchJobSpec,
    CronJob,
    CronJobStatus,
    target_keys,
)
from argosy.dialects.migration.pod_images import choose_checkpoint, pod_patch
from argosy.kinds.meta import Json, ObjectMeta, OwnerReference
from argosy.kinds.migration import (
    BuiltImage,
    CheckpointBackup,
    CheckpointBackupSpec,
    CheckpointBackupStatus,
    CompletedCheckpoint,
    ContainerImage,
    PodReference,
    RegistryTarget,
    ResourceReference,
)
from argosy.kinds.status_condition import SecretReference
from tests.support.step_counter import count_steps

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DIGEST, LOGS_DIGEST = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
PINNED = f"registry.example/team/train@{DIGEST}"
INDEX = "batch.kubernetes.io/job-completion-index"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
KEEP_OFF = {"key": "training.dcnlab.com/restore-capability", "operator": "NotIn", "values": ["none"]}

MAIN: Json = {
    "name": "main",
    "image": "train:v1",
    "command": ["python", "train.py"],
    "env": [{"name": "RATE", "value": "0.1"}],
}
LOGS: Json = {"name": "logs", "image": "logs:v1"}
POD: Json = {
    "metadata": {"generateName": "train-", "labels": {"job-name": "train"}},
    "spec": {"restartPolicy": "Never", "containers": [MAIN]},
}
JOB = BatchJob(
    ObjectMeta(name="train", namespace="research", uid="job", creation_timestamp=NOON - HOUR),
    BatchJobSpec(parallelism=1, completions=1, template={"spec": {"containers": [MAIN]}}),
)
CRON = CronJob(ObjectMeta(name="nightly", namespace="research", uid="cron"))
CRON_TARGET = ResourceReference("batch/v1", "CronJob", "nightly")
TEMPLATE: dict[str, object] = {
    "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "job", "controller-uid": "job"}},
    "spec": {"containers": [{**MAIN, "env": [{"name": "RATE", "value": "0.1"}, {"name": "ADDED"}]}]},
}
BACKUP = CheckpointBackup(
    ObjectMeta(name="backup", namespace="research"),
    CheckpointBackupSpec(
        schedule="@hourly",
        pod_ref=PodReference("train-x7k2p"),
        resource_ref=ResourceReference("batch/v1", "Job", "train"),
        registry=RegistryTarget("https://registry.example/", "team/train"),
    ),
    CheckpointBackupStatus(
        phase="Completed",
        completion_time=NOON,
        last_checkpoint_time=NOON,
        source_pod_uid="p",
        built_images=[BuiltImage("main", "team/train:main-1", NOON, pushed=True)],
        digests={"main": DIGEST},
        checkpointed_pod_template=TEMPLATE,
    ),
)


def spec(backup: CheckpointBackup = BACKUP, **fields: object) -> CheckpointBackup:
    return replace(backup, spec=replace(backup.spec, **fields))


def status(backup: CheckpointBackup = BACKUP, **fields: object) -> CheckpointBackup:
    return replace(backup, status=replace(backup.status, **fields))


def meta(**fields: object) -> CheckpointBackup:
    return replace(BACKUP, metadata=replace(BACKUP.metadata, **fields))


def recorded(change: Callable[[Json], None]) -> CheckpointBackup:
    """Return a backup whose recorded template is changed."""
    template = deepcopy(TEMPLATE)
    change(template)
    return status(checkpointed_pod_template=template)


def container(template: Json) -> Json:
    return cast("dict[str, list[Json]]", template["spec"])["containers"][0]


def restore(template: Json) -> None:
    """Change the template to that of a pod that was restored by the webhook."""
    container(template)["image"] = PINNED
    annotations = {"argosy.dev/original-images": '{"main":"train:v1"}'}
    template["metadata"] = {**cast("Json", template["metadata"]), "annotations": annotations}


def labelled(uid: str, template: Json) -> None:
    template["metadata"] = {"labels": {"controller-uid": uid}}


def indexed(index: str) -> CheckpointBackup:
    metadata = {"labels": {"controller-uid": "job"}, "annotations": {INDEX: index}}
    return recorded(lambda template: template.update(metadata=metadata))


def owned(api_version: str, kind: str) -> CheckpointBackup:
    return meta(owner_references=[OwnerReference(api_version, kind, "a", "u", controller=True)])


def job(**fields: object) -> BatchJob:
    return replace(JOB, spec=replace(JOB.spec, **fields))


def with_containers(*containers: Json, pod: Json = POD) -> Json:
    return {**pod, "spec": {**cast("Json", pod["spec"]), "containers": list(containers)}}


TWO = status(
    built_images=[
        *BACKUP.status.built_images,
        BuiltImage("logs", "team/train:logs-1", NOON, pushed=True),
    ],
    digests={"main": DIGEST, "logs": LOGS_DIGEST},
    checkpointed_pod_template={**TEMPLATE, "spec": {"containers": [MAIN, LOGS]}},
)
UNDER_WAY = status(
    phase="ImagePushing",
    built_images=[BuiltImage("main", "team/train:main-2", NOON, pushed=False)],
    digests={"main": LOGS_DIGEST},
    completion_time=None,
    last_completed=CompletedCheckpoint(NOON, NOON, "p", BACKUP.status.built_images, BACKUP.status.digests),
)
OF_ANOTHER_JOB = recorded(lambda template: labelled("another", template))
OF_CRON = spec(OF_ANOTHER_JOB, resource_ref=CRON_TARGET)
INDEXED = job(completion_mode="Indexed", parallelism=4, completions=4)
INDEXED_POD: Json = {**POD, "metadata": {"annotations": {INDEX: "2"}}}


class Case(Struct, frozen=True):
    """What is there, and what the container `main` gets."""

    want: str
    """Its image; or a part of the reason why it stays as it is; empty: no backup is about it."""
    backups: tuple[CheckpointBackup, ...] = (BACKUP,)
    pod: Json = field(default_factory=lambda: POD)
    job: BatchJob = JOB
    cron: CronJob | None = None


CASES: dict[str, Case] = {
    "good backup: its image, by digest": Case(PINNED),
    "backup without a digest: its image, by tag": Case(
        "registry.example/team/train:main-1", (status(digests={}),)
    ),
    "no backup: nothing": Case("", ()),
    # Which backups are about the pod.
    "backup of another Job: nothing": Case(
        "", (spec(resource_ref=ResourceReference("batch/v1", "Job", "other")),)
    ),
    "target of another API with the name of the Job: nothing": Case(
        "", (spec(resource_ref=ResourceReference("apps/v1", "Job", "train")),)
    ),
    "target that is a StatefulSet: nothing": Case(
        "", (spec(resource_ref=ResourceReference("batch/v1", "StatefulSet", "train")),)
    ),
    "target that names the own namespace: its image": Case(
        PINNED, (spec(resource_ref=ResourceReference("batch/v1beta1", "Job", "train", "research")),)
    ),
    "target in another namespace: nothing": Case(
        "", (spec(resource_ref=ResourceReference("batch/v1", "Job", "train", "other")),)
    ),
    "checkpointed pod in another namespace: nothing": Case(
        "", (spec(pod_ref=PodReference("train-x7k2p", "other")),)
    ),
    "images that stay on a node: nothing": Case("", (spec(registry=None),)),
    "backup that is being deleted: nothing": Case("", (meta(deletion_timestamp=NOON),)),
    "backup of a SpotInstanceJob: nothing": Case(
        "", (meta(labels={"training.dcnlab.com/spot-instance-job": "sij"}),)
    ),
    "backup of a TrainingRun: nothing": Case("", (owned("argosy.dev/v1alpha1", "TrainingRun"),)),
    "backup of a StatefulMigration: nothing": Case(
        "", (owned("migration.dcnlab.com/v1", "StatefulMigration"),)
    ),
    "backup of somebody else's controller: its image": Case(PINNED, (owned("example.com/v1", "Plan"),)),
    "backup of a pod in another cluster: nothing": Case(
        "", (meta(annotations={"argosy.dev/member-cluster": "b"}),)
    ),
    "backup that is only kept: nothing": Case("", (meta(annotations={"argosy.dev/restore-pods": "false"}),)),
    # Whether it is good.
    "failed backup: why not": Case("phase 'Failed'", (status(phase="Failed"),)),
    "images said to be pushed, but no phase: why not": Case("phase 'Pending'", (status(phase=""),)),
    "phase of another agent: why not": Case("phase 'Compressing'", (status(phase="Compressing"),)),
    "completed with its pod deleted: its image": Case(PINNED, (status(phase="CompletedPodDeleted"),)),
    "pushed, and the pod is being deleted: its image": Case(
        PINNED, (status(phase="ImagePushed", completion_time=None),)
    ),
    "something failed after the push: its image": Case(PINNED, (status(phase="CompletedWithError"),)),
    "image that was not pushed: why not": Case(
        "the image of container 'main' was not pushed",
        (status(phase="CompletedWithError", built_images=[BuiltImage("main", "team/train:main-1")]),),
    ),
    "archives only: why not": Case("'main' was not pushed", (status(built_images=[]),)),
    "next checkpoint under way: the image of the last one": Case(PINNED, (UNDER_WAY,)),
    "next checkpoint failed: the image of the last one": Case(PINNED, (status(UNDER_WAY, phase="Failed"),)),
    "next checkpoint only partly pushed: the image of the last one": Case(
        PINNED, (status(UNDER_WAY, phase="CompletedWithError"),)
    ),
    "next checkpoint under way, the last one of another pod: why not": Case(
        "phase 'ImagePushing'", (status(UNDER_WAY, source_pod_uid="q"),)
    ),
    "image of another registry: why not": Case(
        "must be an image of the registry",
        (status(built_images=[BuiltImage("main", "evil.example/train:1", NOON, pushed=True)]),),
    ),
    "image that is none: why not": Case(
        "invalid image name", (status(built_images=[BuiltImage("main", "A B", NOON, pushed=True)]),)
    ),
    "digest that is none: why not": Case("the digest of container", (status(digests={"main": "latest"}),)),
    "newest of several: by completion": Case(
        PINNED,
        (
            replace(
                status(completion_time=NOON - HOUR, digests={"main": LOGS_DIGEST}),
                metadata=ObjectMeta(name="z", namespace="research"),
            ),
            BACKUP,
        ),
    ),
    "newer one without a completion time, from another agent: by its checkpoint": Case(
        "registry.example/team/train:main-1",
        (
            BACKUP,
            status(completion_time=None, last_checkpoint_time=NOON + HOUR, digests={}),
        ),
    ),
    "newest is not good: the one before": Case(
        PINNED, (status(completion_time=NOON + HOUR, phase="Failed"), BACKUP)
    ),
    "times without a zone: compared as UTC": Case(
        PINNED,
        (BACKUP, status(completion_time=datetime(2026, 3, 1, 11), digests={})),
    ),
    # What the pod would start.
    "other image now: why not": Case(
        "container 'main' has another image now", pod=with_containers({**MAIN, "image": "train:v2"})
    ),
    "other command now: why not": Case(
        "another command now", pod=with_containers({**MAIN, "command": ["sh"]})
    ),
    "other arguments now: why not": Case(
        "another args now", pod=with_containers({**MAIN, "args": ["--fast"]})
    ),
    "no arguments, and an empty list of them: its image": Case(
        PINNED, pod=with_containers({**MAIN, "args": []})
    ),
    "other variable in the Job now: why not": Case(
        "another env now",
        job=job(template={"spec": {"containers": [{**MAIN, "env": [{"name": "RATE", "value": "1"}]}]}}),
    ),
    "variable that only the Job has now: why not": Case(
        "another env now",
        job=job(template={"spec": {"containers": [{**MAIN, "env": [{"name": "SEED", "value": "1"}]}]}}),
    ),
    "container that the pod has not: why not": Case(
        "the pod has no container 'main'", pod=with_containers({**MAIN, "name": "other"})
    ),
    "nothing recorded of the pod: its image": Case(PINNED, (status(checkpointed_pod_template={}),)),
    "garbage instead of the recorded spec: why not": Case(
        "not in status.checkpointedPodTemplate", (recorded(lambda t: t.update(spec=7)),)
    ),
    "garbage instead of the recorded metadata: by time": Case(
        PINNED, (recorded(lambda t: t.update(metadata=["x"])),)
    ),
    "garbage instead of recorded labels: why not": Case(
        "did not belong", (recorded(lambda t: t.update(metadata={"labels": {"controller-uid": {"a": []}}})),)
    ),
    "garbage instead of recorded containers: why not": Case(
        "not in status", (recorded(lambda t: t.update(spec={"containers": [1, None, "main"]})),)
    ),
    "garbage instead of recorded variables: why not": Case(
        "another env", (recorded(lambda t: container(t).update(env=7)),)
    ),
    "checkpoint of a pod that was restored itself: by the image of its program": Case(
        PINNED, (recorded(restore),)
    ),
    "two containers: both covered": Case(PINNED, (TWO,), with_containers(LOGS, MAIN)),
    "two containers, one not in the pod: none": Case("no container 'logs'", (TWO,)),
    "two containers, one with another image: none": Case(
        "'logs' has another image", (TWO,), with_containers(MAIN, {**LOGS, "image": "logs:v2"})
    ),
    "two containers, one not pushed: none": Case(
        "'logs' was not pushed",
        (status(TWO, built_images=BACKUP.status.built_images),),
        with_containers(MAIN, LOGS),
    ),
    "two containers, only one to be checkpointed: that one": Case(
        PINNED,
        (
            spec(
                status(TWO, built_images=BACKUP.status.built_images),
                containers=[ContainerImage("main", "team/train:main-1")],
            ),
        ),
        with_containers(MAIN, LOGS),
    ),
    # Whose work it is.
    "pod of an earlier Job of the name: why not": Case("did not belong to this Job", (OF_ANOTHER_JOB,)),
    "unknown Job, checkpoint older than this one: why not": Case(
        "older than this Job",
        (status(checkpointed_pod_template={}, last_checkpoint_time=NOON - 2 * HOUR),),
    ),
    "unknown Job, and nobody says when: why not": Case(
        "older than this Job",
        (
            status(
                checkpointed_pod_template={},
                last_checkpoint_time=None,
                completion_time=None,
                built_images=[BuiltImage("main", "team/train:main-1", pushed=True)],
            ),
        ),
    ),
    "Job that is being deleted: why not": Case(
        "it is being deleted", job=replace(JOB, metadata=replace(JOB.metadata, deletion_timestamp=NOON))
    ),
    "Job of a SpotInstanceJob: why not": Case(
        "its controller restores pods",
        job=replace(
            JOB,
            metadata=replace(
                JOB.metadata,
                owner_references=[
                    OwnerReference(
                        "training.training.dcnlab.com/v1alpha1", "SpotInstanceJob", "a", "u", controller=True
                    )
                ],
            ),
        ),
    ),
    "several pods at once, not Indexed: why not": Case("spec.parallelism: 2 pods", job=job(parallelism=2)),
    "several pods in turn, not Indexed: why not": Case("spec.completions: 5 pods", job=job(completions=5)),
    "one pod, whatever it completes: its image": Case(PINNED, job=job(completions=None)),
    "Indexed, the same index: its image": Case(PINNED, (indexed("2"),), INDEXED_POD, INDEXED),
    "Indexed, another index: why not": Case(
        "another completion index", (indexed("1"),), INDEXED_POD, INDEXED
    ),
    "Indexed, no index recorded: why not": Case("another completion index", (BACKUP,), INDEXED_POD, INDEXED),
    "Indexed, no index anywhere: why not": Case("another completion index", (BACKUP,), POD, INDEXED),
    "CronJob that is the target: its image": Case(PINNED, (OF_CRON,), cron=CRON),
    "CronJob that is not the target: nothing": Case(
        "", (OF_CRON,), cron=replace(CRON, metadata=ObjectMeta(name="weekly"))
    ),
    "CronJob is the target, Job has none: nothing": Case("", (OF_CRON,)),
    "CronJob that has succeeded since: why not": Case(
        "has succeeded since",
        (OF_CRON,),
        cron=replace(CRON, status=CronJobStatus(last_successful_time=NOON + HOUR)),
    ),
    "CronJob that has succeeded before: its image": Case(
        PINNED, (OF_CRON,), cron=replace(CRON, status=CronJobStatus(last_successful_time=NOON - HOUR))
    ),
    "CronJob that succeeded while the checkpoint was pushed: why not": Case(
        "has succeeded since",
        (status(OF_CRON, completion_time=NOON + HOUR),),
        cron=replace(CRON, status=CronJobStatus(last_successful_time=NOON + HOUR / 2)),
    ),
    "CronJob with this Job active: its image": Case(
        PINNED, (OF_CRON,), cron=replace(CRON, status=CronJobStatus([ActiveJob("job")]))
    ),
    "CronJob with another Job active: why not": Case(
        "another Job of the CronJob runs",
        (OF_CRON,),
        cron=replace(CRON, status=CronJobStatus([ActiveJob("job"), ActiveJob("another")])),
    ),
    "CronJob is the target, retry within a Job: its image, whatever other Jobs do": Case(
        PINNED,
        (spec(resource_ref=CRON_TARGET),),
        cron=replace(CRON, status=CronJobStatus([ActiveJob("another")], NOON + HOUR)),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_pod_starts_from(case: Case) -> None:
    before = deepcopy(case.pod)
    choice = choose_checkpoint(case.pod, case.job, case.cron, case.backups)
    if choice.checkpoint is not None:
        assert case.want == choice.checkpoint.images["main"]
        pod_patch(case.pod, choice.checkpoint)
    elif case.want:
        assert case.want in "; ".join(choice.reasons)
    else:
        assert choice.reasons == ()
    assert case.pod == before, "the pod was changed in place"


def test_only_backups_that_may_concern_a_pod_are_found() -> None:
    assert list(target_keys(BACKUP)) == ["research/Job/train"]
    assert list(target_keys(spec(resource_ref=CRON_TARGET))) == ["research/CronJob"]
    for name in ("images that stay on a node: nothing", "backup of a SpotInstanceJob: nothing"):
        assert list(target_keys(CASES[name].backups[0])) == []


def applied(pod: Json, patch: list[Json]) -> Json:
    """Return the pod after a JSON patch of additions and replacements."""
    result = deepcopy(pod)
    for operation in patch:
        *path, last = [part.replace("~1", "/") for part in str(operation["path"]).split("/")[1:]]
        target: object = result
        for part in path:
            target = target[int(part)] if isinstance(target, list) else cast("Json", target)[part]
        assert isinstance(target, dict)
        assert operation["op"] == "add" or last in target
        target[last] = operation["value"]
    return result


def test_patched_pod_has_the_images_and_says_where_they_are_from() -> None:
    affinity = {
        "podAffinity": {"a": 1},
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "gpu"}]}, {"matchFields": [{"key": "a"}]}]
            }
        },
    }
    pod: Json = {
        "metadata": {"annotations": {"mine": "yes"}},
        "spec": {
            "affinity": affinity,
            "imagePullSecrets": [{"name": "mine"}],
            "containers": [LOGS, {**MAIN, "imagePullPolicy": "Never"}],
        },
    }
    checkpoint = choose_checkpoint(pod, JOB, None, [BACKUP]).checkpoint
    assert checkpoint is not None
    patched = applied(pod, pod_patch(pod, checkpoint, "registry-login"))
    assert patched == {
        "metadata": {
            "annotations": {
                "mine": "yes",
                "argosy.dev/restored-containers": "main",
                "argosy.dev/original-images": '{"main":"train:v1"}',
                "training.dcnlab.com/restored-from": "backup",
            }
        },
        "spec": {
            "affinity": {
                "podAffinity": {"a": 1},
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "gpu"}, KEEP_OFF]},
                            {"matchFields": [{"key": "a"}], "matchExpressions": [KEEP_OFF]},
                        ]
                    }
                },
            },
            "imagePullSecrets": [{"name": "mine"}, {"name": "registry-login"}],
            "containers": [LOGS, {**MAIN, "image": PINNED, "imagePullPolicy": "IfNotPresent"}],
        },
    }
    again = pod_patch(patched, checkpoint, "registry-login")
    assert not [each for each in again if each["path"] == "/spec/imagePullSecrets"]


def test_pod_without_annotations_and_affinity_gets_them() -> None:
    checkpoint = choose_checkpoint(POD, JOB, None, [BACKUP]).checkpoint
    assert checkpoint is not None
    patched = applied(POD, pod_patch(POD, checkpoint))
    metadata, pod_spec = cast("Json", patched["metadata"]), cast("Json", patched["spec"])
    assert cast("Json", metadata["annotations"])["training.dcnlab.com/restored-from"] == "backup"
    terms = {"nodeSelectorTerms": [{"matchExpressions": [KEEP_OFF]}]}
    assert pod_spec["affinity"] == {"nodeAffinity": {REQUIRED: terms}}
    assert "imagePullSecrets" not in pod_spec


SECRETS: dict[str, tuple[SecretReference | None, str]] = {
    "no Secret": (None, ""),
    "Secret of the own namespace": (SecretReference("login"), "login"),
    "the same, named": (SecretReference("login", "research"), "login"),
    "Secret of another namespace: pods cannot use it": (SecretReference("login", "other"), ""),
}


@pytest.mark.parametrize(("secret", "want"), SECRETS.values(), ids=SECRETS.keys())
def test_secret_with_which_the_pod_may_pull(secret: SecretReference | None, want: str) -> None:
    registry = RegistryTarget("registry.example", "team/train", secret)
    checkpoint = choose_checkpoint(POD, JOB, None, [spec(registry=registry)]).checkpoint
    assert checkpoint is not None
    assert checkpoint.pull_secret == want


def test_a_thousand_backups_cost_a_thousand_times_one() -> None:
    many = [meta(name=f"backup-{number}") for number in range(1000)]

    def steps(backups: list[CheckpointBackup]) -> int:
        return count_steps(lambda: choose_checkpoint(POD, JOB, None, backups))

    assert steps(many) < 12 * steps(many[:100])
