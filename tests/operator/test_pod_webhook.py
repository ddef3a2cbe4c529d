"""Tests for the webhook that lets pods of Jobs start from checkpoints, called by a real API server."""

from base64 import b64encode
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import pytest

from argosy.engine.dynamic import AnyObject, dynamic_kind
from argosy.kinds import labels
from argosy.kinds.kubernetes import Job, Lease, Pod
from argosy.kinds.meta import Json
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.resource import Resource
from argosy.operator.apis.spot import SPOT
from argosy.operator.settings import NAME
from argosy.operator.webhooks import inject_ca
from tests.support.certificates import Authority
from tests.support.operator_harness import Scene, until_served
from tests.support.operator_rights import reader_with_rules
from tests.support.servers import Server, free_port
from tests.support.webhooks import ca_bundles, configuration_name, configured_webhooks

STORED_POD, STORED_JOB = dynamic_kind(Pod.resource), dynamic_kind(Job.resource)
STORED_BACKUP = dynamic_kind(CheckpointBackup.resource)
CRON_JOB = dynamic_kind(Resource("batch", "v1", "CronJob", "cronjobs"))
DIGEST = f"sha256:{'a' * 64}"
CHECKPOINT = f"registry.example/team/train@{DIGEST}"
CONTAINER: Json = {"name": "main", "image": "train:v1", "command": ["python", "train.py"]}
TEMPLATE: Json = {"spec": {"restartPolicy": "Never", "containers": [CONTAINER]}}


@pytest.fixture
def api(real_apiserver: Server) -> Server:
    """A real API server only: the local one calls no webhooks."""
    return real_apiserver


@dataclass
class Stage:
    """A namespace in which the test acts as controller of Jobs and as node agent."""

    scene: Scene
    port: int

    @property
    def settings(self) -> dict[str, object]:
        """What an operator needs to be asked about pods."""
        return {
            "endpoint": f"127.0.0.1:{self.port}",
            "webhooks": configuration_name(self.scene.namespace),
            "apis": (SPOT,),
        }

    async def create(
        self, kind: type[AnyObject], name: str, spec: Json, owner: AnyObject | None = None
    ) -> AnyObject:
        owners = [_reference(owner)] if owner is not None else []
        body = {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec}
        return await self.scene.client.create(kind, body, self.scene.namespace)

    async def add_job(self, name: str = "train", owner: AnyObject | None = None) -> AnyObject:
        return await self.create(STORED_JOB, name, {"template": TEMPLATE}, owner)

    async def add_backup(self, target: AnyObject, checkpointed: AnyObject, name: str = "backup") -> None:
        """Add a complete backup of a pod of the Job `checkpointed`."""
        reference = {**_reference(target), "namespace": self.scene.namespace}
        spec: Json = {
            "schedule": "immediately",
            "podRef": {"name": "train-x7k2p"},
            "resourceRef": {key: reference[key] for key in ("apiVersion", "kind", "name", "namespace")},
            "registry": {
                "url": "registry.example",
                "repository": "team/train",
                "secretRef": {"name": "login"},
            },
        }
        await self.create(STORED_BACKUP, name, spec)
        image = {"containerName": "main", "imageName": "team/train:main-1", "pushed": True}
        recorded = {"metadata": {"labels": {"controller-uid": checkpointed.metadata.uid}}, **TEMPLATE}
        status: Json = {
            "phase": "Completed",
            "completionTime": "2126-01-01T00:00:00Z",
            "lastCheckpointTime": "2126-01-01T00:00:00Z",
            "builtImages": [image],
            "digests": {"main": DIGEST},
            "checkpointedPodTemplate": recorded,
        }
        await self.report(name, status)

    async def report(self, name: str, status: Json) -> None:
        client, namespace = self.scene.client, self.scene.namespace
        await client.patch(STORED_BACKUP, name, {"status": status}, namespace, subresource="status")

    async def new_pod(self, job: AnyObject, *, dry_run: bool = False, label: str = "job-name") -> Json:
        """Create a pod as the Job controller does; return it as it is stored."""
        metadata: Json = {
            "generateName": f"{job.metadata.name}-",
            "labels": {label: job.metadata.name, "controller-uid": job.metadata.uid},
            "ownerReferences": [_reference(job)],
        }
        body = {"metadata": metadata, **TEMPLATE}
        client = self.scene.client
        return (await client.create(STORED_POD, body, self.scene.namespace, dry_run=dry_run)).raw

    async def until_restored(self, job: AnyObject) -> None:
        """Wait until the operator is asked and its cache has what was created before."""

        async def is_restored() -> bool:
            return image(await self.new_pod(job, dry_run=True)) == CHECKPOINT

        await self.scene.until("a pod would be restored", is_restored)

    async def until_asked(self) -> None:
        """Wait until the API server can call the operator."""

        async def has_bundles() -> bool:
            found = await ca_bundles(self.scene.client, self.scene.namespace)
            return bool(found) and "" not in found

        await self.scene.until("the webhooks know our authority", has_bundles)


def _reference(owner: AnyObject) -> Json:
    meta, resource = owner.metadata, owner.resource
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }


def image(pod: Json) -> object:
    return cast("dict[str, list[Json]]", pod["spec"])["containers"][0]["image"]


def annotations(pod: Json) -> Json:
    return cast("dict[str, Json]", pod["metadata"]).get("annotations", {})


