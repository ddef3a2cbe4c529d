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


def refused(*, container: dict[str, object] | None = None, **spec: object) -> list[Step]:
    manifest = pod(container=container)
    part = manifest["spec"]
    assert isinstance(part, dict)
    return [post(PODS, {**manifest, "spec": {**part, **spec}})]


CASES: dict[str, list[Step]] = {
    "a pod is given its defaults, tolerations, token and class": [post(PODS, pod()), get(OBJECT)],
    "ports, probes, resources and pull policies are defaulted": [
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
    "quantities are written in their shortest form": [
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
    "a pod's quality class follows its resources": [
        post(
            PODS,
            pod(container={"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}),
        ),
        post(PODS, pod("b", container={"resources": {"requests": {"cpu": "1"}}})),
    ],
    "volumes are defaulted": [
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
    "environment from fields is defaulted": [
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
    "init containers and sidecars": [
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
    "a pod may refuse its token": [post(PODS, pod(automountServiceAccountToken=False))],
    "a pod of a service account that is not there is refused": refused(serviceAccountName="none"),
    "a host network pod has host ports": [
        post(PODS, pod(container={"ports": [{"containerPort": 80}]}, hostNetwork=True))
    ],
    "a pod without containers is refused": [
        post(PODS, pod(containers=[])),
        post(PODS, {"metadata": {"name": "a"}}),
    ],
    "a container without a name or image is refused": [
        post(PODS, pod(containers=[{}])),
        post(PODS, pod(container={"name": "Bad_Name"})),
        post(PODS, pod(container={"image": ""})),
        post(PODS, pod(container={"image": " x "})),
    ],
    "two containers of one name are refused": refused(
        containers=[{"name": "a", "image": "b"}, {"name": "a", "image": "b"}]
    ),
    "a bad restart policy is refused": refused(restartPolicy="Sometimes"),
    "a bad DNS policy is refused": refused(dnsPolicy="Guess"),
    "a bad pull policy is refused": refused(container={"imagePullPolicy": "Perhaps"}),
    "a bad port is refused": [
        post(PODS, pod(container={"ports": [{"containerPort": 0}]})),
        post(PODS, pod(container={"ports": [{"containerPort": 70000, "protocol": "X"}]})),
        post(PODS, pod(container={"ports": [{"containerPort": 1, "name": "way-too-long-a-port-name"}]})),
    ],
    "a request above its limit is refused": refused(
        container={"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
    ),
    "a quantity that is none is refused": refused(container={"resources": {"requests": {"cpu": "two"}}}),
    "a negative quantity is refused": refused(container={"resources": {"requests": {"cpu": "-1"}}}),
    "a resource without a domain is refused": refused(container={"resources": {"limits": {"gpu": 1}}}),
    "a device is whole, and its request is its limit": [
        post(PODS, pod(container={"resources": {"limits": {"nvidia.com/gpu": "500m"}}})),
        post(PODS, pod(container={"resources": {"requests": {"nvidia.com/gpu": 1}}})),
        post(
            PODS,
            pod(
                container={"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}}},
            ),
        ),
    ],
    "a mount of a volume that is not there is refused": refused(
        container={"volumeMounts": [{"name": "none", "mountPath": "/x"}]}
    ),
    "two mounts at one place are refused": refused(
        container={"volumeMounts": [{"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}]},
        volumes=[{"name": "v", "emptyDir": {}}],
    ),
    "two volumes of one name, or a volume of two kinds, are refused": [
        post(PODS, pod(volumes=[{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}])),
        post(PODS, pod(volumes=[{"name": "v", "emptyDir": {}, "hostPath": {"path": "/"}}])),
        post(PODS, pod(volumes=[{"emptyDir": {}}])),
    ],
    "a bad variable name is refused": [
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
    "a bad hostname or subdomain is refused": [
        post(PODS, pod(hostname="a.b")),
        post(PODS, pod(subdomain="A")),
    ],
    "a bad node selector or toleration is refused": [
        post(PODS, pod(nodeSelector={"a b": "c"})),
        post(PODS, pod(tolerations=[{"operator": "Equal", "effect": "Never"}])),
        post(PODS, pod(tolerations=[{"key": "a", "operator": "Maybe"}])),
    ],
    "a negative grace is taken as one second, a deadline of zero is refused": [
        post(PODS, pod(terminationGracePeriodSeconds=-1)),
        post(PODS, pod(activeDeadlineSeconds=0)),
    ],
    "several errors are reported together": refused(
        container={"imagePullPolicy": "X", "ports": [{"containerPort": 0}]}, restartPolicy="Y", dnsPolicy="Z"
    ),
    "a wrong type is refused": [
        post(PODS, pod(container={"image": 5})),
        post(PODS, pod(restartPolicy=1)),
        post(PODS, pod(containers={})),
        post(PODS, pod(terminationGracePeriodSeconds="x")),
        post(PODS, pod(hostNetwork="yes")),
        post(PODS, pod(nodeSelector=["a"])),
        post(PODS, pod(terminationGracePeriodSeconds=1.5)),
    ],
    "a pod's image may be changed": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"spec": {"containers": [{"name": "main", "image": "other"}]}}, STRATEGIC),
    ],
    "most of a pod's spec cannot be changed": [
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
    "an active deadline may be set and shortened": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"spec": {"activeDeadlineSeconds": 100}}),
        patch(OBJECT, {"spec": {"activeDeadlineSeconds": 50}}),
        patch(OBJECT, {"spec": {"activeDeadlineSeconds": 70}}),
    ],
    "labels may be changed, the spec stays": [
        post(PODS, pod(), shown=False),
        patch(OBJECT, {"metadata": {"labels": {"a": "b"}}}),
    ],
    "status does not come with the pod": [
        post(PODS, {**pod(), "status": {"phase": "Running"}}),
        patch(OBJECT, {"status": {"phase": "Failed"}}),
        patch(f"{OBJECT}/status", {"status": {"phase": "Running"}, "metadata": {"labels": {"x": "y"}}}),
        put(f"{OBJECT}/status", {**pod(), "status": {"phase": "Succeeded", "podIP": "10.0.0.1"}}),
    ],
    "a pod is bound to a node once": [
        post(PODS, pod(), shown=False),
        post(f"{OBJECT}/binding", BINDING),
        get(OBJECT),
        post(f"{OBJECT}/binding", BINDING),
        post(f"{PODS}/none/binding", {**BINDING, "metadata": {"name": "none"}}),
    ],
    "a gated pod is not scheduled": [
        post(PODS, pod(schedulingGates=[{"name": "example.com/g"}])),
        post(f"{OBJECT}/binding", BINDING),
        patch(OBJECT, {"spec": {"schedulingGates": None}}),
    ],
    "a pod is evicted": [
        post(PODS, pod(), shown=False),
        post(
            f"{OBJECT}/eviction",
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "$ns"}},
        ),
        get(OBJECT),
    ],
    "a priority class that is not there is refused": refused(priorityClassName="none"),
    "a system priority is resolved": refused(priorityClassName="system-node-critical"),
    "logs of a pod that runs nowhere": [
        post(PODS, pod(), shown=False),
        get(f"{OBJECT}/log"),
        get(f"{PODS}/none/log"),
    ],
    "logs of a container that is not there": [
        post(PODS, pod(nodeName="n1"), shown=False),
        get(f"{OBJECT}/log?container=none"),
    ],
    "logs of a pod with two containers need a container": [
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
