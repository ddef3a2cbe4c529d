"""A training on a real cluster is checkpointed by the kubelet and restored on another node."""

import asyncio
import datetime
import os
import platform
import textwrap
from pathlib import Path

import msgspec
import pytest
import yaml

from argosy.checkpoint.drivers.image_files import read_layer, write_archive
from argosy.checkpoint.image_names import parse_image
from argosy.checkpoint.images import Source, build_image
from tests.support.cluster import images
from tests.support.cluster.running import RunningCluster
from tests.support.criu import require_criu
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.root, pytest.mark.timeout(300)]

NAMES = ("undisturbed", "source", "restored")
RESTORED = "localhost/trainings/source:main-1"

_TRAINING = """
import hashlib, random, time
rng, weights = random.Random(7), [0.0] * 32
losses = open("/var/tmp/losses", "w")
for step in range(300):
    sample = [rng.gauss(0, 1) for _ in weights]
    error = sum(w * x for w, x in zip(weights, sample)) - sum(sample)
    weights = [w - 0.01 * error * x for w, x in zip(weights, sample)]
    print(step, error, file=losses, flush=True)
    print("step", step, flush=True)
    time.sleep(0.05)
text = repr(weights) + open("/var/tmp/losses").read()
print("result", hashlib.sha256(text.encode()).hexdigest(), flush=True)
"""


def test_a_restored_training_has_the_result_of_an_undisturbed_one(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    require_criu()
    _create(cluster, "undisturbed", "node-1", images.PYTHON)
    _create(cluster, "source", "node-1", images.PYTHON)
    wait_for(lambda: "step 40" in _log(cluster, "source"))
    path = "/api/v1/nodes/node-1/proxy/checkpoint/default/source/main"
    answer = cluster.kubectl("create", "--raw", path, "-f", os.devnull, timeout=120).stdout
    tar = cluster.path("node-1", msgspec.json.decode(answer)["items"][0])
    cluster.kubectl("delete", "pod", "source", "--grace-period", "0", "--force")
    archive = tmp_path / "image.tar"
    asyncio.run(_build(tar, archive))
    tar.unlink()
    cluster.import_image("node-2", archive)
    _create(cluster, "restored", "node-2", RESTORED)
    phases = "jsonpath={.items[*].status.phase}"
    wait_for(
        lambda: (
            cluster.kubectl("get", "pods", "undisturbed", "restored", "-o", phases).stdout
            == "Succeeded Succeeded"
        ),
        lambda: cluster.kubectl("describe", "pods").stdout,
        120,
    )
    undisturbed, restored = _log(cluster, "undisturbed"), _log(cluster, "restored")
    assert undisturbed[-1].startswith("result ")
    assert restored[-1] == undisturbed[-1]
    started = cluster.get("pod", "restored")["status"]
    assert "node-2" in cluster.kubectl("get", "pod", "restored", "-o", "wide").stdout, started
    cluster.kubectl("delete", "pod", "undisturbed", "restored")


async def _build(tar: Path, archive: Path) -> None:
    """Make the image of a checkpoint, as the agent on a node does."""
    source = Source(
        container="main", base_image=images.PYTHON, pod="source", namespace="default", engine="containerd"
    )
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    built = build_image(await read_layer(tar), source, datetime.datetime.now(datetime.UTC), architecture)
    await write_archive(archive, parse_image(RESTORED), built, tar)


def _create(cluster: RunningCluster, name: str, node: str, image: str) -> None:
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", textwrap.dedent(_TRAINING)],
    }
    spec = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))


def _log(cluster: RunningCluster, name: str) -> list[str]:
    return cluster.kubectl("logs", name, code=None).stdout.splitlines()
