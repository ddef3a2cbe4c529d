"""torchrun with elastic workers that are added, removed, killed and moved: the training's result is right.

The state that rank 0 commits has the loss and the number of workers of every step. So a step that was lost or
computed twice would show, and the weights must be those of a run that nothing has disturbed.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import msgspec
import pytest
import yaml
from msgspec import Struct, field

from argosy.cli.local_mounts import Manifest, mount_working_dir, with_variables
from argosy.kinds import labels
from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.servers import free_port
from tests.support.waiting import wait_for

EXAMPLE = examples.ELASTIC_TORCH
NAME = "elastic-torch"
SCRIPT = REPOSITORY / Path(EXAMPLE).parent / "train.py"
STEP_SECONDS = 180.0
"""How long the group may take to form anew on a busy machine, where each worker imports PyTorch first."""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(590)]


class State(Struct):
    """What rank 0 has committed."""

    step: int = 0
    losses: list[float] = field(default_factory=list)
    workers: list[int] = field(default_factory=list)
    """Number of workers in each step."""
    weights: list[float] = field(default_factory=list)


def read_state(folder: Path) -> State:
    file = folder / "state.json"
    return msgspec.json.decode(file.read_bytes(), type=State) if file.exists() else State()


class Training:
    """The example, with a folder for its state that the test reads."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.kind = "tr"

    def start(self, **elastic: object) -> None:
        document: Manifest = yaml.safe_load((REPOSITORY / EXAMPLE).read_text())
        variables = {"STATE": str(self.folder), "STEPS": "100000", "PACE": "0.05"}
        document = mount_working_dir(document, REPOSITORY, Path("/usr"), Path("/usr/bin/python3"), os.environ)
        document = with_variables(document, variables)
        worker = cast("Manifest", document["spec"])["roles"]["worker"]  # type: ignore[index]
        worker["elastic"] |= elastic
        pod = worker["template"]["spec"]
        container = pod["containers"][0]
        remember = 'echo $$$$ > /tmp/agent; exec "$@"'  # Kubernetes makes $$ of it
        container["command"] = ["sh", "-c", remember, "sh", *container["command"]]
        pod["volumes"].append({"name": "state", "hostPath": {"path": str(self.folder)}})
        container["volumeMounts"].append({"name": "state", "mountPath": str(self.folder)})
        pod["terminationGracePeriodSeconds"] = 5
        document = document if self.kind == "tr" else as_aresjob(worker)
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))

    @property
    def state(self) -> State:
        return read_state(self.folder)

    @property
    def status(self) -> dict[str, object]:
        return cast("dict[str, object]", self.plane.get(self.kind, NAME).get("status", {}))

    def pods(self) -> dict[str, str]:
        """Uids of the pods that are not terminating, by index."""
        items = cast("list[Manifest]", self.plane.get("pods", "-l", f"{labels.JOB}={NAME}")["items"])
        metadata = [cast("Manifest", item["metadata"]) for item in items]
        return {
            cast("dict[str, str]", meta["labels"])[labels.INDEX]: cast("str", meta["uid"])
            for meta in metadata
            if "deletionTimestamp" not in meta
        }

    def scale(self, replicas: int) -> None:
        self.plane.kubectl("scale", f"{self.kind}/{NAME}", f"--replicas={replicas}")

    def kill_agent(self, index: int) -> None:
        """Kill torchrun itself; the container ends with it."""
        kill = 'kill -9 "$(cat /tmp/agent)"'
        self.plane.kubectl("exec", f"{NAME}-worker-{index}", "--", "sh", "-c", kill, code=None)

    def wait_until_trained_by(self, workers: int) -> None:
        """Wait until as many workers have committed steps that were not committed before."""
        before = len(self.state.losses)

        def trained() -> bool:
            return (self.state.workers[before:] or [0])[-1] == workers

        self.wait_for(trained, f"{workers} workers train")

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        def explain() -> str:
            described = self.plane.argosy("describe", NAME, code=None).stdout
            logs = self.plane.argosy("logs", NAME, code=None).stdout[-4000:]
            return f"{what}\n{self.state.workers[-5:]}\n{described}\n{logs}"

        wait_for(condition, explain, STEP_SECONDS)

    def finish(self) -> None:
        (self.folder / "stop").touch()
        self.wait_for(lambda: self.status.get("phase") in ("Succeeded", "Failed"), "the training ends")
        assert self.status["phase"] == "Succeeded", self.plane.argosy("describe", NAME).stdout

    def assert_result_of_an_undisturbed_run(self) -> None:
        state = self.state
        steps = len(state.losses)
        assert state.step == steps == len(state.workers), "every step was committed once"
        alone = self.folder / "alone"
        variables = {"STATE": str(alone), "STEPS": str(steps), "PACE": "0", "RANK": "0", "WORLD_SIZE": "1"}
        variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = ["/usr/bin/python3", str(SCRIPT)]
        # It fails if so few steps do not find the slope; its state counts.
        subprocess.run(command, check=False, env={**os.environ, **variables}, capture_output=True)
        undisturbed = read_state(alone)
        assert undisturbed.step == steps
        assert state.losses == pytest.approx(undisturbed.losses, rel=1e-3, abs=1e-4)
        assert state.weights == pytest.approx(undisturbed.weights, rel=1e-3, abs=1e-4)


