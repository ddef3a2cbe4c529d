"""Cases that the fuzzer found: requests that our server once answered differently from Kubernetes."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.crd_steps import DEFINED
from tests.support.differential import (
    APPLY,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Step,
    apply,
    delete,
    get,
    patch,
    post,
    put,
    watch,
)
from tests.support.manifests import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    config_map,
    deployment,
    job,
    lease,
    owner,
    pod,
    secret,
    service,
    widget,
)
from tests.support.servers import READER

ONE, JOB, POD = f"{CONFIG_MAPS}/a", f"{JOBS}/a", f"{PODS}/a"
LEASE, SERVICE, WIDGET = f"{LEASES}/a", f"{SERVICES}/a", f"{WIDGETS}/a"
NAMESPACE = f"{NAMESPACES}/$ns-x"
MADE = post(CONFIG_MAPS, config_map(), save="made", shown=False)
RUN = post(PODS, pod(), shown=False)
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/$ns"
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}}
DUPLICATE_KEY = '{"kind":"X","apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}'


def granted(resource: str, *verbs: str) -> tuple[Step, ...]:
    """Let the reader do that in the case's namespace, and wait until the server knows it."""
    group: dict[str, object] = {"apiGroup": "rbac.authorization.k8s.io"}
    rule = {"apiGroups": ["*"], "resources": [resource], "verbs": ["get", *verbs]}
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


BODIES: dict[str, list[Step]] = {
    "a body is decoded before the object that it names is looked up": [
        put(ONE, {**config_map(), "immutable": "yes"}),
        put(POD, {**pod(), "metadata": {"name": "a", "deletionTimestamp": "tomorrow"}}),
        put(f"{ONE}?fieldValidation=Strict", {**config_map(), "nonsense": 1}),
    ],
    "an invalid time is refused, a time with an offset is stored in UTC": [
        post(CONFIG_MAPS, config_map(creationTimestamp="yesterday")),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-01-01T00:00:00Z"}}),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-13-01T00:00:00.000000Z"}}),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-01-01T02:00:00.000000+02:00"}}),
    ],
    "a kind or version that is not a string is refused": [
        post(CONFIG_MAPS, {"kind": 5}),
        post(CONFIG_MAPS, {"apiVersion": "x/y/z", "kind": "ConfigMap"}),
        post(CONFIG_MAPS, "[]"),
        post(CONFIG_MAPS, "{} {}"),
    ],
    "a number beyond the range of its field is refused": [post(JOBS, job(parallelism=3000000000))],
    "incomplete base64 is refused": [post(SECRETS, secret(k="9")), post(SECRETS, secret(k="aGVsbA="))],
    "a resourceVersion that is not a number does not prevent a create": [
        post(CONFIG_MAPS, config_map(resourceVersion="abc")),
        put(LEASE, lease(resourceVersion="12345")),
    ],
    "a custom resource of another kind is refused": [
        *DEFINED,
        post(WIDGET, widget()),
        post("/apis/$ns.example.com/v1/widgets", widget()),
        post(WIDGETS, {**widget("b"), "kind": "Gadget"}),
        patch(WIDGET, {"apiVersion": "v2"}),
        patch(WIDGET, {"kind": "Gadget"}),
        post(WIDGETS, {"apiVersion": "$ns.example.com/v1", "kind": ""}),
    ],
    "an error is sent as YAML to a client that accepts YAML": [
        get(ONE, user=READER, accept="application/yaml")
    ],
}

