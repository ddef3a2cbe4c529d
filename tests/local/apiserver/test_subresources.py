"""A subresource changes only its part of an object; errors of unsupported ones contain an alternative."""

import secrets
from typing import NamedTuple

import pytest

from tests.support.differential import STRATEGIC, Caller, get, patch, post, preparation
from tests.support.field_paths import dig
from tests.support.manifests import pod
from tests.support.servers import Server

REWRITTEN = {
    "spec": {
        "hostNetwork": True,
        "activeDeadlineSeconds": -1,
        "containers": [{"name": "main", "command": ["rewritten"], "resources": {"limits": {"cpu": "1"}}}],
        "ephemeralContainers": [{"name": "debug", "image": "x"}],
    }
}


class Case(NamedTuple):
    subresource: str
    want_code: int
    want_message: str = ""


CASES = {
    "status: spec is not changed": Case("status", 200),
    "resize: 501 with an alternative": Case("resize", 501, "create the pod again"),
    "ephemeralcontainers: 501 with an alternative": Case("ephemeralcontainers", 501, "kubectl exec"),
    "approval: 404": Case("approval", 404),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_write_to_a_subresource_does_not_change_the_spec_of_a_pod(
    local_apiserver: Server, case: Case
) -> None:
    namespace = f"t{secrets.token_hex(4)}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    with Caller(local_apiserver) as caller:
        for step in preparation(namespace):
            caller.send(step)
        before = caller.send(post(path, pod())).body
        answer = caller.send(patch(f"{path}/a/{case.subresource}", REWRITTEN, STRATEGIC))
        after = caller.send(get(f"{path}/a")).body
    assert answer.code == case.want_code
    assert case.want_message in str(dig(answer.body, "message"))
    assert dig(after, "spec") == dig(before, "spec")


BINDINGS = {
    "binding to another kind than Node: refused": ({"kind": "Pod", "name": "n1"}, "target.kind"),
    "binding without a name: refused": ({"kind": "Node"}, "target.name"),
}


@pytest.mark.parametrize("case", BINDINGS.values(), ids=BINDINGS)
def test_pod_can_only_be_bound_to_a_node(local_apiserver: Server, case: tuple[dict[str, str], str]) -> None:
    target, want_field = case
    namespace = f"t{secrets.token_hex(4)}"
    path = f"/api/v1/namespaces/{namespace}/pods"
    with Caller(local_apiserver) as caller:
        for step in preparation(namespace):
            caller.send(step)
        caller.send(post(path, pod()))
        answer = caller.send(post(f"{path}/a/binding", {"metadata": {"name": "a"}, "target": target}))
    assert (answer.code, dig(answer.body, "details.causes.0.field")) == (422, want_field)
