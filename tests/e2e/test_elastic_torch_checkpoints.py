"""The example of elastic PyTorch workers with checkpoints gets a worker and loses a node, and no step."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from argosy.cli.local_mounts import Manifest, mount_working_dir, with_variables
from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.servers import free_port
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(590)]

EXAMPLE = examples.ELASTIC_CHECKPOINTS
NAME = "elastic-checkpoints"
GROUP_SECONDS = 240.0
"""How long a group may take to form on a busy machine, where each worker imports PyTorch first."""


def undisturbed(folder: Path) -> list[float]:
    """Return the slope that one process finds without Argosy."""
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "RANK": "0", "WORLD_SIZE": "1"}
    program = REPOSITORY / Path(EXAMPLE).with_suffix(".py")
    variables |= {"ARGOSY_CHECKPOINT_DIR": str(folder), "PYTHONPATH": str(REPOSITORY / "src")}
    environ = {**os.environ, **variables}
    command = ["/usr/bin/python3", str(program)]
    return slope(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)


def slope(output: str) -> list[float]:
    [found] = [line for line in output.splitlines() if "found the slope" in line]
    return [float(number) for number in found.rpartition("[")[2].rstrip("]").split(",")]


def test_run_that_grows_and_loses_a_node_has_the_same_result(tmp_path: Path) -> None:
    examples.require(EXAMPLE)
    plane = ControlPlane.up("--nodes", "5")
    try:
        document: Manifest = yaml.safe_load((REPOSITORY / EXAMPLE).read_text())
        document = mount_working_dir(document, REPOSITORY, Path("/usr"), Path("/usr/bin/python3"), os.environ)
        document = with_variables(document, {"OMP_NUM_THREADS": "1", "PACE": "0.5"})
        spec = cast("dict[str, Any]", document["spec"])
        spec["checkpoint"] |= {"store": f"file://{tmp_path}", "interval": "1s"}
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))

        def status() -> dict[str, Any]:
            return cast("dict[str, Any]", plane.get(f"tr/{NAME}").get("status", {}))

        def logs() -> str:
            return plane.argosy("logs", NAME, code=None).stdout

        def explain() -> str:
            return plane.argosy("describe", NAME, code=None).stdout + logs()[-4000:]

        wait_for(lambda: status().get("checkpoint", {}).get("lastStep"), explain, GROUP_SECONDS)
        plane.kubectl("scale", f"tr/{NAME}", "--replicas=3")
        wait_for(lambda: "3 workers, from step" in logs(), explain, GROUP_SECONDS)
        saved = status()["checkpoint"]["lastStep"]
        wait_for(lambda: status()["checkpoint"]["lastStep"] > saved, explain, GROUP_SECONDS)
        nodes = ("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}")
        [lost, *_] = plane.kubectl(*nodes, "--selector", "argosy.dev/index=1").stdout.split()
        plane.argosy("rehearse", "reclaim", lost, "--in", "120s")

        def recovery() -> dict[str, Any]:
            [*_, last] = status().get("recoveries", [{}])
            return cast("dict[str, Any]", last)

        wait_for(lambda: recovery().get("cause") == "Preempted", explain)
        wait_for(lambda: recovery().get("outcome"), explain, GROUP_SECONDS)
        assert recovery()["outcome"] == "Recovered", explain()
        wait_for(lambda: lost not in plane.kubectl(*nodes).stdout.split(), explain)
        wait_for(lambda: status()["phase"] == "Succeeded", explain, GROUP_SECONDS)
        assert slope(logs()) == pytest.approx(undisturbed(tmp_path / "undisturbed"), abs=1e-4)
    finally:
        plane.down()
