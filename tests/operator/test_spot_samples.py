"""Tests for the files in `deploy/spot/config/samples`, on an API server with the operator and without agents.

What needs no agent is observed: phases, and reasons of conditions. Files below `refused` are not accepted.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from argosy.dialects.migration.targets import Deployment, StatefulSet
from argosy.engine.errors import Invalid
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import Json
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore, StatefulMigration
from argosy.kinds.spot import SpotInstanceJob
from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
from argosy.kinds.status_condition import StatusCondition
from argosy.operator.apis.base import with_setting
from argosy.operator.apis.spot import SPOT
from tests.support.commands import REPOSITORY
from tests.support.operator_harness import Scene, until_served
from tests.support.servers import Server

SAMPLES = REPOSITORY / "deploy" / "spot" / "config" / "samples"
OWN = (
    *(CheckpointBackup, CheckpointRestore, StatefulMigration),
    *(SpotInstanceJob, SpotInstanceVM, InstanceTemplate, ProvisionedInstance),
)
KINDS: dict[str, type[ApiObject]] = {kind.resource.kind: kind for kind in (*OWN, Deployment, StatefulSet)}

MIGRATIONS = {
    "move-my-database": ("True", "BackupsCreated", 1),
    "move-without-secret": ("True", "BackupsCreated", 1),
    "move-zero-replicas": ("True", "NoPods", 0),
    "move-long-cluster-names": ("False", "ClusterUnknown", 1),
    "move-missing-target": ("False", "ResourceNotFound", 0),
}
"""The condition Ready, its reason, and the number of backups."""
RESTORES = {"restore-my-pod": "BackupNotReady", "restore-from-images": "BackupNotFound"}
BACKUPS = {
    "keep-on-node": ("immediately", False),
    "keep-on-node-and-stop": ("immediately", True),
    "push-once": ("immediately", False),
    "push-and-stop": ("immediately", True),
    "push-every-six-hours": ("0 */6 * * *", False),
    "push-by-schedule-and-stop": ("*/10 * * * *", True),
}
"""The schedule, and whether the pod is stopped."""
JOBS = {"my-training-job": "SpotInstanceVM", "my-later-job": "InstanceTemplate"}
"""The kind of template of the VMs."""


def documents(folder: Path) -> Iterator[Json]:
    for path in sorted(folder.glob("*.yaml")):
        yield from yaml.safe_load_all(path.read_text())


@pytest.fixture
def api(real_apiserver: Server) -> Server:
    """A real API server only: the local one has no StatefulSets."""
    return real_apiserver


@pytest.fixture
async def served(scene: Scene) -> Scene:
    for kind in OWN:
        await until_served(scene.client, kind, scene.namespace)
    return scene


async def add_database(scene: Scene) -> None:
    """The workload of the migrations, with a pod."""
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "database", "image": "postgres:16"}]},
    }
    spec = {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}
    await scene.client.create(
        StatefulSet, {"metadata": {"name": "my-database"}, "spec": spec}, scene.namespace
    )
    pod = {**template, "metadata": {"name": "my-database-0", "labels": {"app": "db"}}}
    await scene.client.create(Pod, pod, scene.namespace)
    await scene.report("my-database-0", "Running")


def reason(conditions: list[StatusCondition], kind: str = "Ready") -> tuple[str, str]:
    return next(((item.status, item.reason) for item in conditions if item.type == kind), ("", ""))


async def test_every_sample_is_accepted_and_gets_its_phase(served: Scene) -> None:
    scene = served
    spot = SPOT.__class__(
        **{**vars(SPOT), "settings": with_setting(SPOT.settings, "cluster_name", "my-cluster")}
    )
    await add_database(scene)
    for body in documents(SAMPLES):
        await scene.client.create(KINDS[str(body["kind"])], body, scene.namespace)
    async with scene.operator(apis=(spot,)):
        await check_migrations(scene)
        await check_restores(scene)
        await check_spot(scene)
    await check_backups(scene)


async def check_migrations(scene: Scene) -> None:
    async def are_ready() -> bool:
        listed = (await scene.client.list(StatefulMigration, scene.namespace)).items
        found = {
            item.metadata.name: (*reason(item.status.conditions), item.status.backup_count) for item in listed
        }
        return found == MIGRATIONS

    await scene.until(f"migrations are {MIGRATIONS}", are_ready)


async def check_restores(scene: Scene) -> None:
    async def are_pending() -> bool:
        listed = (await scene.client.list(CheckpointRestore, scene.namespace)).items
        found = {item.metadata.name: reason(item.status.conditions)[1] for item in listed}
        return found == RESTORES and {item.status.phase for item in listed} == {"Pending"}

    await scene.until(f"restores are {RESTORES}", are_pending)


async def check_spot(scene: Scene) -> None:
    """Both jobs ask for two VMs each, which wait for Secrets as the one without a job does."""

    async def are_provisioning() -> bool:
        jobs = (await scene.client.list(SpotInstanceJob, scene.namespace)).items
        return {
            (item.metadata.name, item.status.phase, reason(item.status.conditions, "Accepted"))
            for item in jobs
        } == {(name, "Provisioning", ("True", "Accepted")) for name in JOBS}

    async def are_waiting() -> bool:
        instances = (await scene.client.list(ProvisionedInstance, scene.namespace)).items
        states = [
            (item.status.state, reason(item.status.conditions, "CredentialsReady")) for item in instances
        ]
        return states == [("PENDING", ("False", "SecretNotFound"))] * 5

    await scene.until(f"{JOBS} are Provisioning", are_provisioning)
    await scene.until("five VMs wait for Secrets", are_waiting)
    instances = (await scene.client.list(ProvisionedInstance, scene.namespace)).items
    kinds = {
        (item.spec.spot_instance_job_ref.name, item.spec.instance_template_kind)
        for item in instances
        if item.spec.spot_instance_job_ref is not None
    }
    assert kinds == set(JOBS.items())


async def check_backups(scene: Scene) -> None:
    """No agent has begun them."""
    listed = (await scene.client.list(CheckpointBackup, scene.namespace)).items
    sampled = [item for item in listed if not item.metadata.owner_references]
    found = {item.metadata.name: (item.spec.schedule, bool(item.spec.stop_pod)) for item in sampled}
    assert found == BACKUPS
    assert {item.status.phase for item in listed} == {""}


async def test_samples_without_a_spec_are_refused(served: Scene) -> None:
    refused = list(documents(SAMPLES / "refused"))
    assert {str(body["kind"]) for body in refused} == {
        "CheckpointBackup",
        "CheckpointRestore",
        "StatefulMigration",
    }
    for body in refused:
        with pytest.raises(Invalid, match="spec"):
            await served.client.create(KINDS[str(body["kind"])], body, served.namespace)
