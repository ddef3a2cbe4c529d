"""Invalid TrainingRuns are rejected, or reported in status, with the path of the field.

All of them are given to one operator, which must keep running and serve valid runs.
"""

import copy
import json
import time
from collections.abc import Iterator
from typing import cast

import pytest

from tests.support.parameters import sampled
from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.long_on_cluster

Json = dict[str, object]
Edit = dict[str, object]
"""New values by dotted path; None removes the field."""


@pytest.fixture(scope="module")
def steady_user(user: User) -> Iterator[User]:
    """A user with a running run; afterwards neither the run nor the operator may have been restarted."""
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
    "spec is missing": ({"spec": None}, "spec: Required value"),
    "framework is missing": ({"spec.framework": None}, "spec.framework: Required value"),
    "framework is empty": ({"spec.framework": ""}, "spec.framework"),
    "framework is a number": ({"spec.framework": 7}, "spec.framework"),
    "roles is missing": ({"spec.roles": None}, "spec.roles: Required value"),
    "roles is empty": ({"spec.roles": {}}, "spec.roles"),
    "roles is a list": ({"spec.roles": [1]}, "spec.roles"),
    "more roles than allowed": ({"spec.roles": {f"r{n}": "worker" for n in range(40)}}, "spec.roles"),
    "role name has capital letters": ({"spec.roles.Worker": "worker"}, "spec.roles"),
    "role name is too long": ({f"spec.roles.{'r' * 41}": "worker"}, "spec.roles"),
    "role is a string": ({WORKER: "many"}, WORKER),
    "template is missing": ({f"{WORKER}.template": None}, f"{WORKER}.template: Required value"),
    "template has no spec": ({f"{WORKER}.template": {}}, f"{WORKER}.template.spec: Required value"),
    "containers is missing": ({CONTAINERS: None}, f"{CONTAINERS}: Required value"),
    "containers is empty": ({CONTAINERS: []}, CONTAINERS),
    "container has no name": (
        {CONTAINERS: [{"image": IMAGE}]},
        f"{CONTAINERS}[0].name: Required value",
    ),
    "replicas is 0": ({f"{WORKER}.replicas": 0}, f"{WORKER}.replicas"),
    "replicas is negative": ({f"{WORKER}.replicas": -3}, f"{WORKER}.replicas"),
    "replicas exceeds the maximum": ({f"{WORKER}.replicas": 100_000}, f"{WORKER}.replicas"),
    "replicas exceeds 64 bits": ({f"{WORKER}.replicas": 1 << 70}, f"{WORKER}.replicas"),
    "replicas is a fraction": ({f"{WORKER}.replicas": 1.5}, f"{WORKER}.replicas"),
    "replicas is a string": ({f"{WORKER}.replicas": "two"}, f"{WORKER}.replicas"),
    "restart policy is unknown": (
        {f"{WORKER}.restart": "Sometimes"},
        f"{WORKER}.restart: Unsupported value",
    ),
    "elastic.min exceeds elastic.max": (
        {f"{WORKER}.elastic": {"min": 3, "max": 2}},
        "min 3 is greater than max 2",
    ),
    "replicas is below elastic.min": (
        {f"{WORKER}.elastic": {"min": 3, "max": 4}},
        "replicas 1 is less than elastic.min 3",
    ),
    "replicas exceeds elastic.max": (
        {f"{WORKER}.elastic": {"min": 1, "max": 2}, f"{WORKER}.replicas": 5},
        "replicas 5 is greater than elastic.max 2",
    ),
    "elastic range is not a multiple of the step": (
        {f"{WORKER}.elastic": {"min": 1, "max": 3, "multipleOf": 2}},
        "is not a multiple of 2",
    ),
    "elastic.max is missing": (
        {f"{WORKER}.elastic": {"min": 1}},
        f"{WORKER}.elastic.max: Required value",
    ),
    "elastic step is 0": (
        {f"{WORKER}.elastic": {"min": 1, "max": 3, "multipleOf": 0}},
        f"{WORKER}.elastic.multipleOf",
    ),
    "dependsOn names an unknown role": ({f"{WORKER}.dependsOn": [{"role": "ghost"}]}, "spec.roles"),
    "dependsOn names the role itself": ({f"{WORKER}.dependsOn": [{"role": "worker"}]}, "spec.roles"),
    "dependsOn has an unknown phase": (
        {f"{WORKER}.dependsOn": [{"role": "worker", "phase": "Sleeping"}]},
        f"{WORKER}.dependsOn[0].phase: Unsupported value",
    ),
    "dependsOn has a duplicate": (
        {"spec.roles.other": "worker", f"{WORKER}.dependsOn": [{"role": "other"}, {"role": "other"}]},
        "spec.roles[worker].dependsOn[1]: Duplicate value",
    ),
    "jobPolicy names an unknown role": ({"spec.jobPolicy": {"failed": [["ghost"]]}}, "jobPolicy"),
    "jobPolicy has an empty list": ({"spec.jobPolicy": {"succeeded": [[]]}}, "spec.jobPolicy.succeeded[0]"),
    "duration has no unit": ({"spec.limits": {"activeDeadline": "5"}}, "spec.limits.activeDeadline"),
    "duration is a word": ({"spec.limits": {"ttlAfterFailed": "soon"}}, "spec.limits.ttlAfterFailed"),
    "limits.restarts is negative": ({"spec.limits": {"restarts": -1}}, "spec.limits.restarts"),
    "cleanup is unknown": ({"spec.cleanup": "Some"}, "spec.cleanup: Unsupported value"),
    "suspend is a string": ({"spec.suspend": "yes"}, "spec.suspend"),
    "gang.minAvailable is 0": ({"spec.gang": {"minAvailable": 0}}, "spec.gang.minAvailable"),
    "restartScope is unknown": ({"spec.restartScope": "World"}, "spec.restartScope: Unsupported value"),
    "slots is 0": ({f"{WORKER}.slots": 0}, f"{WORKER}.slots"),
    "unknown field of spec": ({"spec.replicas": 3}, 'unknown field "spec.replicas"'),
    "unknown field of a role": ({f"{WORKER}.count": 3}, f'unknown field "{WORKER}.count"'),
    "name has 254 characters": ({"metadata.name": "n" * 254}, "metadata.name"),
    "name has an underscore": ({"metadata.name": "a_b"}, "metadata.name"),
    "label value is too long": ({"metadata.labels": {"a": "x" * 64}}, "metadata.labels"),
}


