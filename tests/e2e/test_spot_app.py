"""A SpotInstanceJob whose training saves itself with the SDK loses a node, and no step.

Both replicas save when the end of one's node is announced, each into a folder of its own. The new pod of the
lost one continues from whichever copy is ahead.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.local_control_plane import ControlPlane
from tests.support.spot_cluster import NAME
from tests.support.spot_jobs import EXAMPLES, Json, spot_job
from tests.support.spot_trainings import CONTAINERS, RunningJob
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(240)]

TRAINING = """
import os, time
from pathlib import Path
from argosy_sdk import due, latest, saving

own = Path(os.environ["ARGOSY_CHECKPOINT_DIR"])
folder = latest()
step = int((folder / "step").read_text()) if folder else 0
with (own / "computed").open("a", buffering=1) as computed:
    print("from", step, file=computed)
    while not (own / "done").exists():
        step += 1
        time.sleep(0.02)
        print(step, file=computed)
        if due(step):
            with saving(step) as folder:
                (folder / "step").write_text(str(step))
            print("saved step", step, flush=True)
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "3", "--pretend-gpus", "1")
    yield running
    running.down()


class Store:
    """The folders of the replicas, as the test sees them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def replica(self, index: int) -> Path:
        [job] = (self._folder / "default").glob(f"{NAME}-*")
        return job / f"replica-{index}"

    def starts(self, index: int) -> list[int]:
        """The steps from which pods of a replica have started."""
        return [int(line[5:]) for line in self._lines(index) if line.startswith("from ")]

    def computed(self, index: int) -> list[int]:
        return [int(line) for line in self._lines(index) if line.isdecimal()]

    def _lines(self, index: int) -> list[str]:
        return (self.replica(index) / "computed").read_text().splitlines()


def test_a_lost_replica_continues_from_the_step_that_was_saved_before(
    plane: ControlPlane, tmp_path: Path
) -> None:
    changes: Json = {
        CONTAINERS: [{"name": "training", "image": "local", "command": ["python3", "-c", TRAINING]}],
        "checkpointConfig.level": "App",
        "checkpointConfig.checkpointInterval": "2s",
        "checkpointConfig.checkpointStorage": {"type": "file", "bucket": str(tmp_path)},
    }
    plane.kubectl("apply", "-f", str(EXAMPLES / "spotinstancevm.yaml"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(spot_job(changes=changes)))
    job, store = RunningJob(plane, NAME), Store(tmp_path)
    wait_for(lambda: job.status.get("lastCheckpointStep"), job.show)
    lost = str(job.replica(0)["nodeName"])
    ready = ("wait", f"spotinstancejob/{NAME}", "--for=condition=CheckpointReady", "--timeout=10s")
    plane.kubectl(*ready)

    plane.argosy("rehearse", "reclaim", lost, "--in", "20s")
    wait_for(lambda: [r.get("outcome") for r in job.recoveries] == ["Recovered"], job.show, 90)
    [recovery] = job.recoveries
    assert (recovery["cause"], recovery["action"]) == ("Preempted", "CheckpointMade")
    saved = int(str(recovery["restoredFrom"]).removeprefix("step "))
    [first, second] = store.starts(0)
    assert (first, second >= saved > 0) == (0, True)
    wait_for(lambda: max(store.computed(0)) > second + 20, "the training goes on")
    steps = store.computed(1)
    assert steps == list(range(1, len(steps) + 1)), "the survivor goes on"

    described = plane.argosy("describe", NAME).stdout
    assert f"incarnation 1 from step {saved}" in described
    assert "replica-1 (primary)" in described
    assert "replica-1 │ saved step" in plane.argosy("logs", NAME, "--index", "1").stdout
    (store.replica(1) / "done").touch()
    wait_for(lambda: job.status.get("phase") == "Succeeded", job.show)


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
