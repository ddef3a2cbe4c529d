"""A TrainingRun with every wrong thing one can write: refused, or reported in status, with the field path.

All of them go to one operator, which stays the same process and goes on to run honest runs.
"""

import copy
import json
import time
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long_on_cluster

Json = dict[str, object]
Edit = dict[str, object]
"""Dotted paths, and what to put there; None takes the field away."""


@pytest.fixture(scope="module")
def unharmed(user: User) -> Iterator[User]:
    """A user whose operator must still be the process it was after all these runs; and a run that went on
    beside them must never have been disturbed."""
    before = user.target.operators()
    user.argosy("run", "-d", "--name", "steady", "--", "sh", "-c", "trap exit TERM; sleep 1000 & wait")
    user.wait_for_phase("steady", "Running")
    yield user
    steady = user.status("steady")
    user.argosy("rm", "--all", code=None)
    assert (steady["phase"], steady["attempt"], steady.get("restarts", 0)) == ("Running", 1, 0)
    assert user.target.operators() == before


WORKER = "spec.roles.worker"
CONTAINERS = f"{WORKER}.template.spec.containers"

REFUSED: dict[str, tuple[Edit, str]] = {
    "no spec": ({"spec": None}, "spec: Required value"),
    "no framework": ({"spec.framework": None}, "spec.framework: Required value"),
    "an empty framework": ({"spec.framework": ""}, "spec.framework"),
    "a framework that is a number": ({"spec.framework": 7}, "spec.framework"),
    "no roles": ({"spec.roles": None}, "spec.roles: Required value"),
    "an empty map of roles": ({"spec.roles": {}}, "spec.roles"),
    "roles as a list": ({"spec.roles": [1]}, "spec.roles"),
    "too many roles": ({"spec.roles": {f"r{n}": "worker" for n in range(40)}}, "spec.roles"),
    "a role in capitals": ({"spec.roles.Worker": "worker"}, "spec.roles"),
    "a role with a long name": ({f"spec.roles.{'r' * 41}": "worker"}, "spec.roles"),
    "a role that is text": ({WORKER: "many"}, WORKER),
    "no template": ({f"{WORKER}.template": None}, f"{WORKER}.template: Required value"),
    "a template without a spec": ({f"{WORKER}.template": {}}, f"{WORKER}.template.spec: Required value"),
    "no containers": ({CONTAINERS: None}, f"{CONTAINERS}: Required value"),
    "an empty list of containers": ({CONTAINERS: []}, CONTAINERS),
    "a container without a name": (
        {CONTAINERS: [{"image": IMAGE}]},
        f"{CONTAINERS}[0].name: Required value",
    ),
    "no pods": ({f"{WORKER}.replicas": 0}, f"{WORKER}.replicas"),
    "less than no pods": ({f"{WORKER}.replicas": -3}, f"{WORKER}.replicas"),
    "more pods than there can be": ({f"{WORKER}.replicas": 100_000}, f"{WORKER}.replicas"),
    "more pods than a number can hold": ({f"{WORKER}.replicas": 1 << 70}, f"{WORKER}.replicas"),
    "half a pod": ({f"{WORKER}.replicas": 1.5}, f"{WORKER}.replicas"),
    "pods in words": ({f"{WORKER}.replicas": "two"}, f"{WORKER}.replicas"),
    "a restart policy that is none": (
        {f"{WORKER}.restart": "Sometimes"},
        f"{WORKER}.restart: Unsupported value",
    ),
    "an elastic range upside down": (
        {f"{WORKER}.elastic": {"min": 3, "max": 2}},
        "min 3 is greater than max 2",
    ),
    "fewer pods than the elastic range has": (
        {f"{WORKER}.elastic": {"min": 3, "max": 4}},
        "replicas 1 is less than elastic.min 3",
    ),
    "more pods than the elastic range has": (
        {f"{WORKER}.elastic": {"min": 1, "max": 2}, f"{WORKER}.replicas": 5},
        "replicas 5 is greater than elastic.max 2",
    ),
    "an elastic range in steps that do not fit": (
        {f"{WORKER}.elastic": {"min": 1, "max": 3, "multipleOf": 2}},
        "is not a multiple of 2",
    ),
    "an elastic range without an end": (
        {f"{WORKER}.elastic": {"min": 1}},
        f"{WORKER}.elastic.max: Required value",
    ),
    "steps of nothing": (
        {f"{WORKER}.elastic": {"min": 1, "max": 3, "multipleOf": 0}},
        f"{WORKER}.elastic.multipleOf",
    ),
    "a dependency on no role": ({f"{WORKER}.dependsOn": [{"role": "ghost"}]}, "spec.roles"),
    "a dependency on itself": ({f"{WORKER}.dependsOn": [{"role": "worker"}]}, "spec.roles"),
    "a dependency on a phase that is none": (
        {f"{WORKER}.dependsOn": [{"role": "worker", "phase": "Sleeping"}]},
        f"{WORKER}.dependsOn[0].phase: Unsupported value",
    ),
    "the same dependency twice": (
        {"spec.roles.other": "worker", f"{WORKER}.dependsOn": [{"role": "other"}, {"role": "other"}]},
        "spec.roles[worker].dependsOn[1]: Duplicate value",
    ),
    "a job policy with a role that is none": ({"spec.jobPolicy": {"failed": [["ghost"]]}}, "jobPolicy"),
    "an empty list in a job policy": ({"spec.jobPolicy": {"succeeded": [[]]}}, "spec.jobPolicy.succeeded[0]"),
    "a duration without a unit": ({"spec.limits": {"activeDeadline": "5"}}, "spec.limits.activeDeadline"),
    "a duration in words": ({"spec.limits": {"ttlAfterFailed": "soon"}}, "spec.limits.ttlAfterFailed"),
    "fewer than no restarts": ({"spec.limits": {"restarts": -1}}, "spec.limits.restarts"),
    "a cleanup that is none": ({"spec.cleanup": "Some"}, "spec.cleanup: Unsupported value"),
    "a suspension in words": ({"spec.suspend": "yes"}, "spec.suspend"),
    "a gang of nobody": ({"spec.gang": {"minAvailable": 0}}, "spec.gang.minAvailable"),
    "a restart scope that is none": ({"spec.restartScope": "World"}, "spec.restartScope: Unsupported value"),
    "slots without number": ({f"{WORKER}.slots": 0}, f"{WORKER}.slots"),
    "a field that is none": ({"spec.replicas": 3}, 'unknown field "spec.replicas"'),
    "a field of a role that is none": ({f"{WORKER}.count": 3}, f'unknown field "{WORKER}.count"'),
    "a name of 254 characters": ({"metadata.name": "n" * 254}, "metadata.name"),
    "a name with an underscore": ({"metadata.name": "a_b"}, "metadata.name"),
    "a label that is too long": ({"metadata.labels": {"a": "x" * 64}}, "metadata.labels"),
}


