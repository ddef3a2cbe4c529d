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


CASES: dict[str, list[Step]] = {
    "apply creates an object with its manager": [apply(OBJECT, applied({"k": "1"})), get(OBJECT)],
    "apply again changes nothing": [
        apply(OBJECT, applied({"k": "1"})),
        apply(OBJECT, applied({"k": "1"})),
        get(OBJECT),
    ],
    "a field no longer applied is removed": [
        apply(OBJECT, applied({"k": "1", "l": "2"}, labels={"x": "y"})),
        apply(OBJECT, applied({"l": "2"})),
    ],
    "a field of another manager is a conflict": [
        apply(OBJECT, applied({"k": "1", "l": "2"})),
        apply(OBJECT, applied({"k": "2"}), "bob"),
        apply(OBJECT, applied({"k": "2", "l": "3"}), "bob"),
    ],
    "a forced apply transfers ownership": [
        apply(OBJECT, applied({"k": "1", "l": "2"})),
        apply(f"{OBJECT}?force=true", applied({"k": "2"}), "bob"),
        apply(OBJECT, applied({"l": "2"})),
    ],
    "the same value can have two owners": [
        apply(OBJECT, applied({"k": "1"})),
        apply(OBJECT, applied({"k": "1"}), "bob"),
        apply(OBJECT, applied({}), "alice"),
        apply(OBJECT, applied({}), "bob"),
    ],
    "a value written by an update is a conflict": [
        post(f"{CONFIG_MAPS}?fieldManager=maker", config_map(data={"k": "1"})),
        apply(OBJECT, applied({"k": "2"})),
        apply(f"{OBJECT}?force=true", applied({"k": "2"})),
    ],
    "an update takes ownership from appliers": [
        apply(OBJECT, applied({"k": "1", "l": "2"})),
        put(f"{OBJECT}?fieldManager=writer", config_map(data={"k": "3", "l": "2"})),
        apply(OBJECT, applied({"k": "1"})),
    ],
    "a patch takes ownership from appliers": [
        apply(OBJECT, applied({"k": "1"})),
        patch(f"{OBJECT}?fieldManager=patcher", {"data": {"k": "2", "m": "3"}}),
        patch(f"{OBJECT}?fieldManager=patcher", {"data": {"m": None}}),
    ],
    "apply without a manager is refused": [patch(OBJECT, applied({"k": "1"}), APPLY)],
    "apply of managedFields is refused": [
        apply(OBJECT, applied({"k": "1"}, managedFields=[{"manager": "x", "operation": "Apply"}]))
    ],
    "apply under another name is refused": [apply(OBJECT, {**applied({}), "metadata": {"name": "b"}})],
    "apply without a name is refused": [apply(OBJECT, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}})],
    "apply without a kind is refused": [apply(OBJECT, {"apiVersion": "v1", "metadata": {"name": "a"}})],
    "apply without an apiVersion is refused": [
        apply(OBJECT, {"kind": "ConfigMap", "metadata": {"name": "a"}})
    ],
    "apply with a resourceVersion creates an object": [apply(OBJECT, applied({}, resourceVersion="1"))],
    "apply of an old version is a conflict": [
        apply(OBJECT, applied({"k": "1"}), save="made"),
        apply(OBJECT, applied({"k": "2"})),
        apply(OBJECT, applied({"k": "3"}, resourceVersion="$made.metadata.resourceVersion")),
    ],
    "apply with an unknown uid is refused": [
        apply(OBJECT, applied({}, uid="00000000-0000-0000-0000-000000000001"))
    ],
    "apply of an unknown field is refused": [apply(OBJECT, {**applied({}), "nonsense": 1})],
    "apply of a wrong type is refused": [apply(OBJECT, {**applied({}), "data": "text"})],
    "apply as YAML": [
        apply(OBJECT, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 'yes'\n"),
        apply(OBJECT, "apiVersion: v1\nkind: [\n"),
    ],
    "apply of nothing but the name lets everything go": [
        apply(OBJECT, applied({"k": "1"})),
        apply(OBJECT, bare()),
    ],
    "list items are owned by key": [
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
    "a scaler and an applier share a deployment": [
        apply(f"{DEPLOYMENTS}/a", deployment(replicas=1)),
        patch(f"{DEPLOYMENTS}/a/scale?fieldManager=scaler", {"spec": {"replicas": 4}}),
        get(f"{DEPLOYMENTS}/a"),
        apply(f"{DEPLOYMENTS}/a", deployment(replicas=2)),
    ],
    "ports are owned by port and protocol": [
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
    "finalizers and owners are sets": [
        apply(OBJECT, bare(finalizers=["example.com/a"])),
        apply(OBJECT, bare(finalizers=["example.com/b"]), "bob"),
        apply(OBJECT, bare()),
    ],
    "the status is applied by its own managers": [
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
    "a custom resource is applied by its schema": [
        *DEFINED,
        apply(f"{WIDGETS}/a", widget(parts=[{"name": "p"}, {"name": "q", "weight": 5}], tags=["x"])),
        apply(
            f"{WIDGETS}/a",
            widget(size=3, parts=[{"name": "p", "weight": 2}], tags=["y"]),
            "bob",
        ),
        apply(f"{WIDGETS}/a", widget(parts=[{"name": "q", "weight": 5}])),
    ],
    "a duplicate key in an applied list is refused": [
        *DEFINED,
        apply(f"{WIDGETS}/a", widget(parts=[{"name": "p"}, {"name": "p"}])),
    ],
    "managedFields can be cleared": [
        apply(OBJECT, applied({"k": "1"})),
        patch(OBJECT, {"metadata": {"managedFields": [{}]}}),
        get(OBJECT),
        apply(OBJECT, applied({"k": "2"}), "bob"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_apply(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
