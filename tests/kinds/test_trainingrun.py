"""The definition of TrainingRun in front of a real API server and of ours: what it takes, fills in, and
refuses with which words."""

import copy
import re
from collections.abc import Iterator

import pytest

from argosy.kinds.crd import CUSTOM_RESOURCES, crd_for
from tests.support.differential import Caller, get, patch, post
from tests.support.field_paths import Json, dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
RUNS = "/apis/argosy.dev/v1alpha1/namespaces/default/trainingruns"


def run(name: str = "mnist", **spec: Json) -> dict[str, Json]:
    worker: dict[str, Json] = {
        "replicas": 4,
        "template": {"spec": {"containers": [{"name": "main", "image": "pytorch", "odd": {"kept": True}}]}},
    }
    whole: dict[str, Json] = {"framework": "pytorch", "roles": {"worker": worker}, **spec}
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": name},
        "spec": whole,
    }


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        for kind in CUSTOM_RESOURCES:
            body: Json = copy.deepcopy(crd_for(kind))
            answer = caller.send(post(CRDS, body))
            assert answer.code in (201, 409), answer.body
            name = f"{kind.resource.plural}.{kind.resource.group}"
            established = caller.send(get(f"{CRDS}/{name}", until="status.conditions.1"))
            conditions = dig(established.body, "status.conditions")
            assert isinstance(conditions, list)
            assert "NonStructuralSchema" not in {str(dig(one, "type")) for one in conditions}
        caller.send(get("/apis/argosy.dev/v1alpha1/trainingruns", until_code=200))
        yield caller


def test_defaults_are_filled_in_and_templates_kept(caller: Caller) -> None:
    stored = caller.send(post(RUNS, run("defaults"))).body
    assert dig(stored, "spec.limits") == {"restarts": 3, "belowMinTimeout": "10m"}
    assert dig(stored, "spec.cleanup") == "Running"
    assert dig(stored, "spec.roles.worker.restart") == "OnFailure"
    assert dig(stored, "spec.roles.worker.template.spec.containers.0.odd") == {"kept": True}


def elastic(**bounds: int) -> dict[str, Json]:
    made = run()
    assert isinstance(made["spec"], dict)
    role = made["spec"]["roles"]
    assert isinstance(role, dict)
    assert isinstance(role["worker"], dict)
    role["worker"]["elastic"] = dict(bounds)
    return made


def without(path: str) -> dict[str, Json]:
    made = run()
    *way, last = path.split(".")
    at: Json = made
    for part in way:
        at = at[part] if isinstance(at, dict) else None
    assert isinstance(at, dict)
    del at[last]
    return made


def role_with(**more: Json) -> dict[str, Json]:
    made = run()
    assert isinstance(made["spec"], dict)
    roles = made["spec"]["roles"]
    assert isinstance(roles, dict)
    assert isinstance(roles["worker"], dict)
    roles["worker"].update(more)
    return made


REFUSED: dict[str, tuple[dict[str, Json], str]] = {
    "a max that is no multiple": (
        elastic(min=2, max=7, multipleOf=2),
        r"spec.roles.worker.*elastic: .*max 7 is not a multiple of 2; write 6 or 8",
    ),
    "a min that is less than one step": (
        elastic(min=1, max=8, multipleOf=4),
        r"min 1 is not a multiple of 4; write 4",
    ),
    "min above max": (elastic(min=6, max=4), r"min 6 is greater than max 4"),
    "too many replicas": (elastic(min=1, max=3), r"replicas 4 is greater than elastic.max 3"),
    "too few replicas": (elastic(min=6, max=8), r"replicas 4 is less than elastic.min 6"),
    "replicas between the steps": (
        elastic(min=3, max=9, multipleOf=3),
        r"replicas 4 is not a multiple of 3",
    ),
    "no roles": (run(roles={}), r"spec.roles: .*should have at least 1 propert"),
    "no framework": (without("spec.framework"), r"spec.framework: Required value"),
    "no template": (without("spec.roles.worker.template"), r"spec.roles.worker.template: Required value"),
    "no containers": (
        role_with(template={"spec": {}}),
        r"spec.roles.worker.template.spec.containers: Required value",
    ),
    "a bad role name": (
        run(roles={"psWorker": {"template": {"spec": {"containers": [{"name": "a"}]}}}}),
        r"names of roles have lower-case letters",
    ),
    "a policy for a role that is not there": (
        run(jobPolicy={"failed": [["worker"], ["chief"]]}),
        r"jobPolicy.failed names a role that does not exist",
    ),
    "a dependency on a role that is not there": (
        role_with(dependsOn=[{"role": "chief"}]),
        r"dependsOn names the role itself or one that does not exist",
    ),
    "a dependency on itself": (
        role_with(dependsOn=[{"role": "worker"}]),
        r"dependsOn names the role itself or one that does not exist",
    ),
    "an unknown restart policy": (role_with(restart="Sometimes"), r"Unsupported value: \"Sometimes\""),
    "no replicas": (role_with(replicas=0), r"should be greater than or equal to 1"),
    "a duration without a unit": (run(limits={"activeDeadline": "10"}), r"should match"),
    "a negative number of restarts": (run(limits={"restarts": -1}), r"greater than or equal to 0"),
    "an empty list in a policy": (run(jobPolicy={"succeeded": [[]]}), r"should have at least 1 items"),
}


@pytest.mark.parametrize(("body", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_refusals_say_what_to_write(caller: Caller, body: dict[str, Json], message: str) -> None:
    answer = caller.send(post(f"{RUNS}?dryRun=All", body))
    said = str(dig(answer.body, "message"))
    assert answer.code == 422, said
    assert re.search(message, said), said


def test_scale_acts_on_the_workers(caller: Caller) -> None:
    caller.send(post(RUNS, run("scaled")))
    caller.send(patch(f"{RUNS}/scaled/scale", {"spec": {"replicas": 2}}))
    stored = caller.send(get(f"{RUNS}/scaled")).body
    assert dig(stored, "spec.roles.worker.replicas") == 2


def test_a_started_run_keeps_its_framework_and_roles(caller: Caller) -> None:
    caller.send(post(RUNS, run("started")))
    change: Json = {"spec": {"framework": "custom"}}
    assert caller.send(patch(f"{RUNS}/started?dryRun=All", change)).code == 200
    caller.send(patch(f"{RUNS}/started/status", {"status": {"startTime": "2030-01-01T00:00:00Z"}}))
    answer = caller.send(patch(f"{RUNS}/started", change))
    assert answer.code == 422
    assert "cannot be changed; make a new run" in str(answer.body)


def test_the_table_shows_what_people_want(caller: Caller) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    columns = dig(caller.send(get(RUNS, accept=accept)).body, "columnDefinitions")
    assert isinstance(columns, list)
    names = [str(dig(one, "name")) for one in columns if dig(one, "priority") == 0]
    assert names == ["Name", "Framework", "Phase", "Workers", "Attempt", "Reason", "Age"]
