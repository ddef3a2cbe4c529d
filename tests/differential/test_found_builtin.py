"""What the oracle found about the built-in kinds, and was mended."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import (
    GO_PRINTS,
    JSON_PATCH,
    STRATEGIC,
    Step,
    apply,
    delete,
    get,
    patch,
    post,
    put,
)
from tests.support.manifests import (
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    job,
    lease,
    owner,
    pod,
    secret,
    service,
)
from tests.support.servers import READER

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/$ns"
JOB = f"{JOBS}/a"
LEASE = f"{LEASES}/a"
POD = f"{PODS}/a"
SERVICE = f"{SERVICES}/a"
RUN = post(PODS, pod(), shown=False)
TWICE = [owner(), owner()]


def changes_only(resource: str) -> tuple[Step, ...]:
    """Let the reader change that resource, and not create it."""
    group: dict[str, object] = {"apiGroup": "rbac.authorization.k8s.io"}
    rule = {"apiGroups": ["*"], "resources": [resource], "verbs": ["get", "update", "patch"]}
    return (
        post(f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": [rule]}, shown=False),
        post(
            f"{RBAC}/rolebindings",
            {
                "metadata": {"name": "r"},
                "roleRef": {**group, "kind": "Role", "name": "r"},
                "subjects": [{**group, "kind": "User", "name": READER.name}],
            },
            shown=False,
        ),
        get(f"{LEASES}/none", user=READER, until_code=404, shown=False),
    )


SERVING: dict[str, list[Step]] = {
    "a service that becomes another name gives its addresses away": [
        post(SERVICES, service()),
        patch(SERVICE, {"spec": {"type": "ExternalName", "externalName": "example.com"}}),
        get(SERVICE),
        patch(SERVICE, {"spec": {"type": "ClusterIP"}}),
    ],
    "a name in place of addresses must be one, and have none": [
        post(SERVICES, service(type="ExternalName", externalName="not a name!")),
        post(SERVICES, service(type="ExternalName", externalName="example.com.", clusterIP="10.96.7.7")),
        post(SERVICES, service(type="ExternalName", externalName="x", internalTrafficPolicy="Nonsense")),
        post(SERVICES, service(type="ExternalName", externalName="x", internalTrafficPolicy="Local")),
    ],
    "a service that is no longer on every node gives its node ports away": [
        apply(SERVICE, service(type="NodePort")),
        apply(SERVICE, service()),
        patch(SERVICE, {"spec": {"type": "NodePort"}}),
        patch(SERVICE, {"spec": {"$retainKeys": ["ports"]}}, STRATEGIC),
    ],
    "node ports stay with the names of their ports": [
        post(SERVICES, service(type="NodePort", ports=[{"port": 80, "name": "x"}]), shown=False),
        put(SERVICE, service(type="NodePort", ports=[{"port": 81, "name": "x"}, {"port": 82, "name": "y"}])),
    ],
    "a service without address and selector may be of both families": [
        post(SERVICES, service(clusterIP="None", selector=None)),
        patch(SERVICE, {"spec": {"selector": {"app": "a"}}}),
        patch(SERVICE, {"spec": {"selector": {"app": "a"}, "ipFamilyPolicy": "SingleStack"}}),
    ],
    "families that are not here": [
        post(SERVICES, service(ipFamilies=["IPv6"])),
        post(SERVICES, service(ipFamilyPolicy="RequireDualStack")),
        post(SERVICES, service(ipFamilies=["IPv4", "IPv4"], ipFamilyPolicy="Nonsense")),
        post(SERVICES, service(ipFamilies=["IPv4", "IPv6"])),
    ],
    "addresses of services": [
        post(SERVICES, service(clusterIP="nonsense", sessionAffinity="Nonsense")),
        post(SERVICES, service(clusterIPs=["None"])),
        post(SERVICES, service(), shown=False),
        patch(SERVICE, {"spec": {"clusterIP": "None"}}, hide=GO_PRINTS),
        put(SERVICE, service(externalTrafficPolicy="Local")),
    ],
    "only what is balanced has a balancer": [
        post(SERVICES, service(), shown=False),
        get(f"{SERVICE}/status"),
        patch(f"{SERVICE}/status", {"status": {"conditions": "text"}}, STRATEGIC, hide=("message",)),
        patch(f"{SERVICE}/status", {"status": {"conditions": []}, "spec": {"type": "NodePort"}}),
        patch(f"{SERVICE}/status", {"metadata": {"labels": {"x": "1"}}, "status": {"loadBalancer": {}}}),
        patch(f"{SERVICE}/status", {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}]}}}),
    ],
}

RUNNING: dict[str, list[Step]] = {
    "the addresses of a pod must be addresses": [
        RUN,
        put(f"{POD}/status", {**pod(), "status": {"podIP": "nonsense"}}),
        patch(f"{POD}/status", {"status": {"podIP": "nonsense"}}, STRATEGIC),
        patch(f"{POD}/status", {"status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}}),
        patch(
            f"{POD}/status", {"status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}}, hide=GO_PRINTS
        ),
        patch(f"{POD}/status", {"status": {"hostIPs": [{"ip": "10.0.0.1"}]}}),
    ],
    "the one address of a pod counts where it differs from the first of all": [
        RUN,
        patch(f"{POD}/status", {"status": {"podIP": "10.0.0.1"}}),
        patch(f"{POD}/status", {"status": {"podIP": "nonsense"}}),
        patch(f"{POD}/status", {"status": {"podIP": "10.0.0.2"}}),
        patch(f"{POD}/status", {"status": {"podIP": None, "podIPs": [{"ip": "10.0.0.3"}]}}),
    ],
    "the words of a pod's status": [
        RUN,
        patch(f"{POD}/status", {"status": {"qosClass": "Guaranteed"}}),
        patch(f"{POD}/status", {"status": {"conditions": [{"type": "bad type!", "status": "True"}]}}),
        patch(f"{POD}/status", {"status": {"observedGeneration": -1, "nominatedNodeName": "Bad_Node"}}),
    ],
    "of two kinds of a volume only the first is looked at": [
        post(JOBS, job(), shown=False),
        post(PODS, pod(volumes=[{"name": "v", "configMap": {}, "emptyDir": {}}])),
    ],
    "a volume that is wrong is none to mount": [
        post(
            PODS,
            pod(
                container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                volumes=[{"name": "v", "hostPath": {}}],
            ),
        ),
    ],
    "a pod that waits may only be bound further": [
        post(PODS, pod(schedulingGates=[{"name": "example.com/gate"}], nodeSelector={"x": "1"}), shown=False),
        patch(POD, {"spec": {"nodeSelector": {"y": "2"}}}),
        patch(POD, {"spec": {"affinity": {}}}, hide=GO_PRINTS),
        patch(POD, {"spec": {"nodeSelector": {"x": None, "y": None}}}, hide=GO_PRINTS),
    ],
    "a pod that is refused before it has a name": [
        post(PODS, {"kind": "Pod", "spec": {"priority": 5}}),
        post(PODS, {"kind": "Pod", "metadata": {"generateName": "g-"}, "spec": {"priority": 5}}),
        post(
            PODS, {"kind": "Pod", "metadata": {"generateName": "g-"}, "spec": {"serviceAccountName": "none"}}
        ),
    ],
    "a pod keeps its priority, whoever takes it away": [
        RUN,
        patch(POD, [{"op": "remove", "path": "/spec/priority"}], JSON_PATCH),
        patch(POD, {"spec": {"preemptionPolicy": None}}),
    ],
    "nobody is warned of a pod a second time": [
        post(PODS, pod(container={"env": [{"name": "A"}, {"name": "A"}]})),
        patch(POD, {"metadata": {"labels": {"x": "1"}}, "spec": {"activeDeadlineSeconds": 50}}),
    ],
    "a job with a bad selector still lacks its labels": [
        post(JOBS, job(), shown=False),
        put(JOB, job(selector={"matchLabels": {"bad key!": "1"}}), hide=GO_PRINTS),
        put(JOB, job(selector={"matchExpressions": [{"key": "x", "operator": "No"}]}), hide=GO_PRINTS),
    ],
    "a name that could have been generated is taken": [
        post(JOBS, job(), shown=False),
        post(JOBS, {**job(), "metadata": {"name": "a", "generateName": "g-"}}),
    ],
    "a namespace that goes is not a new generation": [
        post(NAMESPACES, {"metadata": {"name": "$ns-a", "generation": 7}}, shown=False),
        delete(f"{NAMESPACES}/$ns-a"),
    ],
    "a namespace whose dependents shall not be orphans waits for them": [
        post(NAMESPACES, {"metadata": {"name": "$ns-a"}}, shown=False),
        delete(f"{NAMESPACES}/$ns-a", {"orphanDependents": False}),
    ],
    "a pod that leaves orphans is one generation older": [
        RUN,
        delete(POD, {"propagationPolicy": "Orphan"}),
    ],
    "a pod that is deleted again, leaving none behind, goes as it was": [
        RUN,
        delete(POD, {"propagationPolicy": "Orphan"}, shown=False),
        delete(POD, {"propagationPolicy": "Background"}),
    ],
    "the template of a job that waits, and has run before": [
        post(JOBS, job(suspend=True), shown=False),
        patch(f"{JOB}/status", {"status": {"startTime": "2024-01-01T00:00:00Z"}}, shown=False),
        patch(JOB, {"spec": {"template": {"spec": {"hostname": "h"}}}}, hide=GO_PRINTS),
        patch(JOB, {"spec": {"template": {"spec": {"nodeSelector": {"x": "1"}}}}}, hide=GO_PRINTS),
    ],
    "a page of one object that is named is the last": [
        RUN,
        post(PODS, pod("b"), shown=False),
        get(f"{PODS}?fieldSelector=metadata.name%3Da&limit=1"),
        get(f"{PODS}?fieldSelector=spec.nodeName%3D&limit=1"),
    ],
    "a service goes with the finalizers that its deletion takes away": [
        post(SERVICES, {**service(), "metadata": {"name": "a", "finalizers": ["orphan"]}}, shown=False),
        delete(SERVICE, {"propagationPolicy": "Background"}),
    ],
}

READING: dict[str, list[Step]] = {
    "owners that are named twice are told of before anything else": [
        put(POD, pod(metadata={"ownerReferences": TWICE})),
        post(LEASES, lease(), shown=False),
        put(LEASE, lease(ownerReferences=TWICE, resourceVersion="1")),
    ],
    "an update that creates is read and checked before it is allowed": [
        *changes_only("leases"),
        put(LEASE, lease(resourceVersion="nonsense"), user=READER),
        put(LEASE, {**lease(), "spec": {"leaseDurationSeconds": -1}}, user=READER),
        apply(LEASE, {**lease(), "spec": {"leaseDurationSeconds": -1}}, user=READER),
        put(LEASE, lease(), user=READER),
        apply(LEASE, lease(), user=READER),
    ],
    "who may not create is warned all the same": [
        *changes_only("*"),
        put(SERVICE, service(externalName="x"), user=READER),
    ],
    "a name that is asked for by a list that cannot be read": [
        get(f"{PODS}?fieldSelector=metadata.name%3Da", user=READER),
        get(f"{PODS}?fieldSelector=metadata.name%3Da&limit=x", user=READER),
    ],
    "an applied object of another namespace": [
        apply(JOB, {**job(), "metadata": {"name": "a", "namespace": "default"}}),
    ],
    "a time that is none, applied and patched": [
        apply(POD, pod(metadata={"creationTimestamp": 1})),
        RUN,
        patch(POD, {"metadata": {"creationTimestamp": 1}}, STRATEGIC, hide=GO_PRINTS),
        patch(POD, {"spec": {"tolerations": [{"tolerationSeconds": {}}]}}, STRATEGIC, hide=GO_PRINTS),
    ],
    "unknown fields after a patch come in order": [
        RUN,
        patch(f"{POD}?dryRun=All", {"spec": {"zz": 1, "aa": 1}, "nonsense": 1}),
        patch(f"{POD}?dryRun=All", {"spec": {"zz": 1, "containers": [{"name": "main", "aa": 1}]}}, STRATEGIC),
        patch(
            f"{POD}?dryRun=All",
            [{"op": "add", "path": "/spec/zz", "value": 1}, {"op": "add", "path": "/nonsense", "value": 1}],
            JSON_PATCH,
        ),
    ],
    "a test of what cannot be there": [
        RUN,
        patch(POD, [{"op": "test", "path": "/spec/nothing"}], JSON_PATCH),
        patch(POD, [{"op": "test", "path": "/metadata/name/x"}], JSON_PATCH),
        patch(POD, [{"op": "test", "path": "/spec/nothing/x"}], JSON_PATCH),
        patch(POD, [{"op": "test", "path": "/spec/containers/9"}], JSON_PATCH),
    ],
    "a patch for whom its fields are not looked at": [
        RUN,
        patch(f"{POD}?fieldValidation=Ignore", "nonsense", JSON_PATCH),
        patch(f"{POD}?fieldValidation=Ignore", {}, JSON_PATCH),
        patch(f"{POD}?fieldValidation=Ignore", [1], JSON_PATCH),
        patch(f"{POD}?fieldValidation=Ignore", [None], JSON_PATCH),
        patch(f"{POD}?fieldValidation=Ignore", [{"op": 1, "path": "/spec"}], JSON_PATCH),
    ],
    "a body of another kind is read as that kind first": [
        post(SECRETS, {"apiVersion": "v1", "kind": "ConfigMap", "immutable": "yes"}),
        post(SECRETS, {"apiVersion": "v1", "kind": "ConfigMap", "immutable": True, "nonsense": 1}),
        post(SECRETS, {"apiVersion": "batch/v1", "kind": "Job", "spec": {"suspend": 1}}),
    ],
    "of two wrong values the one that Go fills in first is told": [
        RUN,
        patch(f"{POD}/status", {"status": {"conditions": "text", "phase": 1}}, STRATEGIC, hide=("message",)),
        patch(POD, {"spec": {"nodeName": 1, "dnsPolicy": 1}}, STRATEGIC, hide=("message",)),
        patch(POD, {"spec": {"nodeName": 1}, "apiVersion": 1}, STRATEGIC, hide=("message",)),
        post(SERVICES, service(ipFamilies="IPv4")),
    ],
    "what is copied by a patch is a copy": [
        RUN,
        patch(
            POD,
            [{"op": "copy", "from": "/spec/tolerations", "path": "/spec/volumes"}],
            JSON_PATCH,
            hide=GO_PRINTS,
        ),
    ],
    "unknown fields of what is copied come in Go's order": [
        post(SERVICES, service(ports=[{"port": 80, "name": "x", "appProtocol": "y"}]), shown=False),
        patch(
            SERVICE,
            [{"op": "copy", "from": "/spec/ports", "path": "/metadata/ownerReferences"}],
            JSON_PATCH,
            hide=("message", "details.causes"),
        ),
    ],
    "containers without a name have the same one": [
        post(PODS, pod(containers=[{}, {}], initContainers=[{}, {}]), hide=("message",)),
        post(PODS, pod(initContainers=[{}, {}]), hide=("message",)),
    ],
    "a page of the pods of a node ends with them": [
        post(PODS, pod(nodeName="n1"), shown=False),
        post(PODS, pod("c"), shown=False),
        get(f"{PODS}?fieldSelector=spec.nodeName=n1&limit=1"),
        get(f"{PODS}?fieldSelector=spec.nodeName!=n2&limit=1"),
    ],
    "a time that cannot be read is told before data that cannot": [
        post(SECRETS, {"data": {"k": "%%"}, "metadata": {"creationTimestamp": "x"}}),
        post(SECRETS, {"data": {"k": "%%"}, "immutable": "yes"}),
    ],
    "a patch that leaves no version": [
        post(SECRETS, secret(), shown=False),
        patch(f"{SECRETS}/a", {"apiVersion": "", "kind": "Secret"}),
    ],
    "base64 that ends early": [
        post(SECRETS, secret(k="9")),
        post(SECRETS, secret(k="aGVsbG8")),
        post(SECRETS, secret(k="aGVsbA=")),
        post(SECRETS, secret(k="aGVsbG8=x")),
        post(SECRETS, secret(), shown=False),
        patch(f"{SECRETS}/a", {"data": {"k": "9"}}, STRATEGIC, hide=("message",)),
    ],
}

CASES = {**SERVING, **RUNNING, **READING}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_found_builtin(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