PATCHES: dict[str, list[Step]] = {
    "a patch cannot change the kind of a built-in object": [
        MADE,
        patch(ONE, {"kind": "Pod"}),
        patch(ONE, {"kind": 5}),
        patch(ONE, {"kind": "Pod"}, STRATEGIC),
        patch(ONE, [{"op": "remove", "path": "/apiVersion"}], JSON_PATCH),
    ],
    "a strategic patch with a value of the wrong type is refused": [
        MADE,
        RUN,
        patch(ONE, {"data": {"k": []}}, STRATEGIC),
        patch(ONE, {"data": {"k": 65}}, STRATEGIC),
        patch(POD, {"spec": {"hostNetwork": "no"}}, STRATEGIC),
        patch(POD, {"spec": {"activeDeadlineSeconds": 1.5}}, STRATEGIC),
    ],
    "a patch that removes the resourceVersion is refused where one is required": [
        post(LEASES, lease(), shown=False),
        patch(LEASE, {"metadata": {"resourceVersion": None}}),
        MADE,
        patch(ONE, {"metadata": {"resourceVersion": None}, "data": {"k": "2"}}),
    ],
    "copy of a missing field sets null, move of a missing field is refused": [
        MADE,
        patch(ONE, [{"op": "copy", "from": "/binaryData", "path": "/data"}], JSON_PATCH),
        patch(ONE, [{"op": "move", "from": "/binaryData", "path": "/data"}], JSON_PATCH),
    ],
    "a test of a missing field compares with null": [
        RUN,
        patch(POD, [{"op": "test", "path": "/spec/nothing"}], JSON_PATCH),
        patch(POD, [{"op": "test", "path": "/metadata/name/x"}], JSON_PATCH),
        patch(POD, [{"op": "test", "path": "/spec/containers/9"}], JSON_PATCH),
    ],
    "duplicate keys in a patch or in applied JSON are reported": [
        patch(f"{ONE}?fieldManager=alice&fieldValidation=Strict", DUPLICATE_KEY, APPLY),
        patch(f"{ONE}?fieldManager=alice", DUPLICATE_KEY, APPLY),
        patch(f"{ONE}?fieldValidation=Strict", '{"data":{"k":"1"},"data":{"k":"2"}}'),
    ],
    "a merge patch drops nulls inside lists": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        patch(WIDGET, {"spec": {"free": {"list": [{"x": None, "y": 1}, None]}}}),
    ],
    "strategic directives of the wrong form are refused": [
        MADE,
        patch(ONE, {"data": {"$retainKeys": []}}, STRATEGIC),
        patch(ONE, {"metadata": {"finalizers": "x", "$setElementOrder/finalizers": []}}, STRATEGIC),
        patch(ONE, {"metadata": {"$setElementOrder/finalizers": None}}, STRATEGIC),
        patch(ONE, {"metadata": {"finalizers": ["example.com/a"]}}, STRATEGIC),
        patch(ONE, {"metadata": {"$deleteFromPrimitiveList/finalizers": [1]}}, STRATEGIC),
    ],
    "apply to an existing object needs no name": [
        MADE,
        apply(ONE, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "1"}}),
        apply(f"{CONFIG_MAPS}/b", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "1"}}),
        apply(ONE, {**config_map(), "metadata": {"name": "a", "namespace": "default"}}),
    ],
    "apply of values of the wrong type is refused": [
        apply(ONE, {**config_map(), "binaryData": {"b": "no base64!"}}),
        apply(ONE, {**config_map(), "data": {"k": 1.5}}),
        apply(ONE, {"apiVersion": "batch/v1", "kind": "ConfigMap"}),
        apply(ONE, config_map(managedFields=[])),
        patch(f"{ONE}?fieldManager=alice", "[", APPLY),
        *DEFINED,
        apply(WIDGET, widget(size="x")),
        apply(WIDGET, widget(tags=[1])),
    ],
    "apply of null keeps a map or list": [
        MADE,
        apply(f"{ONE}?force=true", {"apiVersion": "v1", "kind": "ConfigMap", "data": None}),
        *DEFINED,
        post(WIDGETS, widget(parts=[{"name": "p"}]), shown=False),
        apply(WIDGET, {**widget(parts=None, tags=None), "metadata": {"name": "a"}}),
    ],
    "apply of the status needs an existing object": [
        *DEFINED,
        apply(f"{WIDGET}/status", {"apiVersion": "$ns.example.com/v1", "kind": "Widget"}),
    ],
    "a map in place of a scalar is owned with its fields": [
        *DEFINED,
        post(WIDGETS, widget(free={"any": 1.5}), shown=False),
        patch(f"{WIDGET}?fieldManager=bob", {"spec": {"free": {"any": {"on": True}}}}),
        patch(f"{WIDGET}?fieldManager=carol", {"spec": {"free": {"any": [1]}}}),
    ],
    "a scale can be applied": [
        apply(f"{DEPLOYMENTS}/a", deployment(replicas=2)),
        apply(f"{DEPLOYMENTS}/a/scale", {**SCALE, "spec": {"replicas": 7}}, manager="bob"),
        apply(f"{DEPLOYMENTS}/a/scale?force=true", {**SCALE, "spec": {"replicas": 7}}, manager="bob"),
        get(f"{DEPLOYMENTS}/a"),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 2}}),
    ],
    "a scale of the wrong type or of another object is refused": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        get(f"{WIDGET}/scale"),
        patch(f"{WIDGET}/scale", {"spec": {"replicas": 1.5}}),
        put(f"{WIDGETS}/b/scale", {"spec": {"replicas": 3}}),
        put(f"{WIDGET}/scale", widget()),
        put(f"{WIDGET}/scale", {**SCALE, "metadata": {"name": "a", "uid": "x"}}),
        patch(f"{WIDGET}/scale", {}, STRATEGIC),
        patch(f"{WIDGET}/status", {"status": {"selector": 1}}),
    ],
}