def as_aresjob(worker: Manifest) -> Manifest:
    """Return an AresJob with these workers, in the container that its framework has."""
    template = cast("Manifest", worker["template"])
    cast("list[Manifest]", cast("Manifest", template["spec"])["containers"])[0]["name"] = "pytorch"
    spec = {"frameworkType": "pytorch", "roleSpecs": {"worker": worker}}
    return {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": NAME}, "spec": spec}


@pytest.fixture
def training(plane: ControlPlane, tmp_path: Path) -> Iterator[Training]:
    if problem := examples.missing(EXAMPLE):
        pytest.skip(problem)
    training = Training(plane, tmp_path)
    yield training
    plane.kubectl("delete", training.kind, NAME, "--ignore-not-found")
    plane.kubectl("wait", "--for=delete", "pod", "-l", f"{labels.JOB}={NAME}", "--timeout=60s", code=None)


@pytest.mark.long
def test_worker_is_added_and_another_one_killed(training: Training) -> None:
    training.start()
    training.wait_until_trained_by(2)
    first = training.pods()
    training.scale(3)
    training.wait_until_trained_by(3)
    training.kill_agent(2)
    training.wait_for(lambda: training.status.get("restarts") == 1, "the killed worker is counted")
    training.wait_until_trained_by(3)
    after = training.pods()
    assert {index: after[index] for index in first} == first, "other workers are not restarted"
    training.finish()
    assert (training.status["restarts"], training.status["attempt"]) == (1, 1)
    training.assert_result_of_an_undisturbed_run()


@pytest.mark.long
def test_workers_are_added_and_removed_and_their_store_is_lost(training: Training) -> None:
    training.start()
    training.wait_until_trained_by(2)
    store = training.pods()["0"]
    for workers in (4, 1, 3):
        training.scale(workers)
        training.wait_until_trained_by(workers)
        assert training.pods()["0"] == store, "the store host is never removed"
    assert training.status["restarts"] == 0
    training.kill_agent(1)
    training.wait_for(lambda: training.status.get("restarts") == 1, "the killed worker is counted")
    training.wait_until_trained_by(3)
    assert training.pods()["0"] == store, "the others continue"
    before = training.pods()
    training.kill_agent(0)
    training.wait_for(lambda: training.status.get("restarts") == 2, "the loss is counted")
    training.wait_until_trained_by(3)
    assert not set(before.values()) & set(training.pods().values()), "all workers restart with their store"
    training.finish()
    assert (training.status["restarts"], training.status["attempt"]) == (2, 1), "each is counted once"
    training.assert_result_of_an_undisturbed_run()


def node_of(plane: ControlPlane, index: int) -> str:
    pod = f"{NAME}-worker-{index}"
    return plane.kubectl("get", "pod", pod, "-o", "jsonpath={.spec.nodeName}").stdout


@pytest.fixture
def announced(plane: ControlPlane) -> Iterator[Callable[[str, int], None]]:
    """Announces that a node ends in so many seconds; withdrawn at the end of the test."""
    nodes: list[str] = []

    def announce(node: str, seconds: int) -> None:
        nodes.append(node)
        deadline = datetime.now(UTC) + timedelta(seconds=seconds)
        plane.kubectl("taint", "node", node, f"{labels.TERMINATION_TAINT}=test:NoSchedule")
        value = f"{labels.TERMINATION_DEADLINE}={deadline:%Y-%m-%dT%H:%M:%SZ}"
        plane.kubectl("annotate", "node", node, value)

    yield announce
    for node in nodes:
        plane.kubectl("taint", "node", node, f"{labels.TERMINATION_TAINT}-", code=None)
        plane.kubectl("annotate", "node", node, f"{labels.TERMINATION_DEADLINE}-", code=None)


@pytest.mark.long
def test_worker_leaves_a_node_before_it_ends(
    training: Training, announced: Callable[[str, int], None]
) -> None:
    training.start()
    training.scale(3)
    training.wait_until_trained_by(3)
    store = node_of(training.plane, 0)
    index = next(index for index in (1, 2) if node_of(training.plane, index) != store)
    going = node_of(training.plane, index)
    announced(going, 60)
    training.wait_for(lambda: str(index) not in training.pods(), "the worker leaves")
    notices = cast("list[dict[str, object]]", training.status["notices"])
    assert [(notice["node"], notice["response"]) for notice in notices] == [(going, "ScaleIn")]
    training.wait_until_trained_by(3)
    assert training.pods().keys() == {"0", str(3 - index), "3"}
    training.finish()
    assert training.status.get("restarts", 0) == 0
    training.assert_result_of_an_undisturbed_run()


@pytest.mark.long
def test_training_continues_without_a_stopped_node_and_grows_back_when_it_is_on(training: Training) -> None:
    training.start()
    training.scale(3)
    training.wait_until_trained_by(3)
    nodes = {index: node_of(training.plane, index) for index in range(3)}
    stopped = next(node for node in nodes.values() if node != nodes[0])
    stay = [index for index, node in nodes.items() if node != stopped]
    before = training.pods()
    training.plane.argosy("rehearse", "stop-node", stopped)
    try:
        training.wait_until_trained_by(len(stay))
    finally:
        training.plane.argosy("nodes", "resume", stopped)
    training.wait_until_trained_by(3)
    after = training.pods()
    assert {index: after[str(index)] for index in stay} == {index: before[str(index)] for index in stay}
    training.finish()
    assert training.status["attempt"] == 1
    training.assert_result_of_an_undisturbed_run()


@pytest.mark.long
def test_aresjob_gains_and_loses_workers(training: Training) -> None:
    training.kind = "aj"
    training.start()
    training.wait_until_trained_by(2)
    first = training.pods()
    training.scale(3)
    training.wait_until_trained_by(3)
    selector = f"{labels.JOB}={NAME},{labels.INDEX}=2"
    training.plane.kubectl("delete", "pod", "-l", selector, "--wait=false")
    training.wait_for(lambda: training.status.get("restartHistory"), "the deletion is shown")
    training.wait_until_trained_by(3)
    training.scale(2)
    training.wait_until_trained_by(2)
    assert training.pods() == first, "other workers are not restarted"
    training.finish()
    training.assert_result_of_an_undisturbed_run()
