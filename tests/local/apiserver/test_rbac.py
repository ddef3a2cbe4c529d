from pathlib import Path
from typing import NamedTuple

import pytest

from argosy.local.apiserver.http import User
from argosy.local.apiserver.policy_rules import Attributes, Rule, missing
from argosy.local.apiserver.rbac import Authorizer
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
    "a cluster role is bound everywhere": Case(Attributes(ALICE, "watch", "example.com", "widgets"), True),
    "a star stands for the subresources of all": Case(pods(ALICE, "patch", subresource="status"), True),
    "and not for the resources themselves": Case(pods(ALICE, "patch"), False),
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
            "rules": [
                {"verbs": ["watch"], "apiGroups": ["example.com"], "resources": ["*"]},
                {"verbs": ["patch"], "apiGroups": ["*"], "resources": ["*/status"]},
                {"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]},
            ],
        },
    ),
    ("clusterrolebindings", binding("sum", "ClusterRole", "", {"kind": "User", "name": "alice"})),
]


async def test_rights_follow_the_bindings(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    authorizer = Authorizer(store)
    for collection, obj in OBJECTS:
        await store.put(f"{collection}.{GROUP}", obj, {}, ())
    asked = pods(ALICE, "get")
    assert authorizer.allowed(asked)[1] == (
        'RBAC: allowed by RoleBinding "reader/a" of Role "reader" to Group "devs"'
    )
    role: dict[str, object] = {"metadata": {"name": "reader", "namespace": "a"}, "rules": []}
    await store.put(f"roles.{GROUP}", role, {}, ())
    assert authorizer.allowed(asked) == (False, "")
    await store.put(f"roles.{GROUP}", role, {}, (), delete=True)
    assert authorizer.allowed(asked) == (False, f'RBAC: role.{GROUP} "reader" not found')
    gone = binding("reader", "Role", "a", {"kind": "Group", "name": "devs"})
    await store.put(f"rolebindings.{GROUP}", gone, {}, (), delete=True)
    assert authorizer.allowed(asked) == (False, "")
    store.stop()


READ_PODS = Rule(("get", "list"), ("",), ("pods",))
COVERED: dict[str, tuple[list[Rule], Rule, list[str]]] = {
    "the same rule is held": ([READ_PODS], READ_PODS, []),
    "two rules together hold a third": (
        [Rule(("get",), ("",), ("pods",)), Rule(("list",), ("",), ("pods",))],
        READ_PODS,
        [],
    ),
    "what is missing is told with its verbs together": (
        [Rule(("get",), ("",), ("pods",))],
        Rule(("get", "list", "watch"), ("",), ("pods",)),
        ['{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}'],
    ),
    "a right to some objects is no right to all": (
        [Rule(("get", "list"), ("",), ("pods",), ("a",))],
        READ_PODS,
        ['{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'],
    ),
    "a right to all objects holds that to some": (
        [READ_PODS],
        Rule(("get",), ("",), ("pods",), ("a", "b")),
        [],
    ),
    "a star in what is wanted needs one in what is held": (
        [READ_PODS],
        Rule(("*",), ("",), ("pods",)),
        ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}'],
    ),
    "paths are told one by one": (
        [Rule(("get",), paths=("/metrics/*",))],
        Rule(("get", "post"), paths=("/metrics/x", "/logs")),
        [
            '{NonResourceURLs:["/metrics/x"], Verbs:["post"]}',
            '{NonResourceURLs:["/logs"], Verbs:["get"]}',
            '{NonResourceURLs:["/logs"], Verbs:["post"]}',
        ],
    ),
}


@pytest.mark.parametrize(("held", "wanted", "lacking"), COVERED.values(), ids=COVERED)
def test_nobody_has_more_than_their_rules(held: list[Rule], wanted: Rule, lacking: list[str]) -> None:
    assert [rule.shown() for rule in missing(held, [wanted])] == lacking
