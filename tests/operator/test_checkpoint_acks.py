"""Tests for orders to save checkpoints, and for their acknowledgements: whose pod, which order."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.kinds import labels
from argosy.operator import checkpoint_acks, endpoint
from argosy.operator.checkpoint_acks import MAX_ACK_BYTES, CheckpointAckMetrics, CheckpointAcks
from argosy.operator.endpoint_credentials import make_credentials
from argosy.operator.pod_annotations import PodAnnotations
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.save_acks import read_ack, read_resumed, read_step
from tests.support.endpoint_stage import PatchedPods, Stage, ask, serving
from tests.support.manual_clock import ManualClock

JOB = "/v1/jobs/default/mnist"
WORKER = "mnist-worker-0"
NOW = datetime(2030, 1, 1, tzinfo=UTC)
DIGEST = f"sha256:{7:064x}"
ORDER = SaveOrder(8, "node/u", "Preempted", NOW, NOW + timedelta(seconds=25), {"worker": "1"})


class Acks:
    """A stage with a job `mnist` that was ordered to save, and its two workers."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.client = PatchedPods(stage)
        self.clock = ManualClock()
        self.registry = CollectorRegistry()
        stage.checkpoint_acks = CheckpointAcks(
            PodAnnotations(cast("Client", self.client), stage.readings),
            self.clock,
            stage.readings,
            CheckpointAckMetrics(self.registry),
        )
        stage.jobs.set_checkpoints("mnist", ORDER)
        for index in range(2):
            stage.pod("worker", index)

    async def order(self, query: str = "", token: str | None = None) -> tuple[int, Any]:
        status, answer = await ask(self.stage, f"{JOB}/orders", query, token)
        return status, json.loads(answer)

    async def send(self, event: str = "ack", token: str | None = None, **fields: Any) -> tuple[int, str]:
        body = {
            "pod": WORKER,
            "uid": WORKER,
            "epoch": 8,
            "step": 1200,
            "world": 2,
            "digest": DIGEST,
            "size": 10,
            "seconds": 1.5,
            "created": "2030-01-01T00:00:09Z",
            **fields,
        }
        return await self.post(json.dumps(body).encode(), event, token)

    async def post(self, body: bytes, event: str = "ack", token: str | None = None) -> tuple[int, str]:
        status, answer = await ask(self.stage, f"{JOB}/checkpoints/{event}", token=token, post=body)
        return status, json.loads(answer).get("message", "")

    def annotation(self, key: str = labels.CHECKPOINT_ACK) -> str:
        [(namespace, name, patch)] = self.client.patches
        assert (namespace, name, patch["metadata"]["uid"]) == ("default", WORKER, WORKER)
        return str(patch["metadata"]["annotations"][key])

    def count(self, result: str) -> float:
        return self.registry.get_sample_value("argosy_checkpoint_acks_total", {"result": result}) or 0.0


@pytest.fixture
async def acks(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Acks]:
    monkeypatch.setattr(endpoint, "UNKNOWN_JOB_GRACE_SECONDS", 0.01)
    monkeypatch.setattr(checkpoint_acks, "GRACE_SECONDS", 0.05)
    stage = Stage(make_credentials(["localhost"], datetime.now(UTC)))
    async with serving(stage):
        yield Acks(stage)


async def test_first_request_gets_the_order_in_force(acks: Acks) -> None:
    assert await acks.order("role=worker&index=0&wait=30s") == (
        200,
        {
            "version": 1,
            "epoch": 8,
            "action": "Save",
            "reason": "Preempted",
            "by": "2030-01-01T00:00:25Z",
            "stop": False,
        },
    )
    assert (await acks.order("role=worker&index=1"))[1]["stop"] is True, "this replica's node ends"


@pytest.mark.parametrize(
    ("pod", "stops"),
    [
        ("attempt=1&replacement=0", True),
        ("attempt=1&replacement=1", False),
        ("attempt=2&replacement=0", False),
    ],
    ids=["the pod of the Record stops", "a later pod does not", "a pod of a later attempt does not"],
)
async def test_pod_that_is_newer_than_the_cached_record_is_not_asked_to_stop(
    acks: Acks, pod: str, stops: bool
) -> None:
    answer = (await acks.order(f"role=worker&index=1&{pod}"))[1]
    assert (answer["action"], answer["stop"]) == ("Save", stops)


async def test_request_waits_for_an_order_that_the_pod_has_not_seen(acks: Acks) -> None:
    waiting = asyncio.create_task(acks.order("role=worker&index=0&seen=8&wait=30s"))
    acks.stage.order("mnist", ORDER)  # another change of the job
    acks.stage.order("mnist", SaveOrder(9, "interval", "Interval", NOW, NOW))
    assert (await waiting)[1]["epoch"] == 9
    assert (await acks.order("seen=9&wait=0s"))[1]["epoch"] == 9


async def test_request_waits_until_its_pod_shall_stop_too_after_an_order_that_it_has_seen(acks: Acks) -> None:
    waiting = asyncio.create_task(acks.order("role=worker&index=0&seen=8&stop=0&wait=30s"))
    knows = asyncio.create_task(acks.order("role=worker&index=1&seen=8&stop=1&wait=30s"))
    of_earlier_version = asyncio.create_task(acks.order("role=worker&index=0&seen=8&wait=30s"))
    acks.stage.order("mnist", replace(ORDER, stop={"worker": "0-1"}))
    answer = (await waiting)[1]
    assert (answer["epoch"], answer["stop"]) == (8, True)
    assert (await acks.order("role=worker&index=0&seen=8&stop=0&wait=30s"))[1]["stop"] is True
    acks.stage.order("mnist", SaveOrder(9, "interval", "Interval", NOW, NOW))
    assert (await knows)[1]["epoch"] == 9
    assert (await of_earlier_version)[1]["epoch"] == 9, "its helper writes each order once"


