"""Builds pods, nodes and PodGroups for tests of the scheduler, with defaults."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from argosy.local.controllers.api_types import Node, Pod, PodGroup

Json = dict[str, object]

START = datetime(2026, 1, 1, tzinfo=UTC)


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[str] = (),
    unschedulable: bool = False,
    **resources: str | int,
) -> Node:
    """A node; taints are written key=value:Effect; resources as cpu=…, gpu=…, memory=…, pods=…."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"} | _resources(resources)
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name} | dict(labels or {})},
            "spec": {"unschedulable": unschedulable, "taints": [_taint(text) for text in taints]},
            "status": {"allocatable": allocatable},
        },
        Node,
    )


def pod(
    name: str,
    *,
    namespace: str = "default",
    group: str = "",
    age: int = 0,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    phase: str = "Pending",
    spec: Mapping[str, object] | None = None,
    status: Mapping[str, object] | None = None,
    metadata: Mapping[str, object] | None = None,
    **requests: str | int,
) -> Pod:
    """A pod; `age` in seconds orders pods: older ones come first."""
    notes = dict(annotations or {}) | ({"scheduling.k8s.io/group-name": group} if group else {})
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{namespace}-{name}",
                "labels": dict(labels or {}),
                "annotations": notes,
                "creationTimestamp": START - timedelta(seconds=age),
                **(metadata or {}),
            },
            "spec": {
                "nodeName": node,
                "containers": [{"name": "main", "resources": {"requests": _resources(requests)}}],
                **(spec or {}),
            },
            "status": {"phase": phase, **(status or {})},
        },
        Pod,
    )


def pod_group(name: str, minimum: int, *, namespace: str = "default", **status: object) -> PodGroup:
    return msgspec.convert(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": f"group-{name}"},
            "spec": {"minMember": minimum},
            "status": status,
        },
        PodGroup,
    )


def _resources(quantities: Mapping[str, str | int]) -> dict[str, str]:
    return {("nvidia.com/gpu" if name == "gpu" else name): str(value) for name, value in quantities.items()}


def _taint(text: str) -> dict[str, str]:
    rest, effect = text.rsplit(":", 1)
    key, _, value = rest.partition("=")
    return {"key": key, "value": value, "effect": effect}
