"""The fields of our own in the CRD of AresJob, on a real API server and on the local one."""

import re
from collections.abc import Iterator

import pytest

from argosy.kinds.aresjob import AresJobCrd
from tests.support.custom_resources import define
from tests.support.differential import Caller, get, patch, post
from tests.support.field_paths import Json, dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server

JOBS = "/apis/ares.io/v1/namespaces/default/aresjobs"
STRICT = f"{JOBS}?dryRun=All&fieldValidation=Strict"
BOUNDS: dict[str, Json] = {"min": 2, "max": 8, "multipleOf": 2}


def job(name: str = "job", /, *, worker: dict[str, Json] | None = None, **spec: Json) -> dict[str, Json]:
    template: Json = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    roles: dict[str, Json] = {"worker": {"template": template, **(worker or {})}}
    return {
        "apiVersion": "ares.io/v1",
        "kind": "AresJob",
        "metadata": {"name": name},
        "spec": {"frameworkType": "custom", "roleSpecs": roles, **spec},
    }


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        define(caller, [AresJobCrd])
        yield caller


def test_defaults_are_set_below_fields_that_are_written_only(caller: Caller) -> None:
    plain = caller.send(post(STRICT, job())).body
    assert "checkpoint" not in str(plain) and "elastic" not in str(plain)
    body = job(worker={"replicas": 4, "elastic": {"min": 2, "max": 8}}, checkpoint={"store": "s3://a"})
    whole = caller.send(post(STRICT, body)).body
    elastic = dig(whole, "spec.roleSpecs.worker.elastic")
    assert elastic == {"min": 2, "max": 8, "multipleOf": 1, "stabilizationWindow": "30s"}
    assert dig(whole, "spec.checkpoint.level") == "App"


INVALID: dict[str, tuple[dict[str, Json], str]] = {
    "replicas above max: rejected": (
        job(worker={"replicas": 10, "elastic": BOUNDS}),
        r"spec.roleSpecs.worker.*: .*replicas 10 is greater than elastic.max 8",
    ),
    "replicas that are not written count as one: rejected": (
        job(worker={"elastic": BOUNDS}),
        r"replicas 1 is less than elastic.min 2",
    ),
    "replicas that are not a multiple: rejected": (
        job(worker={"replicas": 5, "elastic": BOUNDS}),
        r"replicas 5 is not a multiple of 2",
    ),
    "max that is not a multiple: rejected": (
        job(worker={"replicas": 4, "elastic": {**BOUNDS, "max": 7}}),
        r"elastic: .*max 7 is not a multiple of 2; write 6 or 8",
    ),
    "unknown field in elastic: rejected": (
        job(worker={"replicas": 4, "elastic": {**BOUNDS, "minReplicas": 2}}),
        r'unknown field "spec.roleSpecs.worker.elastic.minReplicas"',
    ),
    "checkpoint without a store: rejected": (
        job(checkpoint={"interval": "5m"}),
        r"spec.checkpoint.store: .*required with the levels App and auto",
    ),
    "bucket for elastic workers that restart in their pods: rejected": (
        job(
            frameworkType="pytorch", worker={"replicas": 4, "elastic": BOUNDS}, checkpoint={"store": "s3://a"}
        ),
        r"spec.checkpoint.store: .*must be pvc:// or file:// with elastic workers of pytorch and bagua",
    ),
    "timeout that is no duration: rejected": (
        job(runPolicy={"belowMinTimeout": "soon"}),
        r"spec.runPolicy.belowMinTimeout: .*should match",
    ),
}


@pytest.mark.parametrize(("body", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_value_of_a_field_of_our_own_is_rejected(
    caller: Caller, body: dict[str, Json], message: str
) -> None:
    answer = caller.send(post(STRICT, body))
    assert answer.code in (400, 422), answer.body
    assert re.search(message, str(dig(answer.body, "message"))), answer.body


def test_null_role_with_rules_reaches_the_operator(caller: Caller) -> None:
    body = job()
    checkpoint: Json = {"store": "s3://a"}
    body["spec"] = {"frameworkType": "pytorch", "roleSpecs": {"worker": None}, "checkpoint": checkpoint}
    answer = caller.send(post(STRICT, body))
    assert (answer.code, dig(answer.body, "spec.roleSpecs")) == (201, {"worker": None})


def test_scale_changes_the_replicas_of_role_worker_within_its_bounds(caller: Caller) -> None:
    caller.send(post(JOBS, job("scaled", worker={"replicas": 4, "elastic": BOUNDS})))
    status: Json = {"replicas": 3, "selector": "ares.io/job-name=scaled"}
    caller.send(patch(f"{JOBS}/scaled/status", {"status": status}))
    scale = caller.send(get(f"{JOBS}/scaled/scale")).body
    assert (dig(scale, "spec.replicas"), dig(scale, "status")) == (4, status)
    caller.send(patch(f"{JOBS}/scaled/scale", {"spec": {"replicas": 6}}))
    refused = caller.send(patch(f"{JOBS}/scaled/scale", {"spec": {"replicas": 7}}))
    assert refused.code == 422
    stored = caller.send(get(f"{JOBS}/scaled")).body
    assert dig(stored, "spec.roleSpecs.worker.replicas") == 6


def test_job_without_role_worker_cannot_be_scaled(caller: Caller) -> None:
    body = job("unscaled")
    template: Json = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
    body["spec"] = {"frameworkType": "custom", "roleSpecs": {"server": {"template": template}}}
    caller.send(post(JOBS, body))
    assert caller.send(get(f"{JOBS}/unscaled/scale")).code >= 400
