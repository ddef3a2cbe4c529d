"""Kinds of Kubernetes that run something: Pod and Job."""

from tools.fuzzer.fields import Json, field
from tools.fuzzer.kinds import Kind


def _container(name: str = "main", **changes: object) -> Json:
    return {"name": name, "image": "busybox", **changes}


_ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "$(A)"}]
_PORT = {"containerPort": 80}

_CONTAINERS = field(
    "containers",
    [
        [_container(command=["sh", "-c", "true"])],
        [_container(), _container("side", image="other:1.0")],
        [_container(env=_ENV)],
        [_container(env=[{"name": "P", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}])],
        [_container(ports=[_PORT, {"containerPort": 81, "name": "more", "protocol": "UDP"}])],
        [_container(resources={"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": 1}})],
        [_container(resources={"limits": {"memory": "128Mi", "example.com/gpu": "1"}})],
        [_container(image="busybox:latest", imagePullPolicy="Never")],
        [_container(volumeMounts=[{"name": "v", "mountPath": "/v"}])],
        [_container(readinessProbe={"httpGet": {"port": 80}, "periodSeconds": 3})],
        [_container(livenessProbe={"exec": {"command": ["true"]}})],
        [_container(lifecycle={"preStop": {"exec": {"command": ["true"]}}})],
        [_container(securityContext={"runAsUser": 1000, "capabilities": {"drop": ["ALL"]}})],
    ],
    [
        [],
        None,
        [{"name": "main"}],
        [{"image": "busybox"}],
        [_container("Bad_Name")],
        [_container(), _container()],
        [_container(imagePullPolicy="Sometimes")],
        [_container(env=[{"name": "", "value": "1"}])],
        [_container(env=[{"name": "A", "value": 1}])],
        [_container(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}])],
        [_container(ports=[{"containerPort": 0}])],
        [_container(ports=[{"containerPort": 80, "protocol": "NONE"}])],
        [_container(ports=[{"containerPort": "80"}])],
        [_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})],
        [_container(resources={"requests": {"cpu": "much"}})],
        [_container(resources={"requests": {"cpu": "-1"}})],
        [_container(resources={"limits": {"nonsense": "1"}})],
        [_container(volumeMounts=[{"name": "none", "mountPath": "/v"}])],
        [_container(readinessProbe={})],
        [_container(readinessProbe={"httpGet": {"port": 0}})],
        [_container(livenessProbe={"exec": {"command": ["true"]}, "successThreshold": 2})],
        [_container(terminationMessagePolicy="Never")],
        [_container(nonsense=1)],
        {"name": "main"},
        "text",
        [1],
    ],
)

_SPEC = (
    _CONTAINERS,
    field("initContainers", [[_container("init")], [_container("init", restartPolicy="Always")], []], [[{}]]),
    field("terminationGracePeriodSeconds", [5, 0, 30], [-1, "5"]),
    field("activeDeadlineSeconds", [100, 60], [0, -5, "x"]),
    field("nodeSelector", [{"zone": "a"}, {}], [{"bad key!": "1"}, {"zone": 1}]),
    field(
        "tolerations",
        [[{"key": "k", "operator": "Exists"}], [{"key": "k", "value": "v", "effect": "NoSchedule"}], []],
        [
            [{"operator": "Nonsense", "key": "k"}],
            [{"key": "k", "effect": "Nonsense"}],
            [{"operator": "Exists", "key": "k", "value": "v"}],
            [{"key": "bad key!"}],
            [{"operator": "Equal"}],
            [{"key": "k", "tolerationSeconds": 5, "effect": "NoSchedule"}],
        ],
    ),
    field(
        "volumes",
        [
            [{"name": "v", "emptyDir": {}}],
            [{"name": "v", "configMap": {"name": "a"}}],
            [{"name": "v", "secret": {"secretName": "a", "items": [{"key": "k", "path": "p"}]}}],
            [{"name": "v", "hostPath": {"path": "/srv"}}],
            [{"name": "v", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}],
        ],
        [
            [{"name": "v"}, {"name": "v"}],
            [{"name": "Bad_Name", "emptyDir": {}}],
            [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}],
            [{"name": "v", "configMap": {}}],
            [{"name": "v", "secret": {"secretName": "a", "items": [{"key": "k", "path": "../p"}]}}],
            [{"emptyDir": {}}],
            [{"name": "v", "hostPath": {}}],
        ],
    ),
    field("hostname", ["h"], ["Bad_Host"]),
    field("subdomain", ["sub"], ["Bad.Sub"]),
    field("hostNetwork", [False], ["no"]),
    field("dnsPolicy", ["Default", "ClusterFirst"], ["Nonsense", "None"]),
    field("schedulerName", ["own"], [1]),
    field("priorityClassName", ["system-node-critical"], ["none"]),
    field("priority", [], [5]),
    field("serviceAccountName", ["default"], ["none"]),
    field("automountServiceAccountToken", [False, True], ["no"]),
    field("enableServiceLinks", [False], [1]),
    field(
        "securityContext",
        [{"runAsNonRoot": True}, {"fsGroup": 5}, {}],
        [{"runAsUser": -1}, {"runAsUser": "x"}],
    ),
    field("imagePullSecrets", [[{"name": "s"}]], ["s"]),
    field(
        "affinity",
        [
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
                        ]
                    }
                }
            },
            {},
        ],
        [
            {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In"}]}]
                    }
                }
            },
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        ],
    ),
    field("schedulingGates", [[{"name": "example.com/gate"}]], [[{"name": "bad gate!"}]]),
    field("nonsense", [], [1]),
)


