"""Acceptance cases 39 to 50 as far as they are decisions: gang, limits, cleanup, suspend."""

import pytest
from msgspec.structs import replace

from argosy.kinds.aresjob import AresJob
from argosy.testing.aresjobs import DIALECT, Played, job, lowered, messages, played
from argosy.testing.workloads import later, pod, pods
from argosy.workload.observed import Observed, ObservedGroup, Outcome, Result
from argosy.workload.plan import DeleteChild, DeleteJob, EnsurePodGroup

GANG = {"schedulingPolicy": {"minAvailable": 2, "queue": "q", "minResources": {"cpu": "2"}}}


def gang(**run: object) -> AresJob:
    return job(roles={"worker": {"replicas": 2}}, runPolicy={**GANG, **run})


def group(phase: str, **more: object) -> ObservedGroup:
    return replace(ObservedGroup(phase, 2, "q", "", {"cpu": "2"}), **more)


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_39_no_pod_is_made_while_the_group_waits(phase: str) -> None:
    """minAvailable 2: PodGroup made first, zero pods and phase Pending while its phase is empty or
    Pending."""
    begun = played(gang()).saw().saw()
    (made,) = (one for one in begun.actions if isinstance(one, EnsurePodGroup))
    assert made == EnsurePodGroup("job", 2, "q", "", {"cpu": "2"})
    waiting = begun.went(Observed(group=group(phase)))
    assert (waiting.created, waiting.phase, waiting.status.start_time) == ([], "Pending", None)


def test_39_let_in_all_pods_are_made() -> None:
    """Inqueue -> pods with schedulerName volcano and the group annotation."""
    waiting = played(gang()).saw().went(Observed(group=group("Pending")))
    let_in = waiting.went(Observed(group=group("Inqueue")))
    assert let_in.created == ["worker-0", "worker-1"]
    assert (let_in.phase, let_in.status.start_time) == ("Starting", later(let_in.at))
    placed = let_in.went(
        Observed(pods=pods("PP"), group=group("Running", scheduled=True, reason="tasks ready"))
    )
    assert placed.condition("Scheduled") == ("True", "Scheduled", "tasks ready")
    back = placed.went(Observed(pods=pods("PP"), group=group("Pending")))
    assert back.phase == "Starting", "the gate opens for good"


def test_40_an_evicted_group_is_preempted() -> None:
    """PodGroup Evicted=True -> Failed, reason Preempted."""
    running = played(gang()).saw().went(Observed(group=group("Inqueue"))).saw(*pods("RR"))
    evicted = running.went(Observed(pods=pods("RR"), group=group("Running", evicted=True)))
    assert (evicted.phase, evicted.condition("Failed")[1]) == ("Failed", "Preempted")


def test_45_without_podgroups_a_gang_waits_and_says_for_what() -> None:
    """a gang job is Pending with GangSchedulerMissing; CRD installed -> PodGroup appears."""
    waiting = played(gang()).saw().went(Observed(group_served=False))
    assert (waiting.phase, waiting.created) == ("Pending", [])
    status, reason, message = waiting.condition("Scheduled")
    assert (status, reason) == ("False", "GangSchedulerMissing")
    assert "spec.runPolicy.schedulingPolicy" in message
    served = waiting.went(Observed())
    assert any(isinstance(one, EnsurePodGroup) for one in served.actions)


def failing(**run: object) -> Played:
    roles = {"worker": {"restartPolicy": "OnFailure"}}
    return played(job(roles=roles, runPolicy=run)).started().saw(*pods("R"))


def test_43_backoff_limit() -> None:
    """backoffLimit 3, OnFailure: the fourth failure -> phase Failed, JobFailed."""
    running = failing(backoffLimit=3)
    for times in range(3):
        running = running.saw(pod(0, "Failed", replacement=times), seconds=700)
        assert (running.phase, running.role().restarts) == ("Running", times + 1)
        running = running.saw(pod(0, replacement=times + 1), seconds=700)
    ended = running.saw(pod(0, "Failed", replacement=3))
    status, reason, message = ended.condition("Failed")
    assert (ended.phase, status, reason) == ("Failed", "True", "JobFailed")
    assert "3" in message
    assert ended.role().restarts == 3


