"""A live scale-in of a job with checkpoints: workers leave once one is saved, and the others run on."""

import json
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from argosy.kinds import labels
from argosy.reconcile.render_checkpoint import ORDERS_FILE
from tests.support import elastic_training
from tests.support.builders import pod_template, run
from tests.support.chaos import kill_component
from tests.support.elastic_jobs import scaler, training_job
from tests.support.local_control_plane import ControlPlane
from tests.support.targets import IMAGE
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]


def status(plane: ControlPlane, job: str) -> dict[str, Any]:
    return cast("dict[str, Any]", plane.get(job).get("status", {}))


def running(plane: ControlPlane, job: str) -> dict[str, str]:
    """Return the names and uids of a job's pods."""
    pods = cast("list[dict[str, Any]]", plane.get("pods", "-l", f"{labels.JOB}={job}")["items"])
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}


def wait_for_training(store: Path, job: str) -> Path:
    """Return the folder of a job's checkpoints when its three workers train."""
    wait_for(lambda: list((store / "default").glob(f"{job}-*/computed-*.txt")), "the workers train", 60)
    [folder] = (store / "default").glob(f"{job}-*")
    wait_for(lambda: all(computed(folder, index) > 5 for index in range(3)), "all workers train", 60)
    return folder


def computed(folder: Path, index: int) -> int:
    """Return the last step that a worker has computed."""
    path = folder / f"computed-{index}.txt"
    steps = [int(line) for line in path.read_text().split()] if path.exists() else []
    assert steps == list(range(1, len(steps) + 1)), "no step is computed twice"
    return len(steps)


def test_workers_of_a_run_that_leave_have_saved_all_their_steps(plane: ControlPlane, tmp_path: Path) -> None:
    """Also if the operator is killed between the order and the checkpoint."""
    command = [sys.executable, elastic_training.__file__]
    template = pod_template(IMAGE, command=command)
    cast("dict[str, object]", template["spec"])["terminationGracePeriodSeconds"] = 1
    job = run("shrinks").role("worker", 3, elastic={"min": 1, "max": 4}, template=template)
    job = job.having(checkpoint={"store": f"file://{tmp_path}"})
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job.build()))
    folder = wait_for_training(tmp_path, "shrinks")
    before = running(plane, "shrinks")

    (folder / "hold").touch()
    plane.kubectl("scale", "tr/shrinks", "--replicas", "1")
    wait_for(lambda: status(plane, "tr/shrinks").get("reason") == "SavingCheckpoint", "it is ordered")
    assert "(Resized), due by" in status(plane, "tr/shrinks")["checkpoint"]["message"]
    kill_component(plane, "operator")
    assert running(plane, "shrinks") == before, "nobody leaves before the checkpoint"
    (folder / "hold").unlink()
    wait_for(lambda: list(running(plane, "shrinks")) == ["shrinks-worker-0"], "two workers have left", 60)

    [saved] = folder.glob("step-*/steps.json")
    steps = json.loads(saved.read_text())
    assert steps == {"0": steps["0"], "1": computed(folder, 1), "2": computed(folder, 2)}
    wait_for(lambda: computed(folder, 0) > steps["0"], "worker 0 trains on")
    assert running(plane, "shrinks").items() <= before.items(), "it was not restarted"
    wait_for_recovery(plane, "tr/shrinks")
    assert status(plane, "tr/shrinks")["recoveries"][0]["stepsLost"] == 0
    assert "a checkpoint was saved before" in plane.argosy("describe", "shrinks").stdout
    plane.kubectl("delete", "tr/shrinks")


def test_worker_of_a_training_job_leaves_once_a_checkpoint_is_saved(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """It trains until the launcher has left it: it is not asked to stop."""
    job = training_job("saves", checkpoint={"store": f"file://{tmp_path}"}, worker_fields={"replicas": 3})
    worker = cast("dict[str, Any]", job["spec"])["etReplicaSpecs"]["worker"]
    [container] = worker["template"]["spec"]["containers"]
    index = {"fieldRef": {"fieldPath": "metadata.labels['replica-index']"}}
    container["command"] = [sys.executable, elastic_training.__file__]
    container["env"] = [{"name": "ARGOSY_INDEX", "valueFrom": index}]
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    folder = wait_for_training(tmp_path, "saves")
    kind = "trainingjob/saves"
    wait_for(lambda: status(plane, kind)["phase"] == "Running", lambda: str(status(plane, kind)), 60)
    before = running(plane, "saves")

    (folder / "hold").touch()
    request = scaler("ScaleIn", "saves-in", "saves", toDelete={"count": 1})
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(request))
    wait_for(lambda: status(plane, kind).get("checkpoint", {}).get("message"), "it is ordered")
    assert (status(plane, kind)["phase"], running(plane, "saves")) == ("Scaling", before)
    orders = json.loads(plane.kubectl("exec", "saves-worker-2", "--", "cat", ORDERS_FILE).stdout)
    assert (orders["action"], orders["reason"], orders["stop"]) == ("Save", "Resized", False)
    (folder / "hold").unlink()
    left = {name: uid for name, uid in before.items() if name != "saves-worker-2"}
    wait_for(lambda: running(plane, "saves") == left, lambda: str(running(plane, "saves")), 60)
    [saved] = folder.glob("step-*/steps.json")
    assert sorted(json.loads(saved.read_text())) == ["0", "1", "2"]
    wait_for_recovery(plane, kind)
    assert "a checkpoint was saved before" in plane.argosy("describe", "saves").stdout
    plane.kubectl("delete", kind)


def wait_for_recovery(plane: ControlPlane, job: str) -> None:
    def has_ended() -> bool:
        return any(recovery.get("outcome") for recovery in status(plane, job).get("recoveries", []))

    wait_for(has_ended, lambda: str(status(plane, job)))
    [recovery] = status(plane, job)["recoveries"]
    assert (recovery["cause"], recovery["action"], recovery["outcome"]) == ("Resized", "ScaleIn", "Recovered")
