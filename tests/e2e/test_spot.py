"""The README of spot-instance-training-operator on the local control plane, on existing nodes.

The training image is replaced by a program that runs until it is told to end. A stand-in plays the checkpoint
agent of stateful-migration-operator: it pushes images, and writes only what that CRD has.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.local_control_plane import ControlPlane
from tests.support.registry import PROGRAM, RunningRegistry, push_image, running_registry
from tests.support.spot_cluster import NAME
from tests.support.spot_jobs import EXAMPLES, Json, spot_job
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]
END = "/tmp/training-is-done"
TRAINING = f"import os, time\nwhile not os.path.exists({END!r}):\n    time.sleep(0.2)"
POD = "jobTemplate.spec.template.spec"
ANNOUNCED = "training.dcnlab.com/termination-deadline=2030-01-01T00:00:00Z"
NOW = "2026-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes this module takes away."""
    running = ControlPlane.up("--nodes", "3", "--pretend-gpus", "1")
    yield running
    running.down()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path) as running:
        yield running


def status(plane: ControlPlane) -> Json:
    return cast("Json", plane.get(f"spotinstancejob/{NAME}").get("status", {}))


def replica(plane: ControlPlane, index: int) -> Json:
    replicas = cast("list[Json]", status(plane).get("jobStatuses", []))
    return replicas[index] if index < len(replicas) else {}


def pod_of(plane: ControlPlane, index: int) -> Json:
    selector = f"job-name={replica(plane, index)['name']}"
    items = cast("list[Json]", plane.get("pods", "-l", selector)["items"])
    return items[0]


def complete_backups(plane: ControlPlane, registry: RunningRegistry) -> int:
    """Do what upstream's agent does with every backup that is not begun; return how many there were."""
    done = 0
    for backup in cast("list[Json]", plane.get("checkpointbackups")["items"]):
        if cast("Json", backup.get("status", {})).get("phase"):
            continue
        containers = cast("list[Json]", cast("Json", backup["spec"])["containers"])
        for container in containers:
            asyncio.run(push_image(registry.address, str(container["image"])))
        built = [
            {"containerName": c["name"], "imageName": c["image"], "buildTime": NOW, "pushed": True}
            for c in containers
        ]
        patch = {"status": {"phase": "Completed", "builtImages": built, "lastCheckpointTime": NOW}}
        name = str(cast("Json", backup["metadata"])["name"])
        plane.kubectl(
            *("patch", "checkpointbackup", name, "--subresource=status", "--type=merge"),
            *("-p", json.dumps(patch)),
        )
        done += 1
    return done


def test_cases_8_22_33_47_readme_journey_on_existing_nodes(
    plane: ControlPlane, registry: RunningRegistry
) -> None:
    changes: Json = {
        "checkpointConfig.checkpointImageRepo": f"{registry.address}/checkpoints",
        f"{POD}.containers": [
            {
                "name": "training",
                "image": "local",
                "command": ["python3", "-c", TRAINING],
                "resources": {"requests": {"nvidia.com/gpu": 1}},
            }
        ],
    }
    plane.kubectl("apply", "-f", str(EXAMPLES / "spotinstancevm.yaml"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(spot_job(changes=changes)))
    wait_for(lambda: status(plane).get("activeReplicas") == 2, lambda: str(status(plane)))
    wait_for(lambda: status(plane).get("phase") == "Running", lambda: str(status(plane)))
    nodes = [replica(plane, index)["nodeName"] for index in (0, 1)]
    assert len(set(nodes)) == 2
    assert not cast("list[Json]", plane.get("provisionedinstances")["items"])
    survivor = cast("Json", pod_of(plane, 1)["metadata"])["uid"]

    plane.kubectl("annotate", "node", str(nodes[0]), ANNOUNCED)
    wait_for(lambda: complete_backups(plane, registry), "no rescue checkpoint")
    wait_for(
        lambda: (replica(plane, 0).get("incarnation"), replica(plane, 0)["phase"]) == (1, "Running"),
        lambda: str(status(plane)),
    )
    assert replica(plane, 0)["nodeName"] not in nodes
    spec = cast("Json", pod_of(plane, 0)["spec"])
    image = str(cast("list[Json]", spec["containers"])[0]["image"])
    assert image.startswith(f"{registry.address}/checkpoints:training-")
    assert cast("Json", pod_of(plane, 1)["metadata"])["uid"] == survivor
    [recovery] = cast("list[Json]", status(plane)["recoveries"])
    assert (recovery["outcome"], recovery["cause"]) == ("Recovered", "Preempted")
    listed = plane.kubectl("get", "spotinstancejobs").stdout
    assert listed.split()[:3] == ["NAME", "PHASE", "REPLICAS"]
    assert NAME in plane.argosy("ps").stdout

    pod = str(cast("Json", pod_of(plane, 1)["metadata"])["name"])
    plane.kubectl("exec", pod, "--", "touch", END)
    wait_for(lambda: status(plane).get("phase") == "Succeeded", lambda: str(status(plane)))
    wait_for(lambda: len(cast("list[Json]", plane.get("jobs")["items"])) == 1, "the other Job is not stopped")
    plane.kubectl("delete", "spotinstancejob", NAME, "--timeout=30s")
    wait_for(lambda: not plane.get("jobs,checkpointbackups")["items"], "something is left")
