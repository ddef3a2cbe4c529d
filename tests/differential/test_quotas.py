"""ResourceQuotas of counts. The reference has no controller, so the cases write the status."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Caller, Step, apply, delete, get, patch, post, put
from tests.support.manifests import CONFIG_MAPS, DEFINITIONS, PODS, config_map, definition, pod
from tests.support.servers import Server

QUOTAS = "/api/v1/namespaces/$ns/resourcequotas"
SECRETS = "/api/v1/namespaces/$ns/secrets"
JOBS = "/apis/batch/v1/namespaces/$ns/jobs"
ROLES = "/apis/rbac.authorization.k8s.io/v1/namespaces/$ns/roles"


def quota(name: str = "q", **hard: object) -> dict[str, object]:
    """In names, _ is a slash and __ a dot."""
    named = {key.replace("__", ".").replace("_", "/"): value for key, value in hard.items()}
    return {"metadata": {"name": name}, "spec": {"hard": named}}


def in_force(name: str = "q", **hard: object) -> list[Step]:
    """A quota whose status says that nothing is used yet."""
    created = quota(name, **hard)
    limits = created["spec"]["hard"]  # type: ignore[index]
    status = {"status": {"hard": limits, "used": dict.fromkeys(limits, "0")}}
    return [
        post(QUOTAS, created),
        patch(f"{QUOTAS}/{name}/status", status),
        # The reference has a cache of quotas.
        get(f"{QUOTAS}/{name}", until="status.used", shown=False),
    ]


JOB = {
    "metadata": {"name": "j"},
    "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}},
}
CASES: dict[str, list[Step]] = {
    "create beyond the count of a quota: rejected": [
        *in_force(count_configmaps="2"),
        post(CONFIG_MAPS, config_map("a")),
        get(f"{QUOTAS}/q"),
        post(CONFIG_MAPS, config_map("b"), shown=False),
        post(CONFIG_MAPS, config_map("c")),
        post(CONFIG_MAPS, {"metadata": {"generateName": "c-"}}, hide=("details.name",)),
        post(f"{CONFIG_MAPS}?dryRun=All", config_map("c")),
        apply(f"{CONFIG_MAPS}/c", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}),
        put(f"{CONFIG_MAPS}/a", config_map("a")),
        patch(f"{CONFIG_MAPS}/b", {"data": {"x": "y"}}),
        get(f"{QUOTAS}/q"),
    ],
    "dry run of a create: not added to used": [
        *in_force(configmaps="1"),
        post(f"{CONFIG_MAPS}?dryRun=All", config_map("a"), shown=False),
        post(CONFIG_MAPS, config_map("a"), shown=False),
        get(f"{QUOTAS}/q"),
    ],
    "pods and count/pods: both count the same pod": [
        *in_force(pods="5", count_pods="1"),
        post(PODS, pod("a"), shown=False),
        get(f"{QUOTAS}/q"),
        post(PODS, pod("b")),
    ],
    "pods and count/pods exceeded: both in the error": [
        *in_force(pods="0", count_pods="0", secrets="0"),
        post(PODS, pod("a")),
        post(SECRETS, {"metadata": {"name": "s"}}),
        post(CONFIG_MAPS, config_map("a")),
    ],
    "two quotas: the stricter one rejects": [
        *in_force("q", secrets="3"),
        *in_force("r", count_secrets="1"),
        post(SECRETS, {"metadata": {"name": "s"}}, shown=False),
        get(f"{QUOTAS}/q"),
        get(f"{QUOTAS}/r"),
        post(SECRETS, {"metadata": {"name": "t"}}),
        get(f"{QUOTAS}/q", only=("status",)),
    ],
    "count/jobs.batch and count/roles.rbac.authorization.k8s.io: counted": [
        *in_force(count_jobs__batch="1", count_roles__rbac__authorization__k8s__io="0"),
        post(JOBS, JOB, shown=False),
        post(JOBS, {**JOB, "metadata": {"name": "k"}}),
        post(ROLES, {"metadata": {"name": "r"}, "rules": []}),
    ],
    "count of a custom resource: counted": [
        post(DEFINITIONS, definition(), shown=False),
        get(
            "/apis/$ns.example.com/v1/namespaces/$ns/widgets",
            until_code=200,
            shown=False,
        ),
        post(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"count/widgets.$ns.example.com": "1"}}}),
        patch(
            f"{QUOTAS}/q/status",
            {
                "status": {
                    "hard": {"count/widgets.$ns.example.com": "1"},
                    "used": {"count/widgets.$ns.example.com": "1"},
                }
            },
        ),
        get(f"{QUOTAS}/q", until="status.used", shown=False),
        post(
            "/apis/$ns.example.com/v1/namespaces/$ns/widgets",
            {
                "apiVersion": "$ns.example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "w"},
                "spec": {"size": 1},
            },
            until_code=403,
        ),
        delete(f"{DEFINITIONS}/widgets.$ns.example.com", shown=False),
    ],
    "status without used: create rejected": [
        post(QUOTAS, quota(secrets="1", count_secrets="2"), shown=False),
        patch(
            f"{QUOTAS}/q/status", {"status": {"hard": {"secrets": "1", "count/secrets": "2"}}}, shown=False
        ),
        post(f"{SECRETS}?dryRun=All", {"metadata": {"name": "s"}}, until_code=403, shown=False),
        post(SECRETS, {"metadata": {"name": "s"}}),
        patch(
            f"{QUOTAS}/q/status", {"status": {"hard": {"secrets": "1"}, "used": {"pods": "1"}}}, shown=False
        ),
        post(SECRETS, {"metadata": {"name": "s"}}),
    ],
    "quota without a status: no limit": [
        post(QUOTAS, quota(secrets="0")),
        post(SECRETS, {"metadata": {"name": "s"}}, only=("kind",)),
    ],
    "invalid object beyond the quota: rejected as invalid": [
        *in_force(pods="0"),
        post(PODS, {"metadata": {"name": "a"}, "spec": {"containers": []}}),
        post("/api/v1/namespaces/none/pods", pod("a")),
    ],
    "invalid spec.hard: rejected, no spec.hard: accepted": [
        post(QUOTAS, quota(pods="-1")),
        post(QUOTAS, quota(pods="1500m")),
        post(QUOTAS, quota(count_pods="1", count_a_b="1")),
        post(QUOTAS, {"metadata": {"name": "q"}, "spec": {}}),
    ],
    "quota as a table: limits and use in columns": [
        *in_force(pods="5", count_pods="1", configmaps="1k"),
        get(QUOTAS, accept="application/json;as=Table;g=meta.k8s.io;v=v1"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_quotas(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)


LOCAL_ONLY = {
    "unknown names: 422": {"hard": {"nonsense": "1"}},
    "compute resources: 422": {"hard": {"requests.cpu": "1"}},
    "extended resources: 422": {"hard": {"requests.nvidia.com/gpu": "1"}},
    "scopes: 422": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]},
    "scopeSelector: 422": {
        "hard": {"pods": "1"},
        "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]},
    },
}


@pytest.mark.parametrize("spec", LOCAL_ONLY.values(), ids=LOCAL_ONLY)
def test_unsupported_quota_is_rejected(local_apiserver: Server, spec: object) -> None:
    with Caller(local_apiserver) as caller:
        body = {"metadata": {"name": "q"}, "spec": spec}
        answer = caller.send(post("/api/v1/namespaces/default/resourcequotas", body))
    assert answer.code == 422
    assert "a local control plane" in str(answer.body)
