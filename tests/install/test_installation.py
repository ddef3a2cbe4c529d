"""Tests for installing, upgrading and uninstalling, against both API servers."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.kubeconfig import Connection
from argosy.install.chart import Chart, ValuesError, chart_folder, is_kept
from argosy.install.installation import KINDS, MANAGER, MANIFEST_NAME, Installation, InstallError, Reference
from argosy.kinds.kubernetes import ConfigMap
from argosy.kinds.meta import Json, ObjectMeta
from tests.support.servers import Server

CHART = Chart(chart_folder())
DEFINITIONS = ("trainingruns.argosy.dev", "aresjobs.ares.io")


@pytest.fixture
def printed() -> list[str]:
    """Return the list of lines that the installation prints."""
    return []


@pytest.fixture
async def installation(api: Server, namespace: str, printed: list[str]) -> AsyncIterator[Installation]:
    async with Client(Connection.from_kubeconfig(api.kubeconfig), field_manager=MANAGER) as client:
        # Nobody collects garbage here: what is deleted in the foreground is not waited for.
        yield Installation(client, namespace, CHART, printed.append, termination_seconds=0.1)


async def existing_objects(installation: Installation, values: Json) -> set[str]:
    """Return which objects of an installation with these values exist."""
    names = set()
    for reference in map(Reference.to, CHART.objects(installation.namespace, CHART.values(values))):
        kind = KINDS[reference.api_version, reference.kind]
        try:
            await installation.client.get(kind, reference.name, reference.namespace or None)
        except NotFound:
            continue
        names.add(str(reference))
    return names


async def test_uninstall_deletes_the_installed_objects_except_crds(
    installation: Installation,
) -> None:
    await installation.install({"replicas": 1})
    everything = {str(Reference.to(obj)) for obj in CHART.objects(installation.namespace, CHART.values())}
    assert await existing_objects(installation, {}) == everything
    notes = await installation.manifest()
    assert notes is not None
    assert notes.values == {"replicas": 1}
    with pytest.raises(InstallError, match="already"):
        await installation.install({})
    await installation.uninstall()
    left = {str(Reference.to(obj)) for obj in CHART.objects("", CHART.values()) if is_kept(obj)}
    assert left >= {f"CustomResourceDefinition {name}" for name in DEFINITIONS}
    assert await existing_objects(installation, {}) == left
    with pytest.raises(NotFound):
        await installation.client.get(ConfigMap, MANIFEST_NAME, installation.namespace)
    with pytest.raises(InstallError, match="nothing is installed"):
        await installation.uninstall()


class Names(Struct):
    metadata: ObjectMeta


class Listing(Struct):
    items: list[Names] = []


class Discovered(Struct):
    name: str
    verbs: list[str] = []


class Discovery(Struct):
    resources: list[Discovered] = []


class Group(Struct, rename="camel"):
    preferred_version: dict[str, str]


class Groups(Struct):
    groups: list[Group] = []


PASSING = ("events", "leases", "apiservices")
"""Made by the server itself at any time."""


async def everything(client: Client) -> set[str]:
    """Return the names of all objects of all kinds in the cluster."""
    groups = msgspec.json.decode(await client.request("GET", "/apis"), type=Groups).groups
    names: set[str] = set()
    for path in ("/api/v1", *(f"/apis/{group.preferred_version['groupVersion']}" for group in groups)):
        discovered = msgspec.json.decode(await client.request("GET", path), type=Discovery).resources
        for kind in discovered:
            if "list" in kind.verbs and kind.name not in PASSING:
                listed = msgspec.json.decode(await client.request("GET", f"{path}/{kind.name}"), type=Listing)
                names |= {
                    f"{kind.name} {item.metadata.namespace}/{item.metadata.name}" for item in listed.items
                }
    return names


async def test_uninstall_keeps_only_crds(installation: Installation) -> None:
    """With observers, webhooks, features and rights in another namespace."""
    values: Json = {
        "observer": {"enabled": True, "nodePort": 0},
        "webhooks": {"enabled": True},
        "features": {"sshKeys": True},
        "watchNamespace": "default",
    }
    before = await everything(installation.client)
    await installation.install(values)
    assert len(await everything(installation.client) - before) > 20
    await installation.uninstall()
    left = await everything(installation.client) - before
    assert left <= {f"customresourcedefinitions /{name}" for name in DEFINITIONS}


async def test_uninstall_with_crds_deletes_them(installation: Installation) -> None:
    ares: Json = {"apis": {"argosy": False}}
    await installation.install(ares)
    await installation.uninstall(crds=True)
    async with asyncio.timeout(30):
        while True:
            if not await existing_objects(installation, ares):
                return
            await asyncio.sleep(0.05)


async def test_upgrade_keeps_values_and_deletes_obsolete_objects(
    installation: Installation, printed: list[str]
) -> None:
    await installation.install({"replicas": 1})
    await installation.upgrade({"podDisruptionBudget": {"enabled": False}})
    assert "PodDisruptionBudget argosy-operator deleted" in printed
    assert "PodDisruptionBudget argosy-operator" not in await existing_objects(installation, {})
    deployment = await installation.client.get(
        KINDS["apps/v1", "Deployment"], "argosy-operator", installation.namespace
    )
    spec = deployment.raw["spec"]
    assert isinstance(spec, dict)
    assert spec["replicas"] == 1
    await installation.uninstall()


async def test_invalid_values_change_nothing(installation: Installation) -> None:
    with pytest.raises(ValuesError):
        await installation.install({"replicas": -1})
    assert await installation.manifest() is None


async def test_objects_of_a_helm_release_are_not_changed(installation: Installation) -> None:
    kind = KINDS["v1", "ServiceAccount"]
    annotations = {"meta.helm.sh/release-name": "theirs"}
    body = {"metadata": {"name": "argosy-operator", "annotations": annotations}}
    await installation.client.create(kind, body, installation.namespace)
    with pytest.raises(InstallError, match="belongs to the Helm release theirs"):
        await installation.install({})
    assert await existing_objects(installation, {"crds": {"install": False}}) == {
        "ServiceAccount argosy-operator"
    }


async def test_crds_of_an_uninstalled_helm_release_are_adopted(installation: Installation) -> None:
    definition = next(obj for obj in CHART.objects(installation.namespace, CHART.values()) if is_kept(obj))
    reference = Reference.to(definition)
    kind = KINDS[reference.api_version, reference.kind]
    await installation.client.apply(kind, definition, force=True)
    theirs = {"metadata": {"annotations": {"meta.helm.sh/release-name": "gone"}}}
    await installation.client.patch(kind, reference.name, theirs)
    await installation.install({})
    await installation.uninstall()


async def test_interrupted_installation_can_be_upgraded(installation: Installation) -> None:
    """The manifest is written before the first object is applied."""
    await installation._write_manifest({"replicas": 1}, (), ())
    await installation.upgrade({})
    assert "Deployment argosy-operator" in await existing_objects(installation, {})
    await installation.uninstall()
