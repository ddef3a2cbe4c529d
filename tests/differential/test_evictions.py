"""PodDisruptionBudgets: which ones are valid, and which evictions they allow.

Neither server has a controller, so the cases write the status of budgets.
"""

from collections.abc import Callable, Mapping, Sequence

import pytest

from tests.support.differential import Step, get, patch, post, put
from tests.support.field_paths import Json
from tests.support.manifests import PODS, pod

BUDGETS = "/apis/policy/v1/namespaces/$ns/poddisruptionbudgets"
EVICTION = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "$ns"}}
READY = [{"type": "Ready", "status": "True"}]
TIMES = ("status.disruptedPods.*",)


def budget(name: str = "b", **spec: object) -> Json:
    selector = {"matchLabels": {"app": "x"}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": selector, **spec},
    }


def running(ready: bool = True, labels: dict[str, str] | None = None) -> list[Step]:
    """A pod that has started."""
    chosen = {"app": "x"} if labels is None else labels
    conditions = READY if ready else [{"type": "Ready", "status": "False"}]
    return [
        post(PODS, pod(metadata={"labels": chosen}, nodeName="n1"), shown=False),
        patch(f"{PODS}/a/status", {"status": {"phase": "Running", "conditions": conditions}}, shown=False),
    ]


def budgeted(status: Mapping[str, object], name: str = "b", **spec: object) -> list[Step]:
    """A budget, and what a controller would have written of it."""
    return [
        post(BUDGETS, budget(name, **({"minAvailable": 1} | spec)), shown=False),
        patch(f"{BUDGETS}/{name}/status", {"status": {"observedGeneration": 1, **status}}, shown=False),
    ]


def evicted(**more: object) -> list[Step]:
    """An eviction, and what it left of pod and budget."""
    return [
        post(f"{PODS}/a/eviction", {**EVICTION, **more}),
        get(f"{PODS}/a"),
        get(f"{BUDGETS}/b", hide=TIMES),
    ]


