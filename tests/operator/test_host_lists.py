"""Tests host lists with a whole operator, a real API server and the real helper; pods are simulated.

The helper runs with the command and the variables of the launcher's sidecar, and its files are in a folder of
the test.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from argosy.dialects.base import read_record
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMap, Lease, Pod
from argosy.operator.settings import NAME
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from argosy.workload.record import RoleRecord
from tests.support.captured_logs import captured_lines
from tests.support.endpoint_stage import SCRIPT
from tests.support.listed_runs import listed_run, listed_runs_api
from tests.support.operator_harness import Scene, shown_at
from tests.support.operator_rights import reader_with_rules
from tests.support.servers import free_port
from tests.support.waiting import eventually

LAUNCHER = "mnist-launcher-0"


async def list_of(scene: Scene) -> RoleRecord:
    record = read_record(await scene.run())
    assert record is not None
    return record.role("worker")


async def start(scene: Scene) -> None:
    """Run a job with two workers up to its launcher."""
    await scene.apply(listed_run())
    await scene.until_pods("mnist-worker-0", "mnist-worker-1")
    await scene.report_all("Running")
    await scene.until_pods("mnist-worker-0", "mnist-worker-1", LAUNCHER)


@asynccontextmanager
async def sidecar(scene: Scene, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the sidecar of the launcher against the replica at this port."""
    pod: Any = await scene.client.get(dynamic_kind(Pod.resource), LAUNCHER, scene.namespace)
    init_containers = pod.raw["spec"]["initContainers"]
    container = next(item for item in init_containers if item["name"] == labels.HOSTS_CONTAINER)
    values = {item["name"]: item.get("value", "") for item in container["env"]}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        str(SCRIPT),
        *container["command"][3:],
        env={
            **values,
            "PATH": os.environ["PATH"],
            "ARGOSY_URL": f"https://localhost:{port}",
            "ARGOSY_POD_NAME": pod.metadata.name,
            "ARGOSY_POD_UID": pod.metadata.uid,
        },
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def until_written(scene: Scene, hostfile: Path, *workers: int) -> None:
    """Wait until files, ConfigMap and acknowledgement show these workers."""
    want = "".join(f"mnist-worker-{index}:1\n" for index in workers)
    await eventually(lambda: hostfile.exists() and hostfile.read_text() == want)

    async def agrees() -> bool:
        config = await scene.client.get(ConfigMap, "mnist-config", scene.namespace)
        launcher = await scene.client.get(Pod, LAUNCHER, scene.namespace)
        acknowledged = launcher.metadata.annotations.get(labels.HOSTS_ACK)
        return (config.data["hostfile"], acknowledged) == (want, (await list_of(scene)).listed_etag)

    await scene.until(f"ConfigMap and acknowledgement show {workers}", agrees)


async def test_list_reaches_files_and_config_map_and_is_acknowledged(scene: Scene, tmp_path: Path) -> None:
    port, hostfile = free_port(), tmp_path / "hostfile"
    api = listed_runs_api(str(tmp_path))
    async with (
        reader_with_rules(scene, api) as kubeconfig,
        scene.operator(
            apis=(api,), kubeconfig=kubeconfig, endpoint=f"127.0.0.1:{port}", **shown_at(shown := free_port())
        ),
    ):
        await start(scene)
        async with sidecar(scene, port):
            await scene.report(LAUNCHER, "Running")
            await until_written(scene, hostfile, 0, 1)
            await scene.report("mnist-worker-1", "Failed", 1)
            await until_written(scene, hostfile, 0)
            await scene.until_pods("mnist-worker-0", "mnist-worker-1", "mnist-worker-2", LAUNCHER)
            await scene.report("mnist-worker-2", "Running")
            await until_written(scene, hostfile, 0, 2)
        text = await metrics(shown)
    assert [line for line in text.splitlines() if 'code="403"' in line] == []
    assert 'argosy_host_list_acks_total{result="written"} 3.0' in text
    assert "argosy_host_list_ack_seconds_count 2.0" in text


async def metrics(port: int) -> str:
    client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))
    try:
        return (await client.send("GET", "/metrics", {})).body.decode()
    finally:
        await client.close()


async def test_replica_that_does_not_lead_serves_lists_and_records_acknowledgements(
    scene: Scene, tmp_path: Path
) -> None:
    hostfile, api = tmp_path / "hostfile", listed_runs_api(str(tmp_path))
    ports = {"first": free_port(), "second": free_port()}
    with captured_lines():
        async with AsyncExitStack() as stack:
            for identity, port in ports.items():
                settings = {"leader_elect": True, "identity": identity, "endpoint": f"127.0.0.1:{port}"}
                await stack.enter_async_context(scene.operator(apis=(api,), **settings))
            await start(scene)
            leader = await holder(scene)
            standby = next(identity for identity in ports if identity != leader)
            async with sidecar(scene, ports[standby]):
                await scene.report(LAUNCHER, "Running")
                await until_written(scene, hostfile, 0, 1)
                await scene.report("mnist-worker-0", "Failed", 1)
                await until_written(scene, hostfile, 1)
            assert await holder(scene) == leader


async def holder(scene: Scene) -> str:
    try:
        return (await scene.client.get(Lease, NAME, scene.namespace)).spec.holder_identity
    except NotFound:
        return ""


async def test_sidecar_continues_when_the_operator_was_away(scene: Scene, tmp_path: Path) -> None:
    port, hostfile = free_port(), tmp_path / "hostfile"
    settings = {"apis": (listed_runs_api(str(tmp_path)),), "endpoint": f"127.0.0.1:{port}"}
    async with AsyncExitStack() as helpers:
        async with scene.operator(**settings):
            await start(scene)
            await helpers.enter_async_context(sidecar(scene, port))
            await scene.report(LAUNCHER, "Running")
            await until_written(scene, hostfile, 0, 1)
        await scene.report("mnist-worker-1", "Failed", 1)
        assert hostfile.read_text() == "mnist-worker-0:1\nmnist-worker-1:1\n"
        async with scene.operator(**settings):
            await until_written(scene, hostfile, 0)


async def test_config_map_that_was_deleted_is_created_again(scene: Scene, tmp_path: Path) -> None:
    async with scene.operator(apis=(listed_runs_api(str(tmp_path)),)):
        await start(scene)
        before = await scene.client.get(ConfigMap, "mnist-config", scene.namespace)
        await scene.client.delete(ConfigMap, "mnist-config", scene.namespace)

        async def is_back() -> bool:
            try:
                config = await scene.client.get(ConfigMap, "mnist-config", scene.namespace)
            except NotFound:
                return False
            return config.metadata.uid != before.metadata.uid and config.data == before.data

        await scene.until("the ConfigMap is created again", is_back)
