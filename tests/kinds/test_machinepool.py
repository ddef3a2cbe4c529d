"""The CRD of MachinePool on a real API server and on the local one: defaults, validation, scale, columns."""

from collections.abc import Iterator

import pytest

from argosy.kinds.machinepool import MachinePool
from tests.support.custom_resources import define
from tests.support.differential import Caller, get, patch, post
from tests.support.field_paths import dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server
from tests.support.trainingjobs import REMOVED, Json, set_path

POOLS = "/apis/argosy.dev/v1alpha1/namespaces/default/machinepools"


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        define(caller, (MachinePool,))
        yield caller


def pool(name: str = "gpus", changes: Json | None = None) -> Json:
    manifest: Json = {
        "apiVersion": MachinePool.resource.api_version,
        "kind": "MachinePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"kind": "SpotInstanceVM", "name": "t4"},
            "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
        },
    }
    for path, value in (changes or {}).items():
        set_path(manifest, f"spec.{path}".split("."), value)
    return manifest


def test_defaults(caller: Caller) -> None:
    answer = caller.send(post(f"{POOLS}?dryRun=All&fieldValidation=Strict", pool()))
    assert answer.code == 201, answer.body
    defaults = {"replicas": 1, "strategy": "FAILOVER", "onDemandFallbackAfter": 0, "drainGrace": "2m"}
    assert {name: dig(answer.body, f"spec.{name}") for name in defaults} == defaults


INVALID: dict[str, tuple[Json, str]] = {
    "fewer machines than none: rejected": ({"replicas": -1}, "spec.replicas"),
    "more than 1000 machines: rejected": ({"replicas": 1001}, "spec.replicas"),
    "no template: rejected": ({"template": REMOVED}, "spec.template: Required value"),
    "a template without a name: rejected": ({"template.name": ""}, "spec.template.name"),
    "a template of another kind: rejected": ({"template.kind": "Node"}, "spec.template.kind"),
    "no Secret: rejected": ({"gcpCredentialsSecretRef": REMOVED}, "gcpCredentialsSecretRef: Required value"),
    "a Secret without a name: rejected": (
        {"gcpCredentialsSecretRef.name": ""},
        "gcpCredentialsSecretRef.name",
    ),
    "an unknown strategy: rejected": ({"strategy": "BEST"}, "spec.strategy: Unsupported value"),
    "a negative fallback: rejected": ({"onDemandFallbackAfter": -1}, "spec.onDemandFallbackAfter"),
    "a drain grace without a unit: rejected": ({"drainGrace": "30"}, "spec.drainGrace"),
}


@pytest.mark.parametrize(("changes", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_pools(caller: Caller, changes: Json, message: str) -> None:
    answer = caller.send(post(f"{POOLS}?dryRun=All", pool(changes=changes)))
    assert answer.code == 422, answer.body
    assert message in str(dig(answer.body, "message"))


def test_scale_changes_the_number_of_machines(caller: Caller) -> None:
    caller.send(post(POOLS, pool("scaled")))
    status = {"replicas": 1, "selector": "argosy.dev/machine-pool=scaled"}
    caller.send(patch(f"{POOLS}/scaled/status", {"status": status}))
    caller.send(patch(f"{POOLS}/scaled/scale", {"spec": {"replicas": 3}}))
    assert dig(caller.send(get(f"{POOLS}/scaled")).body, "spec.replicas") == 3
    scale = caller.send(get(f"{POOLS}/scaled/scale")).body
    assert (dig(scale, "status.replicas"), dig(scale, "status.selector")) == (1, status["selector"])