VALIDATION: dict[str, list[Step]] = {
    "an owner is named once and has a valid version": [
        post(CONFIG_MAPS, config_map(ownerReferences=[owner(apiVersion="a/b/c")])),
        post(CONFIG_MAPS, config_map(ownerReferences=[owner(), owner(), owner(name="y")])),
    ],
    "the phase of a namespace says whether it is being deleted": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        patch(f"{NAMESPACE}/status", {"status": {"phase": "Terminating"}}),
        patch(f"{NAMESPACE}/status", {"status": {"phase": "Active"}}),
        patch(
            f"{NAMESPACE}/status",
            {"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}},
        ),
        delete(NAMESPACE, shown=False),
        patch(f"{NAMESPACE}/status", {"status": {"phase": "Active"}}, STRATEGIC),
        patch(f"{NAMESPACE}/status", {"status": {"phase": None}}),
        put(f"{NAMESPACE}/status", {"metadata": {"name": "$ns-x"}}),
        patch(f"{NAMESPACE}/status", {"status": {"conditions": [{"type": "X", "status": "True"}]}}),
    ],
    "a secret has the keys of its type": [
        post(SECRETS, secret("kubernetes.io/basic-auth")),
        post(SECRETS, secret("kubernetes.io/ssh-auth", **{"ssh-privatekey": ""})),
    ],
    "the template of a suspended job may change where its pods run": [
        post(JOBS, job(suspend=True), shown=False),
        patch(JOB, {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}),
        patch(JOB, {"spec": {"template": {"spec": {"volumes": [{"name": "v"}]}}}}),
    ],
    "scheduling gates can only be removed, and a gated pod has no node": [
        post(PODS, pod(nodeName="n1", schedulingGates=[{"name": "example.com/gate"}])),
        post(PODS, pod(schedulingGates=[{"name": "example.com/gate"}], nodeSelector={"x": "1"})),
        patch(POD, {"spec": {"nodeSelector": {"y": "2"}}}),
        patch(POD, {"spec": {"nodeSelector": {"x": None, "y": None}}}),
        patch(POD, {"spec": {"schedulingGates": [{"name": "example.com/other"}]}}),
    ],
    "a pod keeps its priority and only gains tolerations": [
        RUN,
        patch(POD, [{"op": "remove", "path": "/spec/priority"}], JSON_PATCH),
        patch(POD, {"spec": {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}}),
        patch(POD, {"spec": {"tolerations": [{}]}}),
        patch(POD, {"spec": {"activeDeadlineSeconds": -5}}),
    ],
    "probes, security contexts and tolerations are validated": [
        post(PODS, pod(container={"readinessProbe": {"httpGet": {"port": 0}}})),
        post(PODS, pod(container={"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}})),
        post(PODS, pod(securityContext={"runAsUser": -1})),
        post(PODS, pod(dnsPolicy="None")),
        post(PODS, pod(container={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]})),
        post(PODS, pod(tolerations=[{"operator": "Exists", "key": "k", "value": "v"}])),
        post(PODS, pod(containers=[{}, {}], initContainers=[{}, {}])),
    ],
    "an invalid volume cannot be mounted": [
        post(
            PODS,
            pod(
                container={"volumeMounts": [{"name": "v", "mountPath": "/v"}]},
                volumes=[{"name": "v", "hostPath": {}}],
            ),
        ),
    ],
    "a warning says that the pods of a deleted job stay": [delete(f"{JOBS}/none")],
    "a service that becomes an ExternalName gives up its addresses": [
        post(SERVICES, service()),
        patch(SERVICE, {"spec": {"type": "ExternalName", "externalName": "example.com"}}),
        patch(SERVICE, {"spec": {"type": "ClusterIP"}}),
        post(SERVICES, service("b", type="ExternalName", externalName="not a name!")),
    ],
    "a service that is no longer a NodePort gives up its node ports": [
        apply(SERVICE, service(type="NodePort")),
        apply(SERVICE, service()),
        put(SERVICE, service(type="NodePort", ports=[{"port": 81, "name": "x"}, {"port": 82, "name": "y"}])),
    ],
    "IP families and addresses of services are validated": [
        post(SERVICES, service(ipFamilies=["IPv6"])),
        post(SERVICES, service(ipFamilyPolicy="RequireDualStack")),
        post(SERVICES, service(clusterIP="300.1.1.1")),
        post(SERVICES, service(clusterIP="None", selector=None)),
        patch(SERVICE, {"spec": {"selector": {"app": "a"}}}),
        put(SERVICE, service(externalTrafficPolicy="Local")),
    ],
    "built-in objects need qualified finalizers, custom resources do not": [
        post(LEASES, {**lease(), "metadata": {"name": "a", "finalizers": ["hold"]}}),
        *DEFINED,
        post(WIDGETS, widget(metadata={"finalizers": ["hold"]})),
        post(CONFIG_MAPS, config_map(finalizers=["hold"])),
    ],
}

REQUESTS: dict[str, list[Step]] = {
    "an update that creates needs the right to create": [
        *granted("*", "update", "patch"),
        put(LEASE, {**lease(), "spec": {"leaseDurationSeconds": -1}}, user=READER),
        put(LEASE, lease(), user=READER),
        apply(ONE, config_map(), user=READER),
        MADE,
        apply(f"{ONE}?force=true", config_map(), user=READER),
    ],
    "a refused list names the object that its field selector names": [
        get(f"{PODS}?fieldSelector=metadata.name%3Da", user=READER),
        get(f"{PODS}?fieldSelector=metadata.name%3Da&limit=x", user=READER),
        delete(f"{PODS}?fieldSelector=metadata.name%3Da", user=READER),
    ],
    "delete options of the wrong type are refused": [
        MADE,
        delete(ONE, {"gracePeriodSeconds": 1.5}),
        delete(ONE, {"dryRun": "All"}),
        delete(f"{CONFIG_MAPS}?labelSelector=%21%21", {"gracePeriodSeconds": 1.5}),
        delete(f"{ONE}?orphanDependents=x"),
    ],
    "a collection is deleted page by page": [
        MADE,
        post(CONFIG_MAPS, config_map("b"), shown=False),
        delete(f"{CONFIG_MAPS}?limit=1"),
        get(CONFIG_MAPS),
    ],
    "a terminating namespace keeps its first propagation policy": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x", "generation": 7}}, shown=False),
        delete(NAMESPACE, {"preconditions": {"uid": "9"}}),
        delete(NAMESPACE, {"propagationPolicy": "Orphan"}),
        delete(NAMESPACE, {"propagationPolicy": "Background"}),
    ],
    "a pod deleted with orphans stays until its finalizer is removed": [
        RUN,
        delete(POD, {"propagationPolicy": "Orphan"}),
        delete(POD, {"propagationPolicy": "Background"}),
    ],
    "a page of a field selector ends with the last match": [
        post(PODS, pod(nodeName="n1"), shown=False),
        post(PODS, pod("c"), shown=False),
        get(f"{PODS}?fieldSelector=spec.nodeName=n1&limit=1"),
        get(f"{PODS}?fieldSelector=spec.nodeName!=n2&limit=1"),
        get(f"{PODS}?fieldSelector=metadata.name%3Da&limit=1"),
    ],
    "query parameters are checked in a fixed order": [
        get(f"{CONFIG_MAPS}?fieldSelector=metadata.name&limit=x"),
        get(f"{CONFIG_MAPS}?labelSelector=x%3D%3D%3D1&resourceVersion=-1"),
        watch(f"{CONFIG_MAPS}?resourceVersion=x&timeoutSeconds=x", 1),
        get(f"{CONFIG_MAPS}?labelSelector=x+in+("),
        get(f"{JOBS}?fieldSelector=nonsense%3D1"),
        get(ONE, accept="nonsense"),
    ],
    "paths below a subresource": [
        RUN,
        get(f"{POD}/status/more"),
        *DEFINED,
        post(f"{WIDGET}/status", widget()),
        delete(f"{WIDGET}/status"),
        Step("OPTIONS", WIDGET),
    ],
    "a dry run of a create shows the resourceVersion that was sent": [
        post(f"{CONFIG_MAPS}?dryRun=All", config_map(resourceVersion="5")),
        put(f"{LEASE}?dryRun=All", {**lease(), "metadata": {"name": "a", "resourceVersion": "7"}}),
    ],
}

CASES = {**BODIES, **PATCHES, **VALIDATION, **REQUESTS}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_regressions(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)


INVALID_PATCHES = (
    *("nonsense", "{", "null", "[]", "1", '"text"', '{"a":}', "{} {}", "[1]", "[null]"),
    *('{"kind": 5}', '[{"op":1}]', '[{"op":"add"}]', '[{"op":"add","path":5,"value":1}]'),
    '[{"op":"add","path":"/data","value":{"a":"b"},"x":1}]',
    '[{"op":"add","path":"/data","path":"/data","value":{"a":"c"}}]',
)


@pytest.mark.parametrize("type", [JSON_PATCH, MERGE, STRATEGIC])
@pytest.mark.parametrize("validation", ["Strict", "Ignore"])
def test_invalid_patches(compare: Callable[[Sequence[Step]], None], type: str, validation: str) -> None:
    path = f"{ONE}?fieldValidation={validation}"
    compare([MADE, *(patch(path, body, type) for body in INVALID_PATCHES)])
