"""Jobs: validation and defaults of their indexes and policies."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, get, patch, post
from tests.support.field_paths import Json
from tests.support.manifests import JOBS, job

INDEXED: dict[str, Json] = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
OBJECT = f"{JOBS}/a"


def refused(**spec: Json) -> Step:
    return post(JOBS, job("a", **spec))


def failure(*rules: Json, **spec: Json) -> Step:
    return refused(podFailurePolicy={"rules": list(rules)}, **spec)


def codes(*values: int, operator: str = "In", **more: Json) -> dict[str, Json]:
    return {"operator": operator, "values": list(values), **more}


def template(policy: str) -> Json:
    return {"spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "busybox"}]}}


COUNTING: Json = {"rules": [{"action": "Count", "onExitCodes": codes(1)}]}

CASES: dict[str, list[Step]] = {
    "valid podFailurePolicy: stored": [
        post(
            JOBS,
            job(
                "a",
                podFailurePolicy={
                    "rules": [
                        {"action": "FailJob", "onExitCodes": codes(3)},
                        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    ]
                },
            ),
        ),
        get(OBJECT),
    ],
    "Indexed Job without completions or with too much parallelism: rejected": [
        refused(**{**INDEXED, "completions": None}),
        refused(**{**INDEXED, "parallelism": 100001}),
    ],
    "incomplete or unknown failure rule: rejected": [
        failure({"action": "", "onExitCodes": {"operator": "", "values": []}}),
        failure({"action": "Count"}),
        failure({"action": "Nonsense", "onExitCodes": codes(1)}),
        failure({"action": "Count", "onExitCodes": codes(1), "onPodConditions": [{"type": "A"}]}),
    ],
    "valid and invalid onExitCodes of failure rules: as kube-apiserver": [
        failure({"action": "Count", "onExitCodes": codes(0, 1)}),
        failure({"action": "Count", "onExitCodes": codes(0, operator="NotIn")}),
        failure({"action": "Count", "onExitCodes": codes(2, 1, 2)}),
        failure({"action": "Count", "onExitCodes": codes(1, operator="Near")}),
        failure({"action": "Count", "onExitCodes": codes(1, containerName="other")}),
    ],
    "failure rule with invalid onPodConditions: rejected": [
        failure({"action": "Count", "onPodConditions": [{"type": "not ok", "status": "Perhaps"}]}),
    ],
    "21 failure rules: rejected": [failure(*[{"action": "Count", "onExitCodes": codes(1)}] * 21)],
    "podFailurePolicy with restartPolicy OnFailure or unsuitable replacement: rejected": [
        failure({"action": "Count", "onExitCodes": codes(1)}, template=template("OnFailure")),
        failure({"action": "Count", "onExitCodes": codes(1)}, podReplacementPolicy="TerminatingOrFailed"),
        refused(podReplacementPolicy="Perhaps"),
    ],
    "change of policies: rejected": [
        post(JOBS, job("a", **INDEXED), shown=False),
        patch(OBJECT, {"spec": {"podReplacementPolicy": "Failed", "podFailurePolicy": COUNTING}}),
    ],
    "completions of an Indexed Job changed with parallelism: accepted, alone: rejected": [
        post(JOBS, job("a", **INDEXED), shown=False),
        patch(OBJECT, {"spec": {"completions": 5}}),
        patch(OBJECT, {"spec": {"completions": 5, "parallelism": 5}}, only=("spec",)),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_jobs(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
