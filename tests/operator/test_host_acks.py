"""Tests for acknowledgements of host files: whose pod, which files, and what is written."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, StatusCause, StatusDetails
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import OwnerReference
from argosy.operator import endpoint, host_acks
from argosy.operator.endpoint_credentials import make_credentials
from argosy.operator.host_acks import MAX_ACK_BYTES, HostAckMetrics, HostAcks
from argosy.operator.pod_annotations import PodAnnotations
from tests.support.endpoint_stage import PatchedPods, Stage, ask, serving
from tests.support.waiting import eventually

ACK = "/v1/jobs/default/mnist/hosts/ack"
LAUNCHER = "mnist-launcher-0"


class Acks:
    """A stage with a job `mnist`, its launcher and two workers, and what is written about them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.client = PatchedPods(stage)
        self.registry = CollectorRegistry()
        stage.host_acks = HostAcks(
            PodAnnotations(cast("Client", self.client), stage.readings),
            SystemClock(),
            stage.readings,
            HostAckMetrics(self.registry),
        )
        self.etag = stage.jobs.set_hosts("mnist", 0, 1)
        self.launcher = stage.pod("launcher", 0)
        self.told: list[Pod] = []
        stage.caches.on_pod_change(self.told.append)

    async def send(self, token: str | None = None, path: str = ACK, **fields: str) -> tuple[int, str]:
        body = {"pod": LAUNCHER, "uid": LAUNCHER, "etag": self.etag, **fields}
        return await self.post(json.dumps(body).encode(), token, path)

    async def post(self, body: bytes, token: str | None = None, path: str = ACK) -> tuple[int, str]:
        status, answer = await ask(self.stage, path, token=token, post=body)
        return status, json.loads(answer).get("message", "")

    def count(self, result: str) -> float:
        return self.registry.get_sample_value("argosy_host_list_acks_total", {"result": result}) or 0.0

    @property
    def observations(self) -> float:
        return self.registry.get_sample_value("argosy_host_list_ack_seconds_count") or 0.0