_POD_SPEC = tuple(field(f"spec/{item.path[0]}", item.good, item.bad) for item in _SPEC)

POD = Kind(
    "Pod",
    "v1",
    "pods",
    {"spec": {"containers": [_container()]}},
    (
        *_POD_SPEC,
        field("spec/restartPolicy", ["Never", "OnFailure", "Always"], ["Nonsense", 1]),
        field("spec/nodeName", ["n1"], ["Bad_Node", 1]),
    ),
    (
        field("status/phase", ["Running", "Succeeded", "Failed", "Pending"], [1]),
        field("status/message", ["a word"], [1]),
        field("status/podIP", ["10.0.0.1"], [1]),
        field(
            "status/conditions",
            [
                [{"type": "Ready", "status": "True"}],
                [
                    {"type": "Ready", "status": "False", "reason": "Waiting"},
                    {"type": "Own", "status": "True"},
                ],
            ],
            [[{"type": "Ready", "status": 1}], "text"],
        ),
        field(
            "status/containerStatuses",
            [
                [
                    {
                        "name": "main",
                        "ready": False,
                        "restartCount": 0,
                        "image": "busybox",
                        "imageID": "",
                        "state": {"waiting": {"reason": "Pulling"}},
                    }
                ]
            ],
            [[{"name": "main", "restartCount": "0"}]],
        ),
    ),
    selectors=("metadata.name", "status.phase", "spec.nodeName", "spec.restartPolicy"),
)

JOB = Kind(
    "Job",
    "batch/v1",
    "jobs",
    {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [_container()]}}}},
    (
        field("spec/parallelism", [0, 2, 5], [-1, "2"]),
        field("spec/completions", [1, 3], [-1, "3"]),
        field("spec/backoffLimit", [0, 4], [-1]),
        field("spec/suspend", [True, False], ["yes"]),
        field("spec/activeDeadlineSeconds", [100], [0, -1]),
        field("spec/ttlSecondsAfterFinished", [10], [-1]),
        field("spec/completionMode", ["Indexed", "NonIndexed"], ["Nonsense"]),
        field("spec/manualSelector", [False], [True]),
        field("spec/selector", [], [{"matchLabels": {"x": "1"}}, {"matchLabels": {"bad key!": "1"}}]),
        field("spec/template/metadata/labels", [{"x": "1"}], [{"x": "no label!"}, {"x": 1}]),
        field("spec/template/spec/restartPolicy", ["OnFailure", "Never"], ["Always", "Nonsense"]),
        *(
            field(f"spec/template/spec/{item.path[0]}", item.good, item.bad)
            for item in _SPEC
            if item.path[0] in ("containers", "volumes", "tolerations", "nodeSelector", "hostname")
        ),
        field("spec/podReplacementPolicy", ["Failed", "TerminatingOrFailed"], ["Nonsense"]),
        field(
            "spec/podFailurePolicy",
            [{"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]}],
            [
                {"rules": [{"action": "Nonsense", "onExitCodes": {"operator": "In", "values": [42]}}]},
                {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0]}}]},
                {"rules": [{"action": "FailJob"}]},
            ],
        ),
    ),
    (field("status/active", [1, 0], ["1"]),),
    # A job without labels takes those of its template when it is read, and stores them with its next write,
    # even one that changes nothing: ours has them from the beginning.
    always={"metadata": {"labels": {"own": "1"}}},
    selectors=("metadata.name", "status.successful"),
)
