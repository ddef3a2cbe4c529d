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
    "deleted object: 404": [MADE, delete(OBJECT), get(OBJECT), delete(OBJECT)],
    "delete with an empty body: accepted": [MADE, delete(OBJECT, {})],
    "delete with DeleteOptions: accepted": [
        MADE,
        delete(OBJECT, {"kind": "DeleteOptions", "apiVersion": "v1"}),
    ],
    "deleted object with a finalizer: exists until the finalizer is removed": [
        HELD,
        delete(OBJECT),
        get(OBJECT),
        delete(OBJECT),
        patch(OBJECT, {"metadata": {"labels": {"still": "changeable"}}}),
        patch(OBJECT, {"metadata": {"finalizers": None}}),
        get(OBJECT),
    ],
    "finalizer added to a terminating object: rejected": [
        HELD,
        delete(OBJECT, shown=False),
        patch(OBJECT, {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}),
    ],
    "deletionTimestamp in an update: rejected, in a create: dropped": [
        MADE,
        patch(OBJECT, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        post(CONFIG_MAPS, config_map("b", deletionTimestamp="2026-01-01T00:00:00Z")),
    ],
    "delete with a uid precondition: conflict for another uid": [
        MADE,
        delete(OBJECT, {"preconditions": {"uid": OTHER_UID}}),
        delete(OBJECT, {"preconditions": {"uid": "$made.metadata.uid"}}),
    ],
    "delete with a resourceVersion precondition: conflict for another version": [
        MADE,
        delete(OBJECT, {"preconditions": {"resourceVersion": "1"}}),
        delete(OBJECT, {"preconditions": {"resourceVersion": "$made.metadata.resourceVersion"}}),
    ],
    "delete with an unknown propagationPolicy: rejected": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Sideways"}),
    ],
    "propagationPolicy as a query parameter: used": [
        MADE,
        delete(f"{OBJECT}?propagationPolicy=Orphan"),
        get(OBJECT),
    ],
    "delete with propagationPolicy and orphanDependents: rejected": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Orphan", "orphanDependents": True}),
    ],
    "foreground deletion: finalizer foregroundDeletion set": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Foreground"}),
        get(OBJECT),
    ],
    "deletion with policy Orphan: finalizer orphan set": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Orphan"}),
        get(OBJECT),
    ],
    "background deletion: deleted at once": [
        MADE,
        delete(OBJECT, {"propagationPolicy": "Background"}),
        get(OBJECT),
    ],
    "delete of a Deployment without a policy: deleted in the background": [
        post(DEPLOYMENTS, deployment(), shown=False),
        delete(f"{DEPLOYMENTS}/a"),
        get(f"{DEPLOYMENTS}/a"),
    ],
    "delete of a Job without a policy: finalizer orphan set": [
        post(JOBS, job(), shown=False),
        delete(f"{JOBS}/a"),
        get(f"{JOBS}/a"),
    ],
    "delete with dryRun: object kept": [
        MADE,
        delete(f"{OBJECT}?dryRun=All"),
        get(OBJECT),
        delete(OBJECT, {"dryRun": ["All"]}),
        get(OBJECT),
    ],
    "delete of a pod without a node: deleted at once": [
        post(PODS, pod(), shown=False),
        delete(f"{PODS}/a"),
        get(f"{PODS}/a"),
    ],
    "delete of a running pod: exists during its grace period": [
        *BOUND,
        delete(f"{PODS}/a"),
        get(f"{PODS}/a"),
        delete(f"{PODS}/a"),
    ],
    "second delete with another grace period: shortened, never extended": [
        *BOUND,
        delete(f"{PODS}/a", {"gracePeriodSeconds": 10}),
        delete(f"{PODS}/a", {"gracePeriodSeconds": 5}),
        delete(f"{PODS}/a", {"gracePeriodSeconds": 20}),
        delete(f"{PODS}/a?gracePeriodSeconds=0"),
        get(f"{PODS}/a"),
    ],
    "delete of a pod with terminationGracePeriodSeconds: that period is used": [
        post(PODS, pod(nodeName="n1", terminationGracePeriodSeconds=7), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
        delete(f"{PODS}/a"),
    ],
    "delete of a running pod with grace period 0: deleted at once": [
        *BOUND,
        delete(f"{PODS}/a", {"gracePeriodSeconds": 0}),
        get(f"{PODS}/a"),
    ],
    "delete of a finished pod: deleted at once": [
        post(PODS, pod(nodeName="n1"), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Succeeded"}}, shown=False),
        delete(f"{PODS}/a"),
        get(f"{PODS}/a"),
    ],
    "delete of a running pod with a finalizer: exists until the finalizer is removed": [
        post(PODS, pod(nodeName="n1", metadata={"finalizers": ["example.com/hold"]}), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running"}}, shown=False),
        delete(f"{PODS}/a"),
        delete(f"{PODS}/a", {"gracePeriodSeconds": 0}),
        patch(f"{PODS}/a", {"metadata": {"finalizers": None}}),
        get(f"{PODS}/a"),
    ],
    "delete with a negative grace period: one second": [
        *BOUND,
        delete(f"{PODS}/a", {"gracePeriodSeconds": -1}),
    ],
    "delete of a collection with a label selector: only matching objects": [
        post(CONFIG_MAPS, config_map("a", labels={"x": "1"}), shown=False),
        post(CONFIG_MAPS, config_map("b", labels={"x": "1"}), shown=False),
        post(CONFIG_MAPS, config_map("c"), shown=False),
        delete(f"{CONFIG_MAPS}?labelSelector=x%3D1"),
        get(CONFIG_MAPS, hide=("items.*.metadata.managedFields",)),
    ],
    "delete of a collection with a field selector: only matching objects": [
        MADE,
        post(CONFIG_MAPS, config_map("b"), shown=False),
        delete(f"{CONFIG_MAPS}?fieldSelector=metadata.name%3Db"),
        get(f"{CONFIG_MAPS}/b"),
    ],
    "delete of an empty collection: accepted": [delete(CONFIG_MAPS)],
    "deleted namespace: Terminating, and creates in it are rejected": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        delete(f"{NAMESPACES}/$ns-x"),
        get(f"{NAMESPACES}/$ns-x"),
        post("/api/v1/namespaces/$ns-x/configmaps", config_map()),
        delete(f"{NAMESPACES}/$ns-x"),
    ],
    "finalizers of a terminating namespace removed: deleted": [
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
    "delete with a body that is not DeleteOptions: rejected": [
        MADE,
        delete(OBJECT, {"kind": "Pod", "apiVersion": "v1"}),
        delete(OBJECT, "["),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_deletion(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
