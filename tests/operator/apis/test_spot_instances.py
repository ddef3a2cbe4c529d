"""Tests for ProvisionedInstances in a running operator, with the rehearsal cloud over HTTP.

The test plays the VMs: a Node appears when it creates one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import msgspec
import pytest

from argosy.dialects.spot.settings import SpotSettings
from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import ConfigMap, Namespace, Node, Secret
from argosy.kinds.spot import TERMINATION_SOURCE
from argosy.kinds.spot_machines import ProvisionedInstance, SpotInstanceVM
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now
from argosy.operator.apis.spot import SPOT
from argosy.operator.apis.spot_sweep import CONFIG_MAP, Scope
from argosy.plan.actions import SecretRef
from tests.support.captured_logs import captured_lines
from tests.support.clouds.strict_gce import StrictGate
from tests.support.operator_harness import Scene
from tests.support.operator_rights import reader_with_rules
from tests.support.spot_instances import CREDENTIALS, JOIN
from tests.support.spot_jobs import spot_vm


@asynccontextmanager
async def cloud_of(gate: StrictGate) -> AsyncIterator[tuple[Cloud, str]]:
    cloud = Cloud(utc_now, Latency(insert=0.2, boot=0.2, delete=0.2, notice=1))
    async with GceServer(GceApi(cloud, gate)).serving() as url:
        yield cloud, url


async def prepare(scene: Scene, name: str) -> None:
    """Create what a user creates."""
    for secret, data in (
        ("gcp-credentials", {"credentials.json": CREDENTIALS}),
        ("kubeadm-join-token", JOIN),
    ):
        text = {key: value.decode() for key, value in data.items()}
        body = {"metadata": {"name": secret}, "stringData": text}
        await scene.client.create(Secret, body, scene.namespace)
    template = {**spot_vm("vm"), "metadata": {"name": "vm"}}
    await scene.client.create(SpotInstanceVM, template, scene.namespace)
    spec = {
        "instanceTemplateName": "vm",
        "instanceTemplateKind": "SpotInstanceVM",
        "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
    }
    await scene.client.create(
        ProvisionedInstance, {"metadata": {"name": name}, "spec": spec}, scene.namespace
    )


async def create_secrets(scene: Scene) -> None:
    for secret, data in (
        ("gcp-credentials", {"credentials.json": CREDENTIALS}),
        ("kubeadm-join-token", JOIN),
    ):
        text = {key: value.decode() for key, value in data.items()}
        body = {"metadata": {"name": secret}, "stringData": text}
        await scene.client.create(Secret, body, scene.namespace)


async def report_node(scene: Scene, name: str) -> None:
    """Do what the kubelet of a new VM does."""
    await scene.client.create(Node, {"metadata": {"name": name}})
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"conditions": [ready], "allocatable": {"nvidia.com/gpu": "1", "cpu": "4"}}
    await scene.client.patch(Node, name, {"status": status}, subresource="status")


@pytest.mark.timeout(180)
async def test_the_listed_rules_suffice_to_buy_a_vm_and_to_delete_it(scene: Scene) -> None:
    name, gate = f"vm-{scene.namespace}", StrictGate()

    async def instance() -> ProvisionedInstance:
        return await scene.client.get(ProvisionedInstance, name, scene.namespace)

    async def has(state: str, condition: str = "") -> bool:
        status = (await instance()).status
        true = {each.type for each in status.conditions if each.status == "True"}
        return status.state == state and (not condition or condition in true)

    with captured_lines():
        async with cloud_of(gate) as (cloud, url):
            await prepare(scene, name)
            settings = SpotSettings(gce_endpoint=url, instance_poll=0.5)
            apis = (replace(SPOT, settings=settings),)
            async with (
                reader_with_rules(scene, SPOT) as kubeconfig,
                scene.operator(apis=apis, kubeconfig=kubeconfig),
            ):
                await scene.until("the VM is RUNNING", lambda: has("RUNNING", "Provisioned"))
                await report_node(scene, name)
                await scene.until("the node is ready", lambda: has("RUNNING", "NodeReady"))
                template = await scene.client.get(SpotInstanceVM, "vm", scene.namespace)
                assert [each.name for each in template.status.provisioned_instances] == [name]
                cloud.preempt(*next(iter(cloud.instances)))

                async def is_told() -> bool:
                    annotations = (await scene.client.get(Node, name)).metadata.annotations
                    return annotations.get(TERMINATION_SOURCE) == "provisioned-instance"

                await scene.until("the end of the VM is announced on its Node", is_told)
                await scene.client.delete(ProvisionedInstance, name, scene.namespace)

                async def is_gone() -> bool:
                    try:
                        await instance()
                    except NotFound:
                        return True
                    return False

                await scene.until("the object is gone", is_gone)
            assert cloud.instances == {}
    assert gate.violations == []
    with pytest.raises(NotFound):
        await scene.client.get(Node, name)


@pytest.mark.timeout(180)
async def test_a_vm_whose_object_is_gone_is_swept_when_the_operator_starts(scene: Scene) -> None:
    gate = StrictGate()
    cluster = (await scene.client.get(Namespace, "kube-system")).metadata.uid
    with captured_lines():
        async with cloud_of(gate) as (cloud, url):
            await create_secrets(scene)
            for name, label in (("orphan", cluster), ("foreign", "another-cluster"), ("unlabelled", "")):
                labels = {"argosy-uid": "gone", "argosy-cluster": label}
                cloud.insert("p", "us-central1-a", {"name": name, "labels": labels}, "")
            for instance in cloud.instances.values():
                instance.created -= timedelta(hours=1)
            scope = Scope(scene.namespace, "p", "us-central1-a", SecretRef("gcp-credentials"))
            data = {scope.key: msgspec.json.encode(scope).decode()}
            body = {"metadata": {"name": CONFIG_MAP}, "data": data}
            await scene.client.create(ConfigMap, body, scene.namespace)

            async def is_swept() -> bool:
                cloud.advance()
                return "orphan" not in {each.name for each in cloud.instances.values()}

            async with scene.operator(apis=(replace(SPOT, settings=SpotSettings(gce_endpoint=url)),)):
                await scene.until("the orphan is deleted", is_swept)
            left = sorted(each.name for each in cloud.instances.values())
            assert left == ["foreign", "unlabelled"]
    assert gate.violations == []
