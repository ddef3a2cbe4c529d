"""What users of AresJobs are told by events and reasons: each thing once, and many pods by one event."""

from datetime import UTC, datetime

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from argosy.dialects.ares import injection
from argosy.kinds.aresjob import AresJob
from argosy.kinds.kubernetes import Terminated
from argosy.plan.actions import ActionStatus
from argosy.workload.observed import Observed, ObservedPod, Outcome
from argosy.workload.plan import Deed
from tests.support.aresjobs import API, job, lowered, messages, played, template
from tests.support.workloads import pod, pods

AT = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)


def failed(index: int, ended: Terminated | None = None, **more: object) -> ObservedPod:
    return replace(pod(index, "Failed", node=f"n{index}"), first_terminated=ended, **more)


INFO: dict[str, tuple[ObservedPod, str]] = {
    "the terminated state of the first container that ended": (
        failed(
            0, Terminated(3, reason="Error", started_at=AT, finished_at=AT, container_id="containerd://1")
        ),
        '{"exitCode":3,"reason":"Error","startedAt":"2030-01-01T12:00:00Z",'
        '"finishedAt":"2030-01-01T12:00:00Z","containerID":"containerd://1"}',
    ),
    "exit code 0 as well, of a pod that was ended by others": (failed(0, Terminated(0)), '{"exitCode":0}'),
    "else reason and message of the pod": (
        failed(0, reason="Evicted", message="low on memory"),
        "(Evicted)low on memory",
    ),
}


@pytest.mark.parametrize(("there", "info"), INFO.values(), ids=INFO.keys())
def test_info_of_a_failed_pod(there: ObservedPod, info: str) -> None:
    ended = played(job()).started().saw(there)
    said = f"pod=job-worker-0; nodeName=n0; info={info}"
    assert (ended.role().reason, ended.role().message) == ("PodFailed", said)
    assert messages(ended.events, "PodFailed") == [f"role worker: {said}"]
    assert not ended.saw(there).events


def all_pods() -> AresJob:
    return job(roles={"worker": {"replicas": 4, "rolePhasePolicy": {"failed": "AllPods"}}})


def test_a_pod_that_failed_is_told_of_once_however_often_it_is_seen() -> None:
    running = played(all_pods()).started().saw(*pods("RRRR"))
    first = running.saw(failed(0), *pods(".RRR"))
    assert messages(first.events, "PodFailed") == ["role worker: pod=job-worker-0; nodeName=n0; info=()"]
    again = first.saw(failed(0), *pods(".RRR"))
    assert not messages(again.events, "PodFailed")
    more = again.saw(failed(0), failed(1), failed(2), *pods("...R"))
    assert messages(more.events, "PodFailed") == [
        "role worker: pod=job-worker-1; nodeName=n1; info=() (and job-worker-2)"
    ]


def test_a_pod_that_is_replaced_is_told_of_once_and_so_is_its_successor() -> None:
    running = played(job(roles={"worker": {"restartPolicy": "OnFailure"}})).started().saw(*pods("R"))
    first = running.saw(failed(0))
    assert len(messages(first.events, "PodFailed")) == 1
    assert not messages(first.saw(failed(0)).events, "PodFailed"), "it is on its way out"
    second = first.saw(pod(0, replacement=1)).saw(replace(failed(0), replacement=1))
    assert len(messages(second.events, "PodFailed")) == 1


def test_a_container_that_was_restarted_in_place_is_no_failed_pod() -> None:
    running = played(job(roles={"worker": {"restartPolicy": "OnFailure"}})).started().saw(*pods("R"))
    restarted = running.saw(pod(0, container_restarts=1))
    assert restarted.role().restarts == 1
    assert not messages(restarted.events, "PodFailed")


class Edit(Struct):
    fields: dict[str, object]
    want: list[str] = field(default_factory=list)
    there: tuple[ObservedPod, ...] = (*pods("R", "a"), *pods("RR", "b"))


EDITS = {
    "another template -> its role": Edit({"roleSpecs": {"a": {"template": template("other")}}}, ["a"]),
    "another size -> all who are told of it": Edit({"roleSpecs": {"b": {"replicas": 3}}}, ["a", "b"]),
    "a limit -> nobody": Edit({"runPolicy": {"backoffLimit": 3}}),
    "pods that have ended are what they are": Edit(
        {"roleSpecs": {"b": {"template": template("other")}}}, there=(*pods("R", "a"), *pods("SS", "b"))
    ),
}


@pytest.mark.parametrize("case", EDITS.values(), ids=EDITS.keys())
def test_pods_that_an_edit_leaves_behind_are_told_of_once_per_role_and_generation(case: Edit) -> None:
    running = (
        played(job(roles={"a": {}, "b": {"replicas": 2}})).started().saw(*pods("R", "a"), *pods("RR", "b"))
    )
    edited = running.edited(**case.fields).saw(*case.there)
    told = [text.partition(":")[0] for text in messages(edited.events, "StaleClusterSpec")]
    assert told == [f"role {name}" for name in case.want]
    assert not messages(edited.saw(*case.there).events, "StaleClusterSpec")


class Done(Struct):
    deeds: list[Deed]
    want: list[tuple[str, str, str]]


def made(count: int, role: str = "worker", refused: str = "") -> list[Deed]:
    return [Deed("Create", "Pod", f"job-{role}-{index}", role, refused=refused) for index in range(count)]


