"""Test that nothing is lost or done twice when operator processes are killed while they buy VMs over HTTP.

Users buy VMs and run a SpotInstanceJob meanwhile, whose VMs are taken back now and then.
"""

import asyncio
import random
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from argosy.dialects.spot.instance_record import InstanceRecord
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import Job, Pod
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.spot import SpotInstanceJob
from argosy.kinds.spot_machines import ProvisionedInstance, SpotInstanceVM
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now
from argosy.plan.record import decode_record
from argosy.wire.messages import Request, Response
from tests.operator.apis.test_spot_instances import create_secrets, report_node
from tests.support.clouds.strict_gce import StrictGate
from tests.support.commands import ARGOSY
from tests.support.operator_harness import Scene
from tests.support.registry import PROGRAM, running_registry
from tests.support.spot_jobs import Json, spot_job, spot_vm
from tests.support.spot_players import SpotPlayer
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


@dataclass
class Stage:
    """A namespace with a template of VMs, the cloud where they are bought, and what plays around them."""

    scene: Scene
    cloud: Cloud
    player: SpotPlayer
    registry: str
    chance: random.Random

    async def start_operator(self, url: str) -> asyncio.subprocess.Process:
        scene = self.scene
        return await asyncio.create_subprocess_exec(
            *(str(ARGOSY), "operator", "--kubeconfig", str(scene.server.kubeconfig), "--api", "spot"),
            *("--namespace", scene.namespace, "--operator-namespace", scene.namespace),
            *("--no-leader-elect", "--gce-endpoint", url, "--instance-poll", "1"),
            *("--metrics-bind-address", "", "--health-probe-bind-address", "", "--endpoint", ""),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )

    async def keep_buying(self, number: int) -> None:
        """Buy VMs and delete them again, at any time."""
        scene, chance = self.scene, self.chance
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
            if any(each.name == name for each in self.cloud.instances.values()) and chance.random() < 0.7:
                await report_node(scene, name)
                await asyncio.sleep(chance.uniform(0, 4))
            await scene.client.delete(ProvisionedInstance, name, scene.namespace)

    async def keep_training(self) -> None:
        """Run SpotInstanceJobs, lose their VMs, and delete them, at any time."""
        scene, chance = self.scene, self.chance
        for life in range(1000):
            name = f"job-{scene.namespace}-{life}"
            changes: Json = {
                "spotInstanceVMRef.name": "vm",
                "gcpCredentialsSecretRef.namespace": scene.namespace,
                "checkpointConfig.checkpointImageRepo": f"{self.registry}/checkpoints",
                "checkpointConfig.checkpointInterval": "5s",
            }
            await scene.client.create(SpotInstanceJob, spot_job(name, changes), scene.namespace)
            for _ in range(chance.randrange(6)):
                await asyncio.sleep(chance.uniform(2, 12))
                vms = [vm for vm in self.cloud.instances.values() if vm.name.startswith(name)]
                if vms and chance.random() < 0.7:
                    lost = chance.choice(vms)
                    self.cloud.preempt(lost.project, lost.zone, lost.name)
            await scene.client.delete(SpotInstanceJob, name, scene.namespace)

    async def delete_all(self) -> None:
        for kind in (SpotInstanceJob, ProvisionedInstance):
            for obj in (await self.scene.client.list(kind, self.scene.namespace)).items:
                with suppress(NotFound):
                    await self.scene.client.delete(kind, obj.metadata.name, self.scene.namespace)

    async def left(self) -> list[str]:
        """Return what there still is of SpotInstanceJobs and VMs."""
        kinds = (SpotInstanceJob, ProvisionedInstance, Job, CheckpointBackup, Pod)
        listed = [await self.scene.client.list(kind, self.scene.namespace) for kind in kinds]
        return [obj.metadata.name for each in listed for obj in each.items]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")
async def test_killed_operators_leak_no_vm_and_start_no_job_twice(scene: Scene, tmp_path: Path) -> None:
    chance, gate = random.Random(4711), StrictGate()
    cloud = Cloud(utc_now, Latency(insert=0.5, boot=0.5, delete=0.5, notice=1))
    server = RecordChecker(GceApi(cloud, gate))
    server.client, server.violations = scene.client, []
    await create_secrets(scene)
    template = {**spot_vm("vm"), "metadata": {"name": "vm"}}
    await scene.client.create(SpotInstanceVM, template, scene.namespace)
    with running_registry(tmp_path) as registry:
        player = SpotPlayer(scene.client, scene.namespace, cloud, f"job-{scene.namespace}", registry.address)
        stage = Stage(scene, cloud, player, registry.address, chance)
        async with server.serving() as url:
            await _kill_operators(stage, url)
        assert [each.name for each in cloud.instances.values()] == []
    assert (gate.violations, server.violations, player.violations) == ([], [], [])
    assert len(cloud.ever) > KILLS / 2, "VMs were bought all the time"
    assert len(player.jobs) > KILLS / 5, "replicas were started all the time"
    assert player.backups > 0


async def _kill_operators(stage: Stage, url: str) -> None:
    """Kill one operator after the other while others use it; let the last one clean up."""
    playing = asyncio.create_task(stage.player.run())
    lives = [asyncio.create_task(stage.keep_buying(number)) for number in range(MACHINES)]
    lives.append(asyncio.create_task(stage.keep_training()))
    for _ in range(KILLS):
        operator = await stage.start_operator(url)
        with suppress(TimeoutError):
            async with asyncio.timeout(stage.chance.uniform(2, 7)):
                await operator.wait()
        operator.send_signal(signal.SIGKILL)
        await operator.wait()
    for task in lives:
        task.cancel()
    results = await asyncio.gather(*lives, return_exceptions=True)
    assert all(isinstance(each, asyncio.CancelledError) for each in results), results
    operator = await stage.start_operator(url)
    try:
        await stage.delete_all()

        async def is_over() -> bool:
            return not await stage.left()

        await until(is_over, "all objects are gone", 300)
    finally:
        operator.terminate()
        await operator.wait()
        playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing
    stage.cloud.advance()
