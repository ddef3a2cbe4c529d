"""The API `spot` and its node agents on a real cluster: what they find out, save, move and restore.

The registry is on the machine. Tests run in the order of the file, with one installation.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from argosy.kinds.meta import Json
from tests.support.cluster import images
from tests.support.cluster.release import Release
from tests.support.cluster.running import RunningCluster
from tests.support.criu import require_criu
from tests.support.registry import PROGRAM, RunningRegistry, running_registry
from tests.support.spot_jobs import spot_job, spot_vm
from tests.support.spot_trainings import CONTAINERS, TRAINING
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.sequential,
    pytest.mark.timeout(600),
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]

NODES = ["node-1", "node-2"]
CAPABILITY = "training.dcnlab.com/restore-capability"
DEADLINE = "training.dcnlab.com/termination-deadline"
EXAMPLE = Path(__file__).parents[2] / "examples/checkpointed/train.py"
COUNTING = """
import os, time
process, step = os.urandom(8).hex(), 0
while True:
    step += 1
    print(process, step, flush=True)
    time.sleep(0.05)
"""
FAIL = "/tmp/fail"
FAILING = f"{COUNTING}    if os.path.exists({FAIL!r}): raise SystemExit(1)\n"
"""The same, until somebody creates the file."""


@pytest.fixture(scope="module")
def registry(cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    """A registry that nodes and the operator reach without TLS, at the same address."""
    require_criu()
    host = cluster.state.layout.host_address
    with running_registry(tmp_path_factory.mktemp("registry"), host=host) as running:
        known = cluster.folder / "registries" / running.address
        known.mkdir()
        (known / "hosts.toml").write_text(f'server = "http://{running.address}"\n')
        yield running
        shutil.rmtree(known)


@pytest.fixture(scope="module")
def installed(cluster: RunningCluster, registry: RunningRegistry) -> Iterator[RunningCluster]:
    """The operator with the API, and the agents of both nodes."""
    release = Release(cluster)
    release.install(
        *("--set", "apis.spot=true", "--set", "replicas=1", "--set", "agent.notices=none"),
        *("--set", "webhooks.enabled=true"),
        *("--set", f"agent.plainHttpRegistries={{{registry.address}}}"),
        *("--set", f"spot.plainHttpRegistries={registry.address}"),
        standard="privileged",
    )
    yield cluster
    release.uninstall()
    cluster.kubectl("delete", "namespace", release.namespace, "--wait=false")


def test_agents_find_out_that_their_nodes_restore_images(installed: RunningCluster) -> None:
    names = ("get", "nodes", "-l", f"{CAPABILITY}=image", "-o", "jsonpath={.items[*].metadata.name}")

    def logs() -> str:
        where = ("-n", Release(installed).namespace, "daemonset/checkpoint-backup-controller")
        return installed.kubectl("logs", *where, code=None).stdout

    wait_for(lambda: installed.kubectl(*names).stdout.split() == NODES, logs, 120)


def test_run_whose_node_is_announced_to_end_saves_moves_and_goes_on(installed: RunningCluster) -> None:
    shared = installed.folder / "shared"
    shared.mkdir()
    installed.kubectl("apply", "-f", "-", stdin=json.dumps(saving_run(shared)))
    wait_for(lambda: run_status(installed).get("checkpoint", {}).get("lastStep"), show(installed), 120)
    before = node_of(installed, "saved-worker-0")
    installed.kubectl("annotate", "node", before, f"{DEADLINE}=2100-01-01T00:00:00Z")

    def recoveries() -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", run_status(installed).get("recoveries", []))

    wait_for(lambda: [each.get("outcome") for each in recoveries()] == ["Recovered"], show(installed), 120)
    [recovery] = recoveries()
    saved = recovery["savedStep"]
    assert (recovery["restoredFrom"], recovery["stepsLost"]) == (saved, 0)
    assert node_of(installed, "saved-worker-0") not in ("", before)
    [computed] = shared.glob("default/saved-*/computed.txt")
    wait_for(lambda: int(computed.read_text().split()[-1]) > saved + 20, show(installed))
    steps = [int(line) for line in computed.read_text().split()]
    assert steps == list(range(1, len(steps) + 1)), "no step was lost or computed twice"
    installed.kubectl("annotate", "node", before, f"{DEADLINE}-")
    installed.kubectl("delete", "tr", "saved", "--timeout=60s")


def test_container_that_an_agent_checkpoints_goes_on_in_a_pod_on_another_node(
    installed: RunningCluster, registry: RunningRegistry
) -> None:
    container = {"name": "main", "image": images.PYTHON, "command": ["python3", "-c", COUNTING]}
    spec = {"nodeName": "node-1", "restartPolicy": "Never", "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "source"}, "spec": spec}
    installed.kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    wait_for(lambda: len(steps_of(installed, "source")) >= 20, show(installed))
    known = steps_of(installed, "source")
    installed.kubectl("cordon", "node-1")
    installed.kubectl("apply", "-f", "-", stdin=backup_and_restore(registry.address))
    wait_for(lambda: len(steps_of(installed, "restored")) >= len(known) + 60, show(installed), 180)
    assert node_of(installed, "restored") == "node-2"
    backup = cast("Json", installed.get("checkpointbackup", "source")["status"])
    assert (backup["phase"], backup["nodeName"]) == ("Completed", "node-1")
    restored = steps_of(installed, "restored")
    assert {process for process, _ in restored} == {known[0][0]}, "it is the same process"
    numbers = {number for _, number in restored}
    assert numbers == set(range(1, max(numbers) + 1))
    installed.kubectl("uncordon", "node-1")
    installed.kubectl("delete", "checkpointrestore,checkpointbackup", "source")
    installed.kubectl("delete", "pod", "source", "restored", "--grace-period=1", "--ignore-not-found")


def test_pod_of_a_job_that_has_failed_goes_on_from_its_checkpoint(
    installed: RunningCluster, registry: RunningRegistry
) -> None:
    """The Job controller creates the next pod, and the webhook changes its image."""
    container = {"name": "main", "image": images.PYTHON, "command": ["python3", "-c", FAILING]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "retried"}}
    installed.kubectl("apply", "-f", "-", stdin=json.dumps({**job, "spec": {"template": template}}))
    by_age = ("--sort-by=.metadata.creationTimestamp", "-o", "jsonpath={.items[*].metadata.name}")

    def pods() -> list[str]:
        return installed.kubectl("get", "pods", "-l", "job-name=retried", *by_age).stdout.split()

    wait_for(pods, show(installed))
    [first] = pods()
    wait_for(lambda: len(steps_of(installed, first)) >= 20, show(installed))
    target = {"apiVersion": "batch/v1", "kind": "Job", "name": "retried"}
    backup: Json = {
        "apiVersion": "migration.dcnlab.com/v1",
        "kind": "CheckpointBackup",
        "metadata": {"name": "retried"},
        "spec": {
            "schedule": "immediately",
            "podRef": {"name": first},
            "resourceRef": target,
            "registry": {"url": registry.address, "repository": "trainings"},
        },
    }
    installed.kubectl("apply", "-f", "-", stdin=json.dumps(backup))

    def phase() -> object:
        return cast("Json", installed.get("checkpointbackup", "retried").get("status", {})).get("phase")

    wait_for(lambda: phase() == "Completed", show(installed), 120)
    known = steps_of(installed, first)
    installed.kubectl("exec", first, "--", "touch", FAIL)
    wait_for(lambda: len(pods()) == 2, show(installed), 120)
    second = pods()[1]
    wait_for(lambda: len(steps_of(installed, second)) > len(known) + 60, show(installed), 120)
    assert {process for process, _ in steps_of(installed, second)} == {known[0][0]}, "it is the same process"
    metadata = cast("dict[str, Json]", installed.get("pod", second)["metadata"])
    assert metadata["annotations"]["training.dcnlab.com/restored-from"] == "retried"
    installed.kubectl("delete", "job,checkpointbackup", "retried")


def test_replica_on_an_existing_node_goes_on_elsewhere_when_its_node_is_announced_to_end(
    installed: RunningCluster, registry: RunningRegistry
) -> None:
    for node in NODES:
        gpu = {"nvidia.com/gpu": "1"}
        patch = json.dumps({"status": {"capacity": gpu, "allocatable": gpu}})
        installed.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)
    container = {**TRAINING, "image": images.PYTHON, "command": ["python3", "-c", COUNTING]}
    changes: Json = {
        "replicas": 1,
        "checkpointConfig.checkpointImageRepo": f"{registry.address}/checkpoints",
        "checkpointConfig.checkpointInterval": "5s",
        CONTAINERS: [container],
    }
    for manifest in (spot_vm(), spot_job("kept", changes)):
        installed.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))

    def status() -> dict[str, Any]:
        return cast("dict[str, Any]", installed.get("spotinstancejob", "kept").get("status", {}))

    wait_for(lambda: status().get("lastCheckpointImage"), show(installed), 120)
    [before] = status()["jobStatuses"]
    known = steps_of(installed, f"job/{before['name']}")
    installed.kubectl("annotate", "node", before["nodeName"], f"{DEADLINE}=2100-01-01T00:00:00Z")

    def replica() -> dict[str, Any]:
        return cast("dict[str, Any]", status()["jobStatuses"][0])

    running = (1, "Running")
    wait_for(lambda: (replica()["incarnation"], replica()["phase"]) == running, show(installed), 180)
    after = replica()
    assert (after["startMode"], after["nodeName"] != before["nodeName"]) == ("CheckpointImage", True)
    wait_for(lambda: len(steps_of(installed, f"job/{after['name']}")) > len(known) + 60, show(installed))
    restored = steps_of(installed, f"job/{after['name']}")
    assert {process for process, _ in restored} == {known[0][0]}, "it is the same process"
    installed.kubectl("annotate", "node", before["nodeName"], f"{DEADLINE}-")
    installed.kubectl("delete", "spotinstancejob", "kept", "--timeout=60s")


def saving_run(store: Path) -> Json:
    container = {
        "name": "main",
        "image": images.ARGOSY,
        "command": ["python3", "-c", EXAMPLE.read_text()],
        "env": [{"name": "STEPS", "value": "100000"}],
    }
    role = {"template": {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}}
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "saved"},
        "spec": {
            "framework": "standalone",
            "checkpoint": {"store": f"file://{store}", "interval": "2s"},
            "roles": {"worker": role},
        },
    }


def backup_and_restore(registry: str) -> str:
    return f"""