def test_43_a_limit_of_zero_ends_with_the_first_failure_also_of_a_pod_that_is_kept() -> None:
    roles = {"worker": {"replicas": 2, "rolePhasePolicy": {"failed": "AllPods"}}}
    running = played(job(roles=roles, runPolicy={"backoffLimit": 0})).started().saw(*pods("RR"))
    ended = running.saw(*pods("FR"))
    assert (ended.phase, ended.condition("Failed")[1]) == ("Failed", "JobFailed")
    assert "spec.runPolicy.backoffLimit" in ended.condition("Failed")[2]
    assert ended.deleted == ["job-worker-1"], "what still runs is deleted whatever cleanPodPolicy says"


def test_43_active_deadline() -> None:
    """activeDeadlineSeconds 60 -> Failed at 60 s after startTime, live pods deleted."""
    running = failing(activeDeadlineSeconds=60)
    start = running.status.start_time
    assert start is not None
    assert running.plan is not None
    assert running.plan.wake_at == start.replace(minute=start.minute + 1)
    ended = running.saw(*pods("R"), seconds=60)
    assert (ended.phase, ended.condition("Failed")[1], ended.deleted) == (
        "Failed",
        "JobFailed",
        ["job-worker-0"],
    )
    assert "spec.runPolicy.activeDeadlineSeconds" in ended.condition("Failed")[2]


def test_43_time_to_live_of_the_job() -> None:
    """ttlSecondsAfterFinished 30 -> job object gone about 30 s after the finish."""
    done = failing(ttlSecondsAfterFinished=30).saw(*pods("S"))
    assert done.plan is not None
    assert (done.phase, done.plan.wake_at) == ("Succeeded", later(done.at + 30))
    over = done.saw(*pods("S"), seconds=30)
    assert any(isinstance(one, DeleteJob) for one in over.actions)
    assert messages(over.events, "SuccessfulDeleteJob")


def test_43_time_to_live_of_a_job_that_is_invalid() -> None:
    """ttlSecondsAfterFinished, InvalidDefinition included."""
    refused = played(job(roles={"worker": None}, runPolicy={"ttlSecondsAfterFinished": 30})).saw()
    assert refused.plan is not None
    assert refused.plan.wake_at == later(refused.at + 30)
    over = refused.saw(seconds=30)
    assert any(isinstance(one, DeleteJob) for one in over.actions)


@pytest.mark.parametrize(("ttl", "gone"), [(10, True), (None, False)], ids=["10 s", "nil"])
def test_42_time_to_live_of_the_children_of_a_failed_job(ttl: int | None, gone: bool) -> None:
    """ttlSecondsAfterFailed 10 -> about 10 s after failure pods, services, PodGroup are gone, AresJob kept;
    nil -> all kept."""
    failed = played(job(ttlSecondsAfterFailed=ttl)).started().saw(*pods("F"))
    there = Observed(pods=pods("F"), children={("Service", "job-worker"): ""})
    assert (failed.phase, failed.deleted) == ("Failed", [])
    after = failed.went(there, seconds=10)
    assert (after.deleted == ["job-worker-0"]) is gone
    assert (DeleteChild("Service", "job-worker") in after.actions) is gone
    assert not any(isinstance(one, DeleteJob) for one in after.actions)
    assert after.role().failed == 1, "the status stays as at the finish"


CLEANUPS = {
    "None keeps all": ("None", []),
    "Running deletes Running and Pending pods": ("Running", ["job-a-0"]),
    "All deletes all pods, role services and the PodGroup": ("All", ["job-a-0", "job-b-0"]),
    "an empty policy acts as All": ("", ["job-a-0", "job-b-0"]),
}


@pytest.mark.parametrize(("policy", "want"), CLEANUPS.values(), ids=CLEANUPS.keys())
def test_cleanup(policy: str, want: list[str]) -> None:
    obj = job(roles={"a": {}, "b": {}}, runPolicy={"cleanPodPolicy": policy})
    ended = played(obj).started().saw(*pods("R", "a"), *pods("F", "b"))
    assert (ended.phase, ended.deleted) == ("Failed", want)


def test_46_suspend() -> None:
    """suspend true on a running job -> no pods, phase Pending; false -> runs again; the deadline counts
    anew."""
    running = failing(activeDeadlineSeconds=60)
    held = running.edited(runPolicy={"suspend": True}).saw(*pods("R"), seconds=40)
    assert (held.phase, held.deleted, held.status.start_time) == ("Pending", ["job-worker-0"], None)
    assert held.condition("Suspended")[0] == "True"
    assert held.role().phase == "Pending"
    back = held.edited(runPolicy={"suspend": False}).saw(seconds=40)
    assert (back.phase, back.created) == ("Starting", ["worker-0"])
    assert (back.status.start_time, back.condition("Suspended")[0]) == (later(back.at), "False")
    again = back.saw(pod(0, attempt=2), seconds=50)
    assert again.phase == "Running"


