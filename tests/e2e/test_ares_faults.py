"""AresJobs under faults, on the local control plane: invalid definitions, and a helper that is killed."""

import json
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.aresjobs import template
from tests.support.chaos import run_state
from tests.support.local_control_plane import ControlPlane
from tests.support.waiting import wait_for

Json = dict[str, object]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

MAIN = {"image": "local", "command": ["sleep", "0.2"]}
VALID_ROLE: Json = {"template": template("main", **MAIN)}
ROLES = "spec.roleSpecs"


def spec(framework: str = "custom", /, *, roles: Json | None = None, **fields: object) -> Json:
    return {
        "frameworkType": framework,
        "roleSpecs": {"worker": VALID_ROLE} if roles is None else roles,
        **fields,
    }


def worker(**fields: object) -> Json:
    return {"worker": {**VALID_ROLE, **fields}}


INVALID: dict[str, tuple[Json, list[str]]] = {
    "no roles": (spec(roles={}), [f"{ROLES}: must have at least one role"]),
    "role is null": (spec(roles={"worker": None}), [f"{ROLES}.worker: must not be null"]),
    "framework is unknown": (spec("pytroch"), ["spec.frameworkType: unknown framework: pytroch"]),
    "role that the framework requires is missing": (
        spec("mpi"),
        [f"{ROLES}: framework mpi requires a role 'launcher'"],
    ),
    "ports that the framework requires are missing": (
        spec("bagua", roles={"master": {"template": template("bagua", **MAIN)}}),
        ["spec.availablePorts: must have at least 2 ports; has 0"],
    ),
    "roles depend on each other": (
        spec(
            roles={
                "a": {**VALID_ROLE, "dependence": {"roleNames": ["b"]}},
                "b": {**VALID_ROLE, "dependence": {"roleNames": ["a"]}},
            }
        ),
        [f"{ROLES}.a.dependence.roleNames: roles wait for each other: a → b → a"],
    ),
    "policy is empty or names an unknown role": (
        spec(jobPhasePolicy={"failed": [[]], "succeeded": [["chief"]]}),
        [
            "spec.jobPhasePolicy.failed: must not contain an empty list",
            "spec.jobPhasePolicy.succeeded: unknown role chief",
        ],
    ),
    "numbers that are too small": (
        spec(
            roles=worker(replicas=0),
            ttlSecondsAfterFailed=-1,
            runPolicy={"backoffLimit": -1, "activeDeadlineSeconds": -1},
        ),
        [
            f"{ROLES}.worker.replicas: invalid value 0",
            "spec.ttlSecondsAfterFailed: invalid value -1",
            "spec.runPolicy.activeDeadlineSeconds: invalid value -1",
            "spec.runPolicy.backoffLimit: invalid value -1",
        ],
    ),
    "replicas exceeds the maximum": (spec(roles=worker(replicas=2**31 - 1)), [f"{ROLES}.worker.replicas: "]),
    "role names are too long or have other letters": (
        spec(roles={"x" * 900: VALID_ROLE, "wörker": VALID_ROLE}),
        [
            f"{ROLES}.wörker: 'wörker': must consist of lower case letters",
            "has 912 characters, 849 more than the 63 allowed",
        ],
    ),
    "wrong types in a template": (
        spec(roles={"worker": {"template": template("main", image="local", command="true", ports=3)}}),
        [
            f'{ROLES}.worker.template.spec.containers[0].command: invalid value "true": must be a list',
            f"{ROLES}.worker.template.spec.containers[0].ports: invalid value 3: must be a list",
        ],
    ),
    "error that only the API server finds": (
        spec(roles={"worker": {"template": template("main", **MAIN, imagePullPolicy="Sometimes")}}),
        [f"{ROLES}.worker.template.spec.containers[0].imagePullPolicy: Unsupported value"],
    ),
}
NAMES = {title: f"invalid-{number}" for number, title in enumerate(INVALID)}


def job(name: str, spec: Json) -> str:
    head = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def statuses(plane: ControlPlane) -> dict[str, Json]:
    items = cast("list[dict[str, Json]]", plane.get("aj")["items"])
    return {str(entry["metadata"]["name"]): entry.get("status", {}) for entry in items}


