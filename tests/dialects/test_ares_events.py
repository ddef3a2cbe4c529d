"""Tests for events and reasons of AresJobs: each is reported once, with one event for many pods."""

from datetime import UTC, datetime

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.dialects.ares import injection
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Terminated
from argosy.plan.actions import ActionResult, ActionStatus
from argosy.workload.observed import Observed, ObservedPod
from tests.support.aresjobs import API, job, messages, simulate, template, workload_of
from tests.support.workloads import pod, pods

AT = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


def failed(index: int, ended: Terminated | None = None, **more: object) -> ObservedPod:
    return replace(pod(index, "Failed", node=f"n{index}"), first_terminated=ended, **more)


INFO: dict[str, tuple[ObservedPod, str]] = {
    "container terminated: its state": (
        failed(
            0, Terminated(3, reason="Error", started_at=AT, finished_at=AT, container_id="containerd://1")
        ),
        '{"exitCode":3,"reason":"Error","startedAt":"2030-01-01T12:00:00Z",'
        '"finishedAt":"2030-01-01T12:00:00Z","containerID":"containerd://1"}',
    ),
    "container terminated with exit code 0: its exit code": (failed(0, Terminated(0)), '{"exitCode":0}'),
    "no container terminated: reason and message of the pod": (
        failed(0, reason="Evicted", message="low on memory"),
        "(Evicted)low on memory",
    ),
}


@pytest.mark.parametrize(("failed_pod", "info"), INFO.values(), ids=INFO.keys())
def test_description_of_a_failed_pod(failed_pod: ObservedPod, info: str) -> None:
    ended = simulate(job()).start().reconcile(failed_pod)
    message = f"pod=job-worker-0; nodeName=n0; info={info}"
    assert (ended.role().reason, ended.role().message) == ("PodFailed", message)
    assert messages(ended.events, "PodFailed") == [f"role worker: {message}"]
    assert not ended.reconcile(failed_pod).events


def all_pods() -> AresJob:
    return job(roles={"worker": {"replicas": 4, "rolePhasePolicy": {"failed": "AllPods"}}})


def test_failed_pod_has_one_event_however_often_it_is_observed() -> None:
    running = simulate(all_pods()).start().reconcile(*pods("RRRR"))
    first = running.reconcile(failed(0), *pods(".RRR"))
    assert messages(first.events, "PodFailed") == ["role worker: pod=job-worker-0; nodeName=n0; info=()"]
    again = first.reconcile(failed(0), *pods(".RRR"))
    assert not messages(again.events, "PodFailed")
    more = again.reconcile(failed(0), failed(1), failed(2), *pods("...R"))
    assert messages(more.events, "PodFailed") == [
        "role worker: pod=job-worker-1; nodeName=n1; info=() (and job-worker-2)"
    ]


def test_replaced_pod_and_its_replacement_have_one_event_each() -> None:
    running = simulate(job(roles={"worker": {"restartPolicy": "OnFailure"}})).start().reconcile(*pods("R"))
    first = running.reconcile(failed(0))
    assert len(messages(first.events, "PodFailed")) == 1
    assert not messages(first.reconcile(failed(0)).events, "PodFailed"), "the pod is terminating"
    second = first.reconcile(pod(0, replacement=1)).reconcile(replace(failed(0), replacement=1))
    assert len(messages(second.events, "PodFailed")) == 1


def test_container_restarted_in_place_is_not_a_failed_pod() -> None:
    running = simulate(job(roles={"worker": {"restartPolicy": "OnFailure"}})).start().reconcile(*pods("R"))
    restarted = running.reconcile(pod(0, container_restarts=1))
    assert restarted.role().restarts == 1
    assert not messages(restarted.events, "PodFailed")


class Edit(Struct):
    fields: dict[str, object]
    want: list[str] = field(default_factory=list)
    observed_pods: tuple[ObservedPod, ...] = (*pods("R", "a"), *pods("RR", "b"))