apiVersion: migration.dcnlab.com/v1
kind: CheckpointBackup
metadata: {{name: source}}
spec:
  schedule: immediately
  podRef: {{name: source}}
  resourceRef: {{apiVersion: v1, kind: Pod, name: source}}
  registry: {{url: "{registry}", repository: trainings}}
  containers: [{{name: main, image: "trainings/source:main-1"}}]
---
apiVersion: migration.dcnlab.com/v1
kind: CheckpointRestore
metadata: {{name: source}}
spec:
  backupRef: {{name: source}}
  podName: restored
"""


def run_status(cluster: RunningCluster) -> dict[str, Any]:
    return cast("dict[str, Any]", cluster.get("tr", "saved").get("status", {}))


def node_of(cluster: RunningCluster, pod: str) -> str:
    words = ("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}", "--ignore-not-found")
    return cluster.kubectl(*words).stdout


def steps_of(cluster: RunningCluster, pod: str) -> list[tuple[str, int]]:
    """Return the steps in the log of a pod, each with the process that has computed it.

    The log of a restored container begins with what it had printed before, and may repeat what it was
    printing when it was checkpointed.
    """
    lines = cluster.kubectl("logs", pod, code=None).stdout.splitlines()
    return [(process, int(number)) for process, number in map(str.split, lines)]


def show(cluster: RunningCluster) -> Callable[[], str]:
    kinds = "trainingruns,spotinstancejobs,checkpointbackups,checkpointrestores,pods"
    return lambda: cluster.kubectl("describe", kinds, code=None).stdout
