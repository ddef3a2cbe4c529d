"""The TrainingJob of examples/et with elastic Horovod, whose workers fail: the training's result is right.

Rank 0 prints the loss of every step. So a step that was lost, or computed again although it was committed,
would show; and losses and weights must be those of a run that nothing has disturbed.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.horovod_runs import (
    COMMIT_EVERY,
    SCRIPT,
    Step,
    assert_result_of_an_undisturbed_run,
    steps_of,
)
from tests.support.local_control_plane import ControlPlane
from tests.support.user import Json
from tests.support.waiting import wait_for

EXAMPLE = examples.ELASTIC_HOROVOD
NAME = "elastic-horovod"
STEP_SECONDS = 240.0
"""How long the workers may take to form a group again. One that waits in a collective operation for a lost
worker gives up after HOROVOD_GLOO_TIMEOUT_SECONDS (120).
"""

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(590)]


class Training:
    """The example, with a folder that the test shares with it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self.folder = folder

    def start(self, replicas: int) -> None:
        self.plane.kubectl("create", "configmap", NAME, f"--from-file={SCRIPT}")
        job = examples.with_mounts(yaml.safe_load((REPOSITORY / EXAMPLE).read_text()), "horovod")
        roles = cast("dict[str, Json]", cast("Json", job["spec"])["etReplicaSpecs"])
        for role in roles.values():
            self._share_folder(cast("Json", cast("Json", role["template"])["spec"]))
        roles["worker"]["replicas"] = replicas
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(job))

    def _share_folder(self, pod: Json) -> None:
        cast("list[Json]", pod["volumes"]).append({"name": "shared", "hostPath": {"path": str(self.folder)}})
        container = cast("list[Json]", pod["containers"])[0]
        mounts = cast("list[Json]", container["volumeMounts"])
        mounts.append({"name": "shared", "mountPath": str(self.folder)})
        variables = {"STOP": str(self.folder / "stop"), "STEPS": "100000"}
        env = cast("list[Json]", container["env"])
        env += [{"name": name, "value": value} for name, value in variables.items()]

    @property
    def output(self) -> str:
        return self.plane.kubectl("logs", f"{NAME}-launcher", "-c", "horovod", code=None).stdout

    @property
    def steps(self) -> list[Step]:
        return steps_of(self.output)

    @property
    def status(self) -> Json:
        return cast("Json", self.plane.get("trainingjob", NAME).get("status", {}))

    def pod(self, name: str) -> Json:
        return self.plane.get("pod", f"{NAME}-{name}")

    def node_of(self, name: str) -> str:
        return cast("str", cast("Json", self.pod(name)["spec"])["nodeName"])

    def workers(self) -> set[str]:
        """The workers that are listed for the launcher."""
        command = ("exec", f"{NAME}-launcher", "-c", "horovod", "--", "/etc/edl/discover_hosts.sh")
        hosts = self.plane.kubectl(*command, code=None).stdout.split()
        return {host.partition(":")[0].removeprefix(f"{NAME}-") for host in hosts}

    def wait_until_trained_by(self, workers: int) -> None:
        """Wait until rank 0 has computed new steps with as many workers, more than it might repeat."""
        before = max((step.number for step in self.steps), default=0)

        def trained() -> bool:
            done = self.steps
            return bool(done) and done[-1].size == workers and done[-1].number > before + COMMIT_EVERY

        self.wait_for(trained, f"{workers} workers train")

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        def explain() -> str:
            described = self.plane.argosy("describe", NAME, code=None).stdout
            pods = self.plane.kubectl("get", "pods", "-o", "wide", code=None).stdout
            return f"{what}\n{described}\n{pods}\n{self.output[-4000:]}"

        wait_for(condition, explain, STEP_SECONDS)

    def finish(self) -> None:
        (self.folder / "stop").touch()
        self.wait_for(lambda: self.status.get("phase") in ("Succeeded", "Failed"), "the training ends")
        assert self.status["phase"] == "Succeeded", self.output[-4000:]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Nodes are NotReady after five seconds."""
    examples.require(EXAMPLE)
    running = ControlPlane.up("--nodes", "4", "--node-monitor-grace-period", "5")
    yield running
    running.down()


@pytest.fixture
def training(plane: ControlPlane, tmp_path: Path) -> Iterator[Training]:
    yield Training(plane, tmp_path)
    plane.kubectl("delete", "trainingjob,configmap", NAME, "--ignore-not-found")
    plane.kubectl(
        "wait", "--for=delete", "pod", "-l", f"training-job-name={NAME}", "--timeout=60s", code=None
    )


def test_killed_worker_is_replaced_under_another_name(training: Training) -> None:
    training.start(3)
    training.wait_until_trained_by(3)
    launcher = cast("Json", training.pod("launcher")["metadata"])["uid"]
    training.plane.argosy("rehearse", "kill-pod", f"{NAME}-worker-1")
    training.wait_for(lambda: training.workers() == {"worker-0", "worker-2", "worker-3"}, "it is replaced")
    training.wait_until_trained_by(3)
    assert training.status["failedWorkers"] == [f"{NAME}-worker-1"]
    assert cast("Json", training.pod("launcher")["metadata"])["uid"] == launcher
    training.finish()
    assert_result_of_an_undisturbed_run(training.output)


def test_workers_of_a_stopped_node_are_replaced_elsewhere(training: Training) -> None:
    training.start(3)
    training.wait_until_trained_by(3)
    index = next(i for i in range(3) if training.node_of(f"worker-{i}") != training.node_of("launcher"))
    node = training.node_of(f"worker-{index}")
    lost = {f"worker-{i}" for i in range(3) if training.node_of(f"worker-{i}") == node}
    training.plane.argosy("rehearse", "stop-node", node)
    try:
        training.wait_for(lambda: len(training.workers() - lost) == 3, "they are replaced")
        assert not training.workers() & lost
        training.wait_until_trained_by(3)
        assert node not in {training.node_of(worker) for worker in training.workers()}
        training.finish()
    finally:
        training.plane.argosy("nodes", "resume", node)
    assert_result_of_an_undisturbed_run(training.output)
