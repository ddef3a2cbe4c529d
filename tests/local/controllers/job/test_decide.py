"""Tests for the next step of a Job."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest
from msgspec import Struct

from argosy.local.controllers.api_types import Job, Pod
from argosy.local.controllers.job.backoff import JobBackoff
from argosy.local.controllers.job.decide import MAX_PODS_PER_PASS, TRACKING_FINALIZER, Plan, decide
from tests.support.scheduler_objects import START, Json, pod
from tests.support.step_counter import count_steps

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
    metadata: Json = {"finalizers": [TRACKING_FINALIZER] if tracked else []}
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
MET = {
    **STARTED,
    "completedIndexes": "0",
    "succeeded": 1,
    "conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": COMPLETED}],
}

CASES = {
    "new job: creates its pods": Case(
        job(completions=3, parallelism=2),
        create=[None, None],
        status={"active": 2, "start_time": START},
    ),
    "fewer completions left than parallelism: as many pods": Case(
        job(STARTED, completions=3, parallelism=3),
        pods=[worker("a", "Succeeded"), worker("b"), worker("c")],
        release=["a"],
        status={"active": 2, "succeeded": 0},
    ),
    "terminated pod: recorded before it is counted": Case(
        job(STARTED, completions=2, parallelism=1),
        pods=[worker("a", "Succeeded")],
        create=[None],
        release=["a"],
        status={"succeeded": 0, "active": 1},
    ),
    "recorded pod without finalizer: counted": Case(
        job({**STARTED, "uncountedTerminatedPods": {"succeeded": ["uid-default-a"]}}, completions=2),
        pods=[worker("a", "Succeeded", tracked=False)],
        create=[None],
        status={"succeeded": 1},
    ),
    "recorded pod deleted: counted": Case(
        job({**STARTED, "uncountedTerminatedPods": {"failed": ["uid-default-a"]}}, completions=1),
        create=[None],
        status={"failed": 1},
    ),
    "recorded pod with finalizer: recorded once": Case(
        job({**STARTED, "uncountedTerminatedPods": {"succeeded": ["uid-default-a"]}}, completions=2),
        pods=[worker("a", "Succeeded")],
        create=[None],
        release=["a"],
        status={"succeeded": 0},
    ),
    "all succeeded: SuccessCriteriaMet until all are counted": Case(
        job(STARTED, completions=1),
        pods=[worker("a", "Succeeded")],
        release=["a"],
        conditions=[f"SuccessCriteriaMet={COMPLETED}"],
        status={"completion_time": None},
    ),
    "all counted: Complete": Case(
        job({**STARTED, "succeeded": 1}, completions=1),
        pods=[worker("a", "Succeeded", tracked=False)],
        conditions=[f"SuccessCriteriaMet={COMPLETED}", f"Complete={COMPLETED}"],
        status={"completion_time": START, "succeeded": 1, "active": 0},
    ),
    "no completions, one success and all ended: Complete": Case(
        job({**STARTED, "succeeded": 1}, parallelism=2),
        pods=[worker("a", "Succeeded", tracked=False), worker("b")],
        status={"active": 1},
    ),
    "indexed job: completions counted by index": Case(
        job(STARTED, completions=3, parallelism=3, completionMode="Indexed"),
        pods=[worker("a", "Succeeded", index=0), worker("b", index=1)],
        create=[2],
        release=["a"],
        status={"succeeded": 1, "completed_indexes": "0", "active": 2},
    ),
    "two pods of an index: one deleted": Case(
        job(STARTED, completions=2, parallelism=2, completionMode="Indexed"),
        pods=[worker("a", index=0), worker("b", index=0)],
        drop=["a"],
        status={"active": 1, "terminating": 1},
    ),
    "index failed: retried after the backoff": Case(
        job(STARTED, completions=1, completionMode="Indexed"),
        pods=[worker("a", "Failed", index=0, code=1, ago=4)],
        release=["a"],
        wake=6.0,
        status={"active": 0},
    ),
    "two failures: doubled backoff": Case(
        job({**STARTED, "failed": 1}, completions=1),
        pods=[worker("a", "Failed", tracked=False, ago=30), worker("b", "Failed", code=1, ago=4)],
        release=["b"],
        wake=16.0,
    ),
    "backoff over: pod replaced": Case(
        job(STARTED, completions=1), pods=[worker("a", "Failed", code=1)], create=[None], release=["a"]
    ),
    "more failures than backoffLimit: FailureTarget, pods deleted": Case(
        job({**STARTED, "failed": 1}, completions=3, parallelism=2, backoffLimit=1),
        pods=[worker("a", "Failed", code=1), worker("b")],
        stop=["b"],
        release=["a", "b"],
        conditions=["FailureTarget=BackoffLimitExceeded"],
        status={"active": 0, "terminating": 1},
    ),
    "FailureTarget and no pods left: Failed": Case(
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
    "more container restarts than backoffLimit: FailureTarget": Case(
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
    "activeDeadlineSeconds exceeded: FailureTarget": Case(
        job({"startTime": START - timedelta(seconds=11)}, activeDeadlineSeconds=10),
        pods=[worker("a")],
        stop=["a"],
        release=["a"],
        conditions=["FailureTarget=DeadlineExceeded"],
    ),
    "activeDeadlineSeconds not reached: requeued for it": Case(
        job({"startTime": START - timedelta(seconds=4)}, activeDeadlineSeconds=10),
        pods=[worker("a")],
        wake=6.0,
    ),
    "suspended: pods deleted and not counted": Case(
        job(STARTED, suspend=True),
        pods=[worker("a")],
        drop=["a"],
        conditions=["Suspended=JobSuspended"],
        status={"active": 0, "failed": 0, "start_time": None},
    ),
    "resumed: startTime reset": Case(
        job({"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}),
        create=[None],
        conditions=["Suspended=JobResumed"],
        status={"start_time": START},
    ),
    "parallelism lowered: pods deleted": Case(
        job(STARTED, completions=5, parallelism=1),
        pods=[worker("a"), worker("b")],
        drop=["a"],
        status={"active": 1},
    ),
    "terminating pod: counted as failed and replaced": Case(
        job(STARTED, completions=1),
        pods=[worker("a", deleting=True, tracked=True)],
        release=["a"],
        wake=10.0,
    ),
    "podReplacementPolicy Failed, terminating pod: not replaced yet": Case(
        job(STARTED, completions=1, podReplacementPolicy="Failed"),
        pods=[worker("a", deleting=True)],
        status={"terminating": 1, "active": 0},
    ),
    "podFailurePolicy Ignore: not counted": Case(
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
    "podFailurePolicy FailJob: FailureTarget": Case(
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
    "SuccessCriteriaMet and no pod left: Complete with the same reason": Case(
        job(MET, completions=1, completionMode="Indexed"),
        conditions=[f"SuccessCriteriaMet={COMPLETED}", f"Complete={COMPLETED}"],
        status={"failed": 0, "succeeded": 1, "completion_time": START},
    ),
    "finished job with a pod that has a finalizer: finalizer removed": Case(
        job(ended("Complete")), pods=[worker("a", "Failed")], release=["a"], conditions=["Complete=X"]
    ),
    "finished job before its TTL: requeued for it": Case(
        job(ended("Complete", ago=4), ttlSecondsAfterFinished=10), wake=6.0, conditions=["Complete=X"]
    ),
    "finished job after its TTL: expired": Case(
        job(ended("Failed", ago=10), ttlSecondsAfterFinished=10),
        wake=0.0,
        expired=True,
        conditions=["Failed=X"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_decide(case: Case) -> None:
    before = msgspec.json.encode(case.job)
    plan = decide(case.job, case.pods, START, JobBackoff(initial=10.0, maximum=600.0))
    assert plan.create == list(case.create)
    assert [pod.metadata.name for pod in plan.drop] == list(case.drop)
    assert [pod.metadata.name for pod in plan.stop] == list(case.stop)
    assert [pod.metadata.name for pod in plan.release] == list(case.release)
    assert [f"{c.type}={c.reason}" for c in plan.status.conditions] == list(case.conditions)
    assert {name: getattr(plan.status, name) for name in case.status} == case.status
    assert plan.requeue_after == case.wake
    assert plan.expired is case.expired
    assert msgspec.json.encode(case.job) == before, "the job that came in is untouched"


def test_after_an_interruption_finalizers_of_all_recorded_pods_are_removed() -> None:
    """Noted and not yet let go: were they passed over because the list is full, it would stay full."""
    noted = [f"uid-default-p{number}" for number in range(MAX_PODS_PER_PASS)]
    status = {**STARTED, "uncountedTerminatedPods": {"succeeded": noted}}
    pods = [worker(f"p{number}", "Succeeded") for number in range(MAX_PODS_PER_PASS + 1)]
    plan = decide(job(status, completions=2000, parallelism=1), pods, START)
    assert [pod.metadata.uid for pod in plan.release] == noted
    assert plan.status.uncounted_terminated_pods.succeeded == noted


def test_the_cost_of_a_pass_is_linear_in_the_number_of_pods() -> None:
    def steps(count: int) -> int:
        status = {**STARTED, "completedIndexes": f"0-{count - 1}"}
        large = job(status, completions=2 * count, parallelism=count, completionMode="Indexed")
        pods = [worker(f"p{number}", index=count + number // 2) for number in range(count)]
        plans: list[Plan] = []
        counted = count_steps(lambda: plans.append(decide(large, pods, START)))
        assert len(plans[0].drop) == min(count // 2, MAX_PODS_PER_PASS)
        return counted

    assert steps(800) < 6 * steps(200)
