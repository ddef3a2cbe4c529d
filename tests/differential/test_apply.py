"""Server-side apply: ownership, conflicts, and removal of fields that are no longer applied."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.crd_steps import DEFINED
from tests.support.differential import APPLY, Step, apply, get, patch, post, put
from tests.support.manifests import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    PODS,
    SERVICES,
    WIDGETS,
    config_map,
    deployment,
    pod,
    service,
    widget,
)

OBJECT = f"{CONFIG_MAPS}/a"


def applied(data: dict[str, str], **metadata: object) -> dict[str, object]:
    return {**config_map(data=data), "metadata": {"name": "a", **metadata}}


def bare(**metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}


def scale(replicas: int, **metadata: object) -> dict[str, object]:
    return {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "a", **metadata},
        "spec": {"replicas": replicas},
    }


CASES: dict[str, list[Step]] = {
    "apply of a new object: created, owned by the manager": [apply(OBJECT, applied({"k": "1"})), get(OBJECT)],
    "second apply of the same fields: no change": [
        apply(OBJECT, applied({"k": "1"})),
        apply(OBJECT, applied({"k": "1"})),
        get(OBJECT),
    ],
    "field no longer applied: removed": [
        apply(OBJECT, applied({"k": "1", "l": "2"}, labels={"x": "y"})),
        apply(OBJECT, applied({"l": "2"})),
    ],
    "apply of another manager's field: conflict": [
        apply(OBJECT, applied({"k": "1", "l": "2"})),
        apply(OBJECT, applied({"k": "2"}), "bob"),
        apply(OBJECT, applied({"k": "2", "l": "3"}), "bob"),
    ],
    "forced apply of another manager's field: ownership transferred": [
        apply(OBJECT, applied({"k": "1", "l": "2"})),
        apply(f"{OBJECT}?force=true", applied({"k": "2"}), "bob"),
        apply(OBJECT, applied({"l": "2"})),
    ],
    "two managers apply the same value: removed when neither applies it": [
        apply(OBJECT, applied({"k": "1"})),
        apply(OBJECT, applied({"k": "1"}), "bob"),
        apply(OBJECT, applied({}), "alice"),
        apply(OBJECT, applied({}), "bob"),
    ],
    "apply of a field written by an update: conflict until forced": [
        post(f"{CONFIG_MAPS}?fieldManager=maker", config_map(data={"k": "1"})),
        apply(OBJECT, applied({"k": "2"})),
        apply(f"{OBJECT}?force=true", applied({"k": "2"})),
    ],
    "update of an applied field: ownership moves to the updater": [
        apply(OBJECT, applied({"k": "1", "l": "2"})),
        put(f"{OBJECT}?fieldManager=writer", config_map(data={"k": "3", "l": "2"})),
        apply(OBJECT, applied({"k": "1"})),
    ],
    "patch of an applied field: ownership moves to the patcher": [
        apply(OBJECT, applied({"k": "1"})),
        patch(f"{OBJECT}?fieldManager=patcher", {"data": {"k": "2", "m": "3"}}),
        patch(f"{OBJECT}?fieldManager=patcher", {"data": {"m": None}}),
    ],
    "apply without a field manager: rejected": [patch(OBJECT, applied({"k": "1"}), APPLY)],
    "apply of managedFields: rejected": [
        apply(OBJECT, applied({"k": "1"}, managedFields=[{"manager": "x", "operation": "Apply"}]))
    ],
    "apply with another name than in the path: rejected": [
        apply(OBJECT, {**applied({}), "metadata": {"name": "b"}})
    ],
    "apply without a name: rejected": [apply(OBJECT, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}})],
    "apply without a kind: rejected": [apply(OBJECT, {"apiVersion": "v1", "metadata": {"name": "a"}})],
    "apply without an apiVersion: rejected": [
        apply(OBJECT, {"kind": "ConfigMap", "metadata": {"name": "a"}})
    ],
    "apply of a new object with a resourceVersion: created": [
        apply(OBJECT, applied({}, resourceVersion="1"))
    ],
    "apply with an old resourceVersion: conflict": [
        apply(OBJECT, applied({"k": "1"}), save="made"),
        apply(OBJECT, applied({"k": "2"})),
        apply(OBJECT, applied({"k": "3"}, resourceVersion="$made.metadata.resourceVersion")),
    ],
    "apply of a new object with a uid: rejected": [
        apply(OBJECT, applied({}, uid="00000000-0000-0000-0000-000000000001"))
    ],
    "apply of an unknown field: rejected": [apply(OBJECT, {**applied({}), "nonsense": 1})],
    "apply of a value of the wrong type: rejected": [apply(OBJECT, {**applied({}), "data": "text"})],
    "apply as YAML: valid applied, invalid rejected": [
        apply(OBJECT, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 'yes'\n"),
        apply(OBJECT, "apiVersion: v1\nkind: [\n"),
    ],
    "apply of the name only: all applied fields removed": [
        apply(OBJECT, applied({"k": "1"})),
        apply(OBJECT, bare()),
    ],
    "apply of list items: owned by key": [
        apply(f"{DEPLOYMENTS}/a", deployment()),
        apply(
            f"{DEPLOYMENTS}/a",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "a"},
                "spec": {
                    "template": {
                        "spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}]}
                    }
                },
            },
            "bob",
        ),
        apply(
            f"{DEPLOYMENTS}/a",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "a"},
                "spec": {"template": {"spec": {"containers": [{"name": "main", "image": "other"}]}}},
            },
            "bob",
        ),
    ],
    "deployment scaled after an apply: replicas are owned by the scaler": [
        apply(f"{DEPLOYMENTS}/a", deployment(replicas=1)),
        patch(f"{DEPLOYMENTS}/a/scale?fieldManager=scaler", {"spec": {"replicas": 4}}),
        get(f"{DEPLOYMENTS}/a"),
        apply(f"{DEPLOYMENTS}/a", deployment(replicas=2)),
    ],
    "scale written without a change: replicas get an entry of their own, which the next write drops": [
        *DEFINED,
        post(WIDGETS, widget(replicas=0), shown=False),
        patch(f"{WIDGETS}/a/scale", {}),
        get(f"{WIDGETS}/a"),
        patch(f"{WIDGETS}/a/scale", {}),
        patch(f"{WIDGETS}/a/scale", {}),
        get(f"{WIDGETS}/a"),
        post(DEPLOYMENTS, deployment(replicas=2), shown=False),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}}),
        get(f"{DEPLOYMENTS}/a"),
    ],
    "scale written by several managers: replicas are owned by the last, and by none after 0": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        patch(f"{WIDGETS}/a?fieldManager=alice", {"spec": {"replicas": 2}}),
        put(f"{WIDGETS}/a/scale", scale(2, labels={"x": "y"})),
        get(f"{WIDGETS}/a"),
        patch(f"{WIDGETS}/a/scale?fieldManager=bob", {"spec": {"replicas": 3}}),
        get(f"{WIDGETS}/a"),
        put(f"{WIDGETS}/a/scale?fieldManager=carol", scale(0)),
        patch(f"{WIDGETS}/a/scale?fieldManager=bob", {"spec": {"replicas": 1}}),
        get(f"{WIDGETS}/a"),
    ],
    "apply of a scale: only replicas are applied and owned": [
        post(DEPLOYMENTS, deployment(replicas=0), shown=False),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}}, shown=False),
        apply(f"{DEPLOYMENTS}/a/scale", scale(3)),
        apply(f"{DEPLOYMENTS}/a/scale?force=true", scale(3, labels={"x": "y"})),
        get(f"{DEPLOYMENTS}/a"),
        patch(f"{DEPLOYMENTS}/a/scale?fieldManager=bob", {"spec": {"replicas": 0}}, shown=False),
        apply(f"{DEPLOYMENTS}/a/scale", scale(4)),
        apply(f"{DEPLOYMENTS}/a/scale", {**scale(4), "spec": {}}),
        get(f"{DEPLOYMENTS}/a"),
    ],
    "apply of service ports: owned by port and protocol": [
        apply(f"{SERVICES}/a", service(ports=[{"name": "x", "port": 80, "protocol": "TCP"}])),
        apply(
            f"{SERVICES}/a",
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "a"},
                "spec": {"ports": [{"name": "y", "port": 81, "protocol": "TCP"}]},
            },
            "bob",
        ),
        apply(f"{SERVICES}/a", service(ports=[{"name": "z", "port": 82, "protocol": "TCP"}])),
    ],
    "apply of finalizers by two managers: merged as a set": [
        apply(OBJECT, bare(finalizers=["example.com/a"])),
        apply(OBJECT, bare(finalizers=["example.com/b"]), "bob"),
        apply(OBJECT, bare()),
    ],
    "apply of the status: owned with subresource status": [
        post(PODS, pod(), shown=False),
        apply(
            f"{PODS}/a/status",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "a"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
            "agent",
        ),
        get(f"{PODS}/a"),
    ],
    "apply of a custom resource: lists are merged by its schema": [
        *DEFINED,
        apply(f"{WIDGETS}/a", widget(parts=[{"name": "p"}, {"name": "q", "weight": 5}], tags=["x"])),
        apply(
            f"{WIDGETS}/a",
            widget(size=3, parts=[{"name": "p", "weight": 2}], tags=["y"]),
            "bob",
        ),
        apply(f"{WIDGETS}/a", widget(parts=[{"name": "q", "weight": 5}])),
    ],
    "apply of a list with a duplicate key: rejected": [
        *DEFINED,
        apply(f"{WIDGETS}/a", widget(parts=[{"name": "p"}, {"name": "p"}])),
    ],
    "managedFields set to an empty entry: all owners removed": [
        apply(OBJECT, applied({"k": "1"})),
        patch(OBJECT, {"metadata": {"managedFields": [{}]}}),
        get(OBJECT),
        apply(OBJECT, applied({"k": "2"}), "bob"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_apply(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
