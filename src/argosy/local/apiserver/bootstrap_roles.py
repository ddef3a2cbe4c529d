"""The default cluster roles and bindings, for the kinds that are served."""

from argosy.local.schema.model import Json

_READ = ["get", "list", "watch"]
_WRITE = ["create", "delete", "deletecollection", "patch", "update"]
_GROUP = "rbac.authorization.k8s.io"
_LABEL = "kubernetes.io/bootstrapping"


def cluster_roles() -> list[Json]:
    """cluster-admin; admin, edit and view with the roles aggregated into them; the roles of all users."""
    return [
        _role("cluster-admin", [_rule(["*"], ["*"], ["*"]), _paths(["*"], "*")]),
        _aggregate("admin", "admin"),
        _aggregate("edit", "edit"),
        _aggregate("view", "view"),
        _role("system:aggregate-to-admin", _admin_rules(), to="admin"),
        _role("system:aggregate-to-edit", _edit_rules(), to="edit"),
        _role("system:aggregate-to-view", _view_rules(), to="view"),
        _role(
            "system:discovery",
            [_paths(["get"], *_DISCOVERY)],
        ),
        _role(
            "system:public-info-viewer",
            [_paths(["get"], "/healthz", "/livez", "/readyz", "/version", "/version/")],
        ),
        _role(
            "system:basic-user",
            [
                _rule(
                    ["create"],
                    ["authorization.k8s.io"],
                    ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
                ),
                _rule(["create"], ["authentication.k8s.io"], ["selfsubjectreviews"]),
            ],
        ),
        _role(
            "system:auth-delegator",
            [
                _rule(["create"], ["authentication.k8s.io"], ["tokenreviews"]),
                _rule(["create"], ["authorization.k8s.io"], ["subjectaccessreviews"]),
            ],
        ),
        _role(
            "system:service-account-issuer-discovery",
            [
                _paths(
                    ["get"],
                    "/.well-known/openid-configuration",
                    "/.well-known/openid-configuration/",
                    "/openid/v1/jwks",
                    "/openid/v1/jwks/",
                )
            ],
        ),
    ]


_DISCOVERY = (
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
)


def cluster_role_bindings() -> list[Json]:
    return [
        _binding("cluster-admin", "system:masters"),
        _binding("system:discovery", "system:authenticated"),
        _binding("system:basic-user", "system:authenticated"),
        _binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated"),
        _binding("system:service-account-issuer-discovery", "system:serviceaccounts"),
    ]


_VIEWED_CORE_RESOURCES = [
    *("bindings", "configmaps", "events", "namespaces", "namespaces/status"),
    *("persistentvolumeclaims", "persistentvolumeclaims/status", "pods", "pods/log", "pods/status"),
    *("resourcequotas", "resourcequotas/status", "serviceaccounts", "services", "services/status"),
]


def _view_rules() -> list[Json]:
    return [
        _rule(_READ, [""], _VIEWED_CORE_RESOURCES),
        _rule(_READ, ["events.k8s.io"], ["events"]),
        _rule(_READ, ["discovery.k8s.io"], ["endpointslices"]),
        _rule(
            _READ,
            ["apps"],
            [
                *("deployments", "deployments/scale", "deployments/status"),
                *("replicasets", "replicasets/scale", "replicasets/status"),
            ],
        ),
        _rule(_READ, ["batch"], ["jobs", "jobs/status"]),
        _rule(_READ, ["policy"], ["poddisruptionbudgets", "poddisruptionbudgets/status"]),
        _rule(_READ, ["networking.k8s.io"], ["networkpolicies"]),
    ]


def _edit_rules() -> list[Json]:
    return [
        _rule(
            _READ,
            [""],
            ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"],
        ),
        _rule(["impersonate"], [""], ["serviceaccounts"]),
        _rule(_WRITE, [""], ["pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy"]),
        _rule(["create"], [""], ["pods/eviction", "serviceaccounts/token"]),
        _rule(
            _WRITE,
            [""],
            [
                "configmaps",
                "events",
                "persistentvolumeclaims",
                "secrets",
                "serviceaccounts",
                "services",
                "services/proxy",
            ],
        ),
        _rule(_WRITE, ["events.k8s.io"], ["events"]),
        _rule(_WRITE, ["apps"], ["deployments", "deployments/scale", "replicasets", "replicasets/scale"]),
        _rule(_WRITE, ["batch"], ["jobs"]),
        _rule(_WRITE, ["policy"], ["poddisruptionbudgets"]),
        _rule(_WRITE, ["networking.k8s.io"], ["networkpolicies"]),
        _rule([*_WRITE, *_READ], ["coordination.k8s.io"], ["leases"]),
    ]


def _admin_rules() -> list[Json]:
    return [_rule([*_WRITE, *_READ], [_GROUP], ["rolebindings", "roles"])]


def _rule(verbs: list[str], groups: list[str], resources: list[str]) -> Json:
    return {"verbs": verbs, "apiGroups": groups, "resources": resources}


def _paths(verbs: list[str], *paths: str) -> Json:
    return {"verbs": verbs, "nonResourceURLs": list(paths)}


def _role(name: str, rules: list[Json], to: str = "") -> Json:
    labels = {_LABEL: "rbac-defaults"}
    if to:
        labels[f"{_GROUP}/aggregate-to-{to}"] = "true"
    return {"metadata": _metadata(name, labels), "rules": rules}


def _aggregate(name: str, to: str) -> Json:
    """Return a role that aggregates others: edit includes view, and admin includes edit."""
    own = {"admin": _admin_rules() + _edit_rules() + _view_rules(), "edit": _edit_rules() + _view_rules()}
    labels = {_LABEL: "rbac-defaults"}
    above = {"edit": "admin", "view": "edit"}.get(to)
    if above:
        labels[f"{_GROUP}/aggregate-to-{above}"] = "true"
    return {
        "metadata": _metadata(name, labels),
        "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {f"{_GROUP}/aggregate-to-{to}": "true"}}]
        },
        "rules": own.get(to, _view_rules()),
    }


def _binding(role: str, *groups: str) -> Json:
    return {
        "metadata": _metadata(role, {_LABEL: "rbac-defaults"}),
        "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": _GROUP, "kind": "Group", "name": group} for group in groups],
    }


def _metadata(name: str, labels: dict[str, str]) -> Json:
    return {
        "name": name,
        "labels": labels,
        "annotations": {f"{_GROUP}/autoupdate": "true"},
    }
