"""Invalid built-in objects are refused with the messages of kube-apiserver that users meet."""

import copy

import pytest

from argosy.local.schema.builtin import builtin_kinds
from argosy.local.schema.codec.decode import decode
from argosy.local.schema.defaults.objects import apply_defaults
from argosy.local.schema.errors import aggregate, invalid_status
from argosy.local.schema.model import Json
from argosy.local.schema.validation.objects import validate_builtin

KINDS = {info.kind: info for info in builtin_kinds()}
CONTAINER: Json = {"name": "c", "image": "i"}
TEMPLATE: Json = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [CONTAINER]}}
ONCE: Json = {
    "metadata": {"labels": {"app": "x"}},
    "spec": {"containers": [CONTAINER], "restartPolicy": "Never"},
}
SELECTOR: Json = {"matchLabels": {"app": "x"}}


def problems(kind: str, body: Json, old: Json | None = None) -> str:
    return aggregate(validate_builtin(KINDS[kind].group, kind, defaulted(kind, body), old)).removeprefix(": ")


def defaulted(kind: str, body: Json) -> Json:
    info = KINDS[kind]
    metadata = body.get("metadata", {})
    assert isinstance(metadata, dict)
    obj = copy.deepcopy({**body, "metadata": {"name": "o", "namespace": "default", **metadata}})
    decode(obj, info.schema)
    apply_defaults(info.group, kind, obj)
    return obj


def pod(**spec: object) -> Json:
    return {"spec": {"containers": [CONTAINER], **spec}}


