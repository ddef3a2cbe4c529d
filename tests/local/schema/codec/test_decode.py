"""Built-in objects are decoded and defaulted as Kubernetes stores them."""

from typing import NamedTuple

import pytest

from argosy.local.schema.builtin import builtin_kind
from argosy.local.schema.codec.decode import DecodeError, decode
from argosy.local.schema.codec.quantity import QuantityError, canonical
from argosy.local.schema.defaults.objects import apply_defaults, prepare_for_create, quality_of_service
from argosy.local.schema.model import Json, Schema


def schema(group: str, kind: str) -> Schema:
    info = builtin_kind(group, "v1", kind)
    assert info is not None
    return info.schema


def pod(**spec: object) -> Json:
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def test_a_minimal_pod_is_stored_with_its_defaults() -> None:
    obj = pod(hostNetwork=False, nodeSelector={}, hostname=None)
    assert decode(obj, schema("", "Pod")) == []
    apply_defaults("", "Pod", obj)
    prepare_for_create("", "Pod", obj)
    assert obj == {
        "metadata": {"name": "p"},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "imagePullPolicy": "Always",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    }


def test_unknown_fields_are_dropped_and_returned() -> None:
    obj = pod(foo=1, containers=[{"name": "c", "image": "i", "zzz": 1}])
    assert decode(obj, schema("", "Pod")) == ["spec.foo", "spec.containers[0].zzz"] or sorted(
        decode(pod(foo=1, containers=[{"name": "c", "zzz": 1}]), schema("", "Pod"))
    ) == ["spec.containers[0].zzz", "spec.foo"]
    assert "foo" not in str(obj)


