"""A TrainingJob on nodes that are announced for reclaim: its worker leaves before, and another one joins."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import cast

import pytest

from argosy.kinds import labels
from tests.support.elastic_jobs import training_job
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

Json = dict[str, object]
JOB = "spot"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "4")
    yield running
    running.down()


def spread_job() -> Json:
    """Return a job with two workers on different nodes, whose driver prints its hosts again and again."""
    job = training_job(JOB)
    worker = cast("Json", cast("Json", cast("Json", job["spec"])["etReplicaSpecs"])["worker"])
    spec = cast("Json", cast("Json", worker["template"])["spec"])
    term = {
        "topologyKey": labels.HOSTNAME,
        "labelSelector": {"matchLabels": {"training-job-name": JOB}},
    }
    spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return job


def hosts(plane: ControlPlane) -> set[str]:
    """Return what the driver has read last."""
    words = ("logs", f"{JOB}-launcher", "-c", "launcher", "--tail=1")
    return {host.partition(":")[0] for host in plane.kubectl(*words, code=None).stdout.split()}


def wait_for_hosts(plane: ControlPlane, *wanted: str) -> None:
    def described() -> str:
        return plane.kubectl("describe", "trainingjob", JOB).stdout + plane.kubectl("get", "pods").stdout

    wait_for(lambda: hosts(plane) == set(wanted), described, 90)


def pod(plane: ControlPlane, name: str, path: str) -> str:
    return plane.kubectl("get", "pod", name, "-o", f"jsonpath={{{path}}}", "--ignore-not-found").stdout


def test_worker_leaves_a_node_before_it_is_reclaimed_and_another_one_joins(plane: ControlPlane) -> None:
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(spread_job()))
    wait_for_hosts(plane, f"{JOB}-worker-0", f"{JOB}-worker-1")
    launcher = pod(plane, f"{JOB}-launcher", ".metadata.uid")
    node = pod(plane, f"{JOB}-worker-1", ".spec.nodeName")
    assert node != pod(plane, f"{JOB}-launcher", ".spec.nodeName")
    plane.argosy("rehearse", "reclaim", node, "--in", "90s")
    wait_for(lambda: not pod(plane, f"{JOB}-worker-1", ".metadata.uid"), "the worker is gone", 80)
    annotations = cast("dict[str, Json]", plane.get("node", node))["metadata"]["annotations"]
    deadline = cast("dict[str, str]", annotations)[labels.TERMINATION_DEADLINE]
    assert datetime.now(UTC) < datetime.fromisoformat(deadline)
    wait_for_hosts(plane, f"{JOB}-worker-0", f"{JOB}-worker-2")
    log = plane.kubectl("logs", f"{JOB}-launcher", "-c", "launcher").stdout.splitlines()
    assert all(line.strip() for line in log), "the list was never empty"
    assert pod(plane, f"{JOB}-launcher", ".metadata.uid") == launcher
    events = plane.kubectl("get", "events", "--field-selector", "reason=NodeReleasing").stdout
    assert f"node {node} is released by {deadline}" in events
    assert f"removing {JOB}-worker-1" in events
    events = plane.kubectl("get", "events", "--field-selector", "reason=WorkerDeleted").stdout
    assert f"{JOB}-worker-1 removed by ScaleIn:default/{JOB}-release-{node}" in events