REFUSED = {
    "pod without containers: rejected": ("Pod", pod(containers=[]), "spec.containers: Required value"),
    "containers with the same name: rejected": (
        "Pod", pod(containers=[CONTAINER, CONTAINER]), 'spec.containers[1].name: Duplicate value: "c"',
    ),
    "container without an image: rejected": (
        "Pod", pod(containers=[{"name": "c"}]), "spec.containers[0].image: Required value",
    ),
    "mount of an unknown volume: rejected": (
        "Pod", pod(containers=[{**CONTAINER, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ),
    "port out of range: rejected": (
        "Pod", pod(containers=[{**CONTAINER, "ports": [{"containerPort": 99999}]}]),
        "spec.containers[0].ports[0].containerPort: Invalid value: 99999: must be between 1 and 65535, "
        "inclusive",
    ),
    "unknown restart policy: rejected": (
        "Pod", pod(restartPolicy="Foo"),
        'spec.restartPolicy: Unsupported value: "Foo": supported values: "Always", "OnFailure", "Never"',
    ),
    "request above its limit: rejected": (
        "Pod", pod(containers=[{**CONTAINER, "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 1}}}]),
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit '
        "of 1",
    ),
    "fraction of a device: rejected": (
        "Pod", pod(containers=[{**CONTAINER, "resources": {"limits": {"nvidia.com/gpu": "0.5"}}}]),
        '[spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer, '
        'spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer]',
    ),
    "deployment whose selector does not match its template: rejected": (
        "Deployment", {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}},
        'spec.template.metadata.labels: Invalid value: {"app":"x"}: `selector` does not match template '
        "`labels`",
    ),
    "deployment with restart policy Never: rejected": (
        "Deployment", {"spec": {"selector": SELECTOR, "template": ONCE}},
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ),
    "job with restart policy Always: rejected": (
        "Job", {"spec": {"template": TEMPLATE}},
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    "job with a policy that the controller does not implement: rejected": (
        "Job", {"spec": {"template": ONCE, "successPolicy": {"rules": [{"succeededCount": 1}]}}},
        "spec.successPolicy: Forbidden: not supported by the local control plane",
    ),
    "job with an action that the controller does not implement: rejected": (
        "Job",
        {
            "spec": {
                "template": ONCE,
                "podFailurePolicy": {
                    "rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]
                },
            }
        },
        'spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": '
        "not supported by the local control plane",
    ),
    "service without ports: rejected": ("Service", {"spec": {}}, "spec.ports: Required value"),
    "service with two ports without names: rejected": (
        "Service", {"spec": {"ports": [{"port": 1}, {"port": 2}]}},
        "[spec.ports[0].name: Required value, spec.ports[1].name: Required value]",
    ),
    "config map with an invalid key: rejected": (
        "ConfigMap", {"data": {"a b": "x"}},
        "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters, '-', "
        "'_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
        "'[-._a-zA-Z0-9]+')",
    ),
    "finalizer without a domain: rejected": (
        "ConfigMap", {"metadata": {"finalizers": ["x"]}},
        'metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it '
        "fully qualified",
    ),
    "annotations above the size limit: rejected": (
        "ConfigMap", {"metadata": {"annotations": {"a": "x" * 300000}}},
        "metadata.annotations: Too long: may not be more than 262144 bytes",
    ),
    "name above the maximum length: rejected": (
        "ConfigMap", {"metadata": {"name": "x" * 254}},
        f'metadata.name: Invalid value: "{"x" * 254}": must be no more than 253 characters',
    ),
    "label above the maximum length: rejected": (
        "ConfigMap", {"metadata": {"labels": {"a": "x" * 64}}},
        f'metadata.labels: Invalid value: "{"x" * 64}": must be no more than 63 bytes',
    ),
    "lease with a duration of 0: rejected": (
        "Lease", {"spec": {"leaseDurationSeconds": 0}},
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    ),
    "rule without API groups: rejected": (
        "Role", {"rules": [{"verbs": ["get"], "resources": ["pods"]}]},
        "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "body", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_invalid_object_is_refused(kind: str, body: Json, want: str) -> None:
    assert problems(kind, body) == want


def changed(body: Json) -> Json:
    metadata = body.get("metadata", {})
    assert isinstance(metadata, dict)
    return {**body, "metadata": {"resourceVersion": "1", **metadata}}


CHANGES = {
    "command of a pod changed: rejected": (
        "Pod", pod(), pod(containers=[{**CONTAINER, "command": ["x"]}]),
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to "
        "existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was "
        "previously negative)",
    ),
    "image of a pod changed: accepted": (
        "Pod", pod(), pod(containers=[{**CONTAINER, "image": "j", "imagePullPolicy": "Always"}]), "",
    ),
    "number of containers of a pod changed: rejected": (
        "Pod", pod(), pod(containers=[CONTAINER, {"name": "d", "image": "i"}]),
        "spec.containers: Forbidden: pod updates may not add or remove containers",
    ),
    "selector of a deployment changed: rejected": (
        "Deployment", {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        {"spec": {"selector": {"matchLabels": {"app": "x", "b": "c"}},
                  "template": {**TEMPLATE, "metadata": {"labels": {"app": "x", "b": "c"}}}}},
        'spec.selector: Invalid value: {"matchLabels":{"app":"x","b":"c"}}: field is immutable',
    ),
    "completions of a job changed: rejected": (
        "Job", {"spec": {"template": ONCE, "completions": 1}}, {"spec": {"template": ONCE, "completions": 2}},
        "spec.completions: Invalid value: 2: field is immutable",
    ),
    "data of an immutable secret changed: rejected": (
        "Secret", {"immutable": True, "data": {"a": "eA=="}}, {"immutable": True, "data": {"a": "eQ=="}},
        "data: Forbidden: field is immutable when `immutable` is set",
    ),
    "uid of an object changed: rejected": (
        "ConfigMap", {"metadata": {"uid": "1"}}, {"metadata": {"uid": "2"}},
        'metadata.uid: Invalid value: "2": field is immutable',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "old", "new", "want"), CHANGES.values(), ids=CHANGES.keys())
def test_change_of_a_field_is_validated(kind: str, old: Json, new: Json, want: str) -> None:
    assert problems(kind, changed(new), defaulted(kind, changed(old))) == want


def test_status_has_a_cause_for_each_error() -> None:
    errors = validate_builtin("", "Pod", defaulted("Pod", pod(containers=[])))
    assert invalid_status("", "Pod", "o", errors) == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Pod "o" is invalid: spec.containers: Required value',
        "reason": "Invalid",
        "details": {
            "name": "o",
            "kind": "Pod",
            "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}
            ],
        },
        "code": 422,
    }
