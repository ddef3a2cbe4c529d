"""Deployments and ReplicaSets in the API server: defaults, validation, generations, scale and status."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import STRATEGIC, Step, delete, get, patch, post, put

APPS = "/apis/apps/v1/namespaces/$ns"
DEPLOYMENTS, SETS = f"{APPS}/deployments", f"{APPS}/replicasets"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def template(**spec: object) -> dict[str, object]:
    inner = {"containers": [{"name": "c", "image": "i"}], **spec}
    return {"metadata": {"labels": {"app": "a"}}, "spec": inner}


def workload(kind: str = "Deployment", name: str = "a", **spec: object) -> dict[str, object]:
    return with_spec(spec, kind, name)


def with_spec(spec: dict[str, object], kind: str = "Deployment", name: str = "a") -> dict[str, object]:
    fields = {"selector": {"matchLabels": {"app": "a"}}, "template": template(), **spec}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {key: value for key, value in fields.items() if value is not None},
    }


def rolling(**limits: object) -> dict[str, object]:
    return workload(strategy={"type": "RollingUpdate", "rollingUpdate": limits})


BAD: dict[str, dict[str, object]] = {
    "negative replicas: rejected": {"replicas": -1},
    "no selector: rejected": {"selector": None},
    "empty selector: rejected": {"selector": {}},
    "selector that does not match the template: rejected": {"selector": {"matchLabels": {"app": "b"}}},
    "selector with an unknown operator: rejected": {
        "selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    },
    "restartPolicy Never: rejected": {"template": template(restartPolicy="Never")},
    "activeDeadlineSeconds in the template: rejected": {"template": template(activeDeadlineSeconds=5)},
    "negative minReadySeconds: rejected": {"minReadySeconds": -1},
}
BAD_ROLLOUTS: dict[str, dict[str, object]] = {
    "unknown strategy: rejected": {"strategy": {"type": "Sudden"}},
    "strategy Recreate with rollingUpdate: rejected": {
        "strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}
    },
    "negative revisionHistoryLimit: rejected": {"revisionHistoryLimit": -1},
    "negative progressDeadlineSeconds: rejected": {"progressDeadlineSeconds": -1},
    "progressDeadlineSeconds not above minReadySeconds: rejected": {
        "progressDeadlineSeconds": 10,
        "minReadySeconds": 10,
    },
}
LIMITS: dict[str, dict[str, object]] = {
    "maxSurge and maxUnavailable 0: rejected": {"maxSurge": 0, "maxUnavailable": 0},
    "maxSurge 0% and maxUnavailable 0: rejected": {"maxSurge": "0%", "maxUnavailable": 0},
    "negative maxSurge: rejected": {"maxSurge": -1},
    "maxUnavailable 101%: rejected": {"maxUnavailable": "101%"},
    "maxSurge 101%: accepted": {"maxSurge": "101%"},
    "maxSurge that is neither number nor percentage: rejected": {"maxSurge": "five", "maxUnavailable": 1},
    "number as a string: rejected": {"maxUnavailable": "5"},
}
CASES: dict[str, list[Step]] = {
    "new Deployment: stored with defaults": [
        post(DEPLOYMENTS, workload()),
        post(DEPLOYMENTS, workload(name="b", strategy={"type": "Recreate"}, replicas=0, paused=True)),
        get(DEPLOYMENTS, accept=TABLE),
        get(f"{DEPLOYMENTS}/a/scale"),
        get(f"{DEPLOYMENTS}/b/scale"),
        delete(f"{DEPLOYMENTS}/a"),
    ],
    "new ReplicaSet: stored with defaults": [
        post(SETS, workload("ReplicaSet")),
        get(SETS, accept=TABLE),
        get(f"{SETS}/a/scale"),
        delete(f"{SETS}/a"),
    ],
    "invalid Deployment: rejected": [
        post(DEPLOYMENTS, with_spec(spec)) for what, spec in (BAD | BAD_ROLLOUTS).items()
    ],
    "invalid ReplicaSet: rejected": [post(SETS, with_spec(spec, "ReplicaSet")) for what, spec in BAD.items()],
    "invalid maxSurge or maxUnavailable: as kube-apiserver": [
        post(f"{DEPLOYMENTS}?dryRun=All", rolling(**limits)) for limits in LIMITS.values()
    ],
    "maxSurge only: kept, and maxUnavailable has its default": [
        post(DEPLOYMENTS, rolling(maxSurge=3)),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"strategy": {"rollingUpdate": {"maxSurge": None}}}}),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"strategy": {"type": "Recreate"}}}),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}),
    ],
    "change of spec or annotations: generation increased": [
        post(DEPLOYMENTS, workload(), shown=False),
        patch(f"{DEPLOYMENTS}/a", {"metadata": {"annotations": {"a": "b"}}}, only=("metadata.generation",)),
        patch(f"{DEPLOYMENTS}/a", {"metadata": {"annotations": {"a": "b"}}}, only=("metadata.generation",)),
        patch(f"{DEPLOYMENTS}/a", {"metadata": {"labels": {"a": "b"}}}, only=("metadata.generation",)),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"replicas": 5}}, only=("metadata.generation",)),
        patch(
            f"{DEPLOYMENTS}/a/status",
            {"metadata": {"annotations": {"a": "c"}, "labels": {"a": "c"}}, "status": {"replicas": 3}},
        ),
        post(SETS, workload("ReplicaSet"), shown=False),
        patch(f"{SETS}/a", {"metadata": {"annotations": {"a": "b"}}}, only=("metadata.generation",)),
        patch(
            f"{SETS}/a/status",
            {"metadata": {"annotations": {"a": "c"}, "labels": {"a": "c"}}, "status": {"replicas": 3}},
        ),
    ],
    "change of the selector: rejected": [
        post(DEPLOYMENTS, workload(), shown=False),
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"selector": {"matchLabels": {"x": "y"}}}},
        ),
        post(SETS, workload("ReplicaSet"), shown=False),
        patch(f"{SETS}/a", {"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
    ],
    "strategic patch of a container: merged by name": [
        post(DEPLOYMENTS, workload(), shown=False),
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}},
            STRATEGIC,
        ),
    ],
    "write to the scale of a Deployment: replicas changed": [
        post(DEPLOYMENTS, workload(), shown=False),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": 4}}),
        put(
            f"{DEPLOYMENTS}/a/scale",
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "a", "namespace": "$ns"},
                "spec": {"replicas": 2},
            },
        ),
        patch(f"{DEPLOYMENTS}/a/scale", {"spec": {"replicas": -4}}),
        patch(f"{DEPLOYMENTS}/a/scale?dryRun=All", {"spec": {"replicas": 7}}),
        get(f"{DEPLOYMENTS}/a", only=("spec.replicas", "metadata.generation", "metadata.managedFields")),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_deployments(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    # Other tests run controllers on these servers: nothing is left for them to act upon.
    compare([*steps, delete(DEPLOYMENTS, shown=False), delete(SETS, shown=False)])
