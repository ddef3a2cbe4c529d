"""Tests for MachinePools in a running operator, with the rehearsal cloud over HTTP.

The test plays the VMs: each that runs becomes a node.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import pytest

from argosy.dialects.spot.settings import SpotSettings
from argosy.engine.errors import AlreadyExists, NotFound
from argosy.kinds.kubernetes import Node, Pod, Secret
from argosy.kinds.machinepool import MachinePool, MachinePoolStatus
from argosy.kinds.spot import TERMINATION_DEADLINE, TERMINATION_SOURCE
from argosy.kinds.spot_machines import ProvisionedInstance, SpotInstanceVM
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now
from argosy.operator.apis.machines import add_machine_pools
from argosy.operator.apis.spot import SPOT
from argosy.workload.announcements import NoticeRules
from tests.support.captured_logs import captured_lines
from tests.support.clouds.strict_gce import StrictGate
from tests.support.operator_harness import Scene
from tests.support.operator_rights import reader_with_rules
from tests.support.spot_instances import CREDENTIALS, JOIN
from tests.support.spot_jobs import spot_vm


@asynccontextmanager
async def cloud_with_nodes(scene: Scene, gate: StrictGate) -> AsyncIterator[tuple[Cloud, str]]:
    """A cloud whose VMs become ready nodes of the cluster."""
    cloud = Cloud(utc_now, Latency(insert=0.2, boot=0.2, delete=0.2, notice=1))
    tasks: list[asyncio.Task[None]] = []

    async def join(name: str) -> None:
        with suppress(AlreadyExists):
            await scene.client.create(Node, {"metadata": {"name": name}})
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        status = {"conditions": [ready], "allocatable": {"nvidia.com/gpu": "1", "cpu": "4"}}
        await scene.client.patch(Node, name, {"status": status}, subresource="status")

    def changed(instance: object, change: str) -> None:
        if change == "Running":
            tasks.append(asyncio.ensure_future(join(str(getattr(instance, "name")))))  # noqa: B009

    cloud.subscribe(changed)
    async with GceServer(GceApi(cloud, gate)).serving() as url:
        yield cloud, url
    await asyncio.gather(*tasks)


async def prepare(scene: Scene, replicas: int, **spec: object) -> None:
    """Create what a user creates."""
    for secret, data in (
        ("gcp-credentials", {"credentials.json": CREDENTIALS}),
        ("kubeadm-join-token", JOIN),
    ):
        text = {key: value.decode() for key, value in data.items()}
        body = {"metadata": {"name": secret}, "stringData": text}
        await scene.client.create(Secret, body, scene.namespace)
    await scene.client.create(SpotInstanceVM, {**spot_vm("vm"), "metadata": {"name": "vm"}}, scene.namespace)
    wanted = {
        "replicas": replicas,
        "template": {"kind": "SpotInstanceVM", "name": "vm"},
        "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
        **spec,
    }
    pool = {"metadata": {"name": f"pool-{scene.namespace}"}, "spec": wanted}
    await scene.client.create(MachinePool, pool, scene.namespace)


async def machines(scene: Scene) -> dict[str, ProvisionedInstance]:
    listed = await scene.client.list(ProvisionedInstance, scene.namespace)
    return {obj.metadata.name: obj for obj in listed.items}


def status_is(scene: Scene, wanted: Callable[[MachinePoolStatus], bool]) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        pool = await scene.client.get(MachinePool, f"pool-{scene.namespace}", scene.namespace)
        return wanted(pool.status)

    return holds


@pytest.mark.timeout(180)
async def test_the_listed_rules_suffice_to_keep_scale_and_release_a_pool(scene: Scene) -> None:
    gate, name = StrictGate(), f"pool-{scene.namespace}"
    with captured_lines():
        async with cloud_with_nodes(scene, gate) as (cloud, url):
            await prepare(scene, 1, drainGrace="1m")
            apis = (replace(SPOT, settings=SpotSettings(gce_endpoint=url, instance_poll=0.5)),)
            async with (
                reader_with_rules(scene, SPOT) as kubeconfig,
                scene.operator(apis=apis, kubeconfig=kubeconfig, namespace=None),
            ):
                await scene.until("the machine is ready", status_is(scene, lambda s: s.ready == 1))
                [first] = await machines(scene)
                assert first.startswith(f"{name}-vm-0-")
                deadline = (datetime.now(UTC) + timedelta(seconds=300)).isoformat()
                notice = {TERMINATION_DEADLINE: deadline, TERMINATION_SOURCE: "test"}
                pod = {"containers": [{"name": "main", "image": "x"}], "nodeName": first}
                await scene.client.create(
                    Pod, {"metadata": {"name": "training"}, "spec": pod}, scene.namespace
                )
                await scene.client.patch(Node, first, {"metadata": {"annotations": notice}})
                await scene.until(
                    "another machine is ready while the first one is there",
                    status_is(scene, lambda s: (s.ready, s.noticed) == (1, 1)),
                )
                [second] = (await machines(scene)).keys() - {first}
                await scene.client.patch(
                    MachinePool, name, {"spec": {"replicas": 0}}, scene.namespace, subresource="scale"
                )
                await scene.until(
                    "the empty one goes, the busy one stays until its deadline",
                    status_is(scene, lambda s: (s.replicas, s.draining, s.noticed) == (0, 0, 1)),
                )
                assert list(await machines(scene)) == [first]
                with pytest.raises(NotFound):
                    await scene.client.get(Node, second)
                await scene.report("training", "Succeeded")
                await scene.client.delete(MachinePool, name, scene.namespace)

                async def is_gone() -> bool:
                    return not (await scene.client.list(MachinePool, scene.namespace)).items

                await scene.until("the pool is gone", is_gone)
            assert cloud.instances == {}
            assert len(cloud.ever) == 2
    assert gate.violations == []


@pytest.mark.parametrize(("namespace", "sees_all"), [(None, True), ("team", False)], ids=["cluster", "team"])
def test_an_operator_for_one_namespace_takes_no_node_for_empty(namespace: str | None, sees_all: bool) -> None:
    manager = Mock(namespace=namespace, notices=NoticeRules())
    add_machine_pools(manager)
    [reconciled] = manager.add_kind.call_args.args
    assert reconciled.reconciler.sees_all_pods is sees_all
