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
    "negative replicas": {"replicas": -1},
    "no selector": {"selector": None},
    "an empty selector": {"selector": {}},
    "a selector of another label": {"selector": {"matchLabels": {"app": "b"}}},
    "a selector that is none": {"selector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
    "pods that end": {"template": template(restartPolicy="Never")},
    "pods with a deadline": {"template": template(activeDeadlineSeconds=5)},
    "negative seconds": {"minReadySeconds": -1},
}
BAD_ROLLOUTS: dict[str, dict[str, object]] = {
    "an unknown strategy": {"strategy": {"type": "Sudden"}},
    "recreate with limits": {"strategy": {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}},
    "a negative history": {"revisionHistoryLimit": -1},
    "a negative deadline": {"progressDeadlineSeconds": -1},
    "a deadline before pods are ready": {"progressDeadlineSeconds": 10, "minReadySeconds": 10},
}
LIMITS: dict[str, dict[str, object]] = {
    "no room": {"maxSurge": 0, "maxUnavailable": 0},
    "no room in percent": {"maxSurge": "0%", "maxUnavailable": 0},
    "less than nothing": {"maxSurge": -1},
    "more than all": {"maxUnavailable": "101%"},
    "more than all to come": {"maxSurge": "101%"},
    "no percentage": {"maxSurge": "five", "maxUnavailable": 1},
    "a number as text": {"maxUnavailable": "5"},
}
CASES: dict[str, list[Step]] = {
    "a deployment gets its defaults": [
        post(DEPLOYMENTS, workload()),
        post(DEPLOYMENTS, workload(name="b", strategy={"type": "Recreate"}, replicas=0, paused=True)),
        get(DEPLOYMENTS, accept=TABLE),
        get(f"{DEPLOYMENTS}/a/scale"),
        get(f"{DEPLOYMENTS}/b/scale"),
        delete(f"{DEPLOYMENTS}/a"),
    ],
    "a replica set gets its defaults": [
        post(SETS, workload("ReplicaSet")),
        get(SETS, accept=TABLE),
        get(f"{SETS}/a/scale"),
        delete(f"{SETS}/a"),
    ],
    "a bad deployment is refused": [
        post(DEPLOYMENTS, with_spec(spec)) for what, spec in (BAD | BAD_ROLLOUTS).items()
    ],
    "a bad replica set is refused": [post(SETS, with_spec(spec, "ReplicaSet")) for what, spec in BAD.items()],
    "the limits of a rolling update are checked": [
        post(f"{DEPLOYMENTS}?dryRun=All", rolling(**limits)) for limits in LIMITS.values()
    ],
    "limits that are given are kept, others are usual": [
        post(DEPLOYMENTS, rolling(maxSurge=3)),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"strategy": {"rollingUpdate": {"maxSurge": None}}}}),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"strategy": {"type": "Recreate"}}}),
        patch(f"{DEPLOYMENTS}/a", {"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}}),
    ],
    "the generation counts changes of the spec and of annotations": [
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
    "what selects pods cannot be changed": [
        post(DEPLOYMENTS, workload(), shown=False),
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"selector": {"matchLabels": {"x": "y"}}}},
        ),
        post(SETS, workload("ReplicaSet"), shown=False),
        patch(f"{SETS}/a", {"spec": {"selector": {"matchLabels": {"x": "y"}}}}),
    ],
    "a container is changed by its name": [
        post(DEPLOYMENTS, workload(), shown=False),
        patch(
            f"{DEPLOYMENTS}/a",
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}]}}}},
            STRATEGIC,
        ),
    ],
    "a deployment is scaled": [
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
