"""Tests for PodDisruptionBudgets with a controller that writes their status, and for evictions."""

import json

import pytest

from argosy.local.schema.unstructured import get_maps
from tests.support.field_paths import dig

from .conftest import Json, Planes

SELECTOR = "--selector=app=web"
COUNTS = ("expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed", "observedGeneration")


def shown(items: list[Json]) -> object:
    """Counts, disrupted pods and conditions of each budget."""
    return [
        (
            dig(item, "metadata.name"),
            [dig(item, f"status.{name}") for name in COUNTS],
            dig(item, "status.disruptedPods"),
            [_without_time(condition) for condition in get_maps(item, "status", "conditions")],
        )
        for item in items
    ]


def _without_time(condition: Json) -> Json:
    return {name: value for name, value in condition.items() if name != "lastTransitionTime"}


def test_budget_status_of_a_deployment(planes: Planes) -> None:
    planes.same("create", "deployment", "web", "--image=i", "--replicas=3")
    planes.rolled_out("web")
    for name, amount in {
        "number": "--min-available=2",
        "half": "--min-available=50%",
        "one": "--max-unavailable=1",
        "third": "--max-unavailable=34%",
        "all": "--min-available=100%",
        "more": "--min-available=5",
    }.items():
        planes.same("create", "pdb", name, SELECTOR, amount)
    planes.same("create", "pdb", "none", "--selector=app=nothing", "--min-available=0")
    planes.eventually(
        "pdb/number",
        "pdb/third",
        shown=lambda items: [dig(item, "status.disruptionsAllowed") for item in items],
        want=[1, 2],
    )
    planes.settled("pdb", shown=shown)
    # Of several budgets for one pod Kubernetes looks at one when the pod changes.
    planes.say("delete", "pdb", "number", "half", "third", "all", "more", "none")
    planes.same("scale", "deployment", "web", "--replicas=5")
    planes.rolled_out("web")
    planes.eventually("pdb", shown=lambda items: [dig(i, "status.desiredHealthy") for i in items], want=[4])
    planes.settled("pdb", shown=shown)


def test_eviction_is_allowed_within_the_budget_and_refused_beyond_it(planes: Planes) -> None:
    planes.same("create", "deployment", "web", "--image=i", "--replicas=3")
    planes.rolled_out("web")
    planes.same("create", "pdb", "b", SELECTOR, "--min-available=3")
    planes.eventually(
        "pdb", shown=lambda items: [dig(item, "status.currentHealthy") for item in items], want=[3]
    )
    refused = [_evict(planes, number) for number in range(2)]
    assert refused[0] == refused[1]
    assert "Cannot evict pod as it would violate the pod's disruption budget" in refused[0]
    planes.same("patch", "pdb", "b", "--type=merge", '--patch={"spec":{"minAvailable":2}}')
    allowed = lambda items: [dig(item, "status.disruptionsAllowed") for item in items]  # noqa: E731
    planes.eventually("pdb", shown=allowed, want=[1])
    assert all('"status":"Success"' in _evict(planes, number) for number in range(2))
    planes.rolled_out("web")
    planes.eventually(
        "pdb", shown=lambda items: [dig(item, "status.currentHealthy") for item in items], want=[3]
    )
    planes.settled("pdb", shown=shown)


def _evict(planes: Planes, number: int) -> str:
    """Evict the first pod of one control plane; what kubectl says."""
    server = planes.servers[number]
    pod = planes.names(server, "pods", SELECTOR)[0]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{planes.namespace}/pods/{pod}/eviction"
    done = planes.run(server, ("create", "--raw", path, "-f", "-"), json.dumps(body))
    return done.stdout + done.stderr


@pytest.mark.long
def test_budget_of_pods_without_a_controller(planes: Planes) -> None:
    planes.same("run", "alone", "--image=i", "--labels=app=alone")
    planes.same("create", "pdb", "number", "--selector=app=alone", "--min-available=0")
    planes.same("create", "pdb", "percent", "--selector=app=alone", "--max-unavailable=50%")
    planes.same("create", "job", "work", "--image=i", "--", "sleep")
    planes.same("create", "pdb", "job", "--selector=job-name=work", "--max-unavailable=1")
    planes.same("create", "pdb", "counted", "--selector=job-name=work", "--min-available=1")
    planes.eventually(
        "pdb/number",
        "pdb/counted",
        shown=lambda items: [dig(i, "status.currentHealthy") for i in items],
        want=[1, 1],
    )
    status = str(planes.settled("pdb", shown=shown))
    assert "jobs.batch does not implement the scale subresource" in status
