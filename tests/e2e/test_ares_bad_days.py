"""AresJobs on bad days, on the local control plane: poison beside honest work, a helper that is killed."""

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
RIGHT: Json = {"template": template("main", **MAIN)}
ROLES = "spec.roleSpecs"


def spec(framework: str = "custom", /, *, roles: Json | None = None, **fields: object) -> Json:
    return {"frameworkType": framework, "roleSpecs": {"worker": RIGHT} if roles is None else roles, **fields}


def worker(**fields: object) -> Json:
    return {"worker": {**RIGHT, **fields}}


POISON: dict[str, tuple[Json, list[str]]] = {
    "no roles": (spec(roles={}), [f"{ROLES}: must have at least one role"]),
    "a role that is null": (spec(roles={"worker": None}), [f"{ROLES}.worker: must not be null"]),
    "an unknown framework": (spec("pytroch"), ["spec.frameworkType: unknown framework: pytroch"]),
    "a role that its framework needs": (spec("mpi"), [f"{ROLES}: framework mpi needs a role 'launcher'"]),
    "no ports": (
        spec("bagua", roles={"master": {"template": template("bagua", **MAIN)}}),
        ["spec.availablePorts: must have at least 2 ports; has 0"],
    ),
    "roles that wait for each other": (
        spec(
            roles={
                "a": {**RIGHT, "dependence": {"roleNames": ["b"]}},
                "b": {**RIGHT, "dependence": {"roleNames": ["a"]}},
            }
        ),
        [f"{ROLES}.a.dependence.roleNames: roles wait for each other: a → b → a"],
    ),
    "policies that are empty or name nobody": (
        spec(jobPhasePolicy={"failed": [[]], "succeeded": [["chief"]]}),
        [
            "spec.jobPhasePolicy.failed: must not contain an empty list",
            "spec.jobPhasePolicy.succeeded: unknown role chief",
        ],
    ),
    "numbers below zero": (
        spec(
            roles=worker(replicas=-1),
            ttlSecondsAfterFailed=-1,
            runPolicy={"backoffLimit": -1, "activeDeadlineSeconds": -1},
        ),
        [
            f"{ROLES}.worker.replicas: invalid value -1",
            "spec.ttlSecondsAfterFailed: invalid value -1",
            "spec.runPolicy.activeDeadlineSeconds: invalid value -1",
            "spec.runPolicy.backoffLimit: invalid value -1",
        ],
    ),
    "more pods than there can be": (spec(roles=worker(replicas=2**31 - 1)), [f"{ROLES}.worker.replicas: "]),
    "names that are too long, and in other letters": (
        spec(roles={"x" * 900: RIGHT, "wörker": RIGHT}),
        [
            f"{ROLES}.wörker: 'wörker': must consist of lower case letters",
            "has 911 characters, 848 more than the 63 allowed",
        ],
    ),
    "types that are wrong inside of a template": (
        spec(roles={"worker": {"template": template("main", image="local", command="true", ports=3)}}),
        [
            f'{ROLES}.worker.template.spec.containers[0].command: invalid value "true": must be a list',
            f"{ROLES}.worker.template.spec.containers[0].ports: invalid value 3: must be a list",
        ],
    ),
    "what only the API server finds": (
        spec(roles={"worker": {"template": template("main", **MAIN, imagePullPolicy="Sometimes")}}),
        [f"{ROLES}.worker.template.spec.containers[0].imagePullPolicy: Unsupported value"],
    ),
}
NAMES = {sentence: f"poison-{number}" for number, sentence in enumerate(POISON)}


def job(name: str, spec: Json) -> str:
    head = {"apiVersion": "ares.io/v1", "kind": "AresJob", "metadata": {"name": name}}
    return json.dumps({**head, "spec": spec})


def statuses(plane: ControlPlane) -> dict[str, Json]:
    found = cast("list[dict[str, Json]]", plane.get("aj")["items"])
    return {str(one["metadata"]["name"]): one.get("status", {}) for one in found}


