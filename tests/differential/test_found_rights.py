"""What the oracle found about who may do what, and about names and versions, and was mended."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.crd_steps import DEFINED
from tests.support.differential import (
    APPLY,
    GO_PRINTS,
    JSON_PATCH,
    Step,
    apply,
    delete,
    get,
    patch,
    post,
    put,
)
from tests.support.manifests import (
    CONFIG_MAPS,
    DEFINITIONS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SERVICES,
    WIDGETS,
    config_map,
    definition,
    job,
    lease,
    owner,
    pod,
    service,
    widget,
)
from tests.support.servers import READER

ONE = f"{CONFIG_MAPS}/a"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/$ns"
ODD_MAP = {"type": "object", "x-kubernetes-map-type": "x"}
SPACE = f"{NAMESPACES}/$ns-x"
MADE = post(CONFIG_MAPS, config_map(), shown=False)
CHANGES = (
    post(
        f"{RBAC}/roles",
        {
            "metadata": {"name": "r"},
            "rules": [
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "patch"]},
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "update"]},
            ],
        },
        shown=False,
    ),
    post(
        f"{RBAC}/rolebindings",
        {
            "metadata": {"name": "r"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": READER.name}],
        },
        shown=False,
    ),
    get(f"{CONFIG_MAPS}/none", user=READER, until_code=404, shown=False),
)

CASES: dict[str, list[Step]] = {
    "what apply or an update makes must be allowed to be created": [
        *CHANGES,
        apply(ONE, config_map(), user=READER),
        put(f"{LEASES}/a", lease(), user=READER),
        MADE,
        apply(f"{ONE}?force=true", config_map(), user=READER),
    ],
    "a collection has no name, whatever its selector": [
        delete(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Da", user=READER),
    ],
    "a list whose selector cannot be read has no name either": [
        get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Da", user=READER),
        get(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Da&labelSelector=x%3D1%2C", user=READER),
    ],
    "a namespace on its way out goes in the way that was asked for first": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        delete(SPACE, {"propagationPolicy": "Orphan"}),
        delete(SPACE, {"propagationPolicy": "Background"}),
    ],
    "finalizers that are there stay in their order": [
        post(CONFIG_MAPS, config_map(finalizers=["orphan", "example.com/hold"]), shown=False),
        delete(ONE),
    ],
    "the status of a job is written with its metadata": [
        post(JOBS, job(), shown=False),
        patch(f"{JOBS}/a", {"metadata": {"ownerReferences": [owner()]}}, shown=False),
        put(f"{JOBS}/a/status", job()),
    ],
    "a patch cannot give a custom resource another kind": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        patch(f"{WIDGETS}/a", {"apiVersion": "v2"}),
        patch(f"{WIDGETS}/a", {"kind": "Gadget"}),
    ],
    "the address of a service is kept for its name": [
        post(SERVICES, {**service(), "metadata": {"name": "a/b"}}, hide=GO_PRINTS),
    ],
    "metadata of a custom resource is read in order": [
        *DEFINED,
        post(WIDGETS, widget(metadata={"generateName": 1, "annotations": {"note": 1}})),
    ],
    "metadata of a wrong type in a patch": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        patch(f"{WIDGETS}/a", {"metadata": "text"}, hide=GO_PRINTS),
        patch(
            f"{WIDGETS}/a",
            {"metadata": {"creationTimestamp": 1, "deletionGracePeriodSeconds": "5"}},
            hide=GO_PRINTS,
        ),
    ],
    "a toleration of everything is added to, not replaced": [
        post(PODS, pod(), shown=False),
        patch(f"{PODS}/a", {"spec": {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}}),
        patch(f"{PODS}/a", {"spec": {"tolerations": [{}]}}),
    ],
    "a map is granular or atomic": [
        post(
            DEFINITIONS,
            definition(
                {"type": "object", "properties": {"a": {"type": "object", "x-kubernetes-map-type": "x"}}}
            ),
        ),
    ],
    "a dry run of an update that would create keeps the version": [
        put(f"{LEASES}/a?dryRun=All", {**lease(), "metadata": {"name": "a", "resourceVersion": "7"}}),
    ],
    "what is applied has the types of its kind": [
        apply(ONE, {**config_map(), "data": {"k": 1.5}}),
        apply(ONE, {**config_map(), "binaryData": {"b": 1}}),
        apply(ONE, {**config_map(), "metadata": []}),
    ],
    "a refusal is told in YAML to those who want that": [get(ONE, user=READER, accept="application/yaml")],
    "a namespace's preconditions": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        delete(SPACE, {"preconditions": {"uid": "9"}}),
        delete(SPACE, {"preconditions": {"resourceVersion": "1"}}),
    ],
    "a namespace whose name is made by the server": [
        post(NAMESPACES, {"metadata": {"generateName": "$ns-g-"}}),
        post(NAMESPACES, {"metadata": {"name": "$ns-y"}, "spec": {"finalizers": ["bad one!"]}}),
        put(f"{NAMESPACES}/$ns-z", {"metadata": {"name": "$ns-z", "namespace": "default"}}),
    ],
    "an update that creates cannot have a uid, nor a version that is no number": [
        put(
            f"{LEASES}/a",
            lease(uid="00000000-0000-0000-0000-000000000009"),
        ),
        put(f"{LEASES}/a", lease(resourceVersion="abc")),
    ],
    "a lease takes any finalizer": [
        post(LEASES, {**lease(), "metadata": {"name": "a", "finalizers": ["hold"]}}),
        post(LEASES, {**lease(), "metadata": {"name": "b", "finalizers": ["bad one!"]}}),
    ],
    "a custom resource's finalizer is better qualified": [
        *DEFINED,
        post(WIDGETS, widget(metadata={"finalizers": ["hold"]})),
        patch(f"{WIDGETS}/a", {"metadata": {"finalizers": ["hold", "more"]}}),
    ],
    "a custom resource has a name to be updated by": [
        *DEFINED,
        put(WIDGETS, widget()),
        patch(WIDGETS, {}),
        Step("OPTIONS", f"{WIDGETS}/a"),
        post(WIDGETS, "null"),
        post(WIDGETS, {"apiVersion": "$ns.example.com/v1", "kind": ""}),
    ],
    "a patch that takes the version of the kind away": [
        MADE,
        patch(ONE, [{"op": "remove", "path": "/apiVersion"}], JSON_PATCH),
        patch(ONE, [{"op": "remove", "path": "/kind"}], JSON_PATCH),
    ],
    "options of apply that are wrong together": [patch(f"{ONE}?fieldValidation=x", config_map(), APPLY)],
    "YAML that cannot be read, and a document after the first": [
        patch(f"{ONE}?fieldManager=alice", "[", APPLY),
        patch(f"{ONE}?fieldManager=alice", "{} {}", APPLY),
    ],
    "replicas where there were none have no owner": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        patch(f"{WIDGETS}/a/scale", {"spec": {"replicas": 5}}),
        get(f"{WIDGETS}/a"),
    ],
    "the policies and addresses of services": [
        post(SERVICES, service(internalTrafficPolicy="Nonsense")),
        post(SERVICES, service(type="NodePort", clusterIP="None")),
    ],
    "the names of indexed jobs make host names": [
        post(JOBS, job("a.b", completions=1, completionMode="Indexed"))
    ],
    "a job's selector must be one": [
        post(JOBS, job(selector={"matchLabels": {"bad key!": "1"}})),
    ],
    "a list with an item that is no object": [*DEFINED, post(WIDGETS, widget(parts=["a"], size=None))],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_found_rights(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
