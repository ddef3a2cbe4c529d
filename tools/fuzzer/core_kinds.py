"""Kinds of Kubernetes that hold settings: ConfigMap, Secret, Service, ServiceAccount, Lease, Namespace."""

from tools.fuzzer.fields import field
from tools.fuzzer.kinds import Kind

CONFIG_MAP = Kind(
    "ConfigMap",
    "v1",
    "configmaps",
    {"data": {"k": "1"}},
    (
        field("data", [{"k": "2"}, {"k": "1", "l": "2"}, None], [{"bad key!": "1"}, "text", [], {"..": "1"}]),
        field("data/k", ["2", "", "3"], [1, True, {"a": "b"}, ["x"]]),
        field("data/l", ["2", "4"], [1.5]),
        field(
            "binaryData", [{"b": "aGVsbG8="}, {"c": ""}], [{"b": "not base64!"}, {"k": "aGVsbG8="}, {"b": 1}]
        ),
        field("immutable", [True, False], ["yes", 1]),
    ),
    selectors=("metadata.name", "metadata.namespace"),
)

SECRET = Kind(
    "Secret",
    "v1",
    "secrets",
    {"data": {"k": "aGVsbG8="}},
    (
        field("data", [{"k": "d29ybGQ="}, {"l": ""}], [{"k": "%%"}, {"bad key!": "YQ=="}, {"k": 1}]),
        field("stringData", [{"s": "text"}, {"k": "text"}], [{"s": 1}, {"bad key!": "x"}]),
        field(
            "type",
            ["Opaque", "example.com/own", "kubernetes.io/tls", "kubernetes.io/basic-auth"],
            [
                1,
                "kubernetes.io/dockerconfigjson",
                "kubernetes.io/ssh-auth",
                "kubernetes.io/service-account-token",
            ],
        ),
        field("immutable", [True, False], ["yes"]),
    ),
    selectors=("metadata.name", "type"),
)


def _port(**changes: object) -> dict[str, object]:
    return {"port": 80, **changes}


SERVICE = Kind(
    "Service",
    "v1",
    "services",
    {"spec": {"ports": [{"port": 80}], "selector": {"app": "a"}}},
    (
        field(
            "spec/selector",
            [{"app": "b"}, {}, {"app": "a", "x": "1"}],
            [{"bad key!": "1"}, {"app": "no label!"}],
        ),
        field(
            "spec/ports",
            [
                [_port(name="http", targetPort="web"), _port(port=443, name="https")],
                [_port(port=8080, protocol="UDP")],
                [_port(targetPort=8080)],
                [_port(appProtocol="example.com/own")],
            ],
            [
                [],
                [_port(port=0)],
                [_port(port=70000)],
                [_port(), _port(port=81)],
                [_port(name="Bad_Name")],
                [_port(protocol="NONE")],
                [_port(targetPort="Not A Port")],
                [_port(name="a"), _port(name="a", port=81)],
                [_port(name="a"), _port(name="b")],
                [{"port": "80"}],
                [{}],
                "text",
            ],
        ),
        field("spec/clusterIP", ["None"], ["nonsense", "300.1.1.1", 1]),
        field("spec/type", ["ClusterIP", "NodePort"], ["Nonsense", 1, "ExternalName"]),
        field("spec/sessionAffinity", ["ClientIP", "None"], ["Nonsense"]),
        field("spec/publishNotReadyAddresses", [True, False], ["yes"]),
        field("spec/externalName", ["example.com"], ["not a name!"]),
        field("spec/internalTrafficPolicy", ["Cluster", "Local"], ["Nonsense"]),
    ),
    (field("status/conditions", [[]], ["text"]), field("status/loadBalancer", [{}], [1])),
    selectors=("metadata.name", "spec.clusterIP", "spec.type"),
)

SERVICE_ACCOUNT = Kind(
    "ServiceAccount",
    "v1",
    "serviceaccounts",
    {},
    (
        field("automountServiceAccountToken", [True, False], ["yes"]),
        field("imagePullSecrets", [[{"name": "s"}], [{"name": "s"}, {"name": "t"}], []], ["text", [1]]),
        field("secrets", [[{"name": "s"}], []], [{"name": "s"}]),
    ),
    selectors=("metadata.name",),
)

LEASE = Kind(
    "Lease",
    "coordination.k8s.io/v1",
    "leases",
    {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    (
        field("spec/holderIdentity", ["you", "me"], [1, ""]),
        field("spec/leaseDurationSeconds", [10, 15], [0, -1, "15", 1.5]),
        field("spec/leaseTransitions", [0, 3], [-1, "3"]),
        field("spec/renewTime", ["2024-01-01T00:00:00.000000Z"], ["now", "2024-01-01", 5]),
        field("spec/acquireTime", ["2024-01-01T00:00:00.123456Z"], ["x"]),
        field("spec", [], ["text", []]),
    ),
    selectors=("metadata.name",),
)

NAMESPACE = Kind(
    "Namespace",
    "v1",
    "namespaces",
    {},
    (
        field("spec/finalizers", [["example.com/hold"], ["kubernetes"]], [["bad one!"], "kubernetes"]),
        field("spec", [{}], ["text"]),
    ),
    (field("status/phase", ["Active"], [1]),),
    namespaced=False,
    selectors=("metadata.name", "status.phase"),
)
