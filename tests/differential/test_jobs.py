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
    "a failure policy is kept": [
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
    "Indexed needs completions and a limited parallelism": [
        refused(**{**INDEXED, "completions": None}),
        refused(**{**INDEXED, "parallelism": 100001}),
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
    "policies cannot be changed": [
        post(JOBS, job("a", **INDEXED), shown=False),
        patch(OBJECT, {"spec": {"managedBy": "example.com/me"}}),
        patch(OBJECT, {"spec": {"podReplacementPolicy": "Failed", "podFailurePolicy": COUNTING}}),
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
