"""Deleting: grace, finalizers, preconditions, propagation, collections."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, delete, get, patch, post, put
from tests.support.manifests import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    NAMESPACES,
    PODS,
    config_map,
    deployment,
    job,
    pod,
)

OBJECT = f"{CONFIG_MAPS}/a"
MADE = post(CONFIG_MAPS, config_map(), save="made", shown=False)
HELD = post(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]), save="made", shown=False)
OTHER_UID = "00000000-0000-0000-0000-000000000001"
BOUND = (
    post(PODS, pod(nodeName="n1"), save="made", shown=False),
    patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
)

CASES: dict[str, list[Step]] = {
    "a deleted object does not exist any more": [MADE, delete(OBJECT), get(OBJECT), delete(OBJECT)],
    "a delete can have an empty body": [MADE, delete(OBJECT, {})],
    "a delete can have options with their kind": [
        MADE,
        delete(OBJECT, {"kind": "DeleteOptions", "apiVersion": "v1"}),
    ],
    "an object with a finalizer is deleted when the finalizer is removed": [
        HELD,
        delete(OBJECT),
        get(OBJECT),
        delete(OBJECT),
        patch(OBJECT, {"metadata": {"labels": {"still": "changeable"}}}),
        patch(OBJECT, {"metadata": {"finalizers": None}}),
        get(OBJECT),
    ],
    "a finalizer cannot be added to a deleted object": [
        HELD,
        delete(OBJECT, shown=False),
        patch(OBJECT, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
    ],
    "deletionTimestamp cannot be set or taken back": [
        MADE,
        patch(OBJECT, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        post(CONFIG_MAPS, config_map("b", deletionTimestamp="2026-01-01T00:00:00Z")),
    ],
    "a precondition on the uid is checked": [
        MADE,
        delete(OBJECT, {"preconditions": {"uid": OTHER_UID}}),
        delete(OBJECT, {"preconditions": {"uid": "$made.metadata.uid"}}),
    ],
    "a precondition on the version is checked": [
        MADE,
        delete(OBJECT, {"preconditions": {"resourceVersion": "1"}}),
        delete(OBJECT, {"preconditions": {"resourceVersion": "$made.metadata.resourceVersion"}}),
    ],
    "a bad propagation policy is refused": [MADE, delete(OBJECT, {"propagationPolicy": "Sideways"})],
    "a propagation policy can be a query parameter": [
        MADE,
        delete(f"{OBJECT}?propagationPolicy=Orphan"),
        get(OBJECT),
    ],
    "both ways to say orphan are refused": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Orphan", "orphanDependents": True}),
    ],
    "foreground deletion waits for dependents": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Foreground"}),
        get(OBJECT),
    ],
    "orphaning waits until dependents are let go": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Orphan"}),
        get(OBJECT),
    ],
    "background deletion deletes the object at once": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Background"}),
        get(OBJECT),
    ],
    "a deployment is deleted in the background by default": [
        post(DEPLOYMENTS, deployment(), shown=False),
        delete(f"{DEPLOYMENTS}/a"),
        get(f"{DEPLOYMENTS}/a"),
    ],
    "a job's delete without a policy orphans its pods": [
        post(JOBS, job(), shown=False),
        delete(f"{JOBS}/a"),
        get(f"{JOBS}/a"),
    ],
    "a dry run deletes nothing": [
        MADE,
        delete(f"{OBJECT}?dryRun=All"),
        get(OBJECT),
        delete(OBJECT, {"dryRun": ["All"]}),
        get(OBJECT),
    ],
    "a pod that runs nowhere is deleted at once": [
        post(PODS, pod(), shown=False),
        delete(f"{PODS}/a"),
        get(f"{PODS}/a"),
    ],
    "a running pod is given its grace": [*BOUND, delete(f"{PODS}/a"), get(f"{PODS}/a"), delete(f"{PODS}/a")],
    "a pod's grace can be shortened, not lengthened": [
        *BOUND,
        delete(f"{PODS}/a", {"gracePeriodSeconds": 10}),
        delete(f"{PODS}/a", {"gracePeriodSeconds": 5}),
        delete(f"{PODS}/a", {"gracePeriodSeconds": 20}),
        delete(f"{PODS}/a?gracePeriodSeconds=0"),
        get(f"{PODS}/a"),
    ],
    "a pod's own grace period is used": [
        post(PODS, pod(nodeName="n1", terminationGracePeriodSeconds=7), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
        delete(f"{PODS}/a"),
    ],
    "a grace of zero deletes a running pod at once": [
        *BOUND,
        delete(f"{PODS}/a", {"gracePeriodSeconds": 0}),
        get(f"{PODS}/a"),
    ],
    "a finished pod is deleted at once": [
        post(PODS, pod(nodeName="n1"), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, shown=False),
        delete(f"{PODS}/a"),
        get(f"{PODS}/a"),
    ],
    "a running pod with a finalizer keeps both": [
        post(PODS, pod(nodeName="n1", metadata={"finalizers": ["example.com/hold"]}), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
        delete(f"{PODS}/a"),
        delete(f"{PODS}/a", {"gracePeriodSeconds": 0}),
        patch(f"{PODS}/a", {"metadata": {"finalizers": None}}),
        get(f"{PODS}/a"),
    ],
    "a negative grace period is one second": [*BOUND, delete(f"{PODS}/a", {"gracePeriodSeconds": -1})],
    "a collection is deleted by label": [
        post(CONFIG_MAPS, config_map("a", labels={"x": "1"}), shown=False),
        post(CONFIG_MAPS, config_map("b", labels={"x": "1"}), shown=False),
        post(CONFIG_MAPS, config_map("c"), shown=False),
        delete(f"{CONFIG_MAPS}?labelSelector=x%3D1"),
        get(CONFIG_MAPS, hide=("items.*.metadata.managedFields",)),
    ],
    "a collection is deleted by field": [
        MADE,
        post(CONFIG_MAPS, config_map("b"), shown=False),
        delete(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Db"),
        get(f"{CONFIG_MAPS}/b"),
    ],
    "deleting an empty collection is no error": [delete(CONFIG_MAPS)],
    "a deleted namespace is terminating until it is finalized": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        delete(f"{NAMESPACES}/$ns-x"),
        get(f"{NAMESPACES}/$ns-x"),
        post("/api/v1/namespaces/$ns-x/configmaps", config_map()),
        delete(f"{NAMESPACES}/$ns-x"),
    ],
    "a namespace is deleted when it is finalized": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        delete(f"{NAMESPACES}/$ns-x", shown=False),
        put(
            f"{NAMESPACES}/$ns-x/finalize",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": "$ns-x"},
                "spec": {"finalizers": []},
            },
        ),
        get(f"{NAMESPACES}/$ns-x"),
    ],
    "a body that is no delete options is refused": [
        MADE,
        delete(OBJECT, {"kind": "Pod", "apiVersion": "v1"}),
        delete(OBJECT, "["),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_deletion(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
