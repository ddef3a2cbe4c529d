"""Tests for the default roles of every cluster, and for aggregated roles."""

from .conftest import Json, Planes

DEFAULTS = (
    "admin",
    "cluster-admin",
    "edit",
    "system:auth-delegator",
    "system:basic-user",
    "system:discovery",
    "system:public-info-viewer",
    "system:service-account-issuer-discovery",
    "view",
)
UNSERVED = ("autoscaling", "extensions", "resource.k8s.io")
"""Groups that are not served here, and so not named in roles."""
UNSERVED_RESOURCES = {
    *("endpoints", "limitranges", "replicationcontrollers", "localsubjectaccessreviews", "ingresses"),
    *("controllerrevisions", "daemonsets", "statefulsets", "cronjobs", "deployments/rollback"),
}
"""Resources of other groups of which the same is true, with their subresources."""


def rights(items: list[Json]) -> object:
    """What each role allows, piece by piece."""
    return {str(item["metadata"]["name"]): sorted(_pieces(item["rules"])) for item in items}  # type: ignore[index]


def _pieces(rules: object) -> set[tuple[str, ...]]:
    assert isinstance(rules, list)
    rights: set[tuple[str, ...]] = set()
    for rule in rules:
        for verb in rule["verbs"]:
            rights |= {(verb, path) for path in rule.get("nonResourceURLs", ())}
            for group in set(rule.get("apiGroups", ())) - set(UNSERVED):
                rights |= {(verb, group, resource) for resource in rule["resources"] if _is_served(resource)}
    return rights


def _is_served(resource: str) -> bool:
    return not {resource, resource.partition("/")[0]} & UNSERVED_RESOURCES


def test_default_roles_grant_the_same_rights(planes: Planes) -> None:
    planes.settled("clusterroles", *DEFAULTS, shown=rights)
    for who in ((), ("--as=nobody",)):
        planes.same("auth", "can-i", "--list", "--no-headers", *who, ordered=False)


def test_aggregated_cluster_role_has_the_rules_of_others(planes: Planes) -> None:
    name = planes.namespace
    planes.same("create", "clusterrole", name, f"--aggregation-rule=of={name}")
    for part, resource in (("b", "pods"), ("a", "secrets")):
        planes.say("create", "clusterrole", f"{name}-{part}", "--verb=get", f"--resource={resource}")
        planes.say("label", "clusterrole", f"{name}-{part}", f"of={name}")
    selection = ("clusterroles", f"--field-selector=metadata.name={name}")
    rules = [[{"apiGroups": [""], "resources": [r], "verbs": ["get"]} for r in ("secrets", "pods")]]
    planes.eventually(*selection, shown=lambda items: [item["rules"] for item in items], want=rules)
    planes.same("create", "rolebinding", "b", f"--clusterrole={name}", "--user=bob")
    planes.until("auth", "can-i", "get", "secrets", "--as=bob")
    planes.same("auth", "can-i", "get", "secrets", "--as=bob")
    planes.same("auth", "can-i", "get", "configmaps", "--as=bob", code=1)
    planes.say("delete", "clusterrole", name, f"{name}-a", f"{name}-b")
