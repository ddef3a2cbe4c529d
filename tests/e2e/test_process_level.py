"""A run whose program knows nothing of checkpoints loses its node, and continues on another one where it was.

Its processes go through all that a real cluster has: CheckpointBackup, node agent, kubelet, CRIU, registry.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.chaos import kill_component
from tests.support.criu import require_criu
from tests.support.local_control_plane import ControlPlane
from tests.support.node_agents import running_agents
from tests.support.registry import PROGRAM, RunningRegistry
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.root,
    pytest.mark.long,
    pytest.mark.timeout(300),
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]

NODES = ("node-1", "node-2", "node-3", "node-4", "node-5")
STEPS = 600
PROGRAM_TEXT = f"""
import hashlib, time
state = b"start"
for step in range({STEPS}):
    state = hashlib.sha256(state).digest()
    print("step", step, flush=True)
    time.sleep(0.05)
print("result", state.hex())
"""


def expected_result() -> str:
    state = b"start"
    for _ in range(STEPS):
        state = hashlib.sha256(state).digest()
    return f"result {state.hex()}"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One control plane for all tests of this module; each takes one of its nodes away."""
    require_criu()
    running = ControlPlane.up("--nodes", str(len(NODES)))
    yield running
    running.down()


@pytest.fixture(scope="module")
def registry(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningRegistry]:
    with running_agents(plane, tmp_path_factory.mktemp("registry"), *NODES) as running:
        label = "training.dcnlab.com/restore-capability=image"  # by what the agents find out
        names = ("get", "nodes", "-l", label, "-o", "jsonpath={.items[*].metadata.name}")
        wait_for(lambda: plane.kubectl(*names).stdout.split() == list(NODES), "the nodes are labelled", 120)
        yield running


class Counting:
    """A run of the program in one pod."""

    def __init__(self, plane: ControlPlane, registry: RunningRegistry, name: str) -> None:
        self.plane = plane
        self.name = name
        self.kind = "tr"
        self._images = {"repository": f"{registry.address}/trainings"}

    def start(self, **checkpoint: object) -> None:
        container = {"name": "main", "image": "local", "command": [sys.executable, "-c", PROGRAM_TEXT]}
        pod = {"terminationGracePeriodSeconds": 1, "containers": [container]}
        policy = {"level": "Process", "images": self._images, **checkpoint}
        run = self._run({"worker": {"template": {"spec": pod}}}) | {"metadata": {"name": self.name}}
        run["spec"] |= {"checkpoint": policy}
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(run))
        wait_for(lambda: "step 20" in self.log, "the program counts")

    def _run(self, roles: object) -> dict[str, Any]:
        if self.kind == "aj":
            spec = {"frameworkType": "custom", "roleSpecs": roles}
            return {"apiVersion": "ares.io/v1", "kind": "AresJob", "spec": spec}
        spec = {"framework": "custom", "roles": roles}
        return {"apiVersion": "argosy.dev/v1alpha1", "kind": "TrainingRun", "spec": spec}

    @property
    def status(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.plane.get(f"{self.kind}/{self.name}").get("status", {}))

    @property
    def log(self) -> list[str]:
        return self.plane.kubectl("logs", f"{self.name}-worker-0", code=None).stdout.splitlines()

    @property
    def node(self) -> str:
        path = "jsonpath={.spec.nodeName}"
        return self.plane.kubectl("get", f"pod/{self.name}-worker-0", "-o", path, "--ignore-not-found").stdout

    def outcomes(self) -> list[str]:
        return [recovery.get("outcome", "") for recovery in self.status.get("recoveries", [])]

    def show(self) -> str:
        return self.plane.kubectl("describe", "tr,aj,checkpointbackups,pods", code=None).stdout

    def wait_for_phase(self, phase: str) -> None:
        wait_for(lambda: self.status.get("phase") == phase, self.show, 90)

    def assert_continued(self) -> None:
        """Wait for the end, and check that no step was lost before the one that was saved."""
        self.wait_for_phase("Succeeded")
        log = self.log
        assert log[-1] == expected_result()
        first = int(log[0].removeprefix("step "))
        assert first >= 20, self.show()
        assert log[:-1] == [f"step {step}" for step in range(first, STEPS)]


@pytest.fixture
def counting(
    plane: ControlPlane, registry: RunningRegistry, request: pytest.FixtureRequest
) -> Iterator[Counting]:
    name = str(request.node.name).removeprefix("test_").replace("_", "-")[:30].strip("-")
    counting = Counting(plane, registry, name)
    yield counting
    plane.kubectl("delete", f"{counting.kind}/{name}", "--wait=false")


def test_reclaimed_node(counting: Counting) -> None:
    counting.start()
    before = counting.node
    counting.plane.argosy("rehearse", "reclaim", before, "--in", "90s")
    wait_for(lambda: counting.outcomes() == ["Recovered"], counting.show, 60)
    assert counting.node not in ("", before)
    checkpoint = counting.status["checkpoint"]
    assert (checkpoint["level"], "lastStep" in checkpoint) == ("Process", False)
    [recovery] = counting.status["recoveries"]
    assert recovery["message"] == "a checkpoint was saved before; its processes continue from it"
    counting.assert_continued()


def test_reclaimed_node_of_an_aresjob(counting: Counting) -> None:
    counting.kind = "aj"
    counting.start()
    before = counting.node
    counting.plane.argosy("rehearse", "reclaim", before, "--in", "90s")
    wait_for(lambda: counting.outcomes() == ["Recovered"], counting.show, 60)
    assert counting.node not in ("", before)
    assert counting.status["checkpoint"]["level"] == "Process"
    counting.assert_continued()


def test_suspended_run(counting: Counting) -> None:
    counting.start()
    for value in (True, False):
        patch = json.dumps({"spec": {"suspend": value}})
        counting.plane.kubectl("patch", f"tr/{counting.name}", "--type", "merge", "-p", patch)
        phase = "Suspended" if value else "Running"
        counting.wait_for_phase(phase)
    counting.assert_continued()


def test_operator_killed_while_the_processes_are_saved(counting: Counting) -> None:
    counting.start()
    before = counting.node
    counting.plane.argosy("rehearse", "reclaim", before, "--in", "90s")
    wait_for(lambda: "(Preempted)" in counting.status.get("checkpoint", {}).get("message", ""), counting.show)
    kill_component(counting.plane, "operator")
    wait_for(lambda: counting.outcomes() == ["Recovered"], counting.show, 60)
    assert counting.node not in ("", before)
    counting.assert_continued()
