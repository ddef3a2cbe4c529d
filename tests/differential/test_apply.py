"""Server-side apply: who owns which field, conflicts, and what becomes of fields no longer applied."""

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

ONE = f"{CONFIG_MAPS}/a"


def applied(data: dict[str, str], **metadata: object) -> dict[str, object]:
    return {**config_map(data=data), "metadata": {"name": "a", **metadata}}


def bare(**metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}


CASES: dict[str, list[Step]] = {
    "apply makes an object and notes its manager": [apply(ONE, applied({"k": "1"})), get(ONE)],
    "apply again changes nothing": [
        apply(ONE, applied({"k": "1"})),
        apply(ONE, applied({"k": "1"})),
        get(ONE),
    ],
    "a field no longer applied is removed": [
        apply(ONE, applied({"k": "1", "l": "2"}, labels={"x": "y"})),
        apply(ONE, applied({"l": "2"})),
    ],
    "a field of another manager is a conflict": [
        apply(ONE, applied({"k": "1", "l": "2"})),
        apply(ONE, applied({"k": "2"}), "bob"),
        apply(ONE, applied({"k": "2", "l": "3"}), "bob"),
    ],
    "force takes a field over": [
        apply(ONE, applied({"k": "1", "l": "2"})),
        apply(f"{ONE}?force=true", applied({"k": "2"}), "bob"),
        apply(ONE, applied({"l": "2"})),
    ],
    "the same value can have two owners": [
        apply(ONE, applied({"k": "1"})),
        apply(ONE, applied({"k": "1"}), "bob"),
        apply(ONE, applied({}), "alice"),
        apply(ONE, applied({}), "bob"),
    ],
    "a value written by an update is a conflict": [
        post(f"{CONFIG_MAPS}?fieldManager=maker", config_map(data={"k": "1"})),
        apply(ONE, applied({"k": "2"})),
        apply(f"{ONE}?force=true", applied({"k": "2"})),
    ],
    "an update takes fields from those who applied them": [
        apply(ONE, applied({"k": "1", "l": "2"})),
        put(f"{ONE}?fieldManager=writer", config_map(data={"k": "3", "l": "2"})),
        apply(ONE, applied({"k": "1"})),
    ],
    "a patch takes fields too": [
        apply(ONE, applied({"k": "1"})),
        patch(f"{ONE}?fieldManager=patcher", {"data": {"k": "2", "m": "3"}}),
        patch(f"{ONE}?fieldManager=patcher", {"data": {"m": None}}),
    ],
    "apply without a manager is refused": [patch(ONE, applied({"k": "1"}), APPLY)],
    "apply of managedFields is refused": [
        apply(ONE, applied({"k": "1"}, managedFields=[{"manager": "x", "operation": "Apply"}]))
    ],
    "apply under another name is refused": [apply(ONE, {**applied({}), "metadata": {"name": "b"}})],
    "apply without a name is refused": [apply(ONE, {"apiVersion": "v1", "kind": "ConfigMap", "data": {}})],
    "apply without a kind is refused": [apply(ONE, {"apiVersion": "v1", "metadata": {"name": "a"}})],
    "apply without an apiVersion is refused": [apply(ONE, {"kind": "ConfigMap", "metadata": {"name": "a"}})],
    "a version does not keep apply from making an object": [apply(ONE, applied({}, resourceVersion="1"))],
    "apply of an old version is a conflict": [
        apply(ONE, applied({"k": "1"}), save="made"),
        apply(ONE, applied({"k": "2"})),
        apply(ONE, applied({"k": "3"}, resourceVersion="$made.metadata.resourceVersion")),
    ],
    "apply of a uid that is not there is refused": [
        apply(ONE, applied({}, uid="00000000-0000-0000-0000-000000000001"))
    ],
    "apply of an unknown field is refused": [apply(ONE, {**applied({}), "nonsense": 1})],
    "apply of a wrong type is refused": [apply(ONE, {**applied({}), "data": "text"})],
    "apply as YAML": [
        apply(ONE, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: 'yes'\n"),
        apply(ONE, "apiVersion: v1\nkind: [\n"),
    ],
    "apply of nothing but the name lets everything go": [
        apply(ONE, applied({"k": "1"})),
        apply(ONE, bare()),
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
        apply(ONE, bare(finalizers=["example.com/a"])),
        apply(ONE, bare(finalizers=["example.com/b"]), "bob"),
        apply(ONE, bare()),
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
        apply(ONE, applied({"k": "1"})),
        patch(ONE, {"metadata": {"managedFields": [{}]}}),
        get(ONE),
        apply(ONE, applied({"k": "2"}), "bob"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_apply(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
