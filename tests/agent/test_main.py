"""The agent as a process, from the metadata service to the annotations of its Node."""

import asyncio
import signal
import subprocess
from pathlib import Path

from argosy.kinds.spot import TERMINATION_DEADLINE, TERMINATION_SOURCE
from tests.support.clouds.metadata import GceMetadata, serving
from tests.support.commands import ARGOSY, environment
from tests.support.fake_apiserver import FakeServer
from tests.support.waiting import eventually


async def test_preemption_reaches_the_annotations_of_the_node(tmp_path: Path) -> None:
    cloud = GceMetadata()
    async with FakeServer() as server, serving(cloud.handle) as metadata:
        await server.put("nodes", {"metadata": {"name": "vm-0"}})
        await server.put("nodes", {"metadata": {"name": "vm-1"}})
        kubeconfig = server.write_kubeconfig(tmp_path / "kubeconfig")
        process = await asyncio.create_subprocess_exec(
            *(str(ARGOSY), "agent", "--node=vm-0", f"--kubeconfig={kubeconfig}"),
            *(f"--metadata-endpoint={metadata}", "--log-format=text"),
            env=environment(),
            stderr=subprocess.PIPE,
        )
        try:
            await eventually(lambda: cloud.long_polls == 2)
            await cloud.preempt()
            await eventually(lambda: annotations(server, "vm-0"))
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = await process.communicate()
    written = annotations(server, "vm-0")
    assert written[TERMINATION_SOURCE] == "gce-preempted"
    assert written[TERMINATION_DEADLINE].endswith("Z")
    assert annotations(server, "vm-1") == {}
    assert process.returncode == 0
    assert b"Traceback" not in errors


def annotations(server: FakeServer, name: str) -> dict[str, str]:
    """Return the annotations of a Node."""
    for node in server.objects("nodes"):
        metadata = node["metadata"]
        assert isinstance(metadata, dict)
        if metadata["name"] == name:
            return dict(metadata.get("annotations") or {})
    raise AssertionError(name)
