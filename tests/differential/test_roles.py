"""Granting and reviewing rights: the escalation check, `escalate` and `bind`, and access reviews."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, apply, delete, get, patch, post, put
from tests.support.manifests import CONFIG_MAPS, PODS, config_map
from tests.support.servers import READER, STRANGER

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
ROLES, BINDINGS = f"{RBAC}/namespaces/$ns/roles", f"{RBAC}/namespaces/$ns/rolebindings"
CLUSTER_ROLES, CLUSTER_BINDINGS = f"{RBAC}/clusterroles", f"{RBAC}/clusterrolebindings"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
UNKEPT = ("metadata",)
Rule = dict[str, list[str]]


def rule(verbs: str, resources: str, names: str = "", group: str = "") -> Rule:
    fields = {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}
    return {**fields, "resourceNames": names.split()} if names else fields


def role(name: str, *rules: Rule, **more: object) -> dict[str, object]:
    return {"metadata": {"name": name}, "rules": list(rules), **more}


def bound(name: str, kind: str = "Role", to: str = READER.name) -> dict[str, object]:
    subject = {"kind": "User", "apiGroup": GROUP, "name": to}
    reference = {"apiGroup": GROUP, "kind": kind, "name": name}
    return {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}


MANAGES_ROLES = rule("get create update patch delete", "roles rolebindings", group=GROUP)
READS = rule("get list", "configmaps")


def granted(*rules: Rule) -> list[Step]:
    """READER may manage roles in the namespace, and has these rights."""
    return [
        post(ROLES, role("own", MANAGES_ROLES, *rules), shown=False),
        post(BINDINGS, bound("own"), shown=False),
        get(f"{ROLES}/own", user=READER, until_code=200, shown=False),
    ]


def review(kind: str, spec: object, **more: object) -> dict[str, object]:
    return {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec, **more}


def access_review(spec: object, until: str = "", **more: object) -> Step:
    body = review("SubjectAccessReview", spec, **more)
    return post(f"{AUTHORIZATION}/subjectaccessreviews", body, hide=UNKEPT, until=until)


READ_POD = {"verb": "get", "resource": "pods", "namespace": "$ns"}

CASES: dict[str, list[Step]] = {
    "role with rights that its creator does not have: rejected with the missing rules": [
        *granted(READS),
        post(ROLES, role("more", rule("get list watch delete", "configmaps secrets")), user=READER),
        post(ROLES, role("same", rule("list get", "configmaps")), user=READER),
        post(ROLES, role("named", rule("get", "configmaps", "a b")), user=READER),
        post(ROLES, role("others", rule("get", "secrets", "a b")), user=READER),
        post(ROLES, role("star", rule("*", "*", group="*")), user=READER),
        post(ROLES, role("sub", rule("get", "pods/log pods/status configmaps")), user=READER),
    ],
    "role with more objects than its creator's resourceNames: rejected": [
        *granted(rule("get", "configmaps", "a")),
        post(ROLES, role("same", rule("get", "configmaps", "a")), user=READER),
        post(ROLES, role("wider", rule("get", "configmaps", "a b")), user=READER),
        post(ROLES, role("all", rule("get", "configmaps")), user=READER),
    ],
    "creator with */scale: may grant deployments/scale only": [
        *granted(rule("get", "*/scale", group="apps")),
        post(ROLES, role("one", rule("get", "deployments/scale", group="apps")), user=READER),
        post(ROLES, role("other", rule("get", "deployments/status", group="apps")), user=READER),
    ],
    "role changed to rights that the editor does not have: rejected": [
        *granted(READS),
        post(ROLES, role("r", READS), user=READER, shown=False),
        patch(f"{ROLES}/r", {"rules": [rule("get delete", "configmaps")]}, user=READER),
        patch(f"{ROLES}/r", {"rules": [rule("get", "configmaps")]}, user=READER),
        patch(f"{ROLES}/r", {"metadata": {"labels": {"a": "b"}}}, user=READER),
        put(f"{ROLES}/new", role("new", rule("get", "secrets")), user=READER),
        apply(
            f"{ROLES}/applied",
            {**role("applied", rule("get", "secrets")), "kind": "Role", "apiVersion": f"{GROUP}/v1"},
            user=READER,
        ),
        post(f"{ROLES}?dryRun=All", role("dry", rule("get", "secrets")), user=READER),
    ],
    "role with more rights than its editor has: only its finalizers may be changed": [
        *granted(),
        post(ROLES, role("r", rule("get", "secrets")), shown=False),
        patch(f"{ROLES}/r", {"metadata": {"labels": {"a": "b"}}}, user=READER),
        patch(f"{ROLES}/r", {"metadata": {"finalizers": ["example.com/a"]}}, user=READER),
        patch(f"{ROLES}/r", {"metadata": {"finalizers": []}}, user=READER),
    ],
    "creator with verb escalate: may create a role with any rights and not bind it": [
        *granted(rule("escalate", "roles", group=GROUP)),
        post(ROLES, role("r", rule("*", "secrets")), user=READER),
        post(BINDINGS, bound("r", to="x"), user=READER),
    ],
    "verb escalate for one role: may change it and not create it": [
        *granted(rule("escalate", "roles", "r", group=GROUP)),
        post(ROLES, role("r", rule("get", "secrets")), user=READER),
        post(ROLES, role("r"), shown=False),
        patch(f"{ROLES}/r", {"rules": [rule("get", "secrets")]}, user=READER),
    ],
    "binding of a role with more rights than its creator has: rejected": [
        *granted(READS),
        post(ROLES, role("same", READS), shown=False),
        post(ROLES, role("more", rule("get", "secrets pods")), shown=False),
        get(f"{ROLES}/more", user=READER, until_code=200, shown=False),
        post(BINDINGS, bound("same", to="x"), user=READER),
        post(BINDINGS, bound("more", to="x"), user=READER),
        post(BINDINGS, bound("missing", to="x"), user=READER),
        post(BINDINGS, bound("missing", "ClusterRole", to="x"), user=READER),
        post(BINDINGS, bound("cluster-admin", "ClusterRole", to="x"), user=READER),
        patch(f"{BINDINGS}/same", {"subjects": []}, user=READER),
    ],
    "creator with verb bind for a role: may bind that role": [
        *granted(rule("bind", "roles", "r", group=GROUP), rule("bind", "clusterroles", "view", group=GROUP)),
        post(ROLES, role("r", rule("get", "secrets")), shown=False),
        post(ROLES, role("s", rule("get", "secrets")), shown=False),
        get(f"{ROLES}/s", user=READER, until_code=200, shown=False),
        post(BINDINGS, bound("r", to="x"), user=READER),
        post(BINDINGS, bound("s", to="x"), user=READER),
        post(BINDINGS, bound("view", "ClusterRole", to="x"), user=READER),
    ],
    "role with an aggregationRule: rejected unless its creator has all rights": [
        post(CLUSTER_ROLES, role("$ns", rule("create get", "clusterroles", group=GROUP)), shown=False),
        post(CLUSTER_BINDINGS, bound("$ns", "ClusterRole"), shown=False),
        get(f"{CLUSTER_ROLES}/$ns", user=READER, until_code=200, shown=False),
        post(
            CLUSTER_ROLES,
            role("$ns-sum", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
            user=READER,
        ),
        post(
            CLUSTER_ROLES,
            role("$ns-sum", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
        ),
        post(CLUSTER_ROLES, role("$ns-none", aggregationRule={})),
        post(CLUSTER_ROLES, role("$ns-none", aggregationRule={"clusterRoleSelectors": []})),
        delete(f"{CLUSTER_ROLES}/$ns-sum"),
        delete(f"{CLUSTER_BINDINGS}/$ns", shown=False),
        delete(f"{CLUSTER_ROLES}/$ns", shown=False),
    ],
    "binding to a missing role: reported in reviews": [
        post(BINDINGS, bound("missing"), shown=False),
        get(CONFIG_MAPS, user=READER),
        access_review({"user": READER.name, "resourceAttributes": READ_POD}),
        post(
            f"{AUTHORIZATION}/selfsubjectrulesreviews",
            {"spec": {"namespace": "$ns"}},
            user=READER,
            only=("metadata", "spec", "status.incomplete", "status.evaluationError"),
        ),
    ],
    "SubjectAccessReview: reason names the binding and role": [
        post(ROLES, role("r", READS), shown=False),
        post(
            BINDINGS,
            {
                **bound("r"),
                "subjects": [
                    {"kind": "ServiceAccount", "name": "default"},
                    {"kind": "ServiceAccount", "name": "robot", "namespace": "other"},
                    {"kind": "Group", "apiGroup": GROUP, "name": "g"},
                ],
            },
            shown=False,
        ),
        *(
            access_review(
                {**who, "resourceAttributes": {"verb": "get", "resource": "configmaps", "namespace": "$ns"}},
                until,
            )
            for who, until in (
                ({"user": "system:serviceaccount:$ns:default"}, "status.allowed"),  # the cache may lag
                ({"user": "system:serviceaccount:other:robot"}, ""),
                ({"user": "system:serviceaccount:other:default"}, ""),
                ({"user": "x", "groups": ["f", "g"]}, ""),
                ({"groups": ["g"]}, ""),
                ({"user": "x"}, ""),
            )
        ),
    ],
    "invalid access review: rejected": [
        access_review({}),
        access_review({"user": "x"}),
        access_review({"resourceAttributes": READ_POD}),
        post(
            f"{AUTHORIZATION}/subjectaccessreviews",
            {
                "spec": {
                    "user": "x",
                    "resourceAttributes": READ_POD,
                    "nonResourceAttributes": {"verb": "get", "path": "/x"},
                }
            },
            hide=UNKEPT,
        ),
        post(
            f"{AUTHORIZATION}/subjectaccessreviews",
            {"metadata": {"name": "a"}, "spec": {"user": "x", "resourceAttributes": READ_POD}},
            hide=UNKEPT,
        ),
        post(f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {}}),
    ],
    "SelfSubjectRulesReview of a user with a role: as kube-apiserver": [
        post(ROLES, role("r", rule("watch get", "secrets pods", "b a"), READS), shown=False),
        post(BINDINGS, bound("r", to=STRANGER.name), shown=False),
        get(CONFIG_MAPS, user=STRANGER, until_code=200, shown=False),
        post(
            f"{AUTHORIZATION}/selfsubjectrulesreviews",
            {"spec": {"namespace": "$ns"}},
            user=STRANGER,
            # Discovery names more paths there, and bindings come in any order.
            hide=("status.nonResourceRules", "status.resourceRules"),
        ),
    ],
    "service account with a role: only its rules are allowed": [
        post("/api/v1/namespaces/$ns/serviceaccounts/default/token", {"spec": {}}, save="t", shown=False),
        post(ROLES, role("r", READS, rule("create", "pods/exec")), shown=False),
        post(
            BINDINGS,
            {**bound("r"), "subjects": [{"kind": "ServiceAccount", "name": "default"}]},
            shown=False,
        ),
        *(
            step
            for headers in ({"Authorization": "Bearer $t.status.token"},)
            for step in (
                get(CONFIG_MAPS, user=None, headers=headers, until_code=200, shown=False),
                get(CONFIG_MAPS, user=None, headers=headers, only=("kind",)),
                post(CONFIG_MAPS, config_map(), user=None, headers=headers),
                get(PODS, user=None, headers=headers),
                get("/api/v1/namespaces/default/configmaps", user=None, headers=headers),
                post(
                    f"{AUTHORIZATION}/selfsubjectaccessreviews",
                    {"spec": {"resourceAttributes": {**READ_POD, "verb": "create", "subresource": "exec"}}},
                    user=None,
                    headers=headers,
                    hide=UNKEPT,
                ),
                post(ROLES, role("more", rule("get", "secrets")), user=None, headers=headers),
            )
        ),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_roles(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