EDITS = {
    "template of role a changed: role a is outdated": Edit(
        {"roleSpecs": {"a": {"template": template("other")}}}, ["a"]
    ),
    "replicas of role b changed: both roles are outdated, as they have its size": Edit(
        {"roleSpecs": {"b": {"replicas": 3}}}, ["a", "b"]
    ),
    "backoffLimit changed: no role is outdated": Edit({"runPolicy": {"backoffLimit": 3}}),
    "template changed, pods have ended: no role is outdated": Edit(
        {"roleSpecs": {"b": {"template": template("other")}}},
        observed_pods=(*pods("R", "a"), *pods("SS", "b")),
    ),
}


@pytest.mark.parametrize("case", EDITS.values(), ids=EDITS.keys())
def test_outdated_pods_are_reported_once_per_role_and_generation(case: Edit) -> None:
    running = (
        simulate(job(roles={"a": {}, "b": {"replicas": 2}}))
        .start()
        .reconcile(*pods("R", "a"), *pods("RR", "b"))
    )
    edited = running.with_spec(**case.fields).reconcile(*case.observed_pods)
    reported = [text.partition(":")[0] for text in messages(edited.events, "StaleClusterSpec")]
    assert reported == [f"role {name}" for name in case.want]
    assert not messages(edited.reconcile(*case.observed_pods).events, "StaleClusterSpec")


class ActionCase(Struct):
    results: list[ActionResult]
    want: list[tuple[str, str, str]]


def created(count: int, role: str = "worker", rejected: str = "") -> list[ActionResult]:
    status = ActionStatus.FORBIDDEN if rejected else ActionStatus.DONE
    return [
        ActionResult("Pod", f"job-{role}-{index}", status, rejected, role=role, index=index)
        for index in range(count)
    ]


FORBIDDEN = ActionStatus.FORBIDDEN
ACTIONS = {
    "pods created in any order: named by index": ActionCase(
        created(11)[::-1],
        [("Normal", "SuccessfulCreatePod", "job-worker-0, job-worker-1, job-worker-2 and 8 more")],
    ),
    "one pod created: one event": ActionCase(created(1), [("Normal", "SuccessfulCreatePod", "job-worker-0")]),
    "two thousand pods created: one event": ActionCase(
        created(2000),
        [("Normal", "SuccessfulCreatePod", "job-worker-0, job-worker-1, job-worker-2 and 1997 more")],
    ),
    "pods of two roles created: one event for each role": ActionCase(
        [*created(1, "b"), *created(1, "a")],
        [("Normal", "SuccessfulCreatePod", "job-a-0"), ("Normal", "SuccessfulCreatePod", "job-b-0")],
    ),
    "two pods rejected by a quota: one warning": ActionCase(
        created(2, rejected="exceeded quota"),
        [("Warning", "FailedCreatePod", "job-worker-0 and job-worker-1: exceeded quota")],
    ),
    "one service created, another rejected: one event for each": ActionCase(
        [
            ActionResult("Service", "job-a", role="a"),
            ActionResult("Service", "job-b", FORBIDDEN, "quota", role="b"),
        ],
        [("Normal", "SuccessfulCreateService", "job-a"), ("Warning", "FailedCreateService", "job-b: quota")],
    ),
    "pod deleted: event with the reason; deletion rejected: warning with the message": ActionCase(
        [
            ActionResult("Pod", "p", verb="Delete", reason="the job has ended"),
            ActionResult("Service", "s", FORBIDDEN, "no", verb="Delete"),
        ],
        [
            ("Normal", "SuccessfulDeletePod", "p: the job has ended"),
            ("Warning", "FailedDeleteService", "s: no"),
        ],
    ),
    "pod could not be read or patched: no event": ActionCase(
        [
            ActionResult("Pod", "p", FORBIDDEN, "no", verb="Get"),
            ActionResult("Pod", "p", FORBIDDEN, "no", verb="Patch"),
        ],
        [],
    ),
    "job deleted: event with the reason": ActionCase(
        [ActionResult("Job", "job", verb="Delete", reason="over")],
        [("Normal", "SuccessfulDeleteJob", "job: over")],
    ),
    "deletion of the job rejected: warning with reason and message": ActionCase(
        [ActionResult("Job", "job", FORBIDDEN, "no", verb="Delete", reason="over")],
        [("Warning", "FailedDeleteJob", "job: over: no")],
    ),
    "role binding created: no event": ActionCase([ActionResult("RoleBinding", "x")], []),
}


