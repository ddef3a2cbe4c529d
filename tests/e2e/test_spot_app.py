"""A SpotInstanceJob whose training saves itself with the SDK loses a node, and no step.

Both replicas save when the end of one's node is announced, each into a folder of its own. The new pod of the
lost one continues from whichever copy is ahead.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

from tests.support import examples
from tests.support.commands import REPOSITORY
from tests.support.local_control_plane import ControlPlane
from tests.support.spot_jobs import EXAMPLES, Json, spot_job
from tests.support.spot_trainings import CONTAINERS, RunningJob
from tests.support.trainingjobs import load
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(240)]

NAME = "checkpointed"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "3", "--pretend-gpus", "1")
    yield running
    running.down()


class Store:
    """The folders of the replicas, as the test sees them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def computed(self, index: int) -> list[int]:
        """Return the steps that pods of a replica have computed, in their order."""
        [job] = (self._folder / "default").glob(f"{NAME}-*")
        return [int(line) for line in (job / f"replica-{index}" / "computed.txt").read_text().split()]


def example(store: Path) -> Json:
    """The example, with a store that the test reads, and with the clone of this machine as its image."""
    job = load(REPOSITORY / examples.SPOT_CHECKPOINTED)
    spec = cast("Json", job["spec"])
    config = cast("Json", spec["checkpointConfig"])
    config |= {"checkpointInterval": "2s", "checkpointStorage": {"type": "file", "bucket": str(store)}}
    pod = cast(
        "Json", cast("Json", cast("Json", cast("Json", spec["jobTemplate"])["spec"])["template"])["spec"]
    )
    [training] = cast("list[Json]", pod["containers"])
    cast("list[Json]", training["env"]).append({"name": "PACE", "value": "0.02"})
    folder = str(REPOSITORY)
    training |= {
        "image": "local",
        "workingDir": folder,
        "volumeMounts": [{"name": "clone", "mountPath": folder}],
    }
    pod["volumes"] = [{"name": "clone", "hostPath": {"path": folder}}]
    return job


def test_a_lost_replica_continues_from_the_step_that_was_saved_before(
    plane: ControlPlane, tmp_path: Path
) -> None:
    plane.kubectl("apply", "-f", str(EXAMPLES / "spotinstancevm.yaml"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(example(tmp_path)))
    job, store = RunningJob(plane, NAME), Store(tmp_path)
    ready = ("wait", f"spotinstancejob/{NAME}", "--for=condition=CheckpointReady", "--timeout=60s")
    plane.kubectl(*ready)
    assert int(str(job.status["lastCheckpointStep"])) > 0

    plane.argosy("rehearse", "reclaim", str(job.replica(0)["nodeName"]), "--in", "20s")
    wait_for(lambda: [r.get("outcome") for r in job.recoveries] == ["Recovered"], job.show, 90)
    [recovery] = job.recoveries
    assert (recovery["cause"], recovery["action"]) == ("Preempted", "CheckpointMade")
    saved = int(str(recovery["restoredFrom"]).removeprefix("step "))
    wait_for(lambda: store.computed(0)[-1] > saved + 20, "the training goes on")
    steps = store.computed(0)
    assert len(steps) == len(set(steps)), "no step was computed twice by the lost replica and its successor"
    survivor = store.computed(1)
    assert survivor == list(range(1, len(survivor) + 1)), "the survivor goes on"

    described = plane.argosy("describe", NAME).stdout
    assert f"incarnation 1 from step {saved}" in described
    assert "replica-1 (primary)" in described
    output = plane.argosy("logs", NAME, "--index", "1").stdout
    assert "replica-1 │ from step 0 (attempt 1)" in output
    assert "(Preempted)" in output, "it has answered the order"
    plane.kubectl("delete", f"spotinstancejob/{NAME}", "--timeout=60s")


def test_argosy_run_follows_the_replicas_to_the_end_of_the_job(plane: ControlPlane, tmp_path: Path) -> None:
    training = {"name": "training", "image": "local", "command": ["sh", "-c", "echo done; exit 0"]}
    job = spot_job("short", {CONTAINERS: [training], "replicas": 1})
    vm = yaml.safe_load((EXAMPLES / "spotinstancevm.yaml").read_text())
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([job, vm]))
    output = plane.argosy("run", str(file)).stdout
    assert "replica-0 │ done" in output
    assert output.splitlines()[-1].startswith("short  Succeeded")
    described = plane.argosy("describe", "short").stdout
    assert "kind         SpotInstanceJob" in described
    assert "replica-0 (short-0-" in described, "the pod that has succeeded is kept"
