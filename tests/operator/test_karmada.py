"""StatefulMigrations on an API server with and without the CRDs of Karmada."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import yaml

from argosy.dialects.migration.karmada import PropagationPolicy
from argosy.dialects.migration.targets import StatefulSet
from argosy.engine.dynamic import dynamic_kind
from argosy.kinds.kubernetes import CustomResourceDefinition
from argosy.kinds.meta import Json
from argosy.kinds.migration import CheckpointBackup, StatefulMigration
from argosy.kinds.resource import Resource
from argosy.operator.apis.base import with_setting
from argosy.operator.apis.spot import SPOT
from argosy.operator.watched_kinds import crd_name
from tests.support.commands import REPOSITORY
from tests.support.operator_harness import Scene, until_served
from tests.support.servers import Server

Policy = dynamic_kind(PropagationPolicy.resource)
CLUSTER_POLICY = Resource(
    "policy.karmada.io", "v1alpha1", "ClusterPropagationPolicy", "clusterpropagationpolicies", False
)
ClusterPolicy = dynamic_kind(CLUSTER_POLICY)
TEXT = {"type": "string"}
SELECTOR = {
    "type": "object",
    "required": ["apiVersion", "kind"],
    "properties": dict.fromkeys(("apiVersion", "kind", "name", "namespace"), TEXT),
}
AFFINITY = {"type": "object", "properties": {"clusterNames": {"type": "array", "items": TEXT}}}
PROPAGATION = {
    "type": "object",
    "required": ["resourceSelectors"],
    "properties": {
        "resourceSelectors": {"type": "array", "minItems": 1, "items": SELECTOR},
        "placement": {"type": "object", "properties": {"clusterAffinity": AFFINITY}},
        "priority": {"type": "integer", "format": "int32", "default": 0},
        "preemption": {"type": "string", "enum": ["Always", "Never"], "default": "Never"},
        "conflictResolution": {"type": "string", "enum": ["Abort", "Overwrite"], "default": "Abort"},
        "schedulerName": {"type": "string", "default": "default-scheduler"},
    },
}
"""The fields of Karmada's policies that matter here, with its defaults."""
DEFAULTS = {
    "priority": 0,
    "preemption": "Never",
    "conflictResolution": "Abort",
    "schedulerName": "default-scheduler",
}


def definition(resource: Resource) -> Json:
    schema = {"type": "object", "required": ["spec"], "properties": {"spec": PROPAGATION}}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "metadata": {"name": crd_name(resource)},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "names": {
                "kind": resource.kind,
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "listKind": f"{resource.kind}List",
            },
            "versions": [version],
        },
    }


@pytest.fixture
def api(real_apiserver: Server) -> Server:
    """A real API server only: the local one has no StatefulSets."""
    return real_apiserver


@asynccontextmanager
async def karmada(scene: Scene) -> AsyncIterator[None]:
    """Serve the kinds of Karmada; other tests expect an API server without them."""
    kinds = (PropagationPolicy.resource, CLUSTER_POLICY)
    try:
        for resource in kinds:
            await scene.client.create(CustomResourceDefinition, definition(resource))
        await until_served(scene.client, Policy, scene.namespace)
        await until_served(scene.client, ClusterPolicy, "")
        yield
    finally:
        for resource in kinds:
            await scene.client.delete(CustomResourceDefinition, crd_name(resource))

        async def are_gone() -> bool:
            crds = (await scene.client.list(CustomResourceDefinition)).items
            return not {crd_name(resource) for resource in kinds} & {crd.metadata.name for crd in crds}

        await scene.until("the kinds of Karmada are gone", are_gone)


