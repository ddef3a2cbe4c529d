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

ONE = f"{CONFIG_MAPS}/a"
MADE = post(CONFIG_MAPS, config_map(), save="made", shown=False)
HELD = post(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]), save="made", shown=False)
OTHER_UID = "00000000-0000-0000-0000-000000000001"
BOUND = (
    post(PODS, pod(nodeName="n1"), save="made", shown=False),
    patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
)

CASES: dict[str, list[Step]] = {
    "a deleted object is gone": [MADE, delete(ONE), get(ONE), delete(ONE)],
    "a delete can say nothing in its body": [MADE, delete(ONE, {})],
    "a delete can name its kind": [MADE, delete(ONE, {"kind": "DeleteOptions", "apiVersion": "v1"})],
    "a finalizer holds a deleted object until it is taken away": [
        HELD,
        delete(ONE),
        get(ONE),
        delete(ONE),
        patch(ONE, {"metadata": {"labels": {"still": "changeable"}}}),
        patch(ONE, {"metadata": {"finalizers": None}}),
        get(ONE),
    ],
    "a finalizer cannot be added to a deleted object": [
        HELD,
        delete(ONE, shown=False),
        patch(ONE, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
    ],
    "deletionTimestamp cannot be set or taken back": [
        MADE,
        patch(ONE, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        post(CONFIG_MAPS, config_map("b", deletionTimestamp="2026-01-01T00:00:00Z")),
    ],
    "a precondition on the uid is checked": [
        MADE,
        delete(ONE, {"preconditions": {"uid": OTHER_UID}}),
        delete(ONE, {"preconditions": {"uid": "$made.metadata.uid"}}),
    ],
    "a precondition on the version is checked": [
        MADE,
        delete(ONE, {"preconditions": {"resourceVersion": "1"}}),
        delete(ONE, {"preconditions": {"resourceVersion": "$made.metadata.resourceVersion"}}),
    ],
    "a bad propagation policy is refused": [MADE, delete(ONE, {"propagationPolicy": "Sideways"})],
    "a propagation policy can stand in the query": [
        MADE,
        delete(f"{ONE}?propagationPolicy=Orphan"),
        get(ONE),
    ],
    "both ways to say orphan are refused": [
        MADE,
        delete(ONE, {"propagationPolicy": "Orphan", "orphanDependents": True}),
    ],
    "foreground deletion waits for dependents": [
        MADE,
        delete(ONE, {"propagationPolicy": "Foreground"}),
        get(ONE),
    ],
    "orphaning waits until dependents are let go": [
        MADE,
        delete(ONE, {"propagationPolicy": "Orphan"}),
        get(ONE),
    ],
    "background deletion removes at once": [MADE, delete(ONE, {"propagationPolicy": "Background"}), get(ONE)],
    "a deployment is deleted in the background unless told otherwise": [
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
        delete(f"{ONE}?dryRun=All"),
        get(ONE),
        delete(ONE, {"dryRun": ["All"]}),
        get(ONE),
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
    "a negative grace is taken as one second": [*BOUND, delete(f"{PODS}/a", {"gracePeriodSeconds": -1})],
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
    "a deleted namespace goes away step by step": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        delete(f"{NAMESPACES}/$ns-x"),
        get(f"{NAMESPACES}/$ns-x"),
        post("/api/v1/namespaces/$ns-x/configmaps", config_map()),
        delete(f"{NAMESPACES}/$ns-x"),
    ],
    "a namespace is gone when it is finalized": [
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
        delete(ONE, {"kind": "Pod", "apiVersion": "v1"}),
        delete(ONE, "["),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_deletion(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