async def test_answered_order_is_none_to_pods_that_start_now(acks: Acks) -> None:
    acks.stage.order("mnist", None)
    _, order = await acks.order()
    assert (order["action"], order["epoch"]) == ("None", 0)


async def test_acknowledgement_is_an_annotation_of_the_pod_of_that_uid(acks: Acks) -> None:
    assert await acks.send() == (200, "")
    assert read_ack(acks.annotation()) == SavedCheckpoint(
        1200, DIGEST, NOW + timedelta(seconds=9), size=10, world=2, seconds=1.5, epoch=8
    )
    assert acks.registry.get_sample_value("argosy_checkpoint_order_seconds_count") == 1


async def test_start_from_a_checkpoint_is_an_annotation_too(acks: Acks) -> None:
    assert await acks.send("resumed") == (200, "")
    assert read_resumed(acks.annotation(labels.CHECKPOINT_RESUMED)) == 1200
    assert await acks.send("resumed") == (200, "")
    assert len(acks.client.patches) == 1


async def test_step_of_a_program_is_an_annotation_too(acks: Acks) -> None:
    assert await acks.send("step") == (200, "")
    assert read_step(acks.annotation(labels.TRAINING_STEP)) == 1200
    assert await acks.send("step") == (200, "")
    assert len(acks.client.patches) == 1
    assert (await acks.send("step", step=-1))[0] == 400
    assert (await acks.send("step", uid="other"))[0] == 404


async def test_checkpoint_in_a_shared_folder_is_written_for_one_pod(acks: Acks) -> None:
    assert (await acks.send())[0] == 200
    other = {"pod": "mnist-worker-1", "uid": "mnist-worker-1"}
    assert await acks.send(**other) == (200, "")
    assert len(acks.client.patches) == 1
    assert acks.count("unchanged") == 1


async def test_pod_is_written_once_a_second(acks: Acks) -> None:
    assert (await acks.send())[0] == 200
    again = f"sha256:{8:064x}"
    assert (await acks.send(digest=again))[0] == 429
    acks.clock.advance(1.0)
    assert (await acks.send(digest=again))[0] == 200


async def test_failed_write_is_reported_and_may_be_repeated_at_once(acks: Acks) -> None:
    acks.client.error = ApiError(500, "InternalError", "try again")
    assert (await acks.send())[0] == 503
    acks.client.error = None
    assert (await acks.send())[0] == 200


REJECTED: dict[str, tuple[dict[str, Any], tuple[int, str]]] = {
    "order that was never given": ({"epoch": 9}, (409, "epoch: must be that of an order of the job")),
    "pod of another uid": ({"uid": "other"}, (404, "pod: must be name and uid of a pod of the job")),
    "unknown pod": ({"pod": "mnist-worker-9"}, (404, "pod: must be name and uid of a pod of the job")),
    "pod of another job": (
        {"pod": "other-worker-0", "uid": "other-worker-0"},
        (404, "pod: must be name and uid of a pod of the job"),
    ),
    "negative step": ({"step": -1}, (400, "Expected `int` >= 0 - at `$.step`")),
    "step beyond exact numbers": ({"step": 2**53}, (400, f"Expected `int` <= {2**53 - 1} - at `$.step`")),
    "time without a zone": ({"created": "2030-01-01T00:00:09"}, (400, "created: must have a time zone")),
    "no time": ({"created": "now"}, (400, "Invalid RFC3339 encoded datetime - at `$.created`")),
    "not a number": ({"seconds": "1"}, (400, "Expected `float`, got `str` - at `$.seconds`")),
}


@pytest.mark.parametrize(("fields", "want"), REJECTED.values(), ids=REJECTED.keys())
async def test_invalid_acknowledgement_writes_nothing(
    acks: Acks, fields: dict[str, Any], want: tuple[int, str]
) -> None:
    acks.stage.pod("worker", 0, job="other")
    assert await acks.send(**fields) == want
    assert not acks.client.patches


async def test_digest_must_be_one(acks: Acks) -> None:
    status, message = await acks.send(digest="sha256:x")
    assert status == 400
    assert "$.digest" in message


@pytest.mark.parametrize("body", [b"", b"[]", b"\xff", b"[" * 4000, b"{}"])
async def test_hostile_body_is_rejected(acks: Acks, body: bytes) -> None:
    assert (await acks.post(body))[0] == 400
    assert (await acks.post(body, "resumed"))[0] == 400


async def test_body_is_bounded(acks: Acks) -> None:
    assert (await acks.post(b" " * (MAX_ACK_BYTES + 1)))[0] == 413


@pytest.mark.parametrize("token", ["", "forged"])
async def test_token_of_the_job_is_needed(acks: Acks, token: str) -> None:
    assert (await acks.send(token=token))[0] == 401
    assert (await acks.order(token=token))[0] == 401
    other = acks.stage.trust.token("uid-of-other")
    assert (await acks.send(token=other))[0] == 401
    assert not acks.client.patches


async def test_job_without_checkpoints_takes_none(acks: Acks) -> None:
    acks.stage.change_hosts("mnist", 0)
    assert await acks.send() == (404, "the job keeps no checkpoints")
    assert (await acks.order())[0] == 404
