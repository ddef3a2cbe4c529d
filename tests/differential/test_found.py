"""What the oracle found and was mended, a case for each: see `tools.fuzzer`."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.crd_steps import DEFINED
from tests.support.differential import (
    APPLY,
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
    watch,
)
from tests.support.manifests import (
    CONFIG_MAPS,
    JOBS,
    LEASES,
    NAMESPACES,
    PODS,
    SECRETS,
    SERVICES,
    WIDGETS,
    config_map,
    job,
    lease,
    owner,
    pod,
    secret,
    service,
    widget,
)

ONE = f"{CONFIG_MAPS}/a"
JOB = f"{JOBS}/a"
POD = f"{PODS}/a"
MADE = post(CONFIG_MAPS, config_map(), save="made", shown=False)
RUN = post(PODS, pod(), shown=False)
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
TWICE = '{"kind":"X","apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}'
BACK = [{"key": "k", "path": "../p"}]


READING: dict[str, list[Step]] = {
    "a body is read before the object it names is looked for": [
        put(ONE, {**config_map(), "immutable": "yes"}),
        put(ONE, config_map(generateName=1)),
        put(POD, {**pod(), "metadata": {"name": "a", "deletionTimestamp": "tomorrow"}}),
        put(f"{ONE}?fieldValidation=Strict", {**config_map(), "nonsense": 1}),
    ],
    "a custom resource is read before its name is": [
        *DEFINED,
        put(f"{WIDGETS}/a", {**widget(nonsense=1), "metadata": {}}),
        put(f"{WIDGETS}/a/status", {**widget(), "metadata": {}, "status": {"nonsense": 1}}),
    ],
    "fields that stand twice and unknown ones are told together": [
        post(f"{CONFIG_MAPS}?fieldValidation=Strict", '{"x":1,"x":2,"metadata":{"name":"a"}}'),
        post(f"{CONFIG_MAPS}?fieldValidation=Warn", '{"x":1,"x":2,"metadata":{"name":"a"}}'),
    ],
    "a time that is none": [
        post(CONFIG_MAPS, config_map(creationTimestamp="yesterday")),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-01-01"}}),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-01-01T00:00:00Z"}}),
        post(LEASES, {**lease(), "spec": {"renewTime": 5}}),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-13-01T00:00:00.000000Z"}}),
        post(LEASES, {**lease(), "spec": {"renewTime": "2024-01-01T02:00:00.000000+02:00"}}),
    ],
    "a kind or version that is no text": [
        post(CONFIG_MAPS, {"kind": 5}),
        post(CONFIG_MAPS, {"apiVersion": 1, "kind": "ConfigMap"}),
        post(CONFIG_MAPS, {"apiVersion": "x/y/z", "kind": "ConfigMap"}),
        post(CONFIG_MAPS, "[]"),
        post(CONFIG_MAPS, "{} {}"),
    ],
    "a Status is known to every group": [
        get(ONE, save="missing", shown=False),
        put(ONE, "$missing"),
        put(JOB, "$missing"),
    ],
    "a version that is no number does not keep an object from being made": [
        post(CONFIG_MAPS, config_map(resourceVersion="abc")),
    ],
    "an update that creates does not look at the version": [
        put(f"{LEASES}/a", lease(resourceVersion="12345"))
    ],
    "a custom resource can be posted to its name": [*DEFINED, post(f"{WIDGETS}/a", widget())],
    "a custom resource is not made outside of namespaces": [
        *DEFINED,
        post("/apis/$ns.example.com/v1/widgets", widget()),
    ],
    "a list is a kind of its own": [
        get(CONFIG_MAPS, save="list", shown=False),
        put(ONE, "$list"),
    ],
    "a word that is none of JSON's": [post(CONFIG_MAPS, "not json")],
    "a time or quantity that cannot be read comes before a wrong type": [
        post(LEASES, {**lease(), "spec": {"holderIdentity": 1, "acquireTime": "x"}}),
    ],
    "a number too large for its field": [post(JOBS, job(parallelism=3000000000))],
    "an object that is being deleted is still there": [
        post(CONFIG_MAPS, config_map(finalizers=["example.com/hold"]), shown=False),
        delete(ONE, shown=False),
        post(CONFIG_MAPS, config_map()),
    ],
    "a custom resource of wrong types has no owners of its fields": [
        *DEFINED,
        post(WIDGETS, widget(), save="made", shown=False),
        put(
            f"{WIDGETS}/a/status",
            {**widget(size="x", metadata={"resourceVersion": "$made.metadata.resourceVersion"})},
        ),
        post(WIDGETS, widget("b", parts=["a"])),
        post(WIDGETS, widget("c", metadata={"finalizers": ["example.com/a", "example.com/a"]})),
    ],
    "what is refused without a name is told with the rest": [post(PODS, {"kind": "Pod", "apiVersion": "v1"})],
}

PATCHING: dict[str, list[Step]] = {
    "a patch to another kind": [
        MADE,
        patch(ONE, {"kind": "Pod"}, hide=GO_PRINTS),
        patch(ONE, {"kind": 5}, hide=GO_PRINTS),
        patch(ONE, {"kind": "Pod"}, STRATEGIC),
    ],
    "a strategic patch fills structs": [
        MADE,
        RUN,
        patch(ONE, {"data": {"k": []}}, STRATEGIC),
        patch(ONE, {"data": {"k": 1.5}}, STRATEGIC),
        patch(ONE, {"data": {"k": 65}}, STRATEGIC),
        patch(ONE, {"immutable": "yes"}, STRATEGIC),
        patch(POD, {"spec": {"hostNetwork": "no"}}, STRATEGIC),
        patch(POD, {"spec": {"activeDeadlineSeconds": 1.5}}, STRATEGIC),
        patch(POD, {"spec": {"activeDeadlineSeconds": "x"}}, STRATEGIC),
    ],
    "a patch that takes the version away": [
        post(LEASES, lease(), shown=False),
        patch(f"{LEASES}/a", {"metadata": {"resourceVersion": None}}),
        MADE,
        patch(ONE, {"metadata": {"resourceVersion": None}, "data": {"k": "2"}}),
    ],
    "a copy of a field that is not there is nothing": [
        MADE,
        patch(ONE, [{"op": "copy", "from": "/binaryData", "path": "/data"}], JSON_PATCH),
        patch(ONE, [{"op": "move", "from": "/binaryData", "path": "/data"}], JSON_PATCH),
    ],
    "apply of what exists needs no name": [
        MADE,
        apply(ONE, {"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "1"}}),
        apply(f"{CONFIG_MAPS}/b", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"l": "1"}}),
    ],
    "apply of values that no type has": [
        apply(ONE, {**config_map(), "binaryData": {"b": "no base64!"}}),
        apply(f"{LEASES}/a", {**lease(), "spec": {"renewTime": "2024-01-01"}}),
    ],
    "apply of odd YAML": [
        patch(f"{ONE}?fieldManager=alice", '{"a":}', APPLY),
        patch(f"{ONE}?fieldManager=alice", "null", APPLY),
    ],
    "apply of null lays nothing over a map or list": [
        MADE,
        apply(f"{ONE}?force=true", {"apiVersion": "v1", "kind": "ConfigMap", "data": None}),
        *DEFINED,
        post(WIDGETS, widget(parts=[{"name": "p"}]), shown=False),
        apply(f"{WIDGETS}/a", {**widget(parts=None, tags=None), "metadata": {"name": "a"}}),
    ],
    "apply of a kind that there is not": [
        apply(ONE, {"apiVersion": "batch/v1", "kind": "ConfigMap"}),
        apply(ONE, {"apiVersion": "v1", "kind": "Nonsense"}),
        apply(ONE, config_map(managedFields=[])),
        apply(ONE, config_map(managedFields="text")),
    ],
    "apply of values of other types": [
        *DEFINED,
        apply(f"{WIDGETS}/a", widget(size="x")),
        apply(f"{WIDGETS}/a", widget(tags=[1])),
        apply(f"{WIDGETS}/a", widget(parts={})),
        apply(f"{WIDGETS}/a", widget(options="x")),
    ],
    "apply of keys that stand twice": [
        patch(f"{ONE}?fieldManager=alice", TWICE, APPLY),
        patch(f"{ONE}?fieldManager=alice&fieldValidation=Strict", TWICE, APPLY),
    ],
    "a merge patch whose keys stand twice": [
        MADE,
        patch(ONE, '{"x":1,"x":2}'),
        patch(f"{ONE}?fieldValidation=Strict", '{"data":{"k":"1"},"data":{"k":"2"}}', hide=GO_PRINTS),
    ],
    "a merge patch has no nulls inside lists": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        patch(f"{WIDGETS}/a", {"spec": {"free": {"list": [{"x": None, "y": 1}, None]}}}),
    ],
    "a patch to another namespace": [MADE, patch(ONE, {"metadata": {"namespace": "default"}})],
    "a strategic patch of a wrong form": [
        MADE,
        patch(ONE, {"data": {"$retainKeys": []}}, STRATEGIC),
        post(LEASES, lease(), shown=False),
        patch(f"{LEASES}/a", {"spec": {"$retainKeys": [], "holderIdentity": "x"}}, STRATEGIC),
    ],
    "a scale of wrong types": [
        *DEFINED,
        post(WIDGETS, widget(), shown=False),
        get(f"{WIDGETS}/a/scale"),
        patch(f"{WIDGETS}/a/scale", {"spec": {"replicas": 1.5}}, hide=GO_PRINTS),
        put(f"{WIDGETS}/a/scale", {"metadata": {"name": "a"}, "spec": {"replicas": "3"}}),
        put(f"{WIDGETS}/b/scale", {"spec": {"replicas": 3}}),
        put(f"{WIDGETS}/a/scale", widget()),
        patch(f"{WIDGETS}/a/status", {"status": {"selector": 1}}),
    ],
    "a scale takes no strategic patch, whether it is there or not": [
        *DEFINED,
        patch(f"{WIDGETS}/a/scale", {}, STRATEGIC),
    ],
}

CHECKING: dict[str, list[Step]] = {
    "an owner's version": [post(CONFIG_MAPS, config_map(ownerReferences=[owner(apiVersion="a/b/c")]))],
    "an owner is named once": [
        post(CONFIG_MAPS, config_map(ownerReferences=[owner(), owner(), owner(name="y")])),
        patch(ONE, {"metadata": {"ownerReferences": [owner(), owner()]}}),
    ],
    "a secret of a type": [
        post(SECRETS, secret("kubernetes.io/basic-auth")),
        post(SECRETS, secret("kubernetes.io/ssh-auth", **{"ssh-privatekey": ""})),
        post(SECRETS, secret("kubernetes.io/basic-auth", username="YQ==")),
    ],
    "the phase of a namespace": [
        post(NAMESPACES, {"metadata": {"name": "$ns-x"}}, shown=False),
        patch(f"{NAMESPACES}/$ns-x/status", {"status": {"phase": "Terminating"}}),
        patch(f"{NAMESPACES}/$ns-x/status", {"status": {"phase": "Active"}}),
    ],
    "a job keeps its labels and selector": [
        post(JOBS, job(), shown=False),
        put(JOB, job(), hide=(*GO_PRINTS, "details.causes")),
        put(f"{JOB}/status", job()),
        patch(
            JOB,
            {"spec": {"template": {"metadata": {"labels": None}}}},
            hide=(*GO_PRINTS, "details.causes"),
        ),
    ],
    "what may change in a job that waits": [
        post(JOBS, job(suspend=True), shown=False),
        patch(JOB, {"spec": {"template": {"spec": {"nodeSelector": {"zone": "a"}}}}}),
        patch(JOB, {"spec": {"template": {"spec": {"volumes": [{"name": "v"}]}}}}, hide=GO_PRINTS),
    ],
    "a pod that waits at a gate is on no node": [
        post(PODS, pod(nodeName="n1", schedulingGates=[{"name": "example.com/gate"}])),
    ],
    "a deadline below zero": [RUN, patch(POD, {"spec": {"activeDeadlineSeconds": -5}})],
    "an address that is none": [
        post(SERVICES, service(clusterIP="nonsense")),
        post(SERVICES, service(clusterIP="300.1.1.1")),
    ],
    "active pods below zero": [
        post(JOBS, job(), shown=False),
        patch(f"{JOB}/status", {"status": {"active": -1}}),
    ],
    "scheduling gates are only taken away": [
        RUN,
        patch(POD, {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}),
        post(PODS, pod("b", schedulingGates=[{"name": "bad gate!"}])),
    ],
    "the parts of a pod that say how it runs": [
        post(PODS, pod(container={"readinessProbe": {}})),
        post(PODS, pod(container={"readinessProbe": {"httpGet": {"port": 0}}})),
        post(PODS, pod(container={"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}})),
        post(PODS, pod(container={"terminationMessagePolicy": "Never"})),
        post(PODS, pod(securityContext={"runAsUser": -1})),
        post(PODS, pod(dnsPolicy="None")),
        post(PODS, pod(container={"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]})),
        post(PODS, pod(tolerations=[{"operator": "Exists", "key": "k", "value": "v"}])),
        post(
            PODS,
            pod(
                volumes=[
                    {"name": "v", "secret": {"secretName": "a", "items": [{"key": "k", "path": "../p"}]}}
                ]
            ),
        ),
    ],
    "what is warned of": [
        post(SERVICES, service(externalName="example.com")),
        post(PODS, pod("a.b")),
        post(JOBS, job("a.b")),
        delete(f"{JOBS}/none"),
        post(PODS, pod(container={"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]})),
    ],
}

ASKING: dict[str, list[Step]] = {
    "options of a delete that are of the wrong type": [
        MADE,
        delete(ONE, {"gracePeriodSeconds": 1.5}),
        delete(ONE, {"preconditions": "x"}),
        delete(ONE, {"dryRun": "All"}),
    ],
    "the query of a collection is read before the body": [
        delete(f"{CONFIG_MAPS}?labelSelector=%21%21", {"gracePeriodSeconds": 1.5}),
        delete(f"{CONFIG_MAPS}?limit=x"),
    ],
    "whatever a flag is, it is yes, but for two words": [
        post(CONFIG_MAPS, config_map("a"), shown=False),
        post(CONFIG_MAPS, config_map("b"), shown=False),
        delete(f"{ONE}?orphanDependents=x"),
        delete(f"{CONFIG_MAPS}/b?orphanDependents=FALSE"),
        delete(f"{CONFIG_MAPS}/b?propagationPolicy="),
    ],
    "a part of a collection is deleted": [
        post(CONFIG_MAPS, config_map("a"), shown=False),
        post(CONFIG_MAPS, config_map("b"), shown=False),
        delete(f"{CONFIG_MAPS}?limit=1"),
        get(CONFIG_MAPS),
    ],
    "a collection of jobs keeps its pods": [delete(JOBS)],
    "methods and paths that a custom resource does not have": [
        *DEFINED,
        post(f"{WIDGETS}/a/status", widget()),
        delete(f"{WIDGETS}/a/status"),
        RUN,
        get(f"{POD}/status/more"),
    ],
    "a list of metadata without items": [get(CONFIG_MAPS, accept=PARTIAL_LIST)],
    "pods of a deleted collection are shown as they were": [RUN, delete(PODS)],
    "numbers are read before selectors, selectors before versions": [
        get(f"{CONFIG_MAPS}?fieldSelector=metadata.name&limit=x"),
        get(f"{CONFIG_MAPS}?labelSelector=x%3D%3D%3D1&resourceVersion=-1"),
        watch(f"{CONFIG_MAPS}?resourceVersion=x&timeoutSeconds=x", 1),
    ],
    "selectors that end early, and one that says nothing": [
        get(f"{CONFIG_MAPS}?labelSelector=x+in+("),
        get(f"{CONFIG_MAPS}?labelSelector=x+in+(1,"),
        get(f"{CONFIG_MAPS}?fieldSelector=%3D"),
        get(f"{JOBS}?fieldSelector=nonsense%3D1"),
        get(f"{CONFIG_MAPS}?limit=1&continue=None"),
    ],
    "what can be accepted": [
        get(ONE, accept="nonsense"),
        get(CONFIG_MAPS, accept="nonsense"),
        *DEFINED,
        get(f"{WIDGETS}/a", accept="nonsense"),
    ],
}

CASES = {**READING, **PATCHING, **CHECKING, **ASKING}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_found(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