HEALTHY = {"currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2, "disruptionsAllowed": 1}
ALLOWED = {"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods", "message": ""}
SINCE = {"lastTransitionTime": "2024-01-01T00:00:00Z", "observedGeneration": 1}
EXHAUSTED = {**HEALTHY, "currentHealthy": 1, "disruptionsAllowed": 0}
FAILED = {
    "type": "DisruptionAllowed",
    "status": "False",
    "reason": "SyncFailed",
    "message": "no scale",
    **SINCE,
}

CASES: dict[str, list[Step]] = {
    "a budget without a status blocks evictions": [
        *running(),
        post(BUDGETS, budget(minAvailable=1)),
        *evicted(),
    ],
    "a budget with an outdated status blocks evictions": [
        *running(),
        *budgeted(HEALTHY),
        patch(f"{BUDGETS}/b", {"spec": {"minAvailable": 0}}, shown=False),
        *evicted(),
    ],
    "an exhausted budget refuses": [*running(), *budgeted(EXHAUSTED), *evicted()],
    "a budget that could not be computed refuses with the reason": [
        *running(),
        *budgeted({**EXHAUSTED, "conditions": [FAILED]}),
        *evicted(),
    ],
    "the last allowed disruption is used up, and the condition says so": [
        *running(),
        *budgeted({**HEALTHY, "conditions": [{**ALLOWED, **SINCE}]}),
        *evicted(),
    ],
    "an eviction uses up an allowed disruption": [
        *running(),
        *budgeted({**HEALTHY, "disruptionsAllowed": 2}),
        *evicted(),
    ],
    "a dry run uses up nothing": [
        *running(),
        *budgeted(HEALTHY),
        *evicted(deleteOptions={"dryRun": ["All"]}),
        post(f"{PODS}/a/eviction?dryRun=All", EVICTION),
        get(f"{PODS}/a"),
        get(f"{BUDGETS}/b"),
    ],
    "a dry run of what an exhausted budget refuses": [
        *running(),
        *budgeted(EXHAUSTED),
        *evicted(deleteOptions={"dryRun": ["All"]}),
    ],
    "a pod with two budgets cannot be evicted": [
        *running(),
        *budgeted(HEALTHY),
        *budgeted(HEALTHY, name="c"),
        *evicted(),
    ],
    "an unready pod is evicted if enough others are healthy": [
        *running(ready=False),
        *budgeted({**EXHAUSTED, "currentHealthy": 1}),
        *evicted(),
    ],
    "an unready pod stays if the rest is not healthy enough": [
        *running(ready=False),
        *budgeted({**EXHAUSTED, "currentHealthy": 0}),
        *evicted(),
    ],
    "an unready pod is always evicted with policy AlwaysAllow": [
        *running(ready=False),
        *budgeted({**EXHAUSTED, "currentHealthy": 0}, unhealthyPodEvictionPolicy="AlwaysAllow"),
        *evicted(),
    ],
    "a pod that has not started is evicted whatever the budget": [
        post(PODS, pod(metadata={"labels": {"app": "x"}}, nodeName="n1"), shown=False),
        *budgeted(EXHAUSTED),
        *evicted(),
    ],
    "a finished pod is evicted whatever the budget": [
        *running(),
        patch(f"{PODS}/a/status", {"status": {"phase": "Failed"}}, shown=False),
        *budgeted(EXHAUSTED),
        *evicted(),
    ],
    "a pod that is going is evicted whatever the budget": [
        *running(),
        Step("DELETE", f"{PODS}/a", shown=False),
        *budgeted(EXHAUSTED),
        *evicted(),
    ],
    "a budget with an empty selector selects pods of any labels": [
        *running(labels={"other": "y"}),
        *budgeted(EXHAUSTED, selector={}),
        *evicted(),
    ],
    "a budget with an empty selector selects pods without labels too": [
        *running(labels={}),
        *budgeted(EXHAUSTED, selector={}),
        *evicted(),
    ],
    "a budget without a selector selects nothing": [
        *running(),
        *budgeted(EXHAUSTED, selector=None),
        *evicted(),
    ],
    "an eviction of another version of the pod is a conflict": [
        *running(),
        *evicted(deleteOptions={"preconditions": {"resourceVersion": "1"}})[:2],
    ],
    "an eviction of another pod of the name is a conflict": [
        *running(),
        *evicted(deleteOptions={"preconditions": {"uid": "other"}})[:2],
    ],
    "an eviction must name the pod": [
        *running(),
        post(f"{PODS}/a/eviction", {**EVICTION, "metadata": {"name": "c"}}),
        post(f"{PODS}/a/eviction", {**EVICTION, "metadata": {}}),
        post(f"{PODS}/none/eviction", {**EVICTION, "metadata": {"name": "none"}}),
    ],
    "a budget has one of minimum and maximum": [
        post(BUDGETS, budget(minAvailable=1, maxUnavailable=1)),
        post(BUDGETS, budget("n")),
    ],
    "amounts are numbers from zero or percentages up to a hundred": [
        post(BUDGETS, budget(minAvailable=-1)),
        post(BUDGETS, budget(maxUnavailable=-1)),
        post(BUDGETS, budget(maxUnavailable="101%")),
        post(BUDGETS, budget(minAvailable="half")),
        post(BUDGETS, budget(minAvailable="5")),
        post(BUDGETS, budget(minAvailable="-5%")),
        post(BUDGETS, budget("good", minAvailable="100%")),
    ],
    "a selector and the policy for unhealthy pods are checked": [
        post(BUDGETS, budget(selector={"matchLabels": {"a b": "c"}})),
        post(BUDGETS, budget(selector={"matchExpressions": [{"key": "a", "operator": "In"}]})),
        post(BUDGETS, budget(unhealthyPodEvictionPolicy="Never")),
    ],
    "a budget may be changed": [
        post(BUDGETS, budget(minAvailable=1), save="made", shown=False),
        put(f"{BUDGETS}/b", budget(minAvailable=2)),
        patch(f"{BUDGETS}/b", {"spec": {"minAvailable": None, "maxUnavailable": "30%"}}),
        patch(f"{BUDGETS}/b", {"spec": {"selector": {"matchLabels": {"app": "y"}}}}),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_evictions(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
