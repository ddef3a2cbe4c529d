"""The README of spot-instance-training-operator on the local control plane, on existing nodes.

The training image is replaced by a program that hashes its state. Everything else is real: node agents make
checkpoints through the kubelet's API, push them to a registry, and another node restores the processes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.criu import require_criu
from tests.support.local_control_plane import ControlPlane
from tests.support.node_agents import running_agents
from tests.support.registry import PROGRAM, RunningRegistry, running_registry
from tests.support.spot_cluster import NAME
from tests.support.spot_jobs import EXAMPLES, Json, spot_job
from tests.support.spot_trainings import CONTAINERS, TRAINING, RunningJob
from tests.support.upstream_agent import backups, complete_backup
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]
NODES = ("node-1", "node-2", "node-3")
ANNOUNCED = "training.dcnlab.com/termination-deadline=2030-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose nodes this module takes away."""
    running = ControlPlane.up("--nodes", str(len(NODES)), "--pretend-gpus", "1")
    yield running
    running.down()


def start(plane: ControlPlane, registry: RunningRegistry, **changes: object) -> RunningJob:
    """Apply the manifests of the README, with a registry and a program of the test."""
    changes |= {
        "checkpointConfig.checkpointImageRepo": f"{registry.address}/checkpoints",
        CONTAINERS: [TRAINING],
    }
    plane.kubectl("apply", "-f", str(EXAMPLES / "spotinstancevm.yaml"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(spot_job(changes=changes)))
    job = RunningJob(plane, NAME)
    wait_for(lambda: job.status.get("phase") == "Running", job.show)
    return job


def delete(plane: ControlPlane) -> None:
    plane.kubectl("delete", "spotinstancejob", NAME, "--timeout=30s")
    wait_for(lambda: not plane.get("jobs,checkpointbackups")["items"], "something is left")


def test_case_47_agent_of_upstream_completes_a_checkpoint(plane: ControlPlane, tmp_path: Path) -> None:
    with running_registry(tmp_path) as registry:
        interval = {"checkpointConfig.checkpointInterval": "1s"}
        job = start(plane, registry, replicas=1, **interval)
        wait_for(lambda: complete_backup(plane, registry), "no checkpoint was ordered")
        wait_for(lambda: "lastCheckpointTime" in job.status, job.show)
        image = str(job.status["lastCheckpointImage"])
        assert image.startswith(f"{registry.address}/checkpoints:training-")
    delete(plane)


@pytest.mark.root
def test_cases_8_22_33_readme_journey_on_existing_nodes(plane: ControlPlane, tmp_path: Path) -> None:
    """One of two nodes is lost: the other replica is checkpointed, and goes on at both places."""
    require_criu()
    with running_agents(plane, tmp_path, *NODES) as registry:
        job = start(plane, registry)
        wait_for(lambda: job.status.get("activeReplicas") == 2, job.show)
        nodes = [job.replica(index)["nodeName"] for index in (0, 1)]
        assert len(set(nodes)) == 2
        assert not plane.get("provisionedinstances")["items"]
        wait_for(lambda: len(job.steps(1)) >= 20, job.show)
        survivor, steps = cast("Json", job.pod(1)["metadata"]), job.steps(1)

        plane.kubectl("annotate", "node", str(nodes[0]), ANNOUNCED)
        wait_for(lambda: job.is_running(0, 1), job.show)
        assert job.replica(0)["nodeName"] not in nodes
        [recovery] = job.recoveries
        assert (recovery["outcome"], recovery["cause"]) == ("Recovered", "Preempted")
        [backup] = backups(plane)
        made = cast("Json", backup["status"])
        assert (made["phase"], made["nodeName"]) == ("Completed", nodes[1])
        assert cast("Json", cast("Json", backup["spec"])["podRef"])["name"] == survivor["name"]
        assert recovery["restoredFrom"] == cast("Json", backup["metadata"])["name"]
        wait_for(lambda: len(job.steps(0)) >= 20, job.show)
        restored = job.steps(0)
        assert {step.replica for step in restored} == {1}, "they are processes of the survivor"
        assert restored[0].number > steps[-1].number, "no step was computed again"
        assert cast("Json", job.pod(1)["metadata"])["uid"] == survivor["uid"]
        assert job.steps(1)[-1].number > restored[0].number, "the survivor goes on"
        listed = plane.kubectl("get", "spotinstancejobs").stdout
        assert listed.split()[:3] == ["NAME", "PHASE", "REPLICAS"]
        assert NAME in plane.argosy("ps").stdout

        job.end(0)
        wait_for(lambda: job.status.get("phase") == "Succeeded", job.show)
        assert job.replica(0)["phase"] == "Succeeded"
        wait_for(lambda: len(cast("list[Json]", plane.get("jobs")["items"])) == 1, "the other Job goes on")
        delete(plane)
