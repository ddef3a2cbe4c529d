"""Tests for Records that an earlier or a later version of the operator wrote."""

from collections.abc import Callable
from typing import cast

import msgspec
import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds.trainingrun import TrainingRun
from tests.support.captured_logs import captured_lines
from tests.support.faults import (
    endless_job,
    wait_until_running,
)
from tests.support.operator_harness import Scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


Json = dict[str, object]

SKEWS: dict[str, Callable[[Json], Json]] = {
    "Record of a later version with unknown fields": lambda record: {
        **record,
        "version": 99,
        "forecast": {"until": "tomorrow"},
        "roles": {
            name: {**role, "weather": "fair"}
            for name, role in cast("dict[str, Json]", record["roles"]).items()
        },
    },
    "Record of an earlier version with few fields": lambda record: {
        "version": 1,
        "phase": record["phase"],
        "attempt": record.get("attempt", 1),
    },
}


async def record(scene: Scene) -> Json:
    response = await scene.client.request("GET", TrainingRun.resource.path("job", scene.namespace))
    return cast("Json", msgspec.json.decode(response)["status"]["argosy"])


async def write(scene: Scene, value: Json) -> None:
    """Write the Record of the job as another operator would have left it."""
    await scene.client.request(
        "PATCH",
        TrainingRun.resource.path("job", scene.namespace, "status"),
        body=[{"op": "replace", "path": "/status/argosy", "value": value}],
        headers={"Content-Type": "application/json-patch+json"},
    )
    assert await record(scene) == value


async def enlarge(scene: Scene) -> None:
    """Request one more worker, so that a reconcile has to act."""
    patch = {"spec": {"roles": {"worker": {"replicas": 3}}}}
    await scene.client.patch(dynamic_kind(TrainingRun.resource), "job", patch, scene.namespace)


async def has_three(scene: Scene, before: set[str]) -> None:
    async def up() -> bool:
        return (await scene.run("job")).status.workers == "3/3"

    await scene.until("all three run", up)
    assert before < await wait_until_running(scene, "job"), "the others are those that were there"
    assert (await scene.run("job")).status.restarts == 0


@pytest.mark.parametrize("skewed", SKEWS.values(), ids=SKEWS.keys())
async def test_job_continues_from_the_record_of_another_operator_version(
    scene: Scene, skewed: Callable[[Json], Json]
) -> None:
    """No pod is started twice, no restart is counted, and unknown fields are kept."""
    async with scene.operator():
        await scene.apply(endless_job("job"))
        before = await wait_until_running(scene, "job")
    written = skewed(await record(scene))
    await write(scene, written)
    async with scene.operator():
        await enlarge(scene)
        await has_three(scene, before)
        after = await record(scene)
    assert after["version"] == written["version"]
    if "forecast" in written:
        assert after["forecast"] == written["forecast"]
        assert cast("dict[str, Json]", after["roles"])["worker"]["weather"] == "fair"


async def test_unreadable_record_of_a_later_operator_is_not_changed(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(endless_job("job"))
        before = await wait_until_running(scene, "job")
    current = await record(scene)
    await write(scene, {**current, "version": 99, "phase": "Hibernating"})
    with captured_lines():
        async with scene.operator():
            await enlarge(scene)

            async def has_event() -> bool:
                return any(event.reason == "UnsupportedRecordVersion" for event in await scene.events())

            await scene.until("an event names the Record", has_event)
            assert (await record(scene))["phase"] == "Hibernating"
            assert {pod.metadata.uid for pod in (await scene.pods()).values()} == before
            await write(scene, current)
            await has_three(scene, before)