MISMATCHES = {
    "string for a boolean: rejected with its path": (
        pod(hostNetwork="yes"),
        "spec.hostNetwork: must be of type boolean, got string",
    ),
    "string for a list: rejected with its path": (
        pod(containers="x"),
        "spec.containers: must be of type array, got string",
    ),
    "fraction for an integer: rejected with its path": (
        pod(activeDeadlineSeconds=1.5),
        "spec.activeDeadlineSeconds: must be of type integer, got number",
    ),
    "number in a list of strings: rejected with its path": (
        pod(containers=[{"name": "c", "args": ["a", 5]}]),
        "spec.containers[0].args[1]: must be of type string, got integer",
    ),
    "number in a map of strings: rejected with its path": (
        pod(nodeSelector={"a": 5}),
        "spec.nodeSelector.a: must be of type string, got integer",
    ),
    "string for an object: rejected with its path": (
        pod(securityContext="x"),
        "spec.securityContext: must be of type object, got string",
    ),
    "string for metadata: rejected with its path": (
        {"metadata": "x"},
        "metadata: must be of type object, got string",
    ),
    "string that is not a time: rejected with its path": (
        {"metadata": {"creationTimestamp": "now"}},
        'metadata.creationTimestamp: "now" is not a time in RFC 3339',
    ),
    "string that is not a quantity: rejected with its path": (
        pod(containers=[{"name": "c", "resources": {"limits": {"cpu": "abc"}}}]),
        "spec.containers[0].resources.limits.cpu: quantities must match the regular expression "
        "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    ),
}


@pytest.mark.parametrize(("obj", "want"), MISMATCHES.values(), ids=MISMATCHES.keys())
def test_a_value_of_the_wrong_type_is_refused_with_its_path(obj: Json, want: str) -> None:
    with pytest.raises(DecodeError) as error:
        decode(obj, schema("", "Pod"))
    assert str(error.value) == want


QUANTITIES = {
    "1": "1",
    "1000m": "1",
    "0.5": "500m",
    "1.5": "1500m",
    "1024Mi": "1Gi",
    "1536Mi": "1536Mi",
    "512Ki": "512Ki",
    "0.5Gi": "512Mi",
    "1e3": "1e3",
    "1000": "1k",
    "1500": "1500",
    "0": "0",
    "0Mi": "0",
    "100n": "100n",
    "0.1n": "1n",
    "-5": "-5",
    "1000000": "1M",
    "512Mi": "512Mi",
    "1.5Ki": "1536",
}


@pytest.mark.parametrize(("text", "want"), QUANTITIES.items())
def test_quantities_have_a_canonical_form(text: str, want: str) -> None:
    assert canonical(text) == want
    assert canonical(want) == want


@pytest.mark.parametrize("text", ["", "x", "1x", "1.2.3", "1 Gi", "Mi"])
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(QuantityError):
        canonical(text)


class Defaulted(NamedTuple):
    group: str
    kind: str
    obj: Json
    path: tuple[str, ...]
    want: object


DEFAULTS = {
    "service port without targetPort: the port": Defaulted(
        "", "Service", {"spec": {"ports": [{"port": 80}]}}, ("spec", "ports"),
        [{"port": 80, "protocol": "TCP", "targetPort": 80}],
    ),
    "deployment without a strategy: 25%": Defaulted(
        "apps", "Deployment", {"spec": {}}, ("spec", "strategy"),
        {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
    ),
    "job without completions: 1": Defaulted("batch", "Job", {"spec": {}}, ("spec", "completions"), 1),
    "secret with stringData: data": Defaulted(
        "", "Secret", {"stringData": {"a": "b"}}, ("data",), {"a": "Yg=="}
    ),
    "namespace: label with its name": Defaulted(
        "", "Namespace", {"metadata": {"name": "n"}}, ("metadata", "labels"),
        {"kubernetes.io/metadata.name": "n"},
    ),
    "role without rules: null": Defaulted("rbac.authorization.k8s.io", "Role", {}, ("rules",), None),
    "limits without requests: requests are equal": Defaulted(
        "", "Pod",
        {"spec": {"containers": [{"name": "c", "image": "i:1", "resources": {"limits": {"cpu": "1000m"}}}]}},
        ("spec", "containers", "0", "resources"), {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
    ),
    "volume without a source: emptyDir": Defaulted(
        "", "Pod", {"spec": {"containers": [], "volumes": [{"name": "v"}]}}, ("spec", "volumes"),
        [{"name": "v", "emptyDir": {}}],
    ),
    "podIP without podIPs: list with it": Defaulted(
        "", "Pod", {"spec": {"containers": []}, "status": {"podIP": "10.0.0.1"}}, ("status", "podIPs"),
        [{"ip": "10.0.0.1"}],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DEFAULTS.values(), ids=DEFAULTS.keys())
def test_defaults(case: Defaulted) -> None:
    obj: Json = case.obj
    decode(obj, schema(case.group, case.kind))
    apply_defaults(case.group, case.kind, obj)
    node: object = obj
    for step in case.path:
        if isinstance(node, list):
            node = node[int(step)]
        else:
            assert isinstance(node, dict)
            assert step in node
            node = node[step]
    assert node == case.want


CLASSES = {
    "no resources: BestEffort": ({}, "BestEffort"),
    "requests only: Burstable": ({"requests": {"cpu": "1"}}, "Burstable"),
    "equal limits and requests: Guaranteed": (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        "Guaranteed",
    ),
    "limits without requests: Guaranteed": ({"limits": {"cpu": "1", "memory": "1Gi"}}, "Guaranteed"),
    "equal amounts in other units: Guaranteed": (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1024Mi"}},
        "Guaranteed",
    ),
    "requests below limits: Burstable": (
        {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}},
        "Burstable",
    ),
    "devices only: BestEffort": ({"limits": {"nvidia.com/gpu": "1"}}, "BestEffort"),
}


@pytest.mark.parametrize(("resources", "want"), CLASSES.values(), ids=CLASSES.keys())
def test_quality_of_service(resources: Json, want: str) -> None:
    assert quality_of_service({"containers": [{"resources": resources}]}) == want
