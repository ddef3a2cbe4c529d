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
    "budget without a status: eviction rejected": [
        *running(),
        post(BUDGETS, budget(minAvailable=1)),
        *evicted(),
    ],
    "budget with an outdated status: eviction rejected": [
        *running(),
        *budgeted(HEALTHY),
        patch(f"{BUDGETS}/b", {"spec": {"minAvailable": 0}}, shown=False),
        *evicted(),
    ],
    "budget with no disruptions allowed: eviction rejected": [*running(), *budgeted(EXHAUSTED), *evicted()],
    "budget with condition SyncFailed: eviction rejected with its message": [
        *running(),
        *budgeted({**EXHAUSTED, "conditions": [FAILED]}),
        *evicted(),
    ],
    "last allowed disruption: pod evicted, condition DisruptionAllowed updated": [
        *running(),
        *budgeted({**HEALTHY, "conditions": [{**ALLOWED, **SINCE}]}),
        *evicted(),
    ],
    "two disruptions allowed: pod evicted, one is left": [
        *running(),
        *budgeted({**HEALTHY, "disruptionsAllowed": 2}),
        *evicted(),
    ],
    "dry run of an eviction: disruptionsAllowed unchanged": [
        *running(),
        *budgeted(HEALTHY),
        *evicted(deleteOptions={"dryRun": ["All"]}),
        post(f"{PODS}/a/eviction?dryRun=All", EVICTION),
        get(f"{PODS}/a"),
        get(f"{BUDGETS}/b"),
    ],
    "dry run with no disruptions allowed: rejected": [
        *running(),
        *budgeted(EXHAUSTED),
        *evicted(deleteOptions={"dryRun": ["All"]}),
    ],
    "pod with two budgets: eviction rejected": [
        *running(),
        *budgeted(HEALTHY),
        *budgeted(HEALTHY, name="c"),
        *evicted(),
    ],
    "unready pod, enough healthy pods: evicted": [
        *running(ready=False),
        *budgeted({**EXHAUSTED, "currentHealthy": 1}),
        *evicted(),
    ],
    "unready pod, too few healthy pods: eviction rejected": [
        *running(ready=False),
        *budgeted({**EXHAUSTED, "currentHealthy": 0}),
        *evicted(),
    ],
    "unready pod with policy AlwaysAllow: evicted": [
        *running(ready=False),
        *budgeted({**EXHAUSTED, "currentHealthy": 0}, unhealthyPodEvictionPolicy="AlwaysAllow"),
        *evicted(),
    ],
    "pending pod with no disruptions allowed: evicted": [
        post(PODS, pod(metadata={"labels": {"app": "x"}}, nodeName="n1"), shown=False),
        *budgeted(EXHAUSTED),
        *evicted(),
    ],
    "finished pod with no disruptions allowed: evicted": [
        *running(),
        patch(f"{PODS}/a/status", {"status": {"phase": "Failed"}}, shown=False),
        *budgeted(EXHAUSTED),
        *evicted(),
    ],
    "terminating pod with no disruptions allowed: evicted": [
        *running(),
        Step("DELETE", f"{PODS}/a", shown=False),
        *budgeted(EXHAUSTED),
        *evicted(),
    ],
    "budget with an empty selector: pods with any labels selected": [
        *running(labels={"other": "y"}),
        *budgeted(EXHAUSTED, selector={}),
        *evicted(),
    ],
    "budget with an empty selector: pods without labels selected": [
        *running(labels={}),
        *budgeted(EXHAUSTED, selector={}),
        *evicted(),
    ],
    "budget without a selector: no pods selected": [
        *running(),
        *budgeted(EXHAUSTED, selector=None),
        *evicted(),
    ],
    "eviction with another resourceVersion: conflict": [
        *running(),
        *evicted(deleteOptions={"preconditions": {"resourceVersion": "1"}})[:2],
    ],
    "eviction with another uid: conflict": [
        *running(),
        *evicted(deleteOptions={"preconditions": {"uid": "other"}})[:2],
    ],
    "eviction with another name, no name or of a missing pod: rejected": [
        *running(),
        post(f"{PODS}/a/eviction", {**EVICTION, "metadata": {"name": "c"}}),
        post(f"{PODS}/a/eviction", {**EVICTION, "metadata": {}}),
        post(f"{PODS}/none/eviction", {**EVICTION, "metadata": {"name": "none"}}),
    ],
    "minAvailable and maxUnavailable: only one may be set": [
        post(BUDGETS, budget(minAvailable=1, maxUnavailable=1)),
        post(BUDGETS, budget("n")),
    ],
    "minAvailable or maxUnavailable out of range: rejected": [
        post(BUDGETS, budget(minAvailable=-1)),
        post(BUDGETS, budget(maxUnavailable=-1)),
        post(BUDGETS, budget(maxUnavailable="101%")),
        post(BUDGETS, budget(minAvailable="half")),
        post(BUDGETS, budget(minAvailable="5")),
        post(BUDGETS, budget(minAvailable="-5%")),
        post(BUDGETS, budget("good", minAvailable="100%")),
    ],
    "invalid selector or unhealthyPodEvictionPolicy: rejected": [
        post(BUDGETS, budget(selector={"matchLabels": {"a b": "c"}})),
        post(BUDGETS, budget(selector={"matchExpressions": [{"key": "a", "operator": "In"}]})),
        post(BUDGETS, budget(unhealthyPodEvictionPolicy="Never")),
    ],
    "patch of a budget: accepted, update without a resourceVersion: rejected": [
        post(BUDGETS, budget(minAvailable=1), save="made", shown=False),
        put(f"{BUDGETS}/b", budget(minAvailable=2)),
        patch(f"{BUDGETS}/b", {"spec": {"minAvailable": None, "maxUnavailable": "30%"}}),
        patch(f"{BUDGETS}/b", {"spec": {"selector": {"matchLabels": {"app": "y"}}}}),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_evictions(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
