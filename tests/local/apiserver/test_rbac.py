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
    attributes: Attributes
    allowed: bool


def pods(user: User, verb: str, namespace: str = "a", name: str = "", subresource: str = "") -> Attributes:
    return Attributes(user, verb, "", "pods", subresource, name, namespace)


CASES = {
    "role binding, same namespace: allowed": Case(pods(ALICE, "get"), True),
    "role binding, other namespace: denied": Case(pods(ALICE, "get", "b"), False),
    "verb that is not in the rule: denied": Case(pods(ALICE, "delete"), False),
    "subresource that is not in the rule: denied": Case(pods(ALICE, "get", subresource="log"), False),
    "rule with resourceNames, object in them: allowed": Case(
        Attributes(ALICE, "get", "", "configmaps", name="settings", namespace="a"), True
    ),
    "rule with resourceNames, other object: denied": Case(
        Attributes(ALICE, "get", "", "configmaps", name="other", namespace="a"), False
    ),
    "binding of a service account: allowed": Case(pods(ROBOT, "list"), True),
    "cluster role binding, any namespace: allowed": Case(
        Attributes(ALICE, "watch", "example.com", "widgets"), True
    ),
    "rule for */status, status of a pod: allowed": Case(pods(ALICE, "patch", subresource="status"), True),
    "rule for */status, the pod itself: denied": Case(pods(ALICE, "patch"), False),
    "group system:masters: allowed": Case(pods(User("x", "", ("system:masters",)), "delete", "b"), True),
    "path with an allowed prefix: allowed": Case(Attributes(ALICE, "get", path="/metrics/x"), True),
    "other path: denied": Case(Attributes(ALICE, "get", path="/secret"), False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_requests_are_authorized_by_rules(tmp_path: Path, case: Case) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    for collection, obj in OBJECTS:
        await store.put(f"{collection}.{GROUP}", obj, {}, ())
    assert Authorizer(store).allowed(case.attributes)[0] is case.allowed
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


async def test_changes_of_bindings_have_an_effect_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "store.db")
    store.start()
    authorizer = Authorizer(store)
    for collection, obj in OBJECTS:
        await store.put(f"{collection}.{GROUP}", obj, {}, ())
    attributes = pods(ALICE, "get")
    assert authorizer.allowed(attributes)[1] == (
        'RBAC: allowed by RoleBinding "reader/a" of Role "reader" to Group "devs"'
    )
    role: dict[str, object] = {"metadata": {"name": "reader", "namespace": "a"}, "rules": []}
    await store.put(f"roles.{GROUP}", role, {}, ())
    assert authorizer.allowed(attributes) == (False, "")
    await store.put(f"roles.{GROUP}", role, {}, (), delete=True)
    assert authorizer.allowed(attributes) == (False, f'RBAC: role.{GROUP} "reader" not found')
    gone = binding("reader", "Role", "a", {"kind": "Group", "name": "devs"})
    await store.put(f"rolebindings.{GROUP}", gone, {}, (), delete=True)
    assert authorizer.allowed(attributes) == (False, "")
    store.stop()


READ_PODS = Rule(("get", "list"), ("",), ("pods",))
COVERED: dict[str, tuple[list[Rule], Rule, list[str]]] = {
    "same rule: covered": ([READ_PODS], READ_PODS, []),
    "two rules that cover a third together: covered": (
        [Rule(("get",), ("",), ("pods",)), Rule(("list",), ("",), ("pods",))],
        READ_PODS,
        [],
    ),
    "missing verbs of a resource: one rule with all of them": (
        [Rule(("get",), ("",), ("pods",))],
        Rule(("get", "list", "watch"), ("",), ("pods",)),
        ['{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}'],
    ),
    "rule for some objects, all wanted: missing": (
        [Rule(("get", "list"), ("",), ("pods",), ("a",))],
        READ_PODS,
        ['{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}'],
    ),
    "rule for all objects, some wanted: covered": (
        [READ_PODS],
        Rule(("get",), ("",), ("pods",), ("a", "b")),
        [],
    ),
    "star wanted, no star held: missing": (
        [READ_PODS],
        Rule(("*",), ("",), ("pods",)),
        ['{APIGroups:[""], Resources:["pods"], Verbs:["*"]}'],
    ),
    "missing paths: a rule for each": (
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
def test_missing_rules_are_found(held: list[Rule], wanted: Rule, lacking: list[str]) -> None:
    assert [rule.format() for rule in missing(held, [wanted])] == lacking
