"""A training with checkpoints loses nodes and is suspended: it saves before, resumes, and loses no step.

The example writes down every step that it computes, so a step that was lost shows as one computed twice.
"""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from msgspec import Struct

from argosy.cli.local_mounts import Manifest, mount_working_dir, with_variables
from tests.support import examples
from tests.support.chaos import kill_component
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.parameters import marked
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

EXAMPLE = examples.CHECKPOINTED


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One control plane for all tests of this module; each takes one of its nodes away."""
    running = ControlPlane.up("--nodes", "6")
    yield running
    running.down()


class Training:
    """The example, with a store that the test reads."""

    def __init__(self, plane: ControlPlane, name: str, store: Path) -> None:
        self.plane = plane
        self.name = name
        self.store = store

    def start(self, example: str = EXAMPLE, **fields: object) -> None:
        document: Manifest = yaml.safe_load((REPOSITORY / example).read_text())
        document = mount_working_dir(document, REPOSITORY, Path(sys.prefix), Path(sys.executable), os.environ)
        document = with_variables(document, {"STEPS": "100000", "PACE": "0.02"})
        document["metadata"] = {"name": self.name}
        spec = cast("dict[str, Any]", document["spec"])
        spec["checkpoint"]["store"] = f"file://{self.store}"
        if "signal" not in spec["checkpoint"]:
            spec["checkpoint"]["interval"] = "1s"
        spec |= fields
        self.plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        if "signal" in spec["checkpoint"]:
            wait_for(lambda: any(self.store.glob("default/*/computed.txt")), "the first step")
            self.wait_for_steps(20)
        else:
            wait_for(lambda: self.status.get("checkpoint", {}).get("lastStep"), "the first checkpoint")

    def wait_for_steps(self, count: int) -> None:
        wait_for(lambda: len(self.computed) >= count, f"{count} steps")

    @property
    def status(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self.plane.get(f"tr/{self.name}").get("status", {}))

    @property
    def recoveries(self) -> list[dict[str, Any]]:
        return cast("list[dict[str, Any]]", self.status.get("recoveries", []))

    @property
    def folder(self) -> Path:
        [folder] = (self.store / "default").glob(f"{self.name}-*")
        return folder

    @property
    def node(self) -> str:
        return self.plane.kubectl(
            "get", f"pod/{self.name}-worker-0", "-o", "jsonpath={.spec.nodeName}", "--ignore-not-found"
        ).stdout

    def stop_saving(self, **checkpoint: str) -> None:
        """Let the program save nothing until the file `hold` is removed; change fields of `checkpoint`."""
        (self.folder / "hold").touch()
        if checkpoint:
            self.patch({"checkpoint": checkpoint})

    def suspend(self, value: bool) -> None:
        self.patch({"suspend": value})

    def patch(self, spec: dict[str, object]) -> None:
        patch = json.dumps({"spec": spec})
        self.plane.kubectl("patch", f"tr/{self.name}", "--type", "merge", "-p", patch)

    def outcomes(self) -> list[str]:
        return [recovery.get("outcome", "") for recovery in self.recoveries]

    @property
    def computed(self) -> list[int]:
        """Return all steps in the order in which they were computed."""
        return [int(line) for line in (self.folder / "computed.txt").read_text().split()]

    def assert_no_step_was_lost(self) -> None:
        steps = self.computed
        assert steps == list(range(1, len(steps) + 1))


@pytest.fixture
def training(plane: ControlPlane, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Training]:
    name = str(request.node.name).removeprefix("test_").replace("_", "-")[:30].strip("-")
    yield Training(plane, name, tmp_path)
    plane.kubectl("delete", f"tr/{name}", "--wait=false")


def test_reclaimed_node_costs_no_step(training: Training) -> None:
    training.start()
    before = training.node
    training.plane.argosy("rehearse", "reclaim", before, "--in", "20s")
    wait_for(lambda: training.outcomes() == ["Recovered"], "the run recovers", 60)
    [recovery] = training.recoveries
    assert (recovery["cause"], recovery["source"], recovery["action"]) == (
        "Preempted", "rehearsal", "SaveAndMove"
    )  # fmt: skip
    assert recovery["restoredFrom"] == recovery["savedStep"]
    assert (recovery["stepsLost"], training.status["checkpoint"]["stepsLost"]) == (0, 0)
    assert training.node not in ("", before)
    training.assert_no_step_was_lost()
    described = training.plane.argosy("describe", training.name).stdout
    assert f"a checkpoint was saved before; resumed from step {recovery['savedStep']}" in described
    assert "CheckpointReady   True     CheckpointCompleted" in described
    assert training.status.get("restarts", 0) == 0


def test_steps_that_a_lost_pod_had_computed_are_counted(training: Training) -> None:
    training.start()
    (training.folder / "hold").touch()
    last = training.computed[-1]
    wait_for(lambda: training.computed[-1] >= last + 50, "steps that no checkpoint has")
    training.plane.kubectl("delete", f"pod/{training.name}-worker-0", "--wait=false")
    wait_for(lambda: training.outcomes() == ["ProgressLost"], "the run recovers", 60)
    (training.folder / "hold").unlink()
    wait_for(lambda: len(training.computed) > max(training.computed), "the steps are computed again")
    [recovery] = training.recoveries
    lost = training.computed[training.computed.index(recovery["restoredFrom"]) + 1 :]
    computed_twice = lost.index(recovery["restoredFrom"] + 1, 1)
    # The program writes its step five times a second.
    assert 25 <= recovery["stepsLost"] <= computed_twice
    described = training.plane.argosy("describe", training.name).stdout
    assert f"{recovery['stepsLost']} steps lost so far" in described


def test_suspended_run_resumes_where_it_stopped(training: Training) -> None:
    training.start()
    training.suspend(True)
    wait_for(lambda: training.status["phase"] == "Suspended", "the run is suspended")
    training.suspend(False)
    wait_for(lambda: training.outcomes() == ["Recovered"], "the run recovers", 60)
    assert training.status["attempt"] == 2
    training.assert_no_step_was_lost()


def test_program_that_only_handles_sigterm_loses_no_step(training: Training) -> None:
    training.start(examples.SIGTERM)
    before = training.node
    training.plane.argosy("rehearse", "reclaim", before, "--in", "20s")
    wait_for(lambda: training.outcomes() == ["Recovered"], "the run recovers", 60)
    [recovery] = training.recoveries
    assert (recovery["cause"], recovery["action"]) == ("Preempted", "SignalAndMove")
    assert recovery["restoredFrom"] == training.status["checkpoint"]["lastStep"] >= 20
    assert recovery["stepsLost"] == 0
    assert recovery["message"].startswith("a checkpoint was saved after SIGTERM; resumed from step")
    assert training.node not in ("", before)
    training.wait_for_steps(recovery["restoredFrom"] + 20)
    training.suspend(True)
    wait_for(lambda: training.status["phase"] == "Suspended", "the run is suspended")
    training.suspend(False)
    wait_for(lambda: training.outcomes() == ["Recovered"] * 2, "the run recovers again", 60)
    resumed = training.recoveries[1]["restoredFrom"]
    assert resumed > recovery["restoredFrom"]
    training.wait_for_steps(resumed + 20)
    training.patch({"limits": {"activeDeadline": "1s"}})
    wait_for(lambda: training.status["phase"] == "Failed", "the deadline is over")
    wait_for(lambda: not training.node, "the pod has ended")
    assert (training.folder / f"step-{training.computed[-1]}" / "manifest.json").exists()
    training.assert_no_step_was_lost()


def test_operator_killed_between_order_and_checkpoint(training: Training) -> None:
    training.start(restartScope="Job")
    training.stop_saving()
    training.plane.argosy("rehearse", "reclaim", training.node, "--in", "60s")
    ordered = "(Preempted)"
    wait_for(lambda: ordered in training.status["checkpoint"].get("message", ""), "the order is recorded")
    kill_component(training.plane, "operator")
    (training.folder / "hold").unlink()
    wait_for(lambda: training.outcomes() == ["Recovered"], "the run recovers", 60)
    assert training.status["attempt"] == 2, "all pods were replaced once"
    training.assert_no_step_was_lost()


def test_drained_node_waits_for_the_checkpoint(training: Training) -> None:
    training.start()
    before, budget = training.node, f"{training.name}-trainingrun-checkpoint"
    training.stop_saving(onDrain="Save")

    def counted() -> bool:
        status = cast("dict[str, Any]", training.plane.get(f"pdb/{budget}").get("status", {}))
        return (status.get("expectedPods"), status.get("disruptionsAllowed", 0)) == (1, 0)

    wait_for(counted, "the budget counts the pod")
    options = ("--ignore-daemonsets", "--force", "--delete-emptydir-data")
    drain = training.plane.start("kubectl", "drain", before, *options)
    wait_for(lambda: "(Drained)" in training.status["checkpoint"].get("message", ""), "the order is recorded")
    assert training.node == before, "the pod is not evicted"
    (training.folder / "hold").unlink()
    output, errors = drain.communicate(timeout=60)
    assert drain.returncode == 0, output + errors
    wait_for(lambda: training.outcomes() == ["Recovered"], "the run recovers", 60)
    assert training.node not in ("", before)
    training.assert_no_step_was_lost()


class Moved(Struct, frozen=True):
    """An example of another API, and the pod of it that saves."""

    example: str
    job: str
    pod: str
    container: str
    roles: tuple[str, ...]


MOVED = {
    "AresJob": Moved(
        examples.CHECKPOINTED_ARES,
        "aj/ares-checkpointed",
        "pod/ares-checkpointed-worker-0",
        "standalone",
        ("roleSpecs", "worker"),
    ),
    "TrainingJob": Moved(
        examples.CHECKPOINTED_ET,
        "trainingjob/et-checkpointed",
        "pod/et-checkpointed-launcher",
        "launcher",
        ("etReplicaSpecs", "launcher"),
    ),
}


@pytest.mark.parametrize("case", marked(MOVED, ["AresJob"], pytest.mark.long))
def test_job_of_another_api_continues_at_its_step_on_another_node(
    plane: ControlPlane, tmp_path: Path, case: Moved
) -> None:
    document = yaml.safe_load((REPOSITORY / case.example).read_text())
    document["spec"]["checkpoint"] |= {"store": f"file://{tmp_path}", "interval": "1s"}
    role = document["spec"][case.roles[0]][case.roles[1]]
    [container] = role["template"]["spec"]["containers"]
    container["env"] = [{"name": "STEPS", "value": "100000"}]
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))
    job, pod = case.job, case.pod

    def status() -> dict[str, Any]:
        return cast("dict[str, Any]", plane.get(job).get("status", {}))

    def outcomes() -> list[str]:
        return [recovery.get("outcome", "") for recovery in status().get("recoveries", [])]

    def described() -> str:
        return plane.argosy("describe", document["metadata"]["name"]).stdout

    wait_for(lambda: status().get("checkpoint", {}).get("lastStep"), described)
    before = plane.kubectl("get", pod, "-o", "jsonpath={.spec.nodeName}").stdout
    plane.argosy("rehearse", "reclaim", before, "--in", "20s")
    wait_for(lambda: outcomes() == ["Recovered"], described, 60)
    [recovery] = status()["recoveries"]
    assert (recovery["cause"], recovery["action"], recovery["stepsLost"]) == ("Preempted", "SaveAndMove", 0)
    step = recovery["savedStep"]
    assert recovery["restoredFrom"] == step
    conditions = {item["type"]: (item["status"], item.get("reason")) for item in status()["conditions"]}
    assert conditions["CheckpointReady"] == ("True", "CheckpointCompleted")
    assert conditions["ProgressLost"][0] == "False"
    assert plane.kubectl("get", pod, "-o", "jsonpath={.spec.nodeName}").stdout not in ("", before)
    logs = ("logs", pod, "-c", case.container)
    wait_for(lambda: f"from step {step}" in plane.kubectl(*logs).stdout, "it says where it started")
    assert f"resumed from step {step}" in described()
    plane.kubectl("delete", job, "--wait=false")
