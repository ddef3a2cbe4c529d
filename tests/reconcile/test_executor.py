"""Tests for the result of each action, by the existing object and the response of the API server."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

import pytest
from msgspec import Struct
from msgspec.structs import replace

from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    LeaseExpired,
    NotFound,
    Throttled,
    Unavailable,
)
from argosy.engine.objects import ApiObject
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod, Secret, SecretMetadata, Service, ServiceAccount
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.text import MAX_MESSAGE_CHARS
from argosy.kinds.trainingrun import TrainingRun
from argosy.plan.actions import ActionResult, ActionStatus, Apply
from argosy.plan.children import Child
from argosy.reconcile.action_batch import status_of_error
from argosy.reconcile.bodies import ByteBudget
from argosy.reconcile.executor import ActionExecutor
from argosy.reconcile.job_state import JobState, RetryState
from argosy.reconcile.pod_renderer import UnrenderableError
from argosy.reconcile.render_context import Features
from argosy.reconcile.slow_start import MAX_WINDOW, SlowStart
from argosy.workload.children import SSH_KEYS
from argosy.workload.model import Rules
from argosy.workload.plan import (
    AwaitedAction,
    ConfirmPod,
    CreatePod,
    DeleteJob,
    DeletePod,
    PatchMetadata,
)
from tests.support.builders import role, workload
from tests.support.gc_leaks import reference_cycles
from tests.support.waiting import eventually

JOB = workload(role("worker", 2), rules=Rules(services=("worker",)))
CREATE = CreatePod("worker", 0, attempt=2, replacement=1)
KEYS = Apply(Child(SecretMetadata, "mnist-ssh", {"immutable": True}, SSH_KEYS))
SERVICE = Apply(Child(Service, "mnist-worker", {"spec": {"clusterIP": "None"}}))


class Api:
    """An API server with at most one pod, which raises the configured error."""

    def __init__(self, existing_pod: Pod | None, answer: Exception | None) -> None:
        self.existing_pod = existing_pod
        self.answer = answer
        self.done: list[str] = []

    async def create(
        self,
        kind: type[ApiObject],
        body: dict[str, object],
        namespace: str,
        *,
        strict: bool = False,
        metadata_only: bool = False,
    ) -> object:
        assert strict == metadata_only == (kind is Pod)
        self._raise_error()
        if self.existing_pod is not None and kind in (Pod, SecretMetadata):
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        metadata = body["metadata"]
        assert isinstance(metadata, dict)
        self.done.append(f"create {kind.resource.kind} {metadata['name']}")
        object_meta = ObjectMeta(name=str(metadata["name"]), namespace=namespace)
        return kind(metadata=object_meta)  # type: ignore[call-arg]  # the protocol says nothing of making one

    async def get(self, kind: type[ApiObject], name: str, namespace: str) -> Pod:
        del name, namespace
        assert kind is not Secret, "the content of a Secret is not read to see whose it is"
        if self.existing_pod is None:
            raise NotFound(404, "NotFound", "it is not there")
        return self.existing_pod

    async def patch(self, kind: type[ApiObject], name: str, body: dict[str, object], namespace: str) -> Pod:
        del namespace
        self._raise_error()
        self.done.append(f"patch {kind.resource.kind} {name} {body['metadata']}")
        assert self.existing_pod is not None
        return self.existing_pod

    async def delete(self, kind: type[ApiObject], name: str, namespace: str, **options: object) -> None:
        del namespace
        self._raise_error()
        description = " ".join(f"{key}={value}" for key, value in options.items() if value is not None)
        self.done.append(f"delete {kind.resource.kind} {name} {description}".strip())

    def _raise_error(self) -> None:
        if self.answer is not None:
            raise self.answer


class StoredNames:
    def __init__(self) -> None:
        self.names: list[str] = []

    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None:
        self.names.append(f"{obj.metadata.name}{' (metadata only)' if metadata_only else ''}")


@dataclass
class Case:
    action: AwaitedAction
    existing_pod: Pod | None = None
    answer: Exception | None = None
    want_done: list[str] = field(default_factory=list)
    want_result: ActionStatus | None = None
    want_message: str = ""
    want_stored: list[str] = field(default_factory=list)
    want_absent: set[tuple[str, int]] = field(default_factory=set)
    features: Features = field(default_factory=Features)


def pod(owner: str = JOB.uid, attempt: int = 2, replacement: int = 1, leaving: bool = False) -> Pod:
    return Pod(
        ObjectMeta(
            name="mnist-worker-0",
            namespace=JOB.namespace,
            uid="a",
            labels={
                labels.ATTEMPT: str(attempt),
                labels.REPLACEMENT: str(replacement),
                labels.UID: owner,
            },
            owner_references=[OwnerReference(uid=owner, controller=True)],
            deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC) if leaving else None,
        )
    )


NAME = "mnist-worker-0"
CASES = {
    "metadata of an existing pod: patched by uid": Case(
        PatchMetadata(Pod, NAME, "a", {"x": "1"}, {"y": None}),
        pod(),
        want_done=[f"patch Pod {NAME} {{'uid': 'a', 'labels': {{'x': '1'}}, 'annotations': {{'y': None}}}}"],
        want_stored=[NAME],
    ),
    "metadata of a deleted pod: done": Case(
        PatchMetadata(Pod, NAME, "a", {"x": "1"}), answer=NotFound(404, "NotFound", "it is gone")
    ),
    "metadata of a pod whose name another pod has: done": Case(
        PatchMetadata(Pod, NAME, "a", {"x": "1"}), pod(), answer=Conflict(409, "Conflict", "another uid")
    ),
    "pod name free: pod created": Case(
        CREATE, want_done=[f"create Pod {NAME}"], want_stored=[f"{NAME} (metadata only)"]
    ),
    "wanted pod exists already: done": Case(CREATE, pod(), want_stored=[NAME]),
    "pod name used by a terminating pod: waits": Case(
        CREATE,
        pod(leaving=True),
        want_result=ActionStatus.TERMINATING,
        want_message=f"an earlier Pod {NAME} is still being deleted",
        want_stored=[NAME],
    ),
    "pod name used by an older attempt: waits": Case(
        CREATE,
        pod(attempt=1),
        want_result=ActionStatus.TERMINATING,
        want_message=f"an earlier Pod {NAME} is still being deleted",
        want_stored=[NAME],
    ),
    "pod name used by a replaced pod: waits": Case(
        CREATE,
        pod(replacement=0),
        want_result=ActionStatus.TERMINATING,
        want_message=f"an earlier Pod {NAME} is still being deleted",
        want_stored=[NAME],
    ),
    "pod name used by another owner: name conflict": Case(
        CREATE,
        pod(owner="b"),
        want_result=ActionStatus.NAME_CONFLICT,
        want_message=f"Pod {NAME} exists and does not belong to this job",
    ),
    "pod name used by a terminating pod of another owner: waits": Case(
        CREATE,
        pod(owner="b", leaving=True),
        want_result=ActionStatus.TERMINATING,
        want_message=f"an earlier Pod {NAME} is still being deleted",
    ),
    "pod rejected as invalid: Invalid": Case(
        CREATE,
        answer=Invalid(422, "Invalid", "bad name"),
        want_result=ActionStatus.INVALID,
        want_message="bad name",
    ),
    "pod rejected by a quota: Forbidden": Case(
        CREATE,
        answer=Forbidden(403, "Forbidden", "exceeded quota"),
        want_result=ActionStatus.FORBIDDEN,
        want_message="exceeded quota",
    ),
    "pod rejected with a very long message: message cut": Case(
        CREATE,
        answer=Invalid(422, "Invalid", "x" * 1_000_000),
        want_result=ActionStatus.INVALID,
        want_message="x" * MAX_MESSAGE_CHARS + "…",
    ),
    "no answer to the creation of a pod: retried": Case(
        CREATE,
        answer=Unavailable(0, "Timeout", "no answer to the creation of a pod: retried"),
        want_result=ActionStatus.RETRY,
        want_message="no answer to the creation of a pod: retried",
    ),
    "creation of a pod throttled: retried": Case(
        CREATE,
        answer=Throttled(429, "TooManyRequests", "later"),
        want_result=ActionStatus.RETRY,
        want_message="later",
    ),
    "pod to delete: deleted by uid": Case(DeletePod(NAME, "a"), want_done=[f"delete Pod {NAME} uid=a"]),
    "pod to delete on a lost node: deleted without grace period": Case(
        DeletePod(NAME, "a", grace_period_seconds=0), want_done=[f"delete Pod {NAME} uid=a grace_seconds=0"]
    ),
    "pod to delete does not exist: done": Case(DeletePod(NAME, "a"), answer=NotFound(404, "NotFound", "")),
    "pod to delete was replaced by another of its name: done": Case(
        DeletePod(NAME, "b"), pod(), answer=Conflict(409, "Conflict", ""), want_stored=[NAME]
    ),
    "pod to delete because of its state: deleted by version": Case(
        DeletePod(NAME, "a", resource_version="7"), want_done=[f"delete Pod {NAME} uid=a resource_version=7"]
    ),
    "pod to delete has changed: retried": Case(
        DeletePod(NAME, "a", resource_version="7"),
        pod(),
        answer=Conflict(409, "Conflict", "it changed"),
        want_result=ActionStatus.RETRY,
        want_message="it changed",
        want_stored=[NAME],
    ),
    "pod to confirm does not exist: confirmed absent": Case(
        ConfirmPod("worker", 0, 2, 1), want_absent={("worker", 0)}
    ),
    "pod to confirm exists: stored": Case(ConfirmPod("worker", 0, 2, 1), pod(), want_stored=[NAME]),
    "service missing: created": Case(
        SERVICE,
        want_done=["create Service mnist-worker"],
        want_stored=["mnist-worker"],
    ),
    "ssh keys missing: created": Case(KEYS, want_done=["create Secret mnist-ssh"], want_stored=["mnist-ssh"]),
    "ssh keys exist: kept": Case(KEYS, pod(), want_stored=[NAME]),
    "name of the ssh keys used by another owner: name conflict": Case(
        KEYS,
        pod(owner="b"),
        want_result=ActionStatus.NAME_CONFLICT,
        want_message="Secret mnist-ssh exists and does not belong to this job",
    ),
    "ssh keys of an earlier job terminating: waits": Case(
        KEYS,
        pod(leaving=True),
        want_result=ActionStatus.TERMINATING,
        want_message="an earlier Secret mnist-ssh is still being deleted",
    ),
    "ssh keys forbidden: Forbidden": Case(
        KEYS,
        answer=Forbidden(403, "Forbidden", "secrets is forbidden"),
        want_result=ActionStatus.FORBIDDEN,
        want_message="secrets is forbidden",
    ),
    "ssh keys disabled: nothing sent, and the message names the chart value": Case(
        KEYS,
        features=Features(ssh_keys=False),
        want_result=ActionStatus.FORBIDDEN,
        want_message="ssh keys are disabled in this installation;"
        " an administrator can enable them with the chart value features.sshKeys=true",
    ),
    "remote exec disabled: nothing sent, and the message names the chart value": Case(
        Apply(Child(ServiceAccount, "mnist-launcher", {})),
        features=Features(remote_exec=False),
        want_result=ActionStatus.FORBIDDEN,
        want_message="launchers that start processes in other pods are disabled in this installation;"
        " an administrator can enable them with the chart value features.remoteExec=true",
    ),
    "job to delete: deleted with background propagation": Case(
        DeleteJob("old"), want_done=["delete TrainingRun mnist uid=uid-of-mnist propagation=Background"]
    ),
}


def executor(
    api: Api, state: JobState, stored: StoredNames, features: Features = Features()
) -> ActionExecutor:
    return ActionExecutor(
        cast("Client", api),
        SystemClock(),
        stored,
        JOB,
        TrainingRun,
        state,
        lambda action, name: {"metadata": {"name": name}},
        lambda role, index, attempt, replacement: JOB.hostname(role, index),
        ByteBudget(),
        features,
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_execute_one_action(case: Case) -> None:
    api, state, stored = Api(case.existing_pod, case.answer), JobState(uid=JOB.uid), StoredNames()
    await executor(api, state, stored, case.features).execute([case.action])
    assert api.done == case.want_done
    assert stored.names == case.want_stored
    assert state.hints.confirmed_absent == case.want_absent
    outcomes = list(state.retries.failures.values())
    assert [outcome.status for outcome in outcomes] == ([case.want_result] if case.want_result else [])
    assert [outcome.message for outcome in outcomes] == ([case.want_message] if case.want_result else [])


async def test_pods_wait_for_children_that_could_not_be_created() -> None:
    api = Api(None, Unavailable(0, "Timeout", "no answer to the creation of a pod: retried"))
    state = JobState(uid=JOB.uid)
    await executor(api, state, StoredNames()).execute([CREATE, SERVICE])
    assert list(state.retries.failures) == [("Service", "mnist-worker")]


async def test_a_rejected_action_is_in_backoff_before_it_is_tried_again() -> None:
    api, state = Api(None, Forbidden(403, "Forbidden", "exceeded quota")), JobState(uid=JOB.uid)
    running = executor(api, state, StoredNames())
    await running.execute([CREATE])
    api.answer = None
    await running.execute([CREATE])
    assert (api.done, len(state.retries.failures)) == ([], 1)
    state.retries = RetryState()
    await executor(api, state, StoredNames()).execute([CREATE])
    assert (api.done, len(state.retries.failures)) == ([f"create Pod {NAME}"], 0)


async def test_the_failure_of_an_action_that_is_no_longer_planned_is_forgotten() -> None:
    api, state = Api(None, Unavailable(503, "ServiceUnavailable", "try later")), JobState(uid=JOB.uid)
    await executor(api, state, StoredNames()).execute([DeletePod(NAME, "a"), SERVICE])
    assert list(state.retries.failures) == [("Service", "mnist-worker")]
    await executor(api, state, StoredNames()).execute([DeletePod(NAME, "a")])
    assert list(state.retries.failures) == [("Pod", NAME)]
    await executor(api, state, StoredNames()).execute([])
    assert (state.retries.failures, state.retries.next_retry_at()) == ({}, None)


async def test_no_more_pods_are_rendered_than_are_in_flight() -> None:
    """Each body may contain the addresses of all pods, so all bodies at once would need too much memory."""
    rendered: list[str] = []
    go_on = asyncio.Event()

    class Slow(Api):
        async def create(
            self, kind: type[ApiObject], body: dict[str, object], namespace: str, **options: bool
        ) -> object:
            await go_on.wait()
            return await super().create(kind, body, namespace, **options)

    api = Slow(None, None)
    running = executor(
        api, JobState(uid=JOB.uid, retries=RetryState(slow_start=SlowStart(window=MAX_WINDOW))), StoredNames()
    )
    render = running.render

    def noting(action: CreatePod, name: str) -> dict[str, object]:
        rendered.append(name)
        return render(action, name)

    running.render = noting
    making = asyncio.create_task(
        running.execute([CreatePod("worker", n, 1, 0) for n in range(3 * MAX_WINDOW)])
    )
    await eventually(lambda: len(rendered) >= MAX_WINDOW)
    assert len(rendered) == MAX_WINDOW
    go_on.set()
    await making
    assert len(api.done) == 3 * MAX_WINDOW


async def test_a_lost_lease_ends_the_reconcile() -> None:
    with reference_cycles(LeaseExpired) as left:
        api = Api(None, LeaseExpired())
        with pytest.raises(LeaseExpired):
            await executor(api, JobState(uid=JOB.uid), StoredNames()).execute([CREATE])
        del api
    assert left == []


async def test_an_error_of_an_adapter_is_reported() -> None:
    def broken(action: CreatePod, name: str) -> dict[str, object]:
        raise UnrenderableError("framework x failed: KeyError('a')")

    state = JobState(uid=JOB.uid)
    running = executor(Api(None, None), state, StoredNames())
    running.render = broken
    await running.execute([CREATE])
    outcome = state.retries.failures["Pod", NAME]
    assert (outcome.status, outcome.message) == (ActionStatus.INVALID, "framework x failed: KeyError('a')")


def test_every_api_error_has_a_status() -> None:
    for kind in ApiError.__subclasses__():
        if kind is not LeaseExpired:
            assert status_of_error(kind(500, "X", "x")) in ActionStatus


class ResultCase(Struct):
    action: AwaitedAction
    want: list[ActionResult]
    existing_pod: Pod | None = None
    answer: Exception | None = None


QUOTA = Forbidden(403, "Forbidden", "exceeded quota")
JOB_DELETED = ActionResult("Job", JOB.name, verb="Delete", reason="it is over")
RESULTS = {
    "pod created: returned": ResultCase(CREATE, [ActionResult("Pod", NAME, role="worker", index=0)]),
    "pod exists already: not returned": ResultCase(CREATE, [], pod()),
    "name of the pod taken by another owner: not returned": ResultCase(CREATE, [], pod(owner="other")),
    "pod rejected by a quota: returned with the message": ResultCase(
        CREATE,
        [ActionResult("Pod", NAME, ActionStatus.FORBIDDEN, "exceeded quota", role="worker", index=0)],
        answer=QUOTA,
    ),
    "service created: returned": ResultCase(
        SERVICE, [ActionResult("Service", "mnist-worker", role="worker")]
    ),
    "pod deleted: returned with the reason": ResultCase(
        DeletePod(NAME, "a", reason="it is over"),
        [ActionResult("Pod", NAME, verb="Delete", reason="it is over")],
    ),
    "pod to delete does not exist: not returned": ResultCase(
        DeletePod(NAME, "a"), [], answer=NotFound(404, "NotFound", "it is gone")
    ),
    "job deleted: returned with the reason": ResultCase(DeleteJob("it is over"), [JOB_DELETED]),
    "deletion of the job rejected: returned with the message": ResultCase(
        DeleteJob("it is over"),
        [replace(JOB_DELETED, status=ActionStatus.FORBIDDEN, message="exceeded quota")],
        answer=QUOTA,
    ),
}


@pytest.mark.parametrize("case", RESULTS.values(), ids=RESULTS.keys())
async def test_results_of_actions_are_returned_once(case: ResultCase) -> None:
    api, state = Api(case.existing_pod, case.answer), JobState(uid=JOB.uid)
    assert list(await executor(api, state, StoredNames()).execute([case.action])) == case.want
    state.retries.retries.clear()
    state.retries.slow_start = SlowStart()
    if case.answer is not None:
        assert not await executor(api, state, StoredNames()).execute([case.action]), (
            "the same rejection again: not returned"
        )
