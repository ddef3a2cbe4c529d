"""The journey of the README of spot-instance-training-operator where VMs are bought.

No node has a GPU, so the operator buys a VM over the API of Compute Engine. It joins the local control plane
with a bootstrap token, and the Job of the replica runs there. The VM is taken back: the training gets
SIGTERM, saves, and goes on on another VM, without losing a step or computing one twice.
"""

from pathlib import Path
from typing import cast

import pytest

from tests.support.spot_jobs import Json, spot_job, spot_vm
from tests.support.spot_rehearsal import Rehearsal, rehearsal
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(400)]

NAME, VM = "my-training-job", "my-training-vm"
TRAINING = """
import os, signal, sys, time
from pathlib import Path
folder = Path(os.environ["ARGOSY_CHECKPOINT_URI"].removeprefix("file://"))
folder.mkdir(parents=True, exist_ok=True)
saved, step = folder / "step", 0
if os.environ["ARGOSY_RESUME"] == "1":
    step = int(saved.read_text())
ending = []
signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
with (folder / "computed").open("a", buffering=1) as computed:
    while not (folder / "done").exists():
        step += 1
        time.sleep(0.05)
        print(step, file=computed)
        if ending:
            saved.write_text(str(step))
            sys.exit(1)
"""


def status(rehearsed: Rehearsal) -> Json:
    return cast("Json", rehearsed.plane.get(f"spotinstancejob/{NAME}").get("status", {}))


def replica(rehearsed: Rehearsal) -> Json:
    replicas = cast("list[Json]", status(rehearsed).get("jobStatuses", []))
    return replicas[0] if replicas else {}


def job(folder: Path) -> Json:
    container = {
        "name": "training",
        "image": "local",
        "command": ["python3", "-c", TRAINING],
        "resources": {"requests": {"nvidia.com/gpu": 1}},
        "volumeMounts": [{"name": "checkpoints", "mountPath": str(folder)}],
    }
    storage = {"type": "file", "bucket": str(folder)}
    changes: Json = {
        "replicas": 1,
        "checkpointConfig.level": "App",
        "checkpointConfig.checkpointStorage": storage,
        "jobTemplate.spec.template.spec.containers": [container],
        "jobTemplate.spec.template.spec.volumes": [
            {"name": "checkpoints", "hostPath": {"path": str(folder)}}
        ],
    }
    return spot_job(NAME, changes)


def test_cases_10_12_22_31_33_job_buys_a_vm_and_another_one_when_it_is_taken_back(tmp_path: Path) -> None:
    folder = tmp_path / "default" / NAME
    with rehearsal(notice="15s") as rehearsed:
        plane = rehearsed.plane
        rehearsed.apply_secrets()
        rehearsed.apply(spot_vm(VM), job(tmp_path))
        wait_for(lambda: replica(rehearsed).get("phase") == "Running", lambda: str(status(rehearsed)), 90)
        first = str(replica(rehearsed)["instanceName"])
        assert first.startswith(f"{NAME}-{VM}-0-")
        assert replica(rehearsed)["nodeName"] == first
        assert rehearsed.vms() == [first]
        running = status(rehearsed)
        assert (running["costPerHour"], running["savedPerHour"]) == ("0.180", "0.360")
        wait_for(lambda: (folder / "computed").exists() and (folder / "computed").read_text(), "it trains")

        rehearsed.preempt(first)
        wait_for(lambda: bool(status(rehearsed).get("recoveries")), "the preemption is noticed")
        wait_for(
            lambda: (replica(rehearsed)["incarnation"], replica(rehearsed)["phase"]) == (1, "Running"),
            lambda: str(status(rehearsed)),
            90,
        )
        second = str(replica(rehearsed)["instanceName"])
        assert second != first
        assert replica(rehearsed)["startMode"] == "AppResume"
        wait_for(
            lambda: cast("list[Json]", status(rehearsed)["recoveries"])[0].get("outcome"), "it has ended"
        )
        [recovery] = cast("list[Json]", status(rehearsed)["recoveries"])
        want = ("Unknown", "Preempted", "SignalAnswered")
        assert (recovery["outcome"], recovery["cause"], recovery["action"]) == want
        wait_for(lambda: rehearsed.vms() == [second], "the lost VM is gone")

        (folder / "done").touch()
        wait_for(lambda: status(rehearsed).get("phase") == "Succeeded", lambda: str(status(rehearsed)))
        wait_for(lambda: rehearsed.vms() == [], "no VM is left", 90)
        nodes = plane.kubectl("get", "nodes", "-o", "name").stdout.split()
        assert nodes == ["node/node-1"]
    steps = [int(line) for line in (folder / "computed").read_text().split()]
    assert steps == list(range(1, len(steps) + 1)), "no step was lost or computed twice"
