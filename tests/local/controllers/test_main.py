"""Tests for the controllers as a process."""

import asyncio
import shutil
import signal
import sys
from pathlib import Path

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.local.controllers.api_types import Namespace
from argosy.local.service_types import EndpointSlice, Service
from tests.support.servers import Server
from tests.support.waiting import until


async def test_the_process_runs_until_sigterm(local_apiserver: Server, tmp_path: Path) -> None:
    (tmp_path / "kubeconfigs").mkdir()
    shutil.copy(local_apiserver.kubeconfig, tmp_path / "kubeconfigs" / "controllers")
    name = f"main-{tmp_path.name}"[:40].replace("_", "-").rstrip("-")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "argosy.local.controllers",
        "--state",
        str(tmp_path),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with Client(Connection.from_kubeconfig(local_apiserver.kubeconfig)) as client:
            await client.create(Namespace, {"metadata": {"name": name}})

            spec = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
            await client.create(Service, {"metadata": {"name": "web"}, "spec": spec}, name)

            async def has_slice() -> bool:
                return bool((await client.list(EndpointSlice, name)).items)

            await until(has_slice, "the service gets its slice")
        process.send_signal(signal.SIGTERM)
        _, errors = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, errors.decode()
        # uvloop may complain of TLS connections that were cut; no line of ours may.
        assert b"src/argosy/" not in errors, errors.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
