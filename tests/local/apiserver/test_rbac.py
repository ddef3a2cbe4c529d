from pathlib import Path
from typing import NamedTuple

import pytest

from argosy.local.apiserver.http import User
from argosy.local.apiserver.rbac import Attributes, Authorizer
from argosy.local.apiserver.store import Store

GROUP = "rbac.authorization.k8s.io"
ALICE = User("alice", "", ("devs", "system:authenticated"))
ROBOT = User("system:serviceaccount:a:robot", "", ("system:serviceaccounts",))


class Case(NamedTuple):
    asked: Attributes
    allowed: bool


def pods(user: User, verb: str, namespace: str = "a", name: str = "", subresource: str = "") -> Attributes:
    return Attributes(user, verb, "", "pods", subresource, name, namespace)


CASES = {
    "a role binding counts in its namespace": Case(pods(ALICE, "get"), True),
    "and in no other": Case(pods(ALICE, "get", "b"), False),
    "a verb that is not there is not allowed": Case(pods(ALICE, "delete"), False),
    "a subresource is a right of its own": Case(pods(ALICE, "get", subresource="log"), False),
    "a rule may name objects": Case(
        Attributes(ALICE, "get", "", "configmaps", name="settings", namespace="a"), True
    ),
    "and then allows no others": Case(
        Attributes(ALICE, "get", "", "configmaps", name="other", namespace="a"), False
    ),
    "a service account is bound by its name": Case(pods(ROBOT, "list"), True),
    "an aggregated role has the rules that it selects": Case(
        Attributes(ALICE, "watch", "example.com", "widgets"), True
    ),
    "system:masters may do anything": Case(pods(User("x", "", ("system:masters",)), "delete", "b"), True),
    "a path is allowed by its prefix": Case(Attributes(ALICE, "get", path="/metrics/x"), True),
    "a path that is not named is not": Case(Attributes(ALICE, "get", path="/secret"), False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_rbac(tmp_path: Path, case: Case) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    for collection, obj in OBJECTS:
        await store.put(f"{collection}.{GROUP}", obj, {}, ())
    assert Authorizer(store).allowed(case.asked)[0] is case.allowed
    store.stop()


def binding(
    name: str, kind: str, namespace: str, subject: dict[str, str], role: str = ""
) -> dict[str, object]:
    metadata = {"name": name, "namespace": namespace} if namespace else {"name": name}
    return {"metadata": metadata, "roleRef": {"kind": kind, "name": role or name}, "subjects": [subject]}


OBJECTS: list[tuple[str, dict[str, object]]] = [
    (
        "roles",
        {
            "metadata": {"name": "reader", "namespace": "a"},
            "rules": [
                {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]},
                {
                    "verbs": ["get"],
                    "apiGroups": [""],
                    "resources": ["configmaps"],
                    "resourceNames": ["settings"],
                },
            ],
        },
    ),
    ("rolebindings", binding("reader", "Role", "a", {"kind": "Group", "name": "devs"})),
    (
        "rolebindings",
        binding("robots", "Role", "a", {"kind": "ServiceAccount", "name": "robot"}, "reader"),
    ),
    (
        "clusterroles",
        {
            "metadata": {"name": "sum"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]},
            "rules": [],
        },
    ),
    (
        "clusterroles",
        {
            "metadata": {"name": "part", "labels": {"part": "yes"}},
            "rules": [
                {"verbs": ["watch"], "apiGroups": ["example.com"], "resources": ["*"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]},
            ],
        },
    ),
    ("clusterrolebindings", binding("sum", "ClusterRole", "", {"kind": "User", "name": "alice"})),
]
