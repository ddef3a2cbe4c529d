"""Authentication, authorization, access reviews and tokens."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, delete, get, patch, post
from tests.support.manifests import CONFIG_MAPS, PODS, config_map, pod
from tests.support.servers import READER, STRANGER, TokenUser

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/$ns/roles"
BINDINGS = f"{RBAC}/namespaces/$ns/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
UNKEPT = ("metadata",)
"""Fields of a review that are not compared: it is a response and not a stored object."""
UNKNOWN_USER = TokenUser("no such token", "nobody")


def role(*rules: dict[str, object], name: str = "r") -> dict[str, object]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(subject: dict[str, str], kind: str = "Role", name: str = "r") -> dict[str, object]:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [subject],
    }


READS: dict[str, object] = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}
TO_READER = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": READER.name}
TO_READERS = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "readers"}


def awaited(path: str) -> Step:
    """Rights take effect a moment after they are granted."""
    return get(path, user=READER, until_code=200, shown=False)


def may(user: TokenUser, **attributes: object) -> Step:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    return post(
        f"{AUTHORIZATION}/selfsubjectaccessreviews",
        {**body, "spec": {"resourceAttributes": attributes}},
        user=user,
        hide=UNKEPT,
    )


CASES: dict[str, list[Step]] = {
    "request with an unknown token: 401": [
        get(CONFIG_MAPS, user=UNKNOWN_USER),
        get("/api", user=UNKNOWN_USER),
        get(CONFIG_MAPS, user=None, headers={"Authorization": "Basic eDp5"}),
    ],
    "anonymous request: only health and version are allowed": [
        get("/healthz", user=None),
        get("/version", user=None, only=("major",)),
        get(CONFIG_MAPS, user=None),
        get("/apis", user=None),
    ],
    "user without roles: every verb is forbidden": [
        get(CONFIG_MAPS, user=STRANGER),
        get(f"{CONFIG_MAPS}/a", user=STRANGER),
        get(f"{CONFIG_MAPS}?watch=1", user=STRANGER),
        post(CONFIG_MAPS, config_map(), user=STRANGER),
        patch(f"{CONFIG_MAPS}/a", {}, user=STRANGER),
        delete(f"{CONFIG_MAPS}/a", user=STRANGER),
        delete(CONFIG_MAPS, user=STRANGER),
        get("/api/v1/configmaps", user=STRANGER),
        get("/api/v1/nodes", user=STRANGER),
        get("/apis/apps/v1/namespaces/$ns/deployments", user=STRANGER),
        get(f"{PODS}/a/log", user=STRANGER),
        patch(f"{PODS}/a/status", {}, user=STRANGER),
        get("/metrics", user=STRANGER),
        get("/api/v1/namespaces/$ns/nonsense", user=STRANGER),
    ],
    "authenticated user without roles: discovery is allowed": [
        get("/api", user=STRANGER, only=("kind",)),
        get("/apis", user=STRANGER, only=("kind",)),
        get("/version", user=STRANGER, only=("major",)),
    ],
    "role and role binding: allowed in that namespace only": [
        post(ROLES, role(READS)),
        post(BINDINGS, binding(TO_READER)),
        awaited(CONFIG_MAPS),
        post(CONFIG_MAPS, config_map(), shown=False),
        get(f"{CONFIG_MAPS}/a", user=READER),
        get(f"{CONFIG_MAPS}?watch=1", user=READER),
        post(CONFIG_MAPS, config_map("b"), user=READER),
        get("/api/v1/configmaps", user=READER),
        get("/api/v1/namespaces/default/configmaps", user=READER),
    ],
    "role binding of a group: its members are allowed": [
        post(ROLES, role({**READS, "resources": ["pods"]})),
        post(BINDINGS, binding(TO_READERS)),
        awaited(PODS),
        get(PODS, user=READER),
    ],
    "rule with resourceNames: only these objects are allowed": [
        post(ROLES, role({**READS, "resourceNames": ["a"]}), shown=False),
        post(BINDINGS, binding(TO_READER), shown=False),
        post(CONFIG_MAPS, config_map(), shown=False),
        awaited(f"{CONFIG_MAPS}/a"),
        get(f"{CONFIG_MAPS}/a", user=READER),
        get(f"{CONFIG_MAPS}/b", user=READER),
        get(CONFIG_MAPS, user=READER),
        get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Da", user=READER, only=("kind",)),
    ],
    "rule for a subresource: other subresources are forbidden": [
        post(
            ROLES,
            role({"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]}),
            shown=False,
        ),
        post(BINDINGS, binding(TO_READER), shown=False),
        post(PODS, pod(), shown=False),
        awaited(f"{PODS}/a"),
        get(f"{PODS}/a/status", user=READER, only=("kind",)),
        get(f"{PODS}/a/log", user=READER),
    ],
    "cluster role with a role binding: allowed in that namespace only": [
        post(CLUSTER_ROLES, role(READS, name="$ns")),
        post(BINDINGS, binding(TO_READER, "ClusterRole", "$ns")),
        awaited(CONFIG_MAPS),
        get("/api/v1/configmaps", user=READER),
        delete(f"{CLUSTER_ROLES}/$ns"),
    ],
    "cluster role binding: allowed in all namespaces until it is deleted": [
        post(CLUSTER_ROLES, role({**READS, "resources": ["resourcequotas"]}, name="$ns"), shown=False),
        post(CLUSTER_BINDINGS, binding(TO_READER, "ClusterRole", "$ns")),
        get("/api/v1/resourcequotas", user=READER, until_code=200, shown=False),
        get("/api/v1/namespaces/$ns/resourcequotas", user=READER, only=("kind",)),
        delete(f"{CLUSTER_BINDINGS}/$ns", shown=False),
        get("/api/v1/resourcequotas", user=READER, until_code=403),
    ],
    "role with rights that its creator does not have: forbidden": [
        post(
            ROLES,
            role(
                {
                    "apiGroups": ["rbac.authorization.k8s.io"],
                    "resources": ["roles"],
                    "verbs": ["create", "get"],
                }
            ),
            shown=False,
        ),
        post(BINDINGS, binding(TO_READER), shown=False),
        awaited(f"{ROLES}/r"),
        post(ROLES, role(READS, name="more"), user=READER),
    ],
    "role with an invalid rule: rejected": [
        post(ROLES, role({"apiGroups": [""], "resources": ["pods"], "verbs": []})),
        post(ROLES, role({"apiGroups": [""], "verbs": ["get"]})),
        post(ROLES, role({"nonResourceURLs": ["/x"], "verbs": ["get"]})),
    ],
    "role binding with a changed roleRef, no roleRef or an unknown subject: rejected": [
        post(BINDINGS, binding(TO_READER), shown=False),
        patch(f"{BINDINGS}/r", {"roleRef": {"name": "other"}}),
        post(BINDINGS, {"metadata": {"name": "x"}, "subjects": []}),
        post(BINDINGS, binding({"kind": "Robot", "name": "x"}, name="y")),
    ],
    "SelfSubjectAccessReview: rights of the user": [
        may(STRANGER, verb="get", resource="pods", namespace="$ns"),
        may(READER, verb="list", resource="secrets", namespace="$ns"),
        post(
            f"{AUTHORIZATION}/selfsubjectaccessreviews",
            {"spec": {"resourceAttributes": {"verb": "create", "resource": "pods"}}},
            hide=UNKEPT,
        ),
        post(
            f"{AUTHORIZATION}/selfsubjectaccessreviews",
            {"spec": {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}},
            user=STRANGER,
            hide=("metadata", "status.reason"),  # several roles allow it, and any of them is named
        ),
        post(f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {}}),
    ],
    "SubjectAccessReview by an administrator: rights of another user": [
        post(
            f"{AUTHORIZATION}/subjectaccessreviews",
            {
                "spec": {
                    "user": "x",
                    "groups": ["system:masters"],
                    "resourceAttributes": {"verb": "get", "resource": "pods"},
                }
            },
            hide=UNKEPT,
        ),
        post(
            f"{AUTHORIZATION}/subjectaccessreviews",
            {"spec": {"user": "x", "resourceAttributes": {"verb": "get", "resource": "pods"}}},
            hide=UNKEPT,
        ),
        post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"user": "x"}}, user=STRANGER),
    ],
    "SelfSubjectRulesReview: rules of the user": [
        post(ROLES, role({**READS, "resources": ["secrets"]}), shown=False),
        post(BINDINGS, binding(TO_READER), shown=False),
        awaited("/api/v1/namespaces/$ns/secrets"),
        post(
            f"{AUTHORIZATION}/selfsubjectrulesreviews",
            {"spec": {"namespace": "$ns"}},
            user=READER,
            only=("kind", "status.incomplete"),
        ),
    ],
    "SelfSubjectReview: name and groups of the user": [
        post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, user=READER),
        post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {}),
    ],
    "TokenReview: user of the token": [
        post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"spec": {"token": READER.token}},
            hide=("metadata", "spec"),
        ),
        post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}, hide=UNKEPT),
        post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}}),
        post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}, user=STRANGER),
    ],
    "token of a service account: authenticates as that account": [
        post(
            "/api/v1/namespaces/$ns/serviceaccounts/default/token",
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": 3600},
            },
            save="token",
            hide=UNKEPT,
        ),
        post(
            "/apis/authentication.k8s.io/v1/tokenreviews",
            {"spec": {"token": "$token.status.token"}},
            hide=("metadata", "spec", "status.user.extra", "status.audiences"),
        ),
        get(CONFIG_MAPS, user=None, headers={"Authorization": "Bearer $token.status.token"}),
        post("/api/v1/namespaces/$ns/serviceaccounts/none/token", {"spec": {}}),
        post("/api/v1/namespaces/$ns/serviceaccounts/default/token", {"spec": {"expirationSeconds": 5}}),
    ],
    "token of a deleted service account: 401": [
        post("/api/v1/namespaces/$ns/serviceaccounts", {"metadata": {"name": "s"}}, shown=False),
        post("/api/v1/namespaces/$ns/serviceaccounts/s/token", {"spec": {}}, save="token", shown=False),
        delete("/api/v1/namespaces/$ns/serviceaccounts/s"),
        get("/api", user=None, headers={"Authorization": "Bearer $token.status.token"}, until_code=401),
    ],
    "impersonation by an administrator: allowed": [
        get(CONFIG_MAPS, headers={"Impersonate-User": "stranger"}),
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {},
            headers={"Impersonate-User": "x", "Impersonate-Group": "g"},
        ),
        get(CONFIG_MAPS, user=STRANGER, headers={"Impersonate-User": "x"}, hide=("details",)),
    ],
    "impersonation of a uid and extras by an administrator: allowed": [
        post(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews",
            {},
            headers={"Impersonate-User": "x", "Impersonate-Uid": "u", "Impersonate-Extra-Example%2EKey": "v"},
        ),
    ],
    "impersonation of a group, uid or extra without a user: rejected": [
        get(CONFIG_MAPS, headers={"Impersonate-Group": "g"}, hide=("details",)),
        get(CONFIG_MAPS, headers={"Impersonate-Uid": "u"}, hide=("details",)),
        get(CONFIG_MAPS, headers={"Impersonate-Extra-Key": "v"}, hide=("details",)),
    ],
    "impersonation with the right for users only: groups, uids and extras are forbidden": [
        post(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            {
                "metadata": {"name": "$ns"},
                "rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"]}],
            },
            shown=False,
        ),
        post(
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {
                "metadata": {"name": "$ns"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "$ns"},
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": STRANGER.name}
                ],
            },
            shown=False,
        ),
        get(
            "/version",
            user=STRANGER,
            headers={"Impersonate-User": "x"},
            until_code=200,
            shown=False,
        ),
        *(
            get(
                "/version",
                user=STRANGER,
                headers={"Impersonate-User": "x", **more},
                hide=("details",),
            )
            for more in (
                {"Impersonate-Group": "g"},
                {"Impersonate-Uid": "u"},
                {"Impersonate-Extra-Key": "v"},
            )
        ),
        Step("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/$ns", shown=False),
        Step("DELETE", "/apis/rbac.authorization.k8s.io/v1/clusterroles/$ns", shown=False),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_access(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
