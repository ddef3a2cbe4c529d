"""A training whose container is checkpointed, killed and restored on another node computes the same result.

The checkpoint goes the way of a real cluster: the kubelet's API, an image in a registry, and a pod with it.
"""

import asyncio
import datetime
import platform
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from argosy.checkpoint.drivers.image_files import push_image, read_layer
from argosy.checkpoint.drivers.registry import Registry
from argosy.checkpoint.image_names import Image, parse_image
from argosy.checkpoint.images import Source, build_image
from tests.support.criu import require_criu
from tests.support.local_control_plane import ControlPlane
from tests.support.node_agents import running_agents
from tests.support.registry import PROGRAM, RunningRegistry, running_registry
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]

_TRAINING = """
import hashlib, time
import numpy
random = numpy.random.default_rng(7)
samples, weights, speed = random.normal(size=(256, 64)), numpy.zeros(64), numpy.zeros(64)
goal = samples @ random.normal(size=64)
losses = open("/tmp/losses", "w")
for step in range(150):
    batch = random.integers(0, 256, size=64)
    error = samples[batch] @ weights - goal[batch]
    speed = 0.9 * speed + samples[batch].T @ error / 64
    weights -= 0.01 * speed
    print(step, float(error @ error), file=losses, flush=True)
    print("step", step, flush=True)
    time.sleep(0.02)
print("result", hashlib.sha256(weights.tobytes() + open("/tmp/losses", "rb").read()).hexdigest())
"""

_NAMES = ("undisturbed", "restored")

_BACKUP_AND_RESTORE = """
apiVersion: migration.dcnlab.com/v1
kind: CheckpointBackup
metadata: {{name: training}}
spec:
  schedule: immediately
  stopPod: true
  podRef: {{name: source}}
  resourceRef: {{apiVersion: v1, kind: Pod, name: source}}
  registry: {{url: "{registry}", repository: trainings}}
  containers: [{{name: main, image: "trainings/source:main-1"}}]
---
apiVersion: migration.dcnlab.com/v1
kind: CheckpointRestore
metadata: {{name: training}}
spec:
  backupRef: {{name: training}}
  podName: restored
"""


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunningRegistry]:
    with running_registry(tmp_path) as running:
        yield running


def test_a_training_that_was_backed_up_and_restored_has_the_result_of_an_undisturbed_one(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """The agent asks the kubelet and pushes the image; the operator creates the pod; its node restores it."""
    require_criu()
    _create(plane, "undisturbed", "node-1", "local")
    _create(plane, "source", "node-1", "local")
    with running_agents(plane, tmp_path, "node-1") as registry:
        wait_for(lambda: "step 20" in _log(plane, "source"))
        manifest = _BACKUP_AND_RESTORE.format(registry=registry.address)
        plane.kubectl("apply", "-f", "-", stdin=manifest)
        _wait_until_succeeded(plane)
        assert plane.kubectl("get", "pod", "source", "--ignore-not-found").stdout == "", "it was stopped"
        assert list((plane.state.folder / "checkpoints").glob("*source*")) == []
        _assert_same_result(plane)
        plane.kubectl("delete", "-f", "-", stdin=manifest)


@pytest.mark.long
def test_a_restored_training_has_the_result_of_an_undisturbed_one(
    plane: ControlPlane, registry: RunningRegistry
) -> None:
    require_criu()
    _create(plane, "undisturbed", "node-1", "local")
    _create(plane, "source", "node-1", "local")
    wait_for(lambda: "step 20" in _log(plane, "source"))
    tar = checkpoint(plane, "node-1", "source")
    plane.kubectl("delete", "pod", "source", "--grace-period", "0", "--force")
    image = parse_image(f"{registry.address}/trainings/source:main-1")
    asyncio.run(push(image, tar))
    tar.unlink()
    _create(plane, "restored", "node-2", str(image))
    _wait_until_succeeded(plane)
    _assert_same_result(plane)


def _wait_until_succeeded(plane: ControlPlane) -> None:
    phases = ("get", "pods", *_NAMES, "--ignore-not-found", "-o", "jsonpath={.items[*].status.phase}")
    wait_for(
        lambda: plane.kubectl(*phases).stdout == "Succeeded Succeeded",
        lambda: plane.kubectl("describe", "pods,checkpointbackups,checkpointrestores").stdout,
    )


def _assert_same_result(plane: ControlPlane) -> None:
    undisturbed, restored = _log(plane, "undisturbed"), _log(plane, "restored")
    assert undisturbed[-1].startswith("result ")
    assert restored[-1] == undisturbed[-1]
    assert "step 10" not in restored, "it goes on from the checkpoint"
    plane.kubectl("delete", "pod", *_NAMES)


def test_an_image_that_a_registry_on_this_machine_does_not_have_cannot_be_pulled(
    plane: ControlPlane, registry: RunningRegistry
) -> None:
    image = f"{registry.address}/trainings/source:main-2"
    _create(plane, "absent", "node-1", image)

    def waiting() -> str:
        path = "{.status.containerStatuses[0].state.waiting.reason}"
        return plane.kubectl("get", "pod", "absent", "-o", f"jsonpath={path}").stdout

    wait_for(lambda: waiting() == "ErrImagePull", waiting)
    messages = ("get", "events", "-o", "jsonpath={.items[*].message}")
    wait_for(lambda: f'Error: failed to pull image "{image}": ' in plane.kubectl(*messages).stdout)
    plane.kubectl("delete", "pod", "absent")


def checkpoint(plane: ControlPlane, node: str, pod: str) -> Path:
    path = f"/api/v1/nodes/{node}/proxy/checkpoint/default/{pod}/main"
    answer = plane.kubectl("create", "--raw", path, "-f", "/dev/null").stdout
    return Path(msgspec.json.decode(answer)["items"][0])


async def push(image: Image, tar: Path) -> None:
    """Push the image of a checkpoint, as the agent on a node does."""
    source = Source(container="main", base_image="local", pod="source", namespace="default", engine="argosy")
    built = build_image(
        await read_layer(tar), source, datetime.datetime.now(datetime.UTC), platform.machine()
    )
    async with Registry(image.repository.registry) as client:
        await push_image(client, image, built, tar)


def _create(plane: ControlPlane, name: str, node: str, image: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "command": [sys.executable, "-c", textwrap.dedent(_TRAINING)],
                    "env": [{"name": "OPENBLAS_NUM_THREADS", "value": "2"}],
                }
            ],
        },
    }
    plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))


def _log(plane: ControlPlane, name: str) -> list[str]:
    return plane.kubectl("logs", name, code=None).stdout.splitlines()