async def add_migration(scene: Scene) -> None:
    """A StatefulSet of two replicas, which has no pods here, in this cluster and in another one."""
    template = {
        "metadata": {"labels": {"app": "db"}},
        "spec": {"containers": [{"name": "main", "image": "postgres:16"}]},
    }
    selector = {"matchLabels": {"app": "db"}}
    workload = {"serviceName": "db", "replicas": 2, "selector": selector, "template": template}
    await scene.client.create(StatefulSet, {"metadata": {"name": "db"}, "spec": workload}, scene.namespace)
    spec = {
        "resourceRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"},
        "sourceClusters": ["here", "member1"],
        "registry": {"url": "127.0.0.1:1", "repository": "team/db"},
        "schedule": "immediately",
    }
    await scene.client.create(
        StatefulMigration, {"metadata": {"name": "move"}, "spec": spec}, scene.namespace
    )


async def until_ready(scene: Scene, *want: object) -> None:
    """Wait for a status; the migration is changed meanwhile, so that it is reconciled before its resync."""

    async def is_ready() -> bool:
        touched = {"metadata": {"annotations": {"example.com/touched": str(time.monotonic_ns())}}}
        await scene.client.patch(StatefulMigration, "move", touched, scene.namespace)
        status = (await scene.client.get(StatefulMigration, "move", scene.namespace)).status
        found = [(item.reason, status.backup_count, status.served_clusters) for item in status.conditions]
        return found == [want]

    await scene.until(f"the migration is {want}", is_ready)


async def policies(scene: Scene) -> dict[str, object]:
    listed = (await scene.client.list(Policy, scene.namespace)).items
    return {item.metadata.name: item.raw["spec"] for item in listed}


def policy(backup: str, namespace: str) -> Json:
    selector = {
        "apiVersion": "migration.dcnlab.com/v1",
        "kind": "CheckpointBackup",
        "namespace": namespace,
        "name": backup,
    }
    placement = {"clusterAffinity": {"clusterNames": ["member1"]}}
    return {"resourceSelectors": [selector], "placement": placement, **DEFAULTS}


async def test_backups_are_placed_in_members_once_the_policies_of_karmada_are_served(scene: Scene) -> None:
    for kind in (CheckpointBackup, StatefulMigration):
        await until_served(scene.client, kind, scene.namespace)
    spot = replace(SPOT, settings=with_setting(SPOT.settings, "cluster_name", "here"))
    await add_migration(scene)
    async with scene.operator(apis=(spot,)):
        await until_ready(scene, "ClusterUnknown", 0, ["here"])
        async with karmada(scene):
            await until_ready(scene, "BackupsCreated", 2, ["here", "member1"])
            await check_policies(scene)
            await check_documented_policy(scene)


async def check_policies(scene: Scene) -> None:
    """Policies follow the backups, and what others change is put back."""
    want = {f"move-db-{n}-member1-policy": policy(f"move-db-{n}-member1", scene.namespace) for n in (0, 1)}
    first, second = want

    async def are_wanted() -> bool:
        return await policies(scene) == want

    await scene.until("each backup has its policy", are_wanted)
    drift = {"spec": {"placement": {"clusterAffinity": {"clusterNames": ["member2"]}}}}
    await scene.client.patch(Policy, first, drift, scene.namespace)
    await scene.client.delete(Policy, second, scene.namespace)
    await scene.until("what others changed is put back", are_wanted)
    await scene.client.patch(StatefulSet, "db", {"spec": {"replicas": 1}}, scene.namespace)
    del want[second]
    await scene.until("a policy is deleted with its backup", are_wanted)

    async def is_one() -> bool:
        backups = (await scene.client.list(CheckpointBackup, scene.namespace)).items
        return [(item.metadata.name, item.is_template) for item in backups] == [("move-db-0-member1", True)]

    await scene.until("one backup is left, for agents elsewhere", is_one)


async def check_documented_policy(scene: Scene) -> None:
    """The policy that administrators create is accepted as it is, without an unknown field."""
    text = (REPOSITORY / "docs" / "users" / "checkpointbackup.md").read_text()
    blocks = (yaml.safe_load(part.partition("```")[0]) for part in text.split("```yaml\n")[1:])
    [body] = [block for block in blocks if block["kind"] == CLUSTER_POLICY.kind]
    created = await scene.client.create(ClusterPolicy, body)
    assert created.raw["spec"] == {**body["spec"], **DEFAULTS}
