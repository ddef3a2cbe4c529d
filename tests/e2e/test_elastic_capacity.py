"""An elastic run on a cluster with too few GPUs: it has an allowed size, and grows when GPUs are free."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from argosy.kinds import labels
from tests.support.builders import RunBuilder, pod_template, run
from tests.support.local_control_plane import ControlPlane
from tests.support.targets import IMAGE
from tests.support.waiting import wait_for

Json = dict[str, object]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
GPU = {"limits": {"nvidia.com/gpu": "1"}}
"""The cluster has six."""


def sleeper() -> Json:
    command = ["sh", "-c", "trap exit TERM; while :; do sleep 0.1; done"]
    template = pod_template(IMAGE, command=command, resources=GPU)
    cast("Json", template["spec"])["terminationGracePeriodSeconds"] = 1
    return template


def apply(plane: ControlPlane, job: RunBuilder) -> None:
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job.build()))


def status(plane: ControlPlane, name: str) -> Json:
    return cast("Json", plane.get("tr", name).get("status", {}))


def wait_for_status(plane: ControlPlane, name: str, **wanted: object) -> Json:
    def reached() -> bool:
        found = status(plane, name)
        return {key: found.get(key, "") for key in wanted} == wanted

    wait_for(reached, lambda: plane.argosy("describe", name).stdout, 90)
    return status(plane, name)


def started(plane: ControlPlane, name: str) -> int:
    """Return how many pods have running main containers."""
    pods = cast("list[Json]", plane.get("pods", "-l", f"{labels.JOB}={name}")["items"])
    return sum(cast("Json", pod["status"])["phase"] == "Running" for pod in pods)


def aresjob(plane: ControlPlane) -> tuple[str, int, str]:
    """Return phase, number of running workers and message of the AresJob `even`."""
    found = plane.get("aj", "even").get("status", {})
    assert isinstance(found, dict)
    roles = cast("dict[str, dict[str, int]]", found.get("roleStatuses", {}))
    return found.get("phase", ""), roles.get("worker", {}).get("active", 0), found.get("message", "")


@pytest.fixture
def half_of_the_gpus_taken(plane: ControlPlane) -> Iterator[None]:
    apply(plane, run("holder").role("worker", 3, template=sleeper()))
    wait_for_status(plane, "holder", phase="Running", workers="3/3")
    yield
    for name in ("holder", "even"):
        plane.kubectl("delete", "tr,aj", name, "--ignore-not-found")
        plane.kubectl("wait", "--for=delete", "pod", "-l", f"{labels.JOB}={name}", "--timeout=60s", code=None)


@pytest.mark.usefixtures("half_of_the_gpus_taken")
def test_run_has_an_allowed_size_and_grows_when_there_is_capacity(plane: ControlPlane) -> None:
    """Three GPUs are free, and only even sizes are allowed: it must not run with three pods."""
    elastic = {"min": 2, "max": 4, "multipleOf": 2, "stabilizationWindow": "2s"}
    apply(plane, run("even").role("worker", 4, elastic=elastic, template=sleeper()))
    small = wait_for_status(plane, "even", phase="Running", reason="BelowReplicas", workers="2/4")
    roles = cast("dict[str, Json]", small["roles"])
    assert (roles["worker"]["replicas"], roles["worker"]["currentReplicas"]) == (4, 2)
    assert small["message"] == "worker runs with 2 of 4 pods, and grows when there is capacity"
    assert "BelowReplicas" in plane.argosy("describe", "even").stdout
    sizes = {started(plane, "even") for _ in range(20)}
    assert sizes == {2}, "a third pod waits in its init container until there is a fourth"
    plane.kubectl("delete", "tr", "holder")
    whole = wait_for_status(plane, "even", reason="", workers="4/4")
    assert (whole.get("restarts", 0), whole["attempt"]) == (0, 1)
    events = plane.kubectl("get", "events", "--field-selector", "reason=Resized").stdout
    assert "resized worker from 2 to 4 pods: there is capacity for more" in events


@pytest.mark.usefixtures("half_of_the_gpus_taken")
def test_kubectl_scale_follows_the_wanted_size_and_rejects_others(plane: ControlPlane) -> None:
    elastic = {"min": 1, "max": 4, "stabilizationWindow": "2s"}
    apply(plane, run("even").role("worker", 4, elastic=elastic, template=sleeper()))
    wait_for_status(plane, "even", phase="Running", reason="BelowReplicas", workers="3/4")
    rejected = plane.kubectl("scale", "tr/even", "--replicas=5", code=1)
    assert "replicas 5 is greater than elastic.max 4" in rejected.stderr
    plane.kubectl("scale", "tr/even", "--replicas=3")
    wait_for_status(plane, "even", phase="Running", reason="", workers="3/3")
    plane.kubectl("scale", "tr/even", "--replicas=2")
    wait_for_status(plane, "even", phase="Running", reason="", workers="2/2")


@pytest.mark.long
@pytest.mark.usefixtures("half_of_the_gpus_taken")
def test_aresjob_has_an_allowed_size_after_its_dependency(plane: ControlPlane) -> None:
    """Workers wait for the server, then for each other, in two init containers."""
    elastic = {"min": 2, "max": 4, "multipleOf": 2, "stabilizationWindow": "2s"}
    server = pod_template(IMAGE, command=["sleep", "600"])
    worker = {"replicas": 4, "elastic": elastic, "template": sleeper()}
    roles = {"server": {"template": server}, "worker": {**worker, "dependence": {"roleNames": ["server"]}}}
    job = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": "even"}}
    body = {**job, "spec": {"frameworkType": "custom", "roleSpecs": roles}}
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(body))

    def shown() -> str:
        return plane.argosy("describe", "aj/even").stdout

    small = ("Running", 2, "worker runs with 2 of 4 pods, and grows when there is capacity")
    wait_for(lambda: aresjob(plane) == small, shown, 90)
    assert "BelowReplicas" in shown()
    sizes = {started(plane, "even") for _ in range(20)}
    assert sizes == {3}, "the server and two workers"
    rejected = plane.kubectl("scale", "aj/even", "--replicas=3", code=1)
    assert "replicas 3 is not a multiple of 2" in rejected.stderr
    plane.kubectl("delete", "tr", "holder")
    wait_for(lambda: aresjob(plane)[:2] == ("Running", 4), shown, 90)
    plane.kubectl("scale", "aj/even", "--replicas=2")
    wait_for(lambda: started(plane, "even") == 3, shown, 90)