def test_50_a_pod_that_waits_when_the_job_fails_is_deleted() -> None:
    """Job fails while a launcher waits, cleanPodPolicy None -> the waiting pod is deleted, others kept."""
    waiting = pod(0, "Pending", role="launcher", held=True)
    begun = played(job("mpi", roles={"launcher": {}, "worker": {"replicas": 2}})).started()
    failed = begun.saw(waiting, *pods("FR"))
    assert (failed.phase, failed.deleted) == ("Failed", ["job-launcher-0"])


def test_a_pod_of_another_restart_policy_is_replaced_beside_one_that_goes() -> None:
    """OnFailure, missing: recreated at once, terminating ones ignored; under another name."""
    running = failing()
    going = running.saw(pod(0, terminating=True))
    assert going.created == ["worker-0"]
    assert going.role().restarts == 0, "somebody's deletion is no failure"
    workload = lowered(running.obj)
    names = {DIALECT.name(workload, "worker", 0, 1, number) for number in (0, 1)}
    assert len(names) == 2
    assert all(name.startswith("job-worker-0-") for name in names)


def test_restart_scope_job_starts_everything_anew() -> None:
    roles = {"a": {"restartPolicy": "OnFailure"}, "b": {"restartPolicy": "OnFailure"}}
    obj = job(roles=roles, runPolicy={"restartScope": "Job"})
    assert {one.in_place for one in lowered(obj).roles.values()} == {"Never"}, "each failure is to be seen"
    running = played(obj).started().saw(*pods("R", "a"), *pods("R", "b"))
    hurt = running.saw(*pods("F", "a"), *pods("R", "b"))
    assert sorted(hurt.deleted) == ["job-a-0", "job-b-0"]
    assert (hurt.phase, hurt.condition("Restarting")[0], hurt.role("b").phase) == (
        "Running",
        "True",
        "Pending",
    )
    again = hurt.saw()
    assert again.created == ["a-0", "b-0"]
    up = again.saw(pod(0, role="a", attempt=2), pod(0, role="b", attempt=2))
    assert (up.phase, up.condition("Restarting")[0]) == ("Running", "False")


def test_a_quota_is_told_on_the_role_and_once_as_an_event() -> None:
    begun = played(job()).started()
    refusal = Outcome("Pod", "job-worker-0", Result.REFUSED, "exceeded quota", "worker", 0)
    refused = begun.went(Observed(outcomes=(refusal,)))
    assert (refused.role().reason, refused.role().message) == ("CreateError", "exceeded quota")
    assert messages(refused.events, "FailedCreatePod") == ["role worker: exceeded quota"]
    assert not messages(refused.went(Observed(outcomes=(refusal,))).events, "FailedCreatePod")


def test_a_failure_is_told_with_the_pod_the_node_and_the_exit_code() -> None:
    failed = replace(pod(0, "Failed", node="n1", exit_code=3), first_exit_code=3)
    ended = played(job()).started().saw(failed)
    assert (ended.role().reason, ended.role().message) == (
        "PodFailed",
        'pod=job-worker-0; nodeName=n1; info={"exitCode":3}',
    )
    assert messages(ended.events, "PodFailed") == [f"role worker: {ended.role().message}"]
    assert not ended.saw(failed).events


def test_restarts_are_told_as_in_a_training_run() -> None:
    wanted = job(
        roles={"worker": {"replicas": 2, "restartPolicy": "OnFailure"}}, runPolicy={"backoffLimit": 1}
    )
    running = played(wanted).started().saw(*pods("RR"))
    assert running.status.message == "attempt 1 · 2 workers"
    evicted = replace(pod(1, "Failed", disrupted=True, reason="Evicted", node="n1"), message="low on memory")
    hurt = running.saw(pod(0), evicted)
    assert hurt.status.message == "worker-1 was evicted from n1: low on memory; replacing it"
    back = pod(1, replacement=1, in_place_restarts=2, last_exit_code=137)
    ended = hurt.saw(pod(0), back)
    assert ended.status.message == (
        "a container of worker-1 was killed (SIGKILL, exit 137);"
        " 2 restarts were needed and 1 allowed (spec.runPolicy.backoffLimit)"
    )
    told = [(one.cause, one.rung, one.exit_code, one.node) for one in ended.status.restart_history]
    assert told == [("Evicted", "Pod", None, "n1"), ("Signal", "Container", 137, "")]
