"""The CRD of TrainingRun on a real API server and on the local one: defaults, validation, scale, columns."""

import re
import secrets
from collections.abc import Iterator

import pytest

from argosy.operator.apis.registry import CUSTOM_RESOURCES
from tests.support.custom_resources import define
from tests.support.differential import Caller, get, patch, post
from tests.support.field_paths import Json, dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server

RUNS = "/apis/argosy.dev/v1alpha1/namespaces/default/trainingruns"


IMAGES: dict[str, Json] = {"repository": "registry.example:5000/team/train"}


TEMPLATE: Json = {"spec": {"containers": [{"name": "main", "image": "pytorch", "odd": {"kept": True}}]}}


def run(name: str = "mnist", **spec: Json) -> dict[str, Json]:
    worker: dict[str, Json] = {
        "replicas": 4,
        "template": TEMPLATE,
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
        define(caller, CUSTOM_RESOURCES)
        yield caller


def test_defaults_are_set_and_unknown_fields_of_templates_are_preserved(caller: Caller) -> None:
    stored = caller.send(post(RUNS, run("defaults"))).body
    assert dig(stored, "spec.limits") == {"restarts": 3, "belowMinTimeout": "10m"}
    assert dig(stored, "spec.cleanup") == "Running"
    assert dig(stored, "spec.roles.worker.restart") == "OnFailure"
    assert dig(stored, "spec.roles.worker.template.spec.containers.0.odd") == {"kept": True}


def elastic(**bounds: int) -> dict[str, Json]:
    training_run = run()
    assert isinstance(training_run["spec"], dict)
    role = training_run["spec"]["roles"]
    assert isinstance(role, dict)
    assert isinstance(role["worker"], dict)
    role["worker"]["elastic"] = dict(bounds)
    return training_run


def without(path: str) -> dict[str, Json]:
    training_run = run()
    *parents, last = path.split(".")
    value: Json = training_run
    for name in parents:
        value = value[name] if isinstance(value, dict) else None
    assert isinstance(value, dict)
    del value[last]
    return training_run


def role_with(**more: Json) -> dict[str, Json]:
    training_run = run()
    assert isinstance(training_run["spec"], dict)
    roles = training_run["spec"]["roles"]
    assert isinstance(roles, dict)
    assert isinstance(roles["worker"], dict)
    roles["worker"].update(more)
    return training_run


INVALID: dict[str, tuple[dict[str, Json], str]] = {
    "max that is not a multiple: error names both neighbours": (
        elastic(min=2, max=7, multipleOf=2),
        r"spec.roles.worker.*elastic: .*max 7 is not a multiple of 2; write 6 or 8",
    ),
    "min below one step: error names the next multiple": (
        elastic(min=1, max=8, multipleOf=4),
        r"min 1 is not a multiple of 4; write 4",
    ),
    "min above max: rejected": (elastic(min=6, max=4), r"min 6 is greater than max 4"),
    "replicas above elastic.max: rejected": (
        elastic(min=1, max=3),
        r"replicas 4 is greater than elastic.max 3",
    ),
    "replicas below elastic.min: rejected": (elastic(min=6, max=8), r"replicas 4 is less than elastic.min 6"),
    "replicas that are not a multiple: rejected": (
        elastic(min=3, max=9, multipleOf=3),
        r"replicas 4 is not a multiple of 3",
    ),
    "no roles: rejected": (run(roles={}), r"spec.roles: .*should have at least 1 propert"),
    "no framework: rejected": (without("spec.framework"), r"spec.framework: Required value"),
    "role without template: rejected": (
        without("spec.roles.worker.template"),
        r"spec.roles.worker.template: Required value",
    ),
    "template without containers: rejected": (
        role_with(template={"spec": {}}),
        r"spec.roles.worker.template.spec.containers: Required value",
    ),
    "role name with a capital letter: rejected": (
        run(roles={"psWorker": {"template": {"spec": {"containers": [{"name": "a"}]}}}}),
        r"names of roles must have lower-case letters",
    ),
    "jobPolicy with an unknown role: rejected": (
        run(jobPolicy={"failed": [["worker"], ["chief"]]}),
        r"jobPolicy.failed: unknown role",
    ),
    "dependsOn with an unknown role: rejected": (
        role_with(dependsOn=[{"role": "chief"}]),
        r"dependsOn: unknown role, or the role itself",
    ),
    "dependsOn with the role itself: rejected": (
        role_with(dependsOn=[{"role": "worker"}]),
        r"dependsOn: unknown role, or the role itself",
    ),
    "unknown restart policy: rejected": (role_with(restart="Sometimes"), r"Unsupported value: \"Sometimes\""),
    "replicas 0: rejected": (role_with(replicas=0), r"should be greater than or equal to 1"),
    "duration without a unit: rejected": (run(limits={"activeDeadline": "10"}), r"should match"),
    "negative limits.restarts: rejected": (run(limits={"restarts": -1}), r"greater than or equal to 0"),
    "empty list in jobPolicy: rejected": (
        run(jobPolicy={"succeeded": [[]]}),
        r"should have at least 1 items",
    ),
    "checkpoint without a store: rejected": (
        run(checkpoint={}),
        r"spec.checkpoint.store: .*required with the levels App and auto",
    ),
    "level Process with a store: rejected": (
        run(checkpoint={"level": "Process", "store": "s3://a", "images": IMAGES}),
        r"spec.checkpoint.store: .*not supported with the level Process",
    ),
    "level Process without images: rejected": (
        run(checkpoint={"level": "Process"}),
        r"spec.checkpoint.images: .*required with the levels Process and auto",
    ),
    "level App with images: rejected": (
        run(checkpoint={"store": "s3://a", "images": IMAGES}),
        r"spec.checkpoint.images: .*not supported with App",
    ),
    "level Pod: rejected": (
        run(checkpoint={"level": "Pod", "images": IMAGES}),
        r"Unsupported value: \"Pod\": supported values: \"App\", \"Process\", \"auto\"",
    ),
    "signal that ends programs without a handler: rejected": (
        run(checkpoint={"store": "s3://a", "signal": "SIGUSR1"}),
        r"spec.checkpoint.signal: Unsupported value: \"SIGUSR1\": supported values: \"SIGTERM\"",
    ),
    "signal with an interval: rejected": (
        run(checkpoint={"store": "s3://a", "signal": "SIGTERM", "interval": "10m"}),
        r"spec.checkpoint.interval: .*not supported with signal, after which the pod ends",
    ),
    "signal with evictions held back: rejected": (
        run(checkpoint={"store": "s3://a", "signal": "SIGTERM", "onDrain": "Save"}),
        r"spec.checkpoint.onDrain: .*not supported with signal: an eviction sends SIGTERM itself",
    ),
    "signal with level Process: rejected": (
        run(checkpoint={"level": "Process", "images": IMAGES, "signal": "SIGTERM"}),
        r"spec.checkpoint.signal: .*not supported with the levels Process and auto",
    ),
    "store in a repository with a tag: rejected": (
        run(checkpoint={"store": "oci://registry.example/a:1"}),
        r"spec.checkpoint.store: .*should match",
    ),
    "store in a registry without a repository: rejected": (
        run(checkpoint={"store": "oci://registry.example"}),
        r"spec.checkpoint.store: .*should match",
    ),
    "bucket for elastic workers that restart in their pods: rejected": (
        run(
            roles={"worker": {"replicas": 4, "elastic": {"min": 2, "max": 8}, "template": TEMPLATE}},
            checkpoint={"store": "s3://a"},
        ),
        r"spec.checkpoint.store: .*must be pvc:// or file:// with elastic workers of pytorch and bagua",
    ),
    "images in a repository with a tag: rejected": (
        run(checkpoint={"level": "Process", "images": {"repository": "registry.example/a:1"}}),
        r"spec.checkpoint.images.repository: .*should match",
    ),
}

VALID_CHECKPOINTS: dict[str, dict[str, Json]] = {
    "level App by default": {"store": "s3://a"},
    "level App of a program that handles a signal": {"store": "pvc://a", "signal": "SIGTERM"},
    "store in a registry": {"store": "oci://registry.example:5000/team/runs", "credentials": "login"},
    "level Process": {"level": "Process", "images": IMAGES},
    "level auto": {"level": "auto", "store": "pvc://a", "images": {**IMAGES, "secret": "login"}},
}


@pytest.mark.parametrize("checkpoint", VALID_CHECKPOINTS.values(), ids=VALID_CHECKPOINTS.keys())
def test_checkpoints_of_each_level_are_accepted(caller: Caller, checkpoint: dict[str, Json]) -> None:
    answer = caller.send(post(RUNS, run(f"checkpoint-{secrets.token_hex(4)}", checkpoint=checkpoint)))
    assert answer.code == 201, answer.body


@pytest.mark.parametrize(("body", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_run_is_rejected_with_422_and_a_message(
    caller: Caller, body: dict[str, Json], message: str
) -> None:
    answer = caller.send(post(f"{RUNS}?dryRun=All", body))
    error = str(dig(answer.body, "message"))
    assert answer.code == 422, error
    assert re.search(message, error), error


def test_scale_changes_the_replicas_of_role_worker(caller: Caller) -> None:
    caller.send(post(RUNS, run("scaled")))
    caller.send(patch(f"{RUNS}/scaled/scale", {"spec": {"replicas": 2}}))
    stored = caller.send(get(f"{RUNS}/scaled")).body
    assert dig(stored, "spec.roles.worker.replicas") == 2


def test_framework_of_a_started_run_cannot_be_changed(caller: Caller) -> None:
    caller.send(post(RUNS, run("started")))
    change: Json = {"spec": {"framework": "custom"}}
    assert caller.send(patch(f"{RUNS}/started?dryRun=All", change)).code == 200
    caller.send(patch(f"{RUNS}/started/status", {"status": {"startTime": "2030-01-01T00:00:00Z"}}))
    answer = caller.send(patch(f"{RUNS}/started", change))
    assert answer.code == 422
    assert "cannot be changed after the run has started; create a new run" in str(answer.body)


def sized(framework: str, replicas: int, **spec: Json) -> dict[str, Json]:
    """A change of the framework and the size of a run."""
    worker: Json = {"replicas": replicas, **({"elastic": spec.pop("elastic")} if "elastic" in spec else {})}
    return {"spec": {"framework": framework, "roles": {"worker": worker}, **spec}}


BOUNDS: Json = {"min": 1, "max": 4}
RESIZES: dict[str, tuple[dict[str, Json], dict[str, Json], int]] = {
    "mpi that has started: rejected": (sized("mpi", 1), sized("mpi", 2), 422),
    "horovod that has started: rejected": (sized("horovod", 1), sized("horovod", 2), 422),
    "deepspeed that has started: rejected": (sized("deepspeed", 1), sized("deepspeed", 2), 422),
    "mpi with the same size: accepted": (sized("mpi", 2), sized("mpi", 2), 200),
    "mpi with elastic workers: accepted": (
        sized("mpi", 1, elastic=BOUNDS),
        sized("mpi", 2, elastic=BOUNDS),
        200,
    ),
    "mpi that becomes elastic: accepted": (sized("mpi", 1), sized("mpi", 2, elastic=BOUNDS), 200),
    "mpi that is suspended: accepted": (sized("mpi", 1, suspend=True), sized("mpi", 2), 200),
    "mpi that is suspended and resumed with it: accepted": (
        sized("mpi", 1, suspend=True),
        sized("mpi", 2, suspend=False),
        200,
    ),
    "pytorch that has started: accepted": (sized("pytorch", 1), sized("pytorch", 2), 200),
}


@pytest.mark.parametrize(("before", "change", "code"), RESIZES.values(), ids=RESIZES.keys())
def test_size_of_a_started_run_with_a_fixed_process_group(
    caller: Caller, before: dict[str, Json], change: dict[str, Json], code: int
) -> None:
    name = f"resized-{secrets.token_hex(4)}"
    caller.send(post(RUNS, run(name)))
    assert caller.send(patch(f"{RUNS}/{name}", before)).code == 200
    caller.send(patch(f"{RUNS}/{name}/status", {"status": {"startTime": "2030-01-01T00:00:00Z"}}))
    answer = caller.send(patch(f"{RUNS}/{name}", change))
    assert answer.code == code, answer.body
    if code == 422:
        assert "set elastic to restart the run with the new number, or suspend it first" in str(answer.body)


def test_columns_of_kubectl_get(caller: Caller) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    columns = dig(caller.send(get(RUNS, accept=accept)).body, "columnDefinitions")
    assert isinstance(columns, list)
    names = [str(dig(column, "name")) for column in columns if dig(column, "priority") == 0]
    assert names == ["Name", "Framework", "Phase", "Workers", "Attempt", "Reason", "Age"]