def message(status: Json) -> str:
    """What is wrong with the definition, if something is."""
    found = cast("list[dict[str, str]]", status.get("conditions", []))
    wrong = [one for one in found if (one["type"], one["status"]) == ("Failed", "True")]
    return next((one["message"] for one in wrong if one["reason"] == "InvalidDefinition"), "")


def until_phase(plane: ControlPlane, phase: str, *names: str) -> None:
    def reached() -> bool:
        found = statuses(plane)
        return all(found.get(name, {}).get("phase") == phase for name in names)

    wait_for(reached, lambda: plane.kubectl("get", "aj,pods").stdout, 90)


@pytest.fixture
def unharmed(plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose operator must still be the process it was."""
    before = run_state(plane).components["operator"]
    yield plane
    plane.kubectl("delete", "aj", "--all", "--wait=false")
    assert run_state(plane).components["operator"] == before


def test_poison_is_told_and_cured_beside_an_honest_job(unharmed: ControlPlane) -> None:
    jobs = [job(NAMES[sentence], wrong) for sentence, (wrong, _) in POISON.items()]
    # `kubectl apply` leaves out what is null.
    unharmed.kubectl("create", "-f", "-", stdin="\n---\n".join([*jobs, job("honest", spec())]))
    until_phase(unharmed, "Succeeded", "honest")
    until_phase(unharmed, "Failed", *NAMES.values())
    told = {sentence: message(statuses(unharmed)[name]) for sentence, name in NAMES.items()}
    for sentence, (_, wants) in POISON.items():
        assert [want for want in wants if want not in told[sentence]] == [], told[sentence]
    cure = json.dumps([{"op": "replace", "path": "/spec", "value": spec()}])
    for name in NAMES.values():
        unharmed.kubectl("patch", "aj", name, "--type=json", "-p", cure)
    until_phase(unharmed, "Succeeded", *NAMES.values())


def test_a_helper_that_is_killed_waits_again(plane: ControlPlane) -> None:
    """Its container is restarted, and the pod comes up as if nothing had been."""
    go = ["sh", "-c", "until [ -e /tmp/go ]; do sleep 0.1; done"]
    slow = template("main", image="local", command=["sleep", "600"])
    cast("Json", slow["spec"])["initContainers"] = [{"name": "slow", "image": "local", "command": go}]
    late = {
        "template": template("main", image="local", command=["true"]),
        "restartPolicy": "OnFailure",
        "dependence": {"roleNames": ["first"]},
    }
    roles: Json = {"first": {"template": slow}, "late": late}
    killed = spec(roles=roles, jobPhasePolicy={"succeeded": [["late"]]}, runPolicy={"cleanPodPolicy": "All"})
    plane.kubectl("create", "-f", "-", stdin=job("killed", killed))
    try:
        wait_for(lambda: _helpers(plane), lambda: plane.kubectl("get", "pods").stdout, 60)
        ((pod, _),) = _helpers(plane)
        kill = "kill -9 $(pgrep -f '[a]rgosy/helper.* cache|[a]rgosy.helper cache')"
        plane.kubectl("exec", pod, "-c", "initializer", "--", "sh", "-c", kill, code=None)
        wait_for(lambda: [(pod, 1)] == _helpers(plane), lambda: plane.kubectl("describe", "pods").stdout, 60)
        plane.kubectl("exec", "killed-first-0", "-c", "slow", "--", "touch", "/tmp/go")
        until_phase(plane, "Succeeded", "killed")
    finally:
        plane.kubectl("delete", "aj", "killed", "--wait=false")


def _helpers(plane: ControlPlane) -> list[tuple[str, int]]:
    """Pods whose initializer is at work, and how often it was restarted."""
    return [
        (str(pod["metadata"]["name"]), cast("int", one["restartCount"]))
        for pod in cast("list[dict[str, Json]]", plane.get("pods")["items"])
        for one in cast("list[Json]", pod["status"].get("initContainerStatuses", []))
        if one["name"] == "initializer" and "running" in cast("Json", one["state"])
    ]
