"""A live scale-in of a run with checkpoints: the workers that leave lose no step, and the others run on."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support import elastic_training
from tests.support.builders import pod_template, run
from tests.support.chaos import kill_component
from tests.support.local_control_plane import ControlPlane
from tests.support.targets import IMAGE
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

NAME = "shrinks"


def status(plane: ControlPlane) -> dict[str, Any]:
    return cast("dict[str, Any]", plane.get(f"tr/{NAME}").get("status", {}))


def running(plane: ControlPlane) -> dict[str, str]:
    """Return the names and uids of the run's pods."""
    pods = cast("list[dict[str, Any]]", plane.get("pods", "-l", f"argosy.dev/job={NAME}")["items"])
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def computed(folder: Path, index: int) -> int:
    """Return the last step that a worker has computed."""
    path = folder / f"computed-{index}.txt"
    steps = [int(line) for line in path.read_text().split()] if path.exists() else []
    assert steps == list(range(1, len(steps) + 1)), "no step is computed twice"
    return len(steps)


def test_workers_that_leave_have_saved_all_their_steps(plane: ControlPlane, tmp_path: Path) -> None:
    """Also if the operator is killed between the order and the checkpoint."""
    command = [sys.executable, elastic_training.__file__]
    template = pod_template(IMAGE, command=command)
    cast("dict[str, object]", template["spec"])["terminationGracePeriodSeconds"] = 1
    job = run(NAME).role("worker", 3, elastic={"min": 1, "max": 4}, template=template)
    job = job.having(checkpoint={"store": f"file://{tmp_path}"})
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job.build()))
    wait_for(lambda: list((tmp_path / "default").glob(f"{NAME}-*/computed-*.txt")), "the workers train", 60)
    [folder] = (tmp_path / "default").glob(f"{NAME}-*")
    wait_for(lambda: all(computed(folder, index) > 5 for index in range(3)), "all workers train", 60)
    before = running(plane)

    (folder / "hold").touch()
    plane.kubectl("scale", f"tr/{NAME}", "--replicas", "1")
    wait_for(lambda: status(plane).get("reason") == "SavingCheckpoint", lambda: str(status(plane)))
    assert "(Resized), due by" in status(plane)["checkpoint"]["message"]
    kill_component(plane, "operator")
    assert running(plane) == before, "nobody leaves before the checkpoint"
    (folder / "hold").unlink()
    wait_for(lambda: list(running(plane)) == [f"{NAME}-worker-0"], lambda: str(running(plane)), 60)

    [saved] = folder.glob("step-*/steps.json")
    steps = json.loads(saved.read_text())
    assert steps == {"0": steps["0"], "1": computed(folder, 1), "2": computed(folder, 2)}
    wait_for(lambda: computed(folder, 0) > steps["0"], "worker 0 trains on")
    assert running(plane).items() <= before.items(), "it was not restarted"
    wait_for(lambda: status(plane).get("recoveries", [{}])[0].get("outcome"), lambda: str(status(plane)))
    [recovery] = status(plane)["recoveries"]
    assert (recovery["cause"], recovery["action"], recovery["outcome"]) == ("Resized", "ScaleIn", "Recovered")
    assert recovery["stepsLost"] == 0
    assert "a checkpoint was saved before" in plane.argosy("describe", NAME).stdout
    plane.kubectl("delete", f"tr/{NAME}")
