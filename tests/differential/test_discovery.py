"""Discovery documents equal those of a real server.

The local server has fewer kinds, so lists of kinds are compared kind by kind: all of its kinds must be in the
real server's list in the same words, except for subresources and verbs which we do not have.
"""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Caller, Step, get, post
from tests.support.field_paths import dig
from tests.support.manifests import DEFINITIONS, WIDGETS, definition
from tests.support.servers import Server

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
DEFINED = (
    post(DEFINITIONS, definition(), shown=False),
    get(f"{DEFINITIONS}/widgets.$ns.example.com", until="status.conditions.1", shown=False),
    get(WIDGETS, until="metadata.resourceVersion", shown=False),
    get("/apis/$ns.example.com/v1", until="resources.2", shown=False),
)

CASES: dict[str, list[Step]] = {
    "discovery of a custom group: as kube-apiserver": [
        *DEFINED,
        get("/apis/$ns.example.com"),
        get("/apis/$ns.example.com/v1", hide=("resources.*.storageVersionHash",)),
    ],
    "discovery of an unknown group: 404": [
        get("/apis/none.example.com"),
        get("/apis/none.example.com/v1"),
        get("/apis/apps/v9"),
    ],
    "discovery of a group: its versions": [
        get("/apis/apps"),
        get("/apis/batch"),
        get("/apis/apiextensions.k8s.io"),
    ],
    "aggregated discovery: same kind and apiVersion": [
        get("/api", accept=AGGREGATED, only=("kind", "apiVersion")),
        get("/apis", accept=AGGREGATED, only=("kind", "apiVersion")),
        get("/apis", accept=f"{AGGREGATED},application/json", only=("kind", "apiVersion")),
    ],
    "OpenAPI v3 document: same version and title": [
        get(
            "/openapi/v3/api/v1",
            only=(
                "openapi",
                "info.title",
                "paths./api/v1/namespaces/{namespace}/pods.get.x-kubernetes-action",
            ),
        ),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_discovery(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)


GROUP_VERSIONS = [
    "/api/v1",
    "/apis/apps/v1",
    "/apis/batch/v1",
    "/apis/coordination.k8s.io/v1",
    "/apis/rbac.authorization.k8s.io/v1",
    "/apis/apiextensions.k8s.io/v1",
    "/apis/authorization.k8s.io/v1",
    "/apis/authentication.k8s.io/v1",
    "/apis/discovery.k8s.io/v1",
    "/apis/scheduling.k8s.io/v1",
    "/apis/policy/v1",
]


@pytest.mark.parametrize("path", GROUP_VERSIONS)
def test_every_served_kind_has_the_discovery_of_kube_apiserver(
    real_apiserver: Server, local_apiserver: Server, path: str
) -> None:
    want, got = (_resources(server, path) for server in (real_apiserver, local_apiserver))
    assert got, f"nothing is served at {path}"
    for name, resource in got.items():
        assert name in want, f"{path}: Kubernetes has no {name}"
        assert resource == want[name]


def _resources(server: Server, path: str) -> dict[str, dict[str, object]]:
    with Caller(server) as caller:
        answer = caller.send(get(path))
    resources = dig(answer.body, "resources")
    assert isinstance(resources, list), answer
    return {
        str(item["name"]): {key: value for key, value in item.items() if key != "storageVersionHash"}
        for item in resources
    }


def test_every_served_kind_has_the_aggregated_discovery_of_kube_apiserver(
    real_apiserver: Server, local_apiserver: Server
) -> None:
    for root in ("/api", "/apis"):
        want, got = (_aggregated(server, root) for server in (real_apiserver, local_apiserver))
        assert got
        for name, resource in got.items():
            assert name in want, f"Kubernetes has no {name}"
            assert resource == want[name]


def _aggregated(server: Server, root: str) -> dict[str, dict[str, object]]:
    with Caller(server) as caller:
        groups = dig(caller.send(get(root, accept=AGGREGATED)).body, "items")
    resources: dict[str, dict[str, object]] = {}
    assert isinstance(groups, list)
    for group in groups:
        name = group.get("metadata", {}).get("name", "")
        for version in group["versions"]:
            for resource in version.get("resources", ()) if not name.endswith("example.com") else ():
                served = resource.get("subresources", [])
                shown = {**resource, "subresources": sorted(str(part["subresource"]) for part in served)}
                resources[f"{name}/{version['version']}/{resource['resource']}"] = shown
    return resources