@pytest.mark.parametrize("case", ACTIONS.values(), ids=ACTIONS.keys())
def test_events_of_executed_actions(case: ActionCase) -> None:
    events = API.action_events(job(), case.results)
    assert [(event.type, event.reason, event.message) for event in events] == case.want


QUOTA = "exceeded quota"
REFUSALS = {
    "pod rejected by a quota": ActionResult("Pod", "job-worker-0", FORBIDDEN, QUOTA, role="worker", index=0),
    "service rejected by a quota": ActionResult("Service", "job-worker", FORBIDDEN, QUOTA, role="worker"),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_rejected_object_is_reported_on_its_role_without_a_second_event(refusal: ActionResult) -> None:
    refused = simulate(job()).start().reconcile_observed(Observed(failed_actions=(refusal,)))
    assert (refused.role().reason, refused.role().message) == ("CreateError", QUOTA)
    assert not API.action_events(refused.obj, created(1, rejected=QUOTA))
    assert refused.reconcile(*pods("R")).role().reason == ""


def test_name_of_a_terminating_object_is_waited_for_without_an_event() -> None:
    leaving = ActionResult(
        "Pod", "job-worker-0", ActionStatus.TERMINATING, "is still being deleted", role="worker", index=0
    )
    waiting = simulate(job()).start().reconcile_observed(Observed(failed_actions=(leaving,)))
    assert (waiting.role().reason, waiting.phase, waiting.events) == ("", "Starting", ())
    foreign = replace(leaving, status=ActionStatus.NAME_CONFLICT, message="belongs to others")
    taken = waiting.reconcile_observed(Observed(failed_actions=(foreign,)))
    assert messages(taken.events, "NameConflict") == ["job-worker-0: belongs to others"]
    assert not taken.reconcile_observed(Observed(failed_actions=(foreign,))).events


def test_variable_in_a_container_without_injection_is_not_reported() -> None:
    sidecar = {"name": "sidecar", "image": "image", "env": [{"name": "TF_CONFIG", "value": "x"}]}
    written = {"spec": {"containers": [{"name": "tensorflow", "image": "image"}, sidecar]}}
    first = simulate(job("tensorflow", roles={"ps": {}, "worker": {"template": written}})).reconcile()
    assert not messages(first.events, "EnvOverwritten")


def test_too_long_address_list_is_reported_once_per_edit() -> None:
    first = simulate(job(roles={"worker": {"replicas": 10_000}, "server": {}})).reconcile()
    assert messages(first.events, "AddressListTooLong") == [
        "role worker: 10000 addresses do not fit into an environment variable; pods start without worker and "
        "ROLE_WORKER; resolve job-worker.ns.svc.cluster.local instead"
    ]
    assert not messages(first.reconcile().events, "AddressListTooLong")
    smaller = first.with_spec(roleSpecs={"worker": {"replicas": 2}}).reconcile()
    assert not messages(smaller.events, "AddressListTooLong")


@pytest.mark.parametrize("replicas", [2, 10_000])
def test_reported_variables_are_those_that_pods_lack(replicas: int) -> None:
    workload = workload_of(job(roles={"worker": {"replicas": replicas}, "server": {}}))
    reported = injection.inject(workload, workload.roles["server"], 0).env
    gone = {
        name
        for role in injection.roles_without_address_list(workload)
        for name in injection.list_variables(role)
    }
    assert {"worker", "ROLE_WORKER", "server", "ROLE_SERVER"} - set(reported) == gone
    assert bool(gone) == (replicas > 2)