DEEDS = {
    "pods are told in their order, however their answers came": Done(
        made(11)[::-1],
        [("Normal", "SuccessfulCreatePod", "job-worker-0, job-worker-1, job-worker-2 and 8 more")],
    ),
    "a pod that was made": Done(made(1), [("Normal", "SuccessfulCreatePod", "job-worker-0")]),
    "two thousand pods are one event": Done(
        made(2000),
        [("Normal", "SuccessfulCreatePod", "job-worker-0, job-worker-1, job-worker-2 and 1997 more")],
    ),
    "one event a role": Done(
        [*made(1, "b"), *made(1, "a")],
        [("Normal", "SuccessfulCreatePod", "job-a-0"), ("Normal", "SuccessfulCreatePod", "job-b-0")],
    ),
    "a quota": Done(
        made(2, refused="exceeded quota"),
        [("Warning", "FailedCreatePod", "job-worker-0 and job-worker-1: exceeded quota")],
    ),
    "services": Done(
        [Deed("Create", "Service", "job-a", "a"), Deed("Create", "Service", "job-b", "b", refused="quota")],
        [("Normal", "SuccessfulCreateService", "job-a"), ("Warning", "FailedCreateService", "job-b: quota")],
    ),
    "deletions, with their reason": Done(
        [Deed("Delete", "Pod", "p", why="the job has ended"), Deed("Delete", "Service", "s", refused="no")],
        [
            ("Normal", "SuccessfulDeletePod", "p: the job has ended"),
            ("Warning", "FailedDeleteService", "s: no"),
        ],
    ),
    "the job itself": Done(
        [Deed("Delete", "Job", "job", why="over")], [("Normal", "SuccessfulDeleteJob", "job: over")]
    ),
    "the job itself, refused": Done(
        [Deed("Delete", "Job", "job", why="over", refused="no")],
        [("Warning", "FailedDeleteJob", "job: over: no")],
    ),
    "nothing of what users did not ask for": Done([Deed("Create", "RoleBinding", "x")], []),
}


@pytest.mark.parametrize("case", DEEDS.values(), ids=DEEDS.keys())
def test_what_was_done_is_told(case: Done) -> None:
    told = API.action_events(job(), case.deeds)
    assert [(one.type, one.reason, one.message) for one in told] == case.want


QUOTA = "exceeded quota"
REFUSALS = {
    "a pod that a quota refuses": Outcome("Pod", "job-worker-0", ActionStatus.FORBIDDEN, QUOTA, "worker", 0),
    "a service that a quota refuses": Outcome(
        "Service", "job-worker", ActionStatus.FORBIDDEN, QUOTA, "worker"
    ),
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_cannot_be_made_is_told_on_its_role_and_not_again_as_an_event(refusal: Outcome) -> None:
    refused = played(job()).started().went(Observed(failed_actions=(refusal,)))
    assert (refused.role().reason, refused.role().message) == ("CreateError", QUOTA)
    assert not API.action_events(refused.obj, made(1, refused=QUOTA))
    assert refused.saw(*pods("R")).role().reason == ""


def test_a_name_that_is_on_its_way_out_is_waited_for_without_a_word() -> None:
    leaving = Outcome("Pod", "job-worker-0", ActionStatus.TERMINATING, "is still being deleted", "worker", 0)
    waiting = played(job()).started().went(Observed(failed_actions=(leaving,)))
    assert (waiting.role().reason, waiting.phase, waiting.events) == ("", "Starting", ())
    foreign = replace(leaving, status=ActionStatus.NAME_CONFLICT, message="belongs to others")
    taken = waiting.went(Observed(failed_actions=(foreign,)))
    assert messages(taken.events, "NameConflict") == ["job-worker-0: belongs to others"]
    assert not taken.went(Observed(failed_actions=(foreign,))).events


def test_a_user_variable_in_a_container_that_the_framework_leaves_alone_is_not_told() -> None:
    beside = {"name": "beside", "image": "image", "env": [{"name": "TF_CONFIG", "value": "x"}]}
    written = {"spec": {"containers": [{"name": "tensorflow", "image": "image"}, beside]}}
    first = played(job("tensorflow", roles={"ps": {}, "worker": {"template": written}})).saw()
    assert not messages(first.events, "EnvOverwritten")


def test_a_list_of_addresses_that_no_variable_can_hold_is_left_out_and_told_once_per_edit() -> None:
    first = played(job(roles={"worker": {"replicas": 10_000}, "server": {}})).saw()
    assert messages(first.events, "AddressesLeftOut") == [
        "role worker: 10000 addresses are more than a variable can hold; pods start without worker and "
        "ROLE_WORKER, and find all by DNS as job-worker.ns.svc.cluster.local"
    ]
    assert not messages(first.saw().events, "AddressesLeftOut")
    smaller = first.edited(roleSpecs={"worker": {"replicas": 2}}).saw()
    assert not messages(smaller.events, "AddressesLeftOut")


@pytest.mark.parametrize("replicas", [2, 10_000])
def test_what_is_told_as_left_out_is_what_pods_do_not_have(replicas: int) -> None:
    workload = lowered(job(roles={"worker": {"replicas": replicas}, "server": {}}))
    told = injection.inject(workload, workload.roles["server"], 0).env
    gone = {
        name
        for role in injection.roles_without_address_list(workload)
        for name in injection.list_variables(role)
    }
    assert {"worker", "ROLE_WORKER", "server", "ROLE_SERVER"} - set(told) == gone
    assert bool(gone) == (replicas > 2)