@pytest.fixture
async def acks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Acks]:
    monkeypatch.setattr(endpoint, "UNKNOWN_JOB_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(host_acks, "GRACE_SECONDS", 0.3)
    stage = Stage(make_credentials(["localhost"], datetime.now(UTC)))
    async with serving(stage):
        yield Acks(stage)


async def test_acknowledgement_is_an_annotation_of_the_pod_of_that_uid(acks: Acks) -> None:
    assert await acks.send() == (200, "")
    patch = {"metadata": {"uid": LAUNCHER, "annotations": {"argosy.dev/hosts-ack": acks.etag}}}
    assert acks.client.patches == [("default", LAUNCHER, patch)]
    assert acks.count("written") == 1
    assert acks.observations == 0, "the first one shows when the pod started, not how long a list takes"


async def test_response_is_sent_after_the_write(acks: Acks) -> None:
    acks.client.may_answer.clear()
    sent = asyncio.create_task(acks.send())
    await eventually(lambda: acks.client.patches)
    assert not sent.done()
    acks.client.may_answer.set()
    assert (await sent)[0] == 200


async def test_replica_that_leads_is_told_without_the_watch(acks: Acks) -> None:
    acks.stage.pod("launcher", 0, labels=dict(acks.launcher.metadata.labels) | REPLICA)
    acks.told.clear()
    await acks.send()
    [pod] = acks.told
    assert pod.metadata.annotations == {labels.HOSTS_ACK: acks.etag}


REPLICA = {labels.ATTEMPT: "1", labels.REPLACEMENT: "0"}


async def test_repeated_acknowledgement_is_not_written_again(acks: Acks) -> None:
    for _ in range(10):
        assert await acks.send() == (200, "")
    assert len(acks.client.patches) == 1
    assert acks.count("unchanged") == 9


async def test_many_acknowledgements_at_once_are_one_write(acks: Acks) -> None:
    acks.client.may_answer.clear()
    sent = [asyncio.create_task(acks.send()) for _ in range(50)]
    await eventually(lambda: sum(task.done() for task in sent) == 49)
    acks.client.may_answer.set()
    statuses = sorted([status for status, _ in await asyncio.gather(*sent)])
    assert statuses == [200] + [429] * 49
    assert len(acks.client.patches) == 1


async def test_acknowledgement_of_an_earlier_list_cannot_be_replayed(acks: Acks) -> None:
    assert (await acks.send())[0] == 200
    earlier, current = acks.etag, acks.stage.change_hosts("mnist", 0)
    assert (await acks.send(etag=current))[0] == 200
    assert acks.observations == 1
    assert await acks.send(etag=earlier) == (409, "etag: must be that of the current host files")
    assert [patch["metadata"]["annotations"] for _, _, patch in acks.client.patches] == [
        {labels.HOSTS_ACK: earlier},
        {labels.HOSTS_ACK: current},
    ]
    assert acks.count("outdated") == 1


async def test_list_that_was_never_made_is_not_acknowledged(acks: Acks) -> None:
    version = int(acks.etag.partition("-")[0])
    for etag in (f"{version + 1}-{'0' * 16}", f"{version}-{'0' * 16}"):
        assert (await acks.send(etag=etag))[0] == 409
    assert acks.client.patches == []


async def test_replica_whose_cache_lags_waits_for_the_list(
    acks: Acks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_acks, "GRACE_SECONDS", 60.0)
    stale = acks.stage.jobs.views["default", "mnist"]
    newer = acks.stage.jobs.set_hosts("mnist", 0)
    view, acks.stage.jobs.views["default", "mnist"] = acks.stage.jobs.views["default", "mnist"], stale
    sent = asyncio.create_task(acks.send(etag=newer))
    await eventually(lambda: acks.stage.readings._waiting)
    acks.stage.jobs.views["default", "mnist"] = view
    acks.stage.readings._notify("default", "mnist", record_changed=True)
    assert (await sent)[0] == 200


async def test_replica_whose_cache_lags_waits_for_the_pod(
    acks: Acks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_acks, "GRACE_SECONDS", 60.0)
    sent = asyncio.create_task(acks.send(pod="mnist-launcher-1", uid="mnist-launcher-1"))
    await eventually(lambda: acks.stage.readings._waiting)
    acks.stage.pod("launcher", 1)
    assert (await sent)[0] == 200


def owned_by(**fields: str) -> list[OwnerReference]:
    usual = OwnerReference(kind="TrainingRun", name="mnist", uid="uid-of-mnist", controller=True)
    return [replace(usual, **fields)]


FOREIGN_PODS: dict[str, dict[str, Any]] = {
    "a worker of the job": {"labels": {labels.ROLE: "worker", labels.INDEX: "0"}},
    "a pod of another job": {"owner_references": owned_by(name="other", uid="uid-of-other")},
    "a pod of a job of the same name that was deleted": {"owner_references": owned_by(uid="uid-of-old")},
    "a pod without an owner": {"owner_references": []},
    "a pod that names the job, but not as its controller": {
        "owner_references": [replace(owned_by()[0], controller=False)]
    },
    "a pod of another namespace": {"namespace": "other"},
    "a pod of this name with another uid": {"uid": "other"},
}


@pytest.mark.parametrize("metadata", FOREIGN_PODS.values(), ids=FOREIGN_PODS)
async def test_only_the_launcher_of_the_job_can_acknowledge(acks: Acks, metadata: dict[str, Any]) -> None:
    fields = {"name": "foreign", "uid": "foreign", **metadata}
    acks.stage.pod("launcher", 7, **fields)
    status, message = await acks.send(pod="foreign", uid="foreign")
    assert (status, message) == (404, "pod: must be name and uid of the launcher of the job")
    assert acks.client.patches == []


async def test_token_of_another_job_cannot_acknowledge(acks: Acks) -> None:
    acks.stage.jobs.set_hosts("other", 0)
    token = acks.stage.trust.token("uid-of-other")
    assert (await acks.send(token))[0] == 401
    path = "/v1/jobs/default/other/hosts/ack"
    etag = acks.stage.change_hosts("other", 0)
    assert (await acks.send(token, path, etag=etag))[0] == 404, "with its own job it names a foreign pod"
    assert acks.client.patches == []


HOSTILE_BODIES = {
    "no JSON: 400": (b"hello", 400),
    "empty: 400": (b"", 400),
    "not an object: 400": (b"[]", 400),
    "deeply nested: 400": (b"[" * 900, 400),
    "no uid: 400": (b'{"pod": "p", "etag": "1-0000000000000000"}', 400),
    "a number as name: 400": (b'{"pod": 1, "uid": "u", "etag": "1-0000000000000000"}', 400),
    "an unknown field: 400": (b'{"pod": "p", "uid": "u", "etag": "1-0000000000000000", "x": 1}', 400),
    "an etag of another form: 400": (b'{"pod": "p", "uid": "u", "etag": "\\n\\u0000"}', 400),
    "too large: 413": (b'{"pod": "' + b"p" * MAX_ACK_BYTES + b'"}', 413),
}


@pytest.mark.parametrize(("body", "want"), HOSTILE_BODIES.values(), ids=HOSTILE_BODIES)
async def test_invalid_body_is_rejected(acks: Acks, body: bytes, want: int) -> None:
    status, message = await acks.post(body)
    assert (status, 0 < len(message) < 200) == (want, True)
    assert acks.client.patches == []


NO_UID = StatusDetails(causes=[StatusCause(field="metadata.uid")])
ERRORS = {
    "the pod was deleted: 404": (NotFound(404, "NotFound", "no such pod"), 404),
    "another pod has the name: 404": (Invalid(422, "Invalid", "uid", details=NO_UID), 404),
    "the uid does not match: 404": (Conflict(409, "Conflict", "precondition"), 404),
    "no right to patch pods: 503": (Forbidden(403, "Forbidden", "cannot patch pods"), 503),
    "the API server does not answer: 503": (ApiError(0, "Timeout", "no answer"), 503),
}


@pytest.mark.parametrize(("error", "want"), ERRORS.values(), ids=ERRORS)
async def test_rejected_write_is_reported_and_can_be_repeated(acks: Acks, error: ApiError, want: int) -> None:
    acks.client.error = error
    status, message = await acks.send()
    assert (status, bool(message)) == (want, True)
    acks.client.error = None
    assert (await acks.send())[0] == 200


async def test_process_that_must_not_write_has_no_such_path(acks: Acks) -> None:
    acks.stage.host_acks = None
    assert (await acks.send())[0] == 404
