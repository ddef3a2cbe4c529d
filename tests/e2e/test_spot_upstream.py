"""SpotInstanceJobs in a cluster with the definition of CheckpointBackups and the agent of upstream.

The API server drops the fields of our statuses that upstream's definition does not have.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.support.local_control_plane import ControlPlane
from tests.support.registry import PROGRAM, RunningRegistry, running_registry
from tests.support.spot_cluster import NAME
from tests.support.spot_jobs import EXAMPLES, Json, spot_job
from tests.support.spot_trainings import CONTAINERS, TRAINING, RunningJob
from tests.support.upstream_agent import (
    OWN_STATUS_FIELDS,
    backups,
    complete_backup,
    good_backups,
    upstream_crd,
)
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.long,
    pytest.mark.timeout(400),
    pytest.mark.skipif(PROGRAM is None, reason="docker-registry is not installed"),
]
DEADLINE = "training.dcnlab.com/termination-deadline"
ANNOUNCED = f"{DEADLINE}=2030-01-01T00:00:00Z"
CHECKPOINTED_BY_US: Json = {"nodeName": "x", "digests": {"training": "sha256:1"}, "size": 1}


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "4", "--pretend-gpus", "1")
    try:
        running.kubectl("replace", "-f", "-", stdin=json.dumps(upstream_crd()))
        yield running
    finally:
        running.down()


def test_case_47_cases_17_22_and_24_with_the_definition_and_the_agent_of_upstream(
    plane: ControlPlane, tmp_path: Path
) -> None:
    with running_registry(tmp_path) as registry:
        job = start(plane, registry)
        check_case_17(job, registry)
        check_pruning(plane)
        check_case_22(job, registry)
        plane.kubectl("delete", "spotinstancejob", NAME, "--timeout=60s")
        plane.kubectl("annotate", "nodes", "--all", f"{DEADLINE}-")
        job = start(plane, registry)
        check_case_17(job, registry)
        check_case_24(job, registry)


def start(plane: ControlPlane, registry: RunningRegistry) -> RunningJob:
    changes: Json = {
        "checkpointConfig.checkpointImageRepo": f"{registry.address}/checkpoints",
        "checkpointConfig.checkpointInterval": "5s",
        CONTAINERS: [TRAINING],
    }
    plane.kubectl("apply", "-f", str(EXAMPLES / "spotinstancevm.yaml"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(spot_job(changes=changes)))
    job = RunningJob(plane, NAME)
    wait_for(lambda: job.status.get("activeReplicas") == 2, job.show)
    return job


def image_of(job: RunningJob, index: int) -> str:
    """Return the image of a replica's current Job; empty if there is none yet.

    The agent's images have no processes to restore, so no pod runs with them.
    """
    name = job.replica(index).get("name")
    found = job.plane.get("jobs")["items"] if name else []
    for item in cast("list[Json]", found):
        if cast("Json", item["metadata"])["name"] == name:
            spec = cast("Json", cast("Json", cast("Json", item["spec"])["template"])["spec"])
            return str(cast("list[Json]", spec["containers"])[0]["image"])
    return ""


def is_restored(job: RunningJob, index: int) -> bool:
    """Return True if the current Job of a replica has another image than the template."""
    return image_of(job, index) not in ("", TRAINING["image"])


def check_case_17(job: RunningJob, registry: RunningRegistry) -> None:
    """Each replica is checkpointed at its intervals, and its newest image is in the status."""

    def are_checkpointed() -> bool:
        complete_backup(job.plane, registry)
        last = [job.replica(index).get("lastCheckpointImage") for index in (0, 1)]
        return len(good_backups(job.plane)) >= 4 and all(last) and "lastCheckpointTime" in job.status

    wait_for(are_checkpointed, job.show)
    images = [image for _, image in good_backups(job.plane)]
    assert len(images) == len({*images}), "every checkpoint has a tag of its own"


def check_pruning(plane: ControlPlane) -> None:
    """Check that this cluster drops our own fields, so that nothing here has needed them."""
    name = str(cast("Json", backups(plane)[0]["metadata"])["name"])
    patch = json.dumps({"status": CHECKPOINTED_BY_US})
    plane.kubectl("patch", "checkpointbackup", name, "--subresource=status", "--type=merge", "-p", patch)
    status = cast("Json", plane.get(f"checkpointbackup/{name}")["status"])
    assert OWN_STATUS_FIELDS.isdisjoint(status)


def check_case_22(job: RunningJob, registry: RunningRegistry) -> None:
    """A lost replica gets a Job on another node, with a checkpoint of the survivor, which goes on."""
    lost, survivor = str(job.replica(0)["nodeName"]), cast("Json", job.pod(1)["metadata"])["uid"]
    old = job.replica(0)["name"]
    job.plane.kubectl("annotate", "node", lost, ANNOUNCED)

    def is_replaced() -> bool:
        complete_backup(job.plane, registry)
        return job.replica(0)["incarnation"] == 1 and is_restored(job, 0)

    wait_for(is_replaced, job.show, 90)
    restored = image_of(job, 0)
    assert restored in {f"{registry.address}/{image}" for _, image in good_backups(job.plane)}
    assert job.replica(0)["nodeName"] != lost
    wait_for(lambda: str(old) not in job.plane.kubectl("get", "jobs", "-o", "name").stdout, job.show)
    assert cast("Json", job.pod(1)["metadata"])["uid"] == survivor


def check_case_24(job: RunningJob, registry: RunningRegistry) -> None:
    """With no survivor both replicas get Jobs with the newest good backup."""
    wait_for(lambda: not complete_backup(job.plane, registry), "backups are not settled")
    good = good_backups(job.plane)
    nodes = [str(job.replica(index)["nodeName"]) for index in (0, 1)]
    job.plane.kubectl("annotate", "node", *nodes, ANNOUNCED)

    def are_replaced() -> bool:
        replicas = [job.replica(index) for index in (0, 1)]
        return all(r["incarnation"] == 1 and r["nodeName"] not in nodes for r in replicas) and all(
            is_restored(job, index) for index in (0, 1)
        )

    wait_for(are_replaced, job.show, 120)
    newest = max(backup.time for backup in good)
    restored = {image_of(job, index) for index in (0, 1)}
    assert len(restored) == 1
    assert restored <= {f"{registry.address}/{image}" for time, image in good if time == newest}
