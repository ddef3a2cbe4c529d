"""The CRDs of ScaleIn and ScaleOut on a real API server and on the local one."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from argosy.kinds.scalers import ScaleInCrd, ScaleInStatus, ScaleOutCrd, ScaleOutStatus
from argosy.kinds.trainingjob import JobCondition, ReplicaStatus
from tests.support.commands import KUBECTL, environment, run
from tests.support.custom_resources import CRDS, define
from tests.support.differential import Caller, get, patch, post
from tests.support.field_paths import dig
from tests.support.parameters import API_SERVERS
from tests.support.servers import Server
from tests.support.trainingjobs import API, SCALE_INS, SCALE_OUTS, Json, example, scale_in, scale_out

STATUSES: dict[str, ScaleInStatus | ScaleOutStatus] = {
    "scaleins": ScaleInStatus(
        phase="Scaling",
        conditions=[JobCondition("Created", "True"), JobCondition("Scaling", "True", "ScalingStart")],
        replica_statuses={"Worker": ReplicaStatus(active=1)},
        to_delete_pods=["j-worker-2"],
        argosy={"any": {"depth": [1]}},
    ),
    "scaleouts": ScaleOutStatus(
        phase="Scaling",
        conditions=[JobCondition("Created", "True"), JobCondition("Scaling", "True", "ScalingStart")],
        replica_statuses={"Worker": ReplicaStatus(active=1)},
        add_pods=["j-worker-2"],
        argosy={"any": {"depth": [1]}},
    ),
}


@pytest.fixture(scope="module", params=API_SERVERS)
def caller(request: pytest.FixtureRequest) -> Iterator[Caller]:
    name = "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    server: Server = request.getfixturevalue(name)
    with Caller(server) as caller:
        define(caller, [ScaleInCrd, ScaleOutCrd])
        yield caller


def strict_dry_run(body: Json) -> str:
    path = SCALE_INS if body["kind"] == "ScaleIn" else SCALE_OUTS
    return f"{path}?fieldValidation=Strict&dryRun=All"


EXAMPLES = {
    "scale_in_count.yaml": "scalein-sample-",
    "scale_in_pod.yaml": "scalein-sample-",
    "scale_out.yaml": "elastic-training-scaleout-",
}


@pytest.mark.parametrize(("file", "prefix"), EXAMPLES.items())
def test_example_is_accepted_unchanged(caller: Caller, file: str, prefix: str) -> None:
    body = example(file)
    answer = caller.send(post(strict_dry_run(body), body))
    assert answer.code == 201, answer.body
    assert str(dig(answer.body, "metadata.name")).startswith(prefix)


def test_the_timeout_has_no_default_in_the_crd(caller: Caller) -> None:
    """Its default depends on what waits: 60 s for pods and scripts, 600 s for processes to end."""
    for body in (scale_in(toDelete={"count": 1}), scale_out(toAdd={"count": 1})):
        stored = caller.send(post(strict_dry_run(body), body)).body
        assert dig(stored, "spec.backoffLimit") == 0
        assert dig(stored, "spec.timeout") is None
        assert dig(stored, "status") is None


VALID = {
    "34. toDelete absent: stored, to be reported as ScaleFailed": scale_in(),
    "34. toDelete empty: stored, to be reported as ScaleFailed": scale_in(toDelete={}),
    "34. count and names: stored, to be reported as ScaleFailed": scale_in(
        toDelete={"count": 1, "podNames": ["j-worker-1"]}
    ),
    "ScaleIn with a negative count: stored, to be reported as ScaleFailed": scale_in(toDelete={"count": -1}),
    "ScaleIn with all fields: stored": scale_in(
        toDelete={"podNames": ["a", "a"]},
        script="/opt/scale-in.sh",
        timeout=10,
        backoffLimit=2,
        env=[{"name": "A", "value": "$1 'b' \"c\"\n"}, {"name": "not a name"}],
    ),
    "ScaleOut without toAdd: stored, to be reported as ScaleFailed": scale_out(),
    "ScaleOut with count 0: stored, to be reported as ScaleFailed": scale_out(toAdd={"count": 0}),
    "ScaleOut with a negative count: stored, to be reported as ScaleFailed": scale_out(toAdd={"count": -1}),
    "ScaleOut without a selector: stored, to be reported as ScaleFailed": scale_out(selector={}),
    "ScaleOut with all fields: stored": scale_out(
        toAdd={"count": 2}, script="/a.sh", timeout=300, backoffLimit=0, env=[{"name": "A", "value": "1"}]
    ),
}


@pytest.mark.parametrize("body", VALID.values(), ids=VALID.keys())
def test_scaler_is_stored(caller: Caller, body: Json) -> None:
    answer = caller.send(post(strict_dry_run(body), body))
    assert answer.code == 201, answer.body


INVALID: dict[str, tuple[Json, str]] = {
    "ScaleIn with timeout 0: rejected": (scale_in(timeout=0), "spec.timeout: .*greater than or equal to 1"),
    "ScaleOut with timeout 0: rejected": (scale_out(timeout=0), "spec.timeout: .*greater than or equal to 1"),
    "ScaleIn with backoffLimit -1: rejected": (
        scale_in(backoffLimit=-1),
        "spec.backoffLimit: .*greater than or equal to 0",
    ),
    "ScaleOut with a text as count: rejected": (
        scale_out(toAdd={"count": "two"}),
        "spec.toAdd.count: .*must be of type integer",
    ),
    "ScaleOut with a count of more than 32 bits: rejected": (scale_out(toAdd={"count": 2**31}), "count"),
}


@pytest.mark.parametrize(("body", "message"), INVALID.values(), ids=INVALID.keys())
def test_invalid_scaler_is_rejected_with_422_and_a_message(caller: Caller, body: Json, message: str) -> None:
    answer = caller.send(post(strict_dry_run(body), body))
    error = str(dig(answer.body, "message"))
    assert answer.code == 422, error
    assert re.search(message, error), error


@pytest.mark.parametrize("plural", STATUSES)
def test_status_is_stored_as_written_and_has_the_required_fields(caller: Caller, plural: str) -> None:
    path, full = f"{API}/{plural}", STATUSES[plural]
    body = scale_in("stated") if plural == "scaleins" else scale_out("stated")
    assert caller.send(post(path, body)).code == 201
    answer = caller.send(patch(f"{path}/stated/status", {"status": {"phase": "Scaling"}}))
    for name in ("conditions", "replicaStatuses", "restartCount"):
        assert f"status.{name}: Required value" in str(answer.body)
    answer = caller.send(patch(f"{path}/stated/status", {"status": msgspec.to_builtins(full)}))
    assert answer.code == 200, answer.body
    assert msgspec.convert(dig(answer.body, "status"), type(full)) == full


@pytest.mark.parametrize("plural", STATUSES)
def test_kubectl_get_shows_the_last_condition_as_phase(caller: Caller, plural: str, tmp_path: Path) -> None:
    path, singular = f"{API}/{plural}", plural.removesuffix("s")
    body = scale_in("shown") if plural == "scaleins" else scale_out("shown")
    assert caller.send(post(path, body)).code == 201
    variables = environment(KUBECONFIG=str(caller.server.kubeconfig), HOME=str(tmp_path))

    def rows(*options: str) -> list[list[str]]:
        done = run([str(KUBECTL), "-n", "default", "get", singular, "shown", *options], variables)
        return [line.split() for line in done.stdout.splitlines()]

    header, row = rows()
    assert header == ["NAME", "PHASE", "AGE"]
    assert len(row) == 2, "the phase is blank before there is a condition"
    status = STATUSES[plural]
    caller.send(patch(f"{path}/shown/status", {"status": msgspec.to_builtins(status)}))
    assert rows()[1][:2] == ["shown", "Scaling"]
    ended = msgspec.structs.replace(
        status, conditions=[*status.conditions, JobCondition("ScaleSucceeded", "True")]
    )
    caller.send(patch(f"{path}/shown/status", {"status": msgspec.to_builtins(ended)}))
    assert rows()[1][:2] == ["shown", "ScaleSucceeded"]
    assert rows("-o", "wide")[0] == ["NAME", "PHASE", "AGE"]


def test_names_of_the_kinds(caller: Caller) -> None:
    for kind in ("ScaleIn", "ScaleOut"):
        plural = f"{kind.lower()}s"
        spec = dig(caller.send(get(f"{CRDS}/{plural}.kai.alibabacloud.com")).body, "spec")
        names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
        assert dig(spec, "names") == names
        assert dig(spec, "versions.0.subresources") == {"status": {}}