@pytest.mark.parametrize(("edit", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_apply_is_rejected_if(steady_user: User, edit: Edit, want: str) -> None:
    refused = steady_user.kubectl("apply", "-f", "-", stdin=json.dumps(_run("wrong", edit)), code=1)
    assert want in refused.stderr


CONTAINER = f"{CONTAINERS}[0]"
REPORTED: dict[str, tuple[Edit, str, Edit]] = {
    "framework is not installed": (
        {"spec.framework": "nope"},
        'spec.framework: unknown framework "nope"',
        {"spec.framework": "custom"},
    ),
    "role is unknown to the framework": (
        {"spec.framework": "mpi", "spec.roles.stranger": "worker"},
        "spec.roles: framework mpi requires a role 'launcher'",
        {"spec.framework": "custom"},
    ),
    "option is unknown to the framework": (
        {"spec.framework": "mpi", "spec.roles.launcher": "worker", "spec.options": {"slots": 2}},
        "spec.options.slots: unknown option: framework mpi has implementation, launcherAs",
        {"spec.options": None},
    ),
    "option is misspelt": (
        {"spec.framework": "pytorch", "spec.options": {"maxRestart": 2}},
        "spec.options.maxRestart: unknown option: did you mean maxRestarts?",
        {"spec.options": None},
    ),
    "value of an option is unknown": (
        {"spec.framework": "mpi", "spec.roles.launcher": "worker", "spec.options": {"implementation": "own"}},
        'spec.options.implementation: invalid value "own": must be ompi, mpich or intel',
        {"spec.options": None},
    ),
    "roles depend on each other": (
        {
            "spec.roles.other": "worker",
            f"{WORKER}.dependsOn": [{"role": "other"}],
            "spec.roles.other.dependsOn": [{"role": "worker"}],
        },
        "dependsOn: roles wait for each other",
        {"spec.roles.other.dependsOn": []},
    ),
    "containerPort is out of range": (
        {f"{CONTAINERS}.0.ports": [{"containerPort": 70000}]},
        f"{CONTAINER}.ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535",
        {f"{CONTAINERS}.0.ports": []},
    ),
    "container name is invalid": (
        {f"{CONTAINERS}.0.name": "Main_One"},
        f'{CONTAINER}.name: Invalid value: "Main_One"',
        {f"{CONTAINERS}.0.name": "main"},
    ),
    "limit is not a quantity": (
        {f"{CONTAINERS}.0.resources": {"limits": {"memory": "lots"}}},
        f'{CONTAINER}.resources.limits.memory: invalid value "lots": must be a quantity',
        {f"{CONTAINERS}.0.resources": {}},
    ),
    "request exceeds the limit": (
        {f"{CONTAINERS}.0.resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}},
        f"{CONTAINER}.resources.requests: Invalid value: ",
        {f"{CONTAINERS}.0.resources": {}},
    ),
    "volume of a mount is missing": (
        {f"{CONTAINERS}.0.volumeMounts": [{"name": "ghost", "mountPath": "/x"}]},
        f'{CONTAINER}.volumeMounts[0].name: Not found: "ghost"',
        {f"{CONTAINERS}.0.volumeMounts": []},
    ),
    "command is a string": (
        {f"{CONTAINERS}.0.command": "true"},
        f'{CONTAINER}.command: invalid value "true": must be a list; write ["true"]',
        {f"{CONTAINERS}.0.command": ["true"]},
    ),
    "unknown field of a container": (
        {f"{CONTAINERS}.0.comand": ["true"]},
        f'{CONTAINER}.comand: unknown field; did you mean "command"?',
        {f"{CONTAINERS}.0.comand": None},
    ),
    "two containers have the same name": (
        {CONTAINERS: [{"name": "a", "image": IMAGE}, {"name": "a", "image": IMAGE}]},
        f'{CONTAINERS}[1].name: Duplicate value: "a"',
        {CONTAINERS: [{"name": "a", "image": IMAGE, "command": ["true"]}]},
    ),
}
RUN_NAMES = {title: f"wrong-{number}" for number, title in enumerate(REPORTED)}


@pytest.fixture(scope="module")
def invalid_runs(steady_user: User) -> User:
    """A user with all of these runs, each waiting for its correction."""
    runs = [json.dumps(_run(RUN_NAMES[title], edit)) for title, (edit, _, _) in REPORTED.items()]
    steady_user.kubectl("apply", "-f", "-", stdin="\n---\n".join(runs))
    return steady_user


def test_invalid_runs_do_not_delay_a_valid_run(steady_user: User, request: pytest.FixtureRequest) -> None:
    usual = min(_seconds_of_a_run(steady_user), _seconds_of_a_run(steady_user))
    wrong: User = request.getfixturevalue("invalid_runs")
    for name in RUN_NAMES.values():
        wait_for(lambda name=name: wrong.status(name).get("message"), f"{name} has no message", 60)  # type: ignore[misc]  # name is bound here
    duration = min(_seconds_of_a_run(wrong), _seconds_of_a_run(wrong))
    assert duration < 3 * usual + 5, f"{duration:.1f} s, where {usual:.1f} s is usual"


@pytest.mark.parametrize("title", sampled({title: title for title in REPORTED}, 3))
def test_run_is_reported_invalid_and_succeeds_once_corrected_if(invalid_runs: User, title: str) -> None:
    """The status names the problem; the run waits and succeeds after the correction."""
    name = RUN_NAMES[title]
    edit, want, cure = REPORTED[title]
    wait_for(
        lambda: want in _message(invalid_runs, name),
        lambda: _message(invalid_runs, name),
        60,
    )
    status = invalid_runs.status(name)
    assert (status["reason"], status["attempt"]) == ("InvalidSpec", 0)
    assert status["phase"] in ("Pending", "Starting")
    invalid_runs.kubectl("wait", f"tr/{name}", "--for=condition=Valid=false", "--timeout=60s")
    assert want in invalid_runs.kubectl("events", "--for", f"trainingrun/{name}").stdout
    invalid_runs.kubectl("apply", "-f", "-", stdin=json.dumps(_edited(_run(name, edit), cure)))
    wait_for(
        lambda: invalid_runs.status(name)["phase"] == "Succeeded",
        lambda: _message(invalid_runs, name),
        60,
    )
    assert invalid_runs.status(name)["attempt"] == 1


NAMES = {
    "63 characters, the longest label value": "n" * 63,
    "64 characters, longer than a label value": "n" * 64,
    "253 characters, the longest object name": "n" * 253,
    "dots": "v1.2.run",
    "a digit at the start": "1-run",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES.keys())
def test_run_succeeds_or_reports_its_name_if_the_name_has(steady_user: User, name: str) -> None:
    steady_user.kubectl("apply", "-f", "-", stdin=json.dumps(_run(name, {"spec.roles.worker.replicas": 2})))
    try:
        wait_for(
            lambda: (
                steady_user.status(name).get("phase") == "Succeeded"
                or "metadata.name" in _message(steady_user, name)
            ),
            lambda: _message(steady_user, name),
            60,
        )
    finally:
        steady_user.argosy("rm", name)


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
    """Return the run with these fields changed; the value "worker" of a role is a copy of role worker."""
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