def invalid_message(status: Json) -> str:
    """The message of reason InvalidDefinition, empty if the job is valid."""
    conditions = cast("list[dict[str, str]]", status.get("conditions", []))
    failed = [entry for entry in conditions if (entry["type"], entry["status"]) == ("Failed", "True")]
    return next((entry["message"] for entry in failed if entry["reason"] == "InvalidDefinition"), "")


def wait_for_phase(plane: ControlPlane, phase: str, *names: str) -> None:
    def reached() -> bool:
        current = statuses(plane)
        return all(current.get(name, {}).get("phase") == phase for name in names)

    wait_for(reached, lambda: plane.kubectl("get", "aj,pods").stdout, 90)


@pytest.fixture
def steady_plane(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose operator must not have been restarted after the test."""
    before = run_state(plane).components["operator"]
    yield plane
    plane.kubectl("delete", "aj", "--all", "--wait=false")
    assert run_state(plane).components["operator"] == before


@pytest.mark.long  # tests/operator/test_random_specs.py reports and cures invalid jobs of both APIs
def test_invalid_jobs_are_reported_and_succeed_once_corrected_while_a_valid_job_runs(
    steady_plane: ControlPlane,
) -> None:
    jobs = [job(NAMES[title], definition) for title, (definition, _) in INVALID.items()]
    # `kubectl apply` would drop null values.
    steady_plane.kubectl("create", "-f", "-", stdin="\n---\n".join([*jobs, job("valid", spec())]))
    wait_for_phase(steady_plane, "Succeeded", "valid")
    wait_for_phase(steady_plane, "Failed", *NAMES.values())
    messages = {title: invalid_message(statuses(steady_plane)[name]) for title, name in NAMES.items()}
    for title, (_, wants) in INVALID.items():
        assert [want for want in wants if want not in messages[title]] == [], messages[title]
    correction = json.dumps([{"op": "replace", "path": "/spec", "value": spec()}])
    for name in NAMES.values():
        steady_plane.kubectl("patch", "aj", name, "--type=json", "-p", correction)
    wait_for_phase(steady_plane, "Succeeded", *NAMES.values())


def test_killed_initializer_is_restarted_and_waits_again(plane: ControlPlane) -> None:
    """The kubelet restarts the container, and the pod starts once its dependency is met."""
    go = ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done"]
    slow = template("main", image="local", command=["sleep", "600"])
    cast("Json", slow["spec"])["initContainers"] = [{"name": "slow", "image": "local", "command": go}]
    late = {
        "template": template("main", image="local", command=["true"]),
        "restartPolicy": "OnFailure",
        "dependence": {"roleNames": ["first"]},
    }
    roles: Json = {"first": {"template": slow}, "late": late}
    spec_of_job = spec(
        roles=roles, jobPhasePolicy={"succeeded": [["late"]]}, runPolicy={"cleanPodPolicy": "All"}
    )
    plane.kubectl("create", "-f", "-", stdin=job("killed", spec_of_job))
    try:
        wait_for(lambda: _running_initializers(plane), lambda: plane.kubectl("get", "pods").stdout, 60)
        ((pod, _),) = _running_initializers(plane)
        kill = "kill -9 $(pgrep -f '[a]rgosy/helper.* cache|[a]rgosy.helper cache')"
        plane.kubectl("exec", pod, "-c", "initializer", "--", "sh", "-c", kill, code=None)
        wait_for(
            lambda: [(pod, 1)] == _running_initializers(plane),
            lambda: plane.kubectl("describe", "pods").stdout,
            60,
        )
        plane.kubectl("exec", "killed-first-0", "-c", "slow", "--", "touch", "/tmp/go")
        wait_for_phase(plane, "Succeeded", "killed")
    finally:
        plane.kubectl("delete", "aj", "killed", "--wait=false")


def _running_initializers(plane: ControlPlane) -> list[tuple[str, int]]:
    """The pods whose initializer runs, each with its restart count."""
    return [
        (str(pod["metadata"]["name"]), cast("int", entry["restartCount"]))
        for pod in cast("list[dict[str, Json]]", plane.get("pods")["items"])
        for entry in cast("list[Json]", pod["status"].get("initContainerStatuses", []))
        if entry["name"] == "initializer" and "running" in cast("Json", entry["state"])
    ]
