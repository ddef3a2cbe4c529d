"""The journey of the README of spot-instance-training-operator where VMs are bought.

No node has a GPU, so the operator buys VMs over the API of Compute Engine. They join the local control plane
with bootstrap tokens, and the Jobs of the replicas run there. A VM is taken back. A single training gets
SIGTERM, saves, and goes on on another VM, without losing a step or computing one twice. Of two replicas the
other one is checkpointed, and its processes are restored on another VM.
"""

from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import cast

import pytest

from tests.support.criu import require_criu
from tests.support.node_agents import registry_for_nodes, running_agent
from tests.support.registry import PROGRAM
from tests.support.spot_jobs import Json, spot_job, spot_vm
from tests.support.spot_rehearsal import rehearsal
from tests.support.spot_trainings import CONTAINERS, RunningJob
from tests.support.spot_trainings import TRAINING as COUNTING
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


def saving_job(folder: Path) -> Json:
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
        plane, job = rehearsed.plane, RunningJob(rehearsed.plane, NAME)
        rehearsed.apply_secrets()
        rehearsed.apply(spot_vm(VM), saving_job(tmp_path))
        wait_for(lambda: job.is_running(0, 0), job.show, 90)
        first = str(job.replica(0)["instanceName"])
        assert first.startswith(f"{NAME}-{VM}-0-")
        assert job.replica(0)["nodeName"] == first
        assert rehearsed.vms() == [first]
        assert (job.status["costPerHour"], job.status["savedPerHour"]) == ("0.180", "0.360")
        wait_for(lambda: (folder / "computed").exists() and (folder / "computed").read_text(), "it trains")

        rehearsed.preempt(first)
        wait_for(lambda: bool(job.recoveries), "the preemption is noticed")
        wait_for(lambda: job.is_running(0, 1), job.show, 90)
        second = str(job.replica(0)["instanceName"])
        assert second != first
        assert job.replica(0)["startMode"] == "AppResume"
        wait_for(lambda: job.recoveries[0].get("outcome"), "it has ended")
        [recovery] = job.recoveries
        want = ("Unknown", "Preempted", "SignalAnswered")
        assert (recovery["outcome"], recovery["cause"], recovery["action"]) == want
        wait_for(lambda: rehearsed.vms() == [second], "the lost VM is gone")

        (folder / "done").touch()
        wait_for(lambda: job.status.get("phase") == "Succeeded", job.show)
        wait_for(lambda: rehearsed.vms() == [], "no VM is left", 90)
        nodes = plane.kubectl("get", "nodes", "-o", "name").stdout.split()
        assert nodes == ["node/node-1"]
    steps = [int(line) for line in (folder / "computed").read_text().split()]
    assert steps == list(range(1, len(steps) + 1)), "no step was lost or computed twice"


@pytest.mark.root
@pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed")
def test_of_two_bought_replicas_the_survivor_is_restored_on_another_vm(tmp_path: Path) -> None:
    require_criu()
    with (
        rehearsal(notice="60s") as rehearsed,
        registry_for_nodes(rehearsed.plane, tmp_path) as registry,
        ExitStack() as agents,
    ):
        plane, job = rehearsed.plane, RunningJob(rehearsed.plane, NAME)
        rehearsed.apply_secrets()
        repository = f"{registry.address}/checkpoints"
        changes: Json = {"checkpointConfig.checkpointImageRepo": repository, CONTAINERS: [COUNTING]}
        rehearsed.apply(spot_vm(VM), spot_job(NAME, changes))
        wait_for(lambda: job.is_running(0, 0) and job.is_running(1, 0), job.show, 120)
        first, second = (str(job.replica(index)["instanceName"]) for index in (0, 1))
        assert sorted(rehearsed.vms()) == [first, second]
        for vm in (first, second):
            agents.enter_context(running_agent(plane, vm))
        wait_for(lambda: len(job.steps(1)) >= 20, job.show)
        steps = job.steps(1)

        rehearsed.preempt(first)
        wait_for(lambda: job.is_running(0, 1), job.show, 120)
        third = str(job.replica(0)["instanceName"])
        assert third not in (first, second)
        assert job.replica(0)["startMode"] == "CheckpointImage"
        [recovery] = job.recoveries
        assert (recovery["outcome"], recovery["cause"]) == ("Recovered", "Preempted")
        assert_saved_while_vm_was_bought(job, third)
        wait_for(lambda: len(job.steps(0)) >= 20, job.show)
        restored = job.steps(0)
        assert {step.replica for step in restored} == {1}, "they are processes of the survivor"
        assert restored[0].number > steps[-1].number, "no step was computed again"
        assert job.steps(1)[-1].number > restored[0].number, "the survivor goes on"
        wait_for(lambda: sorted(rehearsed.vms()) == sorted((second, third)), "the lost VM is gone")

        job.end(0)
        wait_for(lambda: job.status.get("phase") == "Succeeded", job.show)
        assert job.replica(0)["phase"] == "Succeeded"
        wait_for(lambda: rehearsed.vms() == [], "no VM is left", 90)
        wait_for(lambda: plane.kubectl("get", "nodes", "-o", "name").stdout.split() == ["node/node-1"])


def assert_saved_while_vm_was_bought(job: RunningJob, vm: str) -> None:
    """Check that neither the checkpoint of the survivor nor the new VM waited for the other."""
    [backup] = cast("list[Json]", job.plane.get("checkpointbackups")["items"])
    instance = job.plane.get(f"provisionedinstance/{vm}")
    conditions = cast("list[Json]", cast("Json", instance["status"])["conditions"])
    [ready] = (item for item in conditions if item["type"] == "NodeReady")
    saved = cast("Json", backup["status"])
    assert saved["nodeName"] == job.replica(1)["nodeName"]
    assert created_at(instance) <= datetime.fromisoformat(str(saved["lastCheckpointTime"]))
    assert created_at(backup) <= datetime.fromisoformat(str(ready["lastTransitionTime"]))


def created_at(obj: Json) -> datetime:
    return datetime.fromisoformat(str(cast("Json", obj["metadata"])["creationTimestamp"]))
