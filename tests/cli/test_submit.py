"""`argosy run FILE` rejects invalid documents before a run exists, on a real API server and on ours."""

import copy
from collections.abc import AsyncIterator

import click
import pytest

from argosy.cli.cluster_access import connect
from argosy.cli.local_mounts import Manifest
from argosy.cli.submit import submit
from argosy.engine.client import Client
from argosy.engine.errors import Invalid, NotFound
from argosy.kinds.crd import crd_for
from argosy.kinds.trainingrun import TrainingRun
from tests.support.differential import Caller, get, post
from tests.support.field_paths import Json
from tests.support.servers import Server

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def run_with(role: Manifest | None = None, **spec: object) -> Manifest:
    worker = {"template": {"spec": {"containers": [{"name": "main", "image": "local"}]}}, **(role or {})}
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": "a"},
        "spec": {"framework": "custom", "roles": {"worker": worker}, **spec},
    }


def object_of(api_version: str, kind: str, **fields: object) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, **fields}


UNKNOWN_FIELDS: dict[str, tuple[list[Manifest], str]] = {
    "unknown field of a run": (
        [run_with(limit={"restarts": 1})],
        'TrainingRun a: spec.limit: unknown field; did you mean "limits"?',
    ),
    "unknown field inside a map of a run": (
        [run_with({"replica": 2})],
        'TrainingRun a: spec.roles.worker.replica: unknown field; did you mean "replicas"?',
    ),
    "unknown field that is similar to no known one: no suggestion": (
        [run_with(zzz=1)],
        "TrainingRun a: spec.zzz: unknown field",
    ),
    "two unknown fields: one line each": (
        [run_with({"replica": 2}, limit={})],
        'TrainingRun a: spec.limit: unknown field; did you mean "limits"?\n'
        'TrainingRun a: spec.roles.worker.replica: unknown field; did you mean "replicas"?',
    ),
    "unknown field of another object, after the run": (
        [run_with(), object_of("v1", "ConfigMap", dta={"a": "b"})],
        'ConfigMap a: dta: unknown field; did you mean "data"?',
    ),
    "unknown field in a list of another object": (
        [
            object_of("v1", "Service", spec={"ports": [{"port": 80, "targetport": 80}]}),
            run_with(),
        ],
        'unknown field; did you mean "targetPort"?',
    ),
}


@pytest.mark.parametrize(("documents", "want"), UNKNOWN_FIELDS.values(), ids=UNKNOWN_FIELDS.keys())
async def test_unknown_fields_are_rejected_and_no_run_is_created(
    documents: list[Manifest], want: str, client: Client, namespace: str
) -> None:
    with pytest.raises(click.ClickException) as rejected:
        await submit(client, documents, namespace)
    lines = sorted(rejected.value.message.splitlines())
    assert "\n".join(lines).endswith(want)
    with pytest.raises(NotFound):
        await client.get(TrainingRun, "a", namespace)


async def test_a_valid_run_is_created_after_the_other_objects(client: Client, namespace: str) -> None:
    documents = [run_with(), object_of("v1", "ConfigMap", data={"a": "b"})]
    assert await submit(client, documents, namespace) == (namespace, "a", TrainingRun)
    assert (await client.get(TrainingRun, "a", namespace)).spec.framework == "custom"


async def test_patches_of_commands_use_strict_validation(client: Client, namespace: str) -> None:
    await submit(client, [run_with()], namespace)
    with pytest.raises(Invalid, match=r'unknown field "spec\.suspended"'):
        await client.patch(TrainingRun, "a", {"spec": {"suspended": True}}, namespace)


@pytest.fixture
async def client(api: Server) -> AsyncIterator[Client]:
    """Return the client of the commands, for a server with the TrainingRun CRD."""
    body: Json = copy.deepcopy(crd_for(TrainingRun))
    with Caller(api) as caller:
        assert caller.send(post(CRDS, body)).code in (201, 409)
        caller.send(get("/apis/argosy.dev/v1alpha1/trainingruns", until_code=200))
    async with connect(str(api.kubeconfig), None) as connected:
        yield connected
