"""Quarantine on a control plane with a node that kills what runs there: where the next pods are placed."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from argosy.kinds import labels
from argosy.kinds.aresjob import AresJob
from tests.support.builders import pod_template, run
from tests.support.local_control_plane import ControlPlane, operated
from tests.support.targets import IMAGE
from tests.support.trainingjobs import job
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(300)]

Json = dict[str, object]
RULES = "failures=2,replicas=2"


@pytest.fixture
def plane() -> Iterator[ControlPlane]:
    with operated("--quarantine", RULES, nodes=2) as running:
        yield running


def fails_on(node: str) -> Json:
    """Return a template of pods that are placed on a node if they may be, and end there at once."""
    command = ["sh", "-c", f'test "$NODE" != {node} || exit 139; sleep 600']
    template = pod_template(IMAGE, command=command)
    spec = cast("Json", template["spec"])
    spec["terminationGracePeriodSeconds"] = 1
    container = cast("list[Json]", spec["containers"])[0]
    container["env"] = [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    term = {"matchExpressions": [{"key": labels.HOSTNAME, "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": term}]
    spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    return template


def training_run(node: str) -> Json:
    built = run("run").role("worker", 2, restart="OnFailure", template=fails_on(node)).limits(restarts=20)
    return built.build()


def apply(plane: ControlPlane, manifest: Json, namespace: str) -> None:
    meta = {**cast("Json", manifest["metadata"]), "namespace": namespace}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps({**manifest, "metadata": meta}))


def wait_for_pods_on(plane: ControlPlane, node: str, name: str, count: int, namespace: str) -> None:
    """Wait until so many pods of a job run, all of them on this node."""

    def nodes() -> list[object]:
        listed = plane.get("pods", "-n", namespace, "-l", f"{labels.JOB}={name},{labels.ROLE}=worker")
        pods = cast("list[dict[str, Json]]", listed["items"])
        return [pod["spec"].get("nodeName") for pod in pods if pod["status"]["phase"] == "Running"]

    wait_for(
        lambda: nodes() == [node] * count,
        lambda: plane.kubectl("get", "pods", "-o", "wide", "-n", namespace).stdout,
        90,
    )


def annotations(plane: ControlPlane, node: str) -> dict[str, str]:
    meta = cast("Json", plane.get("node", node)["metadata"])
    return cast("dict[str, str]", meta.get("annotations", {}))


def test_jobs_are_placed_on_other_nodes_while_a_node_is_in_quarantine(plane: ControlPlane) -> None:
    listed = cast("list[Json]", plane.get("nodes")["items"])
    bad, good = sorted(str(cast("Json", node["metadata"])["name"]) for node in listed)
    for namespace in ("first", "second", "third"):
        plane.kubectl("create", "namespace", namespace)

    apply(plane, training_run(bad), "first")
    wait_for_pods_on(plane, good, "run", 2, "first")
    assert annotations(plane, bad)[labels.QUARANTINE_NAMESPACES] == "first"
    worker = {"replicas": 1, "template": fails_on(bad)}
    ares: Json = {
        "apiVersion": AresJob.resource.api_version,
        "kind": "AresJob",
        "metadata": {"name": "ares"},
        "spec": {"frameworkType": "custom", "roleSpecs": {"worker": worker}},
    }
    apply(plane, ares, "first")
    elastic = {"worker.template": fails_on(bad), "slotsPerWorker": 1, "worker.replicas": 1}
    apply(plane, job("elastic", elastic), "first")
    wait_for_pods_on(plane, good, "ares", 1, "first")
    wait_for_pods_on(plane, good, "elastic", 1, "first")

    # What one tenant reports does not concern others, until a second one has seen the same.
    apply(plane, training_run(bad), "second")
    wait_for_pods_on(plane, good, "run", 2, "second")
    message = plane.kubectl("get", "events", "-A", "--field-selector", "reason=NodeQuarantined").stdout
    assert "no new pods of jobs of all namespaces until" in message
    assert labels.QUARANTINE_NAMESPACES not in annotations(plane, bad)
    restarts = plane.get("tr", "run", "-n", "second")
    assert cast("Json", restarts["status"])["restarts"], "its first pods were placed on the node"

    apply(plane, training_run(bad), "third")
    wait_for_pods_on(plane, good, "run", 2, "third")
    third = cast("Json", plane.get("tr", "run", "-n", "third")["status"])
    assert not third.get("restarts"), "none of its pods was placed on the node"
