"""What a Job needs next."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import pytest
from msgspec import Struct

from argosy.local.controllers.job.backoff import JobBackoff
from argosy.local.controllers.job.backoff_per_index import FAILURES_ANNOTATION, IGNORED_ANNOTATION
from argosy.local.controllers.job.decide import MAX_PODS_PER_PASS, TRACKING_FINALIZER, Plan, decide
from argosy.local.controllers.kinds import Job, Pod
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
    failures: int = 0,
    ignored: int = 0,
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
        annotations={INDEX: str(index), FAILURES_ANNOTATION: str(failures), IGNORED_ANNOTATION: str(ignored)}
        if index is not None
        else {},
        metadata=metadata,
        status={"containerStatuses": [{"name": "main", "state": state}]},
    )


class Case(Struct):
    job: Job
    pods: Sequence[Pod] = ()
    create: Sequence[int | None] = ()
    notes: Mapping[int, Mapping[str, str]] = {}
    drop: Sequence[str] = ()
    stop: Sequence[str] = ()
    release: Sequence[str] = ()
    status: Mapping[str, object] = {}
    """Fields of the status that must be so."""
    conditions: Sequence[str] = ()
    """As type=reason."""
    messages: Sequence[str] | None = None
    """Of the conditions."""
    wake: float | None = None
    expired: bool = False


def ended(type: str, ago: float = 0.0) -> Json:
    when = START - timedelta(seconds=ago)
    return {"conditions": [{"type": type, "status": "True", "lastTransitionTime": when, "reason": "X"}]}


def each_index(status: Mapping[str, object], *, tries: int = 0, **spec: object) -> Job:
    """A Job of two indexes that are tried again one by one."""
    sizes: Json = {"completions": 2, "parallelism": 3, "completionMode": "Indexed"}
    limit: Json = {"backoffLimitPerIndex": tries, "backoffLimit": 2147483647}
    return job(status, **{**sizes, **limit, **spec})


def named(*rules: Json, status: Mapping[str, object] | None = None, **spec: object) -> Job:
    """A Job of three indexes with a success policy."""
    sizes: Json = {"completions": 3, "parallelism": 3, "completionMode": "Indexed"}
    return job(status or STARTED, **{**sizes, "successPolicy": {"rules": rules}, **spec})


def _policy(action: str) -> Json:
    return {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [7]}}]}


COMPLETED = "CompletionsReached"
STARTED = {"startTime": START}
MET = {
    **STARTED,
    "completedIndexes": "1",
    "succeeded": 1,
    "conditions": [
        {
            "type": "SuccessCriteriaMet",
            "status": "True",
            "reason": "SuccessPolicy",
            "message": "Matched rules at index 0",
        }
    ],
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
    "backoffLimitPerIndex, index failed: next pod has its count": Case(
        each_index(STARTED, tries=2),
        pods=[worker("a", "Failed", index=0, code=1, failures=1), worker("b", index=1)],
        create=[0],
        notes={0: {FAILURES_ANNOTATION: "2"}},
        status={"failed_indexes": "", "active": 2, "failed": 0},
    ),
    "backoffLimitPerIndex, new job: pods have no failures": Case(
        each_index(STARTED),
        create=[0, 1],
        notes={0: {FAILURES_ANNOTATION: "0"}, 1: {FAILURES_ANNOTATION: "0"}},
        status={"failed_indexes": ""},
    ),
    "backoffLimitPerIndex: failed pod counted once its successor exists": Case(
        each_index(STARTED, tries=2),
        pods=[
            worker("a", "Failed", index=0, code=1),
            worker("c", index=0, failures=1),
            worker("b", index=1),
        ],
        release=["a"],
        status={"active": 2},
    ),
    "backoffLimitPerIndex: each index has its own backoff": Case(
        each_index(STARTED, tries=5, completions=3),
        pods=[
            worker("a", "Failed", index=0, code=1, failures=1, ago=4),
            worker("b", "Failed", index=1, code=1, ago=11),
            worker("c", index=2),
        ],
        create=[1],
        notes={1: {FAILURES_ANNOTATION: "1"}},
        wake=16.0,
        status={"active": 2},
    ),
    "index without retries left: failed, others continue": Case(
        each_index(STARTED, tries=1),
        pods=[worker("a", "Failed", index=0, code=1, failures=1), worker("b", index=1)],
        release=["a"],
        status={"failed_indexes": "0", "active": 1},
    ),
    "failed index in the status: kept": Case(
        each_index({**STARTED, "failedIndexes": "0", "failed": 1}),
        pods=[worker("b", index=1)],
        status={"failed_indexes": "0", "active": 1},
    ),
    "all indexes done, one failed: FailureTarget": Case(
        each_index({**STARTED, "failedIndexes": "0"}),
        pods=[worker("b", "Succeeded", index=1)],
        release=["b"],
        conditions=["FailureTarget=FailedIndexes"],
        status={"failed_indexes": "0", "completed_indexes": "1", "succeeded": 1},
    ),
    "more failed indexes than maxFailedIndexes: FailureTarget": Case(
        each_index({**STARTED, "failedIndexes": "0"}, completions=4, parallelism=4, maxFailedIndexes=1),
        pods=[worker("b", "Failed", index=1, code=1), worker("c", index=2), worker("d", index=3)],
        stop=["c", "d"],
        release=["b", "c", "d"],
        conditions=["FailureTarget=MaxFailedIndexesExceeded"],
        status={"failed_indexes": "0,1", "active": 0},
    ),
    "as many failed indexes as maxFailedIndexes: continues": Case(
        each_index({**STARTED, "failedIndexes": "0"}, completions=3, maxFailedIndexes=1),
        pods=[worker("b", index=1), worker("c", index=2)],
        status={"failed_indexes": "0", "active": 2},
    ),
    "podFailurePolicy FailIndex: index failed": Case(
        each_index(STARTED, tries=5, podFailurePolicy=_policy("FailIndex")),
        pods=[worker("a", "Failed", index=0, code=7), worker("b", index=1)],
        release=["a"],
        status={"failed_indexes": "0", "active": 1},
    ),
    "podFailurePolicy Ignore per index: longer backoff, no retry used": Case(
        each_index(STARTED, tries=0, podFailurePolicy=_policy("Ignore")),
        pods=[worker("a", "Failed", index=0, code=7, ignored=1, ago=21), worker("b", index=1)],
        create=[0],
        notes={0: {FAILURES_ANNOTATION: "0", IGNORED_ANNOTATION: "2"}},
        status={"failed_indexes": "", "active": 2},
    ),
    "backoffLimitPerIndex: backoffLimit is not used": Case(
        each_index(STARTED, tries=5, backoffLimit=0),
        pods=[worker("a", "Failed", index=0, code=1), worker("b", index=1)],
        stop=["b"],
        release=["a", "b"],
        conditions=["FailureTarget=BackoffLimitExceeded"],
    ),
    "successPolicy with its indexes succeeded: SuccessCriteriaMet": Case(
        named({"succeededIndexes": "0,2"}),
        pods=[worker("a", "Succeeded", index=0), worker("b", index=1), worker("c", "Succeeded", index=2)],
        stop=["b"],
        release=["a", "b", "c"],
        conditions=["SuccessCriteriaMet=SuccessPolicy"],
        status={"completed_indexes": "0,2", "active": 0, "terminating": 1},
    ),
    "successPolicy with other indexes succeeded: continues": Case(
        named({"succeededIndexes": "0,2"}),
        pods=[worker("a", "Succeeded", index=0), worker("b", "Succeeded", index=1), worker("c", index=2)],
        release=["a", "b"],
        status={"completed_indexes": "0,1", "active": 1},
    ),
    "by so many of those it names": Case(
        named({"succeededIndexes": "0-1", "succeededCount": 1}),
        pods=[worker("a", index=0), worker("b", "Succeeded", index=1), worker("c", index=2)],
        stop=["a", "c"],
        release=["a", "b", "c"],
        conditions=["SuccessCriteriaMet=SuccessPolicy"],
    ),
    "by so many of any": Case(
        named({"succeededIndexes": "0"}, {"succeededCount": 2}),
        pods=[worker("a", index=0), worker("b", "Succeeded", index=1), worker("c", "Succeeded", index=2)],
        stop=["a"],
        release=["a", "b", "c"],
        conditions=["SuccessCriteriaMet=SuccessPolicy"],
        messages=["Matched rules at index 1"],
        status={"failed": 0},
    ),
    "a job that met its policy is complete when its last pod is gone; stopped pods are no failures": Case(
        named({"succeededCount": 1}, status=MET),
        conditions=["SuccessCriteriaMet=SuccessPolicy", "Complete=SuccessPolicy"],
        messages=["Matched rules at index 0", "Matched rules at index 0"],
        status={"failed": 0, "succeeded": 1, "completion_time": START},
    ),
    "a failure comes before a success": Case(
        named({"succeededCount": 1}, backoffLimit=0),
        pods=[worker("a", "Failed", index=0, code=1), worker("b", "Succeeded", index=1)],
        release=["a", "b"],
        conditions=["FailureTarget=BackoffLimitExceeded"],
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
    plan = decide(case.job, case.pods, START, JobBackoff(initial=10.0, maximum=600.0))
    assert plan.create == list(case.create)
    assert plan.annotations == case.notes
    assert [each.metadata.name for each in plan.drop] == list(case.drop)
    assert [each.metadata.name for each in plan.stop] == list(case.stop)
    assert [each.metadata.name for each in plan.release] == list(case.release)
    assert [f"{c.type}={c.reason}" for c in plan.status.conditions] == list(case.conditions)
    if case.messages is not None:
        assert [c.message for c in plan.status.conditions] == list(case.messages)
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
