"""Jobs: what about their indexes and policies is taken, filled in, and refused."""

from collections.abc import Callable, Sequence

import pytest

from tests.support.differential import Step, get, patch, post
from tests.support.field_paths import Json
from tests.support.manifests import JOBS, job

INDEXED: dict[str, Json] = {"completionMode": "Indexed", "completions": 4, "parallelism": 2}
EACH: dict[str, Json] = {**INDEXED, "backoffLimitPerIndex": 1}
OBJECT = f"{JOBS}/a"


def refused(**spec: Json) -> Step:
    return post(JOBS, job("a", **spec))


def failure(*rules: Json, **spec: Json) -> Step:
    return refused(podFailurePolicy={"rules": list(rules)}, **spec)


def codes(*values: int, operator: str = "In", **more: Json) -> dict[str, Json]:
    return {"operator": operator, "values": list(values), **more}


def success(*rules: Json, **spec: Json) -> Step:
    return refused(successPolicy={"rules": list(rules)}, **{**INDEXED, **spec})


def template(policy: str) -> Json:
    return {"spec": {"restartPolicy": policy, "containers": [{"name": "main", "image": "busybox"}]}}


COUNTING: Json = {"rules": [{"action": "Count", "onExitCodes": codes(1)}]}

CASES: dict[str, list[Step]] = {
    "a limit per index lifts the job's own": [post(JOBS, job("a", **EACH)), get(OBJECT)],
    "a limit per index leaves the job's own when that is given": [
        post(JOBS, job("a", **EACH, backoffLimit=3))
    ],
    "a limit per index, failed indexes and policies are kept": [
        post(
            JOBS,
            job(
                "a",
                **EACH,
                maxFailedIndexes=2,
                podFailurePolicy={
                    "rules": [
                        {"action": "FailIndex", "onExitCodes": codes(3)},
                        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    ]
                },
                successPolicy={"rules": [{"succeededIndexes": "0-1,3", "succeededCount": 2}]},
            ),
        ),
        get(OBJECT),
    ],
    "a limit per index needs indexes": [
        refused(backoffLimitPerIndex=1),
        refused(backoffLimitPerIndex=1, maxFailedIndexes=1, completionMode="NonIndexed"),
        refused(**{**INDEXED, "completions": None}),
    ],
    "negative limits are refused": [
        refused(**{**INDEXED, "backoffLimitPerIndex": -1, "maxFailedIndexes": -1})
    ],
    "maxFailedIndexes needs a limit per index": [refused(**INDEXED, maxFailedIndexes=1)],
    "no more failed indexes than completions": [refused(**EACH, maxFailedIndexes=5)],
    "many indexes need more limits": [
        refused(**{**EACH, "completions": 100001}),
        refused(**{**EACH, "completions": 200000, "parallelism": 10001, "maxFailedIndexes": 10001}),
        refused(**{**EACH, "completions": 200000, "maxFailedIndexes": 100001}),
        refused(**{**INDEXED, "parallelism": 100001}),
    ],
    "FailIndex needs a limit per index": [
        failure({"action": "FailIndex", "onExitCodes": codes(3)}, **INDEXED)
    ],
    "a failure rule without its parts is refused": [
        failure({"action": "", "onExitCodes": {"operator": "", "values": []}}),
        failure({"action": "Count"}),
        failure({"action": "Nonsense", "onExitCodes": codes(1)}),
        failure({"action": "Count", "onExitCodes": codes(1), "onPodConditions": [{"type": "A"}]}),
    ],
    "bad exit codes are refused": [
        failure({"action": "Count", "onExitCodes": codes(0, 1)}),
        failure({"action": "Count", "onExitCodes": codes(0, operator="NotIn")}),
        failure({"action": "Count", "onExitCodes": codes(2, 1, 2)}),
        failure({"action": "Count", "onExitCodes": codes(1, operator="Near")}),
        failure({"action": "Count", "onExitCodes": codes(1, containerName="other")}),
    ],
    "bad conditions are refused": [
        failure({"action": "Count", "onPodConditions": [{"type": "not ok", "status": "Perhaps"}]}),
    ],
    "too many rules are refused": [failure(*[{"action": "Count", "onExitCodes": codes(1)}] * 21)],
    "a failure policy is for pods that do not restart": [
        failure({"action": "Count", "onExitCodes": codes(1)}, template=template("OnFailure")),
        failure({"action": "Count", "onExitCodes": codes(1)}, podReplacementPolicy="TerminatingOrFailed"),
        refused(podReplacementPolicy="Perhaps"),
    ],
    "a success policy needs indexes": [
        refused(successPolicy={"rules": [{"succeededCount": 1}]}),
        refused(successPolicy={"rules": [{"succeededIndexes": "0"}]}, completionMode="NonIndexed"),
    ],
    "a success policy without rules is refused": [
        success(),
        success({}),
        success(*[{"succeededCount": 1}] * 21),
    ],
    "a success rule that cannot be met is refused": [
        success({"succeededCount": 5}),
        success({"succeededCount": -1}),
        success({"succeededIndexes": "0-1", "succeededCount": 3}),
    ],
    "indexes are written in order": [
        success({"succeededIndexes": "1,0"}),
        success({"succeededIndexes": "2-1"}),
        success({"succeededIndexes": "0-2-3"}),
        success({"succeededIndexes": "a"}),
        success({"succeededIndexes": "0,"}),
        success({"succeededIndexes": "0-x"}),
        success({"succeededIndexes": "4"}),
        success({"succeededIndexes": "0-4"}),
        success({"succeededIndexes": ""}),
    ],
    "policies cannot be changed": [
        post(JOBS, job("a", **EACH), shown=False),
        patch(OBJECT, {"spec": {"backoffLimitPerIndex": 2}}),
        patch(OBJECT, {"spec": {"successPolicy": {"rules": [{"succeededCount": 1}]}}}),
        patch(OBJECT, {"spec": {"managedBy": "example.com/me"}}),
        patch(OBJECT, {"spec": {"podReplacementPolicy": "Failed", "podFailurePolicy": COUNTING}}),
        patch(OBJECT, {"spec": {"maxFailedIndexes": 1}}, only=("spec.maxFailedIndexes",)),
    ],
    "completions of an indexed job change with its parallelism": [
        post(JOBS, job("a", **INDEXED), shown=False),
        patch(OBJECT, {"spec": {"completions": 5}}),
        patch(OBJECT, {"spec": {"completions": 5, "parallelism": 5}}, only=("spec",)),
    ],
    "a manager is a name below a domain": [
        refused(managedBy=""),
        refused(managedBy="me"),
        refused(managedBy="-a.b/me"),
        refused(managedBy="example.com/" + "x" * 60),
        refused(managedBy="example.com/a b"),
    ],
}


@pytest.mark.parametrize("steps", CASES.values(), ids=CASES)
def test_jobs(compare: Callable[[Sequence[Step]], None], steps: list[Step]) -> None:
    compare(steps)