@pytest.fixture
async def stage(scene: Scene) -> AsyncIterator[Stage]:
    await until_served(scene.client, CheckpointBackup, scene.namespace)
    stage, only_spot = Stage(scene, free_port()), {"argosy": False, "ares": False, "spot": True}
    async with configured_webhooks(scene.client, stage.port, scene.namespace, only_spot):
        yield stage


async def test_retried_pod_of_a_job_starts_from_its_checkpoint(stage: Stage) -> None:
    """With no more rights than the chart grants."""
    login = {"metadata": {"name": "login"}, "type": "kubernetes.io/dockerconfigjson"}
    secret = {**login, "stringData": {".dockerconfigjson": '{"auths":{}}'}}
    secrets = dynamic_kind(Resource("", "v1", "Secret", "secrets"))
    await stage.scene.client.create(secrets, secret, stage.scene.namespace)
    job = await stage.add_job()
    first = await stage.new_pod(job)
    assert (image(first), annotations(first)) == ("train:v1", {}), "nobody can be asked: the pod is created"
    await stage.add_backup(job, job)
    async with (
        reader_with_rules(stage.scene, SPOT) as kubeconfig,
        stage.scene.operator(**stage.settings, kubeconfig=kubeconfig),
    ):
        await stage.until_restored(job)
        pod = await stage.new_pod(job)
        assert image(pod) == CHECKPOINT
        assert annotations(pod) == {
            labels.RESTORED_CONTAINERS: "main",
            labels.ORIGINAL_IMAGES: '{"main":"train:v1"}',
            "training.dcnlab.com/restored-from": "backup",
        }
        spec = cast("Json", pod["spec"])
        assert spec["imagePullSecrets"] == [{"name": "login"}]
        assert "training.dcnlab.com/restore-capability" in str(spec["affinity"])
        unlabelled = await stage.new_pod(job, label="mine")
        assert image(unlabelled) == "train:v1", "only pods of Jobs are asked about"
        other = await stage.add_job("other")
        assert image(await stage.new_pod(other)) == "train:v1"


async def test_job_of_a_cron_job_starts_from_the_checkpoint_of_the_one_before(stage: Stage) -> None:
    cron_spec: Json = {"schedule": "@hourly", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    cron_job = await stage.create(CRON_JOB, "nightly", cron_spec)
    before, job = [await stage.add_job(f"nightly-{number}", cron_job) for number in (1, 2)]
    await stage.add_backup(cron_job, before)
    async with (
        reader_with_rules(stage.scene, SPOT) as kubeconfig,
        stage.scene.operator(**stage.settings, kubeconfig=kubeconfig),
    ):
        await stage.until_restored(job)
        done = {"status": {"lastSuccessfulTime": "2127-01-01T00:00:00Z"}}
        client, namespace = stage.scene.client, stage.scene.namespace
        await client.patch(CRON_JOB, "nightly", done, namespace, subresource="status")
        assert image(await stage.new_pod(job)) == "train:v1", "its work is done"


async def test_pod_is_created_as_it_is_without_the_right_to_read_its_cron_job(stage: Stage) -> None:
    cron_spec: Json = {"schedule": "@hourly", "jobTemplate": {"spec": {"template": TEMPLATE}}}
    cron_job = await stage.create(CRON_JOB, "nightly", cron_spec)
    job, plain = await stage.add_job("nightly-1", cron_job), await stage.add_job()
    await stage.add_backup(cron_job, job)
    await stage.add_backup(plain, plain, "of-the-other")
    narrow = SPOT.__class__(
        **{**vars(SPOT), "rules": tuple(rule for rule in SPOT.rules if "cronjobs" not in rule.resources)}
    )
    async with (
        reader_with_rules(stage.scene, narrow) as kubeconfig,
        stage.scene.operator(**stage.settings, kubeconfig=kubeconfig),
    ):
        await stage.until_restored(plain)
        assert image(await stage.new_pod(job)) == "train:v1"


async def test_authority_is_injected_although_there_is_no_validating_webhook(stage: Stage) -> None:
    authority = Authority().certificate
    await inject_ca(stage.scene.client, configuration_name(stage.scene.namespace), authority.decode())
    assert await ca_bundles(stage.scene.client, stage.scene.namespace) == {b64encode(authority).decode()}


async def test_standby_replica_restores_pods_too(stage: Stage) -> None:
    job = await stage.add_job()
    await stage.add_backup(job, job)
    common = {**stage.settings, "leader_elect": True}
    async with stage.scene.operator(**{**common, "identity": "leader", "endpoint": ""}):
        await stage.until_asked()
        async with stage.scene.operator(**common, identity="standby"):
            await stage.until_restored(job)
            lease = await stage.scene.client.get(Lease, NAME, stage.scene.namespace)
            assert lease.spec.holder_identity == "leader"


async def test_backup_that_is_not_good_or_goes_away_restores_nothing(stage: Stage) -> None:
    job = await stage.add_job()
    await stage.add_backup(job, job)
    async with stage.scene.operator(**stage.settings):
        await stage.until_restored(job)

        async def is_fresh() -> bool:
            return image(await stage.new_pod(job, dry_run=True)) == "train:v1"

        await stage.report("backup", {"phase": None})  # others have said that images are pushed
        await stage.scene.until("no phase, no checkpoint", is_fresh)
        await stage.report("backup", {"phase": "Completed"})
        await stage.until_restored(job)
        await stage.scene.client.delete(STORED_BACKUP, "backup", stage.scene.namespace)
        await stage.scene.until("no backup, no checkpoint", is_fresh)
