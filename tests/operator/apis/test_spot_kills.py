"""Test that no VM is lost when operator processes are killed while they buy VMs over HTTP."""

import asyncio
import random
import signal
from contextlib import suppress

import msgspec
import pytest

from argosy.dialects.spot.instance_record import InstanceRecord
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now
from argosy.plan.record import decode_record
from argosy.wire.messages import Request, Response
from tests.operator.apis.test_spot_instances import create_secrets, report_node
from tests.support.clouds.strict_gce import StrictGate
from tests.support.commands import ARGOSY
from tests.support.operator_harness import Scene
from tests.support.spot_jobs import spot_vm
from tests.support.waiting import until

KILLS = 50
MACHINES = 6


class RecordChecker(GceServer):
    """A cloud that checks, before it creates a VM, that a stored Record names it."""

    client: Client
    violations: list[str]

    async def handle(self, request: Request) -> Response:
        if request.method == "POST" and request.path.endswith("/instances"):
            body = msgspec.json.decode(await request.body(1 << 20))
            listed = await self.client.list(ProvisionedInstance)
            records = [decode_record(obj.status.argosy, InstanceRecord) for obj in listed.items]
            if not any(r and r.machine.name == body["name"] and r.machine.sent for r in records):
                self.violations.append(f"{body['name']} is in no Record")
        return await super().handle(request)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_killed_operators_leak_no_vm(scene: Scene) -> None:
    chance, gate = random.Random(4711), StrictGate()
    cloud = Cloud(utc_now, Latency(insert=0.5, boot=0.5, delete=0.5, notice=1))
    server = RecordChecker(GceApi(cloud, gate))
    server.client, server.violations = scene.client, []
    await create_secrets(scene)
    template = {**spot_vm("vm"), "metadata": {"name": "vm"}}
    await scene.client.request(
        "POST",
        f"/apis/training.training.dcnlab.com/v1alpha1/namespaces/{scene.namespace}/spotinstancevms",
        body=template,
    )

    async def start(url: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *(str(ARGOSY), "operator", "--kubeconfig", str(scene.server.kubeconfig), "--api", "spot"),
            *("--namespace", scene.namespace, "--operator-namespace", scene.namespace),
            *("--no-leader-elect", "--gce-endpoint", url, "--instance-poll", "1"),
            *("--metrics-bind-address", "", "--health-probe-bind-address", "", "--endpoint", ""),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def live(number: int) -> None:
        """Buy VMs and delete them again, at any time."""
        for life in range(1000):
            name = f"vm-{number}-{life}-{scene.namespace}"
            spec = {
                "instanceTemplateName": "vm",
                "instanceTemplateKind": "SpotInstanceVM",
                "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
            }
            body = {"metadata": {"name": name}, "spec": spec}
            await scene.client.create(ProvisionedInstance, body, scene.namespace)
            await asyncio.sleep(chance.uniform(0.5, 12))
            if any(each.name == name for each in cloud.instances.values()) and chance.random() < 0.7:
                await report_node(scene, name)
                await asyncio.sleep(chance.uniform(0, 4))
            await scene.client.delete(ProvisionedInstance, name, scene.namespace)

    async def is_over() -> bool:
        return not (await scene.client.list(ProvisionedInstance, scene.namespace)).items

    async with server.serving() as url:
        lives = [asyncio.create_task(live(number)) for number in range(MACHINES)]
        for _ in range(KILLS):
            operator = await start(url)
            with suppress(TimeoutError):
                async with asyncio.timeout(chance.uniform(2, 7)):
                    await operator.wait()
            operator.send_signal(signal.SIGKILL)
            await operator.wait()
        for task in lives:
            task.cancel()
        results = await asyncio.gather(*lives, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in results), results
        operator = await start(url)
        try:
            for obj in (await scene.client.list(ProvisionedInstance, scene.namespace)).items:
                with suppress(NotFound):
                    await scene.client.delete(ProvisionedInstance, obj.metadata.name, scene.namespace)
            await until(is_over, "all objects are gone", 300)
        finally:
            operator.terminate()
            await operator.wait()
        cloud.advance()
        assert [each.name for each in cloud.instances.values()] == []
    assert (gate.violations, server.violations) == ([], [])
    assert len(cloud.ever) > KILLS / 2, "VMs were bought all the time"