@pytest.mark.parametrize(("edit", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with(unharmed: User, edit: Edit, want: str) -> None:
    refused = unharmed.kubectl("apply", "-f", "-", stdin=json.dumps(_run("wrong", edit)), code=1)
    assert want in refused.stderr


CONTAINER = f"{CONTAINERS}[0]"
REPORTED: dict[str, tuple[Edit, str, Edit]] = {
    "a framework that is not installed": (
        {"spec.framework": "nope"},
        'spec.framework: unknown framework "nope"',
        {"spec.framework": "custom"},
    ),
    "a role that the framework does not know": (
        {"spec.framework": "mpi", "spec.roles.stranger": "worker"},
        "spec.roles: framework mpi needs a role 'launcher'",
        {"spec.framework": "custom"},
    ),
    "an option that the framework does not know": (
        {"spec.framework": "mpi", "spec.roles.launcher": "worker", "spec.options": {"slots": 2}},
        "spec.options.slots: there is no such option; framework mpi has implementation, launcherAs",
        {"spec.options": None},
    ),
    "an option with a typing error": (
        {"spec.framework": "pytorch", "spec.options": {"maxRestart": 2}},
        "spec.options.maxRestart: there is no such option; did you mean maxRestarts?",
        {"spec.options": None},
    ),
    "an option with a value that is none": (
        {"spec.framework": "mpi", "spec.roles.launcher": "worker", "spec.options": {"implementation": "own"}},
        'spec.options.implementation: invalid value "own": must be ompi, mpich or intel',
        {"spec.options": None},
    ),
    "roles that wait for each other": (
        {
            "spec.roles.other": "worker",
            f"{WORKER}.dependsOn": [{"role": "other"}],
            "spec.roles.other.dependsOn": [{"role": "worker"}],
        },
        "dependsOn: roles wait for each other",
        {"spec.roles.other.dependsOn": []},
    ),
    "a port that is out of range": (
        {f"{CONTAINERS}.0.ports": [{"containerPort": 70000}]},
        f"{CONTAINER}.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535",
        {f"{CONTAINERS}.0.ports": []},
    ),
    "a container whose name is none": (
        {f"{CONTAINERS}.0.name": "Main_One"},
        f'{CONTAINER}.name: Invalid value: "Main_One"',
        {f"{CONTAINERS}.0.name": "main"},
    ),
    "a quantity that is none": (
        {f"{CONTAINERS}.0.resources": {"limits": {"memory": "lots"}}},
        f'{CONTAINER}.resources.limits.memory: invalid value "lots": must be a quantity',
        {f"{CONTAINERS}.0.resources": {}},
    ),
    "more asked for than allowed": (
        {f"{CONTAINERS}.0.resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}},
        f"{CONTAINER}.resources.requests: Invalid value: ",
        {f"{CONTAINERS}.0.resources": {}},
    ),
    "a mount of a volume that is not there": (
        {f"{CONTAINERS}.0.volumeMounts": [{"name": "ghost", "mountPath": "/x"}]},
        f'{CONTAINER}.volumeMounts[0].name: Not found: "ghost"',
        {f"{CONTAINERS}.0.volumeMounts": []},
    ),
    "a command that is text": (
        {f"{CONTAINERS}.0.command": "true"},
        f'{CONTAINER}.command: invalid value "true": must be a list; write ["true"]',
        {f"{CONTAINERS}.0.command": ["true"]},
    ),
    "a field of a container that is none": (
        {f"{CONTAINERS}.0.comand": ["true"]},
        f'{CONTAINER}.comand: unknown field; did you mean "command"?',
        {f"{CONTAINERS}.0.comand": None},
    ),
    "two containers of one name": (
        {CONTAINERS: [{"name": "a", "image": IMAGE}, {"name": "a", "image": IMAGE}]},
        f'{CONTAINERS}[1].name: Duplicate value: "a"',
        {CONTAINERS: [{"name": "a", "image": IMAGE, "command": ["true"]}]},
    ),
}
CALLED = {sentence: f"wrong-{number}" for number, sentence in enumerate(REPORTED)}


@pytest.fixture(scope="module")
def beside(unharmed: User) -> User:
    """The user with all of these runs at once, each waiting for its edit."""
    runs = [json.dumps(_run(CALLED[sentence], edit)) for sentence, (edit, _, _) in REPORTED.items()]
    unharmed.kubectl("apply", "-f", "-", stdin="\n---\n".join(runs))
    return unharmed


def test_an_honest_run_takes_no_longer_beside_them(unharmed: User, request: pytest.FixtureRequest) -> None:
    usual = min(_seconds_of_a_run(unharmed), _seconds_of_a_run(unharmed))
    wrong: User = request.getfixturevalue("beside")
    for name in CALLED.values():
        wait_for(lambda name=name: wrong.status(name).get("message"), f"{name} says what is wrong", 60)  # type: ignore[misc]  # name is bound here
    taken = min(_seconds_of_a_run(wrong), _seconds_of_a_run(wrong))
    assert taken < 3 * usual + 5, f"{taken:.1f} s, where {usual:.1f} s is usual"


@pytest.mark.parametrize("sentence", REPORTED)
def test_reported_and_cured(beside: User, sentence: str) -> None:
    """The run says what is wrong with it and waits; the right edit lets it run to its end."""
    name = CALLED[sentence]
    edit, want, cure = REPORTED[sentence]
    wait_for(lambda: want in _message(beside, name), lambda: _message(beside, name), 60)
    status = beside.status(name)
    assert (status["reason"], status["attempt"]) == ("InvalidSpec", 0)
    assert status["phase"] in ("Pending", "Starting")
    beside.kubectl("wait", f"tr/{name}", "--for=condition=Valid=false", "--timeout=60s")
    assert want in beside.kubectl("events", "--for", f"trainingrun/{name}").stdout
    beside.kubectl("apply", "-f", "-", stdin=json.dumps(_edited(_run(name, edit), cure)))
    wait_for(lambda: beside.status(name)["phase"] == "Succeeded", lambda: _message(beside, name), 60)
    assert beside.status(name)["attempt"] == 1


NAMES = {
    "the longest name that a label holds": "n" * 63,
    "a name longer than a label holds": "n" * 64,
    "the longest name that an object may have": "n" * 253,
    "a name with dots": "v1.2.run",
    "a name that begins with a digit": "1-run",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_a_run_works_or_says_why_not_under(unharmed: User, name: str) -> None:
    unharmed.kubectl("apply", "-f", "-", stdin=json.dumps(_run(name, {"spec.roles.worker.replicas": 2})))
    try:
        wait_for(
            lambda: (
                unharmed.status(name).get("phase") == "Succeeded"
                or "metadata.name" in _message(unharmed, name)
            ),
            lambda: _message(unharmed, name),
            60,
        )
    finally:
        unharmed.argosy("rm", name)


def _run(name: str, edit: Edit) -> Json:
    container = {"name": "main", "image": IMAGE, "command": ["true"]}
    template = {"spec": {"terminationGracePeriodSeconds": 1, "containers": [container]}}
    run: Json = {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": {"framework": "custom", "roles": {"worker": {"replicas": 1, "template": template}}},
    }
    return _edited(run, edit)


def _edited(run: Json, edit: Edit) -> Json:
    """The run with these fields changed; `worker` as a role stands for a copy of that role."""
    changed = copy.deepcopy(run)
    roles = cast("Json", cast("Json", run["spec"])["roles"])
    for path, value in edit.items():
        *parents, last = path.split(".")
        place: object = changed
        for part in parents:
            place = place[int(part)] if isinstance(place, list) else cast("Json", place)[part]
        if value == "worker" and "roles" in parents:
            value = copy.deepcopy(roles["worker"])
        if path == "spec.roles" and isinstance(value, dict):
            value = {key: copy.deepcopy(roles["worker"]) for key in value}
        if value is None:
            cast("Json", place).pop(last, None)
        else:
            cast("Json", place)[last] = value
    return changed


def _seconds_of_a_run(user: User) -> float:
    began = time.monotonic()
    assert "hello" in user.argosy("run", "--", "echo", "hello").stdout
    return time.monotonic() - began


def _message(user: User, name: str) -> str:
    return str(user.status(name).get("message", ""))
