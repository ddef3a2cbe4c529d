"""Pods: defaults, validation, and which fields may change."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import JSON_PATCH, STRATEGIC, Step, get, patch, post, put
from tests.support.manifests import PODS, pod

OBJECT = f"{PODS}/a"
BINDING = {
    "apiVersion": "v1",
    "kind": "Binding",
    "metadata": {"name": "a"},
    "target": {"kind": "Node", "name": "n1"},
}


def create_pod(*, container: dict[str, object] | None = None, **spec: object) -> list[Step]:
    manifest = pod(container=container)
    part = manifest["spec"]
    assert isinstance(part, dict)
    return [post(PODS, {**manifest, "spec": {**part, **spec}})]


CASES: dict[str, list[Step]] = {
    "new pod: defaults, tolerations, token volume and QoS class set": [post(PODS, pod()), get(OBJECT)],
    "ports, probes, resources and pull policies: defaults set": [
        post(
            PODS,
            pod(
                container={
                    "image": "busybox:1",
                    "ports": [{"containerPort": 80}],
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "readinessProbe": {"exec": {"command": ["true"]}},
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": 1}},
                }
            ),
        )
    ],
    "quantities: stored in canonical form": [
        post(
            PODS,
            pod(
                container={
                    "resources": {
                        "requests": {"cpu": "1000m", "memory": "1024Mi", "ephemeral-storage": "0.5Gi"},
                        "limits": {"cpu": 1.5, "memory": "2000000000"},
                    }
                }
            ),
        )
    ],
    "limits only, requests only: QoS class Guaranteed, Burstable": [
        post(
            PODS,
            pod(container={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
        ),
        post(PODS, pod("b", container={"resources": {"requests": {"cpu": "1"}}})),
    ],
    "volumes: defaults set": [
        post(
            PODS,
            pod(
                container={"volumeMounts": [{"name": "a", "mountPath": "/a"}]},
                volumes=[
                    {"name": "a", "emptyDir": {}},
                    {"name": "b", "configMap": {"name": "c"}},
                    {"name": "c", "secret": {"secretName": "s"}},
                    {
                        "name": "d",
                        "downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]},
                    },
                    {"name": "e", "hostPath": {"path": "/tmp"}},
                    {"name": "f", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
                    {"name": "g"},
                ],
            ),
        )
    ],
    "env with a fieldRef: apiVersion set": [
        post(
            PODS,
            pod(
                container={
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                        {"name": "C"},
                    ]
                }
            ),
        )
    ],
    "init containers and sidecars: defaults set": [
        post(
            PODS,
            pod(
                initContainers=[
                    {"name": "i", "image": "b"},
                    {"name": "s", "image": "b", "restartPolicy": "Always"},
                ]
            ),
        )
    ],
    "automountServiceAccountToken false: no token volume": [
        post(PODS, pod(automountServiceAccountToken=False))
    ],
    "missing service account: rejected": create_pod(serviceAccountName="none"),
    "hostNetwork: hostPort set to containerPort": [
        post(PODS, pod(container={"ports": [{"containerPort": 80}]}, hostNetwork=True))
    ],
    "no containers: rejected": [
        post(PODS, pod(containers=[])),
        post(PODS, {"metadata": {"name": "a"}}),
    ],
    "container with an invalid name or image: rejected": [
        post(PODS, pod(containers=[{}])),
        post(PODS, pod(container={"name": "Bad_Name"})),
        post(PODS, pod(container={"image": ""})),
        post(PODS, pod(container={"image": " x "})),
    ],
    "two containers with the same name: rejected": create_pod(
        containers=[{"name": "a", "image": "b"}, {"name": "a", "image": "b"}]
    ),
    "unknown restartPolicy: rejected": create_pod(restartPolicy="Sometimes"),
    "unknown dnsPolicy: rejected": create_pod(dnsPolicy="Guess"),
    "unknown imagePullPolicy: rejected": create_pod(container={"imagePullPolicy": "Perhaps"}),
    "invalid container port: rejected": [
        post(PODS, pod(container={"ports": [{"containerPort": 0}]})),
        post(PODS, pod(container={"ports": [{"containerPort": 70000, "protocol": "X"}]})),
        post(PODS, pod(container={"ports": [{"containerPort": 1, "name": "way-too-long-a-port-name"}]})),
    ],
    "request above its limit: rejected": create_pod(
        container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    ),
    "invalid quantity: rejected": create_pod(container={"resources": {"requests": {"cpu": "two"}}}),
    "negative quantity: rejected": create_pod(container={"resources": {"requests": {"cpu": "-1"}}}),
    "unknown resource without a domain: rejected": create_pod(
        container={"resources": {"limits": {"gpu": 1}}}
    ),
    "extended resource with a fraction, or request other than limit: rejected": [
        post(PODS, pod(container={"resources": {"limits": {"nvidia.com/gpu": "500m"}}})),
        post(PODS, pod(container={"resources": {"requests": {"nvidia.com/gpu": 1}}})),
        post(
            PODS,
            pod(
                container={"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}},
            ),
        ),
    ],
    "mount of a missing volume: rejected": create_pod(
        container={"volumeMounts": [{"name": "none", "mountPath": "/x"}]}
    ),
    "two mounts with the same mountPath: rejected": create_pod(
        container={"volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "volume without a name, with a duplicate name or two sources: rejected": [
        post(PODS, pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])),
        post(PODS, pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}])),
        post(PODS, pod(volumes=[{"emptyDir": {}}])),
    ],
    "invalid environment variable: rejected": [
        post(PODS, pod(container={"env": [{"name": ""}]})),
        post(PODS, pod(container={"env": [{"name": "a=b"}]})),
        post(
            PODS,
            pod(
                container={
                    "env": [
                        {"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
                    ]
                }
            ),
        ),
    ],
    "invalid hostname or subdomain: rejected": [
        post(PODS, pod(hostname="a.b")),
        post(PODS, pod(subdomain="A")),
    ],
    "invalid nodeSelector or toleration: rejected": [
        post(PODS, pod(nodeSelector={"a b": "c"})),
        post(PODS, pod(tolerations=[{"operator": "Equal", "effect": "Never"}])),
        post(PODS, pod(tolerations=[{"key": "a", "operator": "Maybe"}])),
    ],
    "negative grace period: one second; activeDeadlineSeconds 0: rejected": [
        post(PODS, pod(terminationGracePeriodSeconds=-1)),
        post(PODS, pod(activeDeadlineSeconds=0)),
    ],
    "several invalid fields: one error for each": create_pod(
        container={"imagePullPolicy": "X", "ports": [{"containerPort": 0}]}, restartPolicy="Y", dnsPolicy="Z"
    ),
    "value of the wrong type: rejected": [
        post(PODS, pod(container={"image": 5})),
        post(PODS, pod(restartPolicy=1)),
        post(PODS, pod(containers={})),
        post(PODS, pod(terminationGracePeriodSeconds="x")),
        post(PODS, pod(hostNetwork="yes")),
        post(PODS, pod(nodeSelector=["a"])),
        post(PODS, pod(terminationGracePeriodSeconds=1.5)),
    ],
    "change of an image: accepted": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"spec": {"containers": [{"name": "main", "image": "other"}]}}, STRATEGIC),
    ],
    "change of nodeName, command or number of containers: rejected": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"spec": {"nodeName": "n2"}}),
        patch(
            OBJECT,
            [{"op": "add", "path": "/spec/containers/0/command", "value": ["x"]}],
            JSON_PATCH,
        ),
        patch(
            OBJECT,
            [{"op": "add", "path": "/spec/containers/-", "value": {"name": "b", "image": "b"}}],
            JSON_PATCH,
        ),
    ],
    "activeDeadlineSeconds set or lowered: accepted, raised: rejected": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"spec": {"activeDeadlineSeconds": 100}}),
        patch(OBJECT, {"spec": {"activeDeadlineSeconds": 50}}),
        patch(OBJECT, {"spec": {"activeDeadlineSeconds": 70}}),
    ],
    "change of labels: accepted": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"metadata": {"labels": {"a": "b"}}}),
    ],
    "status in a create or update: ignored, in the status subresource: stored": [
        post(PODS, {**pod(), "status": {"phase": "Running"}}),
        patch(OBJECT, {"status": {"phase": "Failed"}}),
        patch(f"{OBJECT}/status", {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}),
        put(f"{OBJECT}/status", {**pod(), "status": {"phase": "Succeeded", "podIP": "10.0.0.1"}}),
    ],
    "pod bound to a node: second binding rejected": [
        post(PODS, pod(), shown=False),
        post(f"{OBJECT}/binding", BINDING),
        get(OBJECT),
        post(f"{OBJECT}/binding", BINDING),
        post(f"{PODS}/none/binding", {**BINDING, "metadata": {"name": "none"}}),
    ],
    "pod with scheduling gates: binding rejected": [
        post(PODS, pod(schedulingGates=[{"name": "example.com/g"}])),
        post(f"{OBJECT}/binding", BINDING),
        patch(OBJECT, {"spec": {"schedulingGates": None}}),
    ],
    "eviction of a pod without a budget: pod deleted": [
        post(PODS, pod(), shown=False),
        post(
            f"{OBJECT}/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "$ns"}},
        ),
        get(OBJECT),
    ],
    "missing priority class: rejected": create_pod(priorityClassName="none"),
    "priority class system-node-critical: accepted": create_pod(priorityClassName="system-node-critical"),
    "logs of a pod without a node, or of a missing pod: as kube-apiserver": [
        post(PODS, pod(), shown=False),
        get(f"{OBJECT}/log"),
        get(f"{PODS}/none/log"),
    ],
    "logs of a missing container: rejected": [
        post(PODS, pod(nodeName="n1"), shown=False),
        get(f"{OBJECT}/log?container=none"),
    ],
    "logs of a pod with two containers without a container: rejected": [
        post(
            PODS,
            pod(nodeName="n1", containers=[{"name": "x", "image": "b"}, {"name": "y", "image": "b"}]),
            shown=False,
        ),
        get(f"{OBJECT}/log"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_pods(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
