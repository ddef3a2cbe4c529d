"""What a Job needs next."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest
from msgspec import Struct

from argosy.local.controllers.job.decide import TRACKING, Backoff, decide
from argosy.local.controllers.kinds import Job, Pod
from argosy.testing.objects import START, Json, pod

INDEX = "batch.kubernetes.io/job-completion-index"


def job(status: Mapping[str, object] | None = None, **spec: object) -> Job:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}
    metadata = {"name": "j", "namespace": "default", "uid": "job-uid"}
    return msgspec.convert(
        {"metadata": metadata, "spec": {"template": template, **spec}, "status": status or {}}, Job
    )


def worker(
    name: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    tracked: bool = True,
    deleting: bool = False,
    code: int = 0,
    ago: float = 100.0,
) -> Pod:
    metadata: Json = {"finalizers": [TRACKING] if tracked else []}
    if deleting:
        metadata["deletionTimestamp"] = START
    over = {"exitCode": code, "finishedAt": START - timedelta(seconds=ago)}
    state = {"terminated": over} if phase in ("Succeeded", "Failed") else {"running": {}}
    return pod(
        name,
        phase=phase,
        node="n1",
        annotations={INDEX: str(index)} if index is not None else {},
        metadata=metadata,
        status={"containerStatuses": [{"name": "main", "state": state}]},
    )


class Case(Struct):
    job: Job
    pods: Sequence[Pod] = ()
    create: Sequence[int | None] = ()
    drop: Sequence[str] = ()
    stop: Sequence[str] = ()
    release: Sequence[str] = ()
    status: Mapping[str, object] = {}
    """Fields of the status that must be so."""
    conditions: Sequence[str] = ()
    """As type=reason."""
    wake: float | None = None
    expired: bool = False


def ended(type: str, ago: float = 0.0) -> Json:
    when = START - timedelta(seconds=ago)
    return {"conditions": [{"type": type, "status": "True", "lastTransitionTime": when, "reason": "X"}]}


COMPLETED = "CompletionsReached"
STARTED = {"startTime": START}

CASES = {
    "a new job starts its pods": Case(
        job(completions=3, parallelism=2),
        create=[None, None],
        status={"active": 2, "start_time": START},
    ),
    "no more pods than completions left": Case(
        job(STARTED, completions=3, parallelism=3),
        pods=[worker("a", "Succeeded"), worker("b"), worker("c")],
        release=["a"],
        status={"active": 2, "succeeded": 0},
    ),
    "a pod that ended is noted before it is counted": Case(
        job(STARTED, completions=2, parallelism=1),
        pods=[worker("a", "Succeeded")],
        create=[None],
        release=["a"],
        status={"succeeded": 0, "active": 1},
    ),
    "a noted pod without finalizer is counted": Case(
        job({**STARTED, "uncountedTerminatedPods": {"succeeded": ["uid-default-a"]}}, completions=2),
        pods=[worker("a", "Succeeded", tracked=False)],
        create=[None],
        status={"succeeded": 1},
    ),
    "a noted pod that vanished is counted": Case(
        job({**STARTED, "uncountedTerminatedPods": {"failed": ["uid-default-a"]}}, completions=1),
        create=[None],
        status={"failed": 1},
    ),
    "a noted pod that still has its finalizer is noted once": Case(
        job({**STARTED, "uncountedTerminatedPods": {"succeeded": ["uid-default-a"]}}, completions=2),
        pods=[worker("a", "Succeeded")],
        create=[None],
        release=["a"],
        status={"succeeded": 0},
    ),
    "all succeeded: it says so and waits for the count": Case(
        job(STARTED, completions=1),
        pods=[worker("a", "Succeeded")],
        release=["a"],
        conditions=[f"SuccessCriteriaMet={COMPLETED}"],
        status={"completion_time": None},
    ),
    "all counted: complete": Case(
        job({**STARTED, "succeeded": 1}, completions=1),
        pods=[worker("a", "Succeeded", tracked=False)],
        conditions=[f"SuccessCriteriaMet={COMPLETED}", f"Complete={COMPLETED}"],
        status={"completion_time": START, "succeeded": 1, "active": 0},
    ),
    "without completions one success ends it when the rest have ended": Case(
        job({**STARTED, "succeeded": 1}, parallelism=2),
        pods=[worker("a", "Succeeded", tracked=False), worker("b")],
        status={"active": 1},
    ),
    "the completions of an indexed job are counted by index": Case(
        job(STARTED, completions=3, parallelism=3, completionMode="Indexed"),
        pods=[worker("a", "Succeeded", index=0), worker("b", index=1)],
        create=[2],
        release=["a"],
        status={"succeeded": 1, "completed_indexes": "0", "active": 2},
    ),
    "an index has one pod": Case(
        job(STARTED, completions=2, parallelism=2, completionMode="Indexed"),
        pods=[worker("a", index=0), worker("b", index=0)],
        drop=["a"],
        status={"active": 1, "terminating": 1},
    ),
    "a failed index is tried again after a pause": Case(
        job(STARTED, completions=1, completionMode="Indexed"),
        pods=[worker("a", "Failed", index=0, code=1, ago=4)],
        release=["a"],
        wake=6.0,
        status={"active": 0},
    ),
    "pauses double": Case(
        job({**STARTED, "failed": 1}, completions=1),
        pods=[worker("a", "Failed", tracked=False, ago=30), worker("b", "Failed", code=1, ago=4)],
        release=["b"],
        wake=16.0,
    ),
    "after the pause the pod is replaced": Case(
        job(STARTED, completions=1), pods=[worker("a", "Failed", code=1)], create=[None], release=["a"]
    ),
    "one failure more than the limit fails the job and stops the rest": Case(
        job({**STARTED, "failed": 1}, completions=3, parallelism=2, backoffLimit=1),
        pods=[worker("a", "Failed", code=1), worker("b")],
        stop=["b"],
        release=["a", "b"],
        conditions=["FailureTarget=BackoffLimitExceeded"],
        status={"active": 0, "terminating": 1},
    ),
    "a failing job has failed when its last pod is gone": Case(
        job(
            {
                **STARTED,
                "failed": 3,
                "conditions": [{"type": "FailureTarget", "status": "True", "reason": "X"}],
            },
            completions=3,
        ),
        conditions=["FailureTarget=X", "Failed=X"],
        status={"failed": 3},
    ),
    "containers that restart too often fail the job": Case(
        job(
            STARTED,
            backoffLimit=2,
            template={"spec": {"restartPolicy": "OnFailure"}},
        ),
        pods=[
            pod(
                "a",
                phase="Running",
                node="n1",
                status={"containerStatuses": [{"name": "main", "restartCount": 2}]},
            )
        ],
        stop=["a"],
        conditions=["FailureTarget=BackoffLimitExceeded"],
    ),
    "past its deadline": Case(
        job({"startTime": START - timedelta(seconds=11)}, activeDeadlineSeconds=10),
        pods=[worker("a")],
        stop=["a"],
        release=["a"],
        conditions=["FailureTarget=DeadlineExceeded"],
    ),
    "before its deadline it wakes for it": Case(
        job({"startTime": START - timedelta(seconds=4)}, activeDeadlineSeconds=10),
        pods=[worker("a")],
        wake=6.0,
    ),
    "suspended: pods go, uncounted": Case(
        job(STARTED, suspend=True),
        pods=[worker("a")],
        drop=["a"],
        conditions=["Suspended=JobSuspended"],
        status={"active": 0, "failed": 0, "start_time": None},
    ),
    "resumed: the clock starts anew": Case(
        job({"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}),
        create=[None],
        conditions=["Suspended=JobResumed"],
        status={"start_time": START},
    ),
    "less parallelism drops pods": Case(
        job(STARTED, completions=5, parallelism=1),
        pods=[worker("a"), worker("b")],
        drop=["a"],
        status={"active": 1},
    ),
    "a deleted pod counts as failed and is replaced": Case(
        job(STARTED, completions=1),
        pods=[worker("a", deleting=True, tracked=True)],
        release=["a"],
        wake=10.0,
    ),
    "with replacement policy Failed a deleted pod is waited for": Case(
        job(STARTED, completions=1, podReplacementPolicy="Failed"),
        pods=[worker("a", deleting=True)],
        status={"terminating": 1, "active": 0},
    ),
    "a policy may ignore a failure": Case(
        job(
            STARTED,
            backoffLimit=0,
            podFailurePolicy={
                "rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}}]
            },
        ),
        pods=[worker("a", "Failed", code=7)],
        create=[None],
        release=["a"],
        status={"failed": 0},
    ),
    "a policy may end the job at once": Case(
        job(
            STARTED,
            podFailurePolicy={
                "rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [7]}}]
            },
        ),
        pods=[worker("a", "Failed", code=1), worker("b")],
        stop=["b"],
        release=["a", "b"],
        conditions=["FailureTarget=PodFailurePolicy"],
    ),
    "what is not supported is refused": Case(
        job(STARTED, completions=1, completionMode="Indexed", backoffLimitPerIndex=1),
        conditions=["FailureTarget=Unsupported", "Failed=Unsupported"],
    ),
    "a finished job lets go of its pods": Case(
        job(ended("Complete")), pods=[worker("a", "Failed")], release=["a"], conditions=["Complete=X"]
    ),
    "a finished job lives for a while": Case(
        job(ended("Complete", ago=4), ttlSecondsAfterFinished=10), wake=6.0, conditions=["Complete=X"]
    ),
    "and then expires": Case(
        job(ended("Failed", ago=10), ttlSecondsAfterFinished=10),
        wake=0.0,
        expired=True,
        conditions=["Failed=X"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decide(case: Case) -> None:
    before = msgspec.json.encode(case.job)
    plan = decide(case.job, case.pods, START, Backoff(first=10.0, most=600.0))
    assert plan.create == list(case.create)
    assert [each.metadata.name for each in plan.drop] == list(case.drop)
    assert [each.metadata.name for each in plan.stop] == list(case.stop)
    assert [each.metadata.name for each in plan.release] == list(case.release)
    assert [f"{c.type}={c.reason}" for c in plan.status.conditions] == list(case.conditions)
    assert {name: getattr(plan.status, name) for name in case.status} == case.status
    assert plan.wake == case.wake
    assert plan.expired is case.expired
    assert msgspec.json.encode(case.job) == before, "the job that came in is untouched"
