"""Definitions of our kinds that go, come back, or are somebody else's."""

import pytest

from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import Pod, Service
from argosy.kinds.trainingrun import TrainingRun
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from tests.support.captured_logs import captured_lines
from tests.support.faults import (
    CRD,
    define,
    endless,
    foreign,
    running,
    short,
    succeeded,
)
from tests.support.operator_harness import Scene, shown_at
from tests.support.servers import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


async def test_a_definition_is_deleted_and_brought_back(scene: Scene) -> None:
    with captured_lines():
        async with scene.operator() as operator:
            await scene.apply(endless("lost"))
            await running(scene, "lost")
            await define(scene.client, crd_for(TrainingRun))
            await scene.apply(short("new"))
            await succeeded(scene, "new")
            # What the garbage collector would do, since their job is gone.
            await scene.client.delete(Service, "lost-worker", scene.namespace)
            for pod in ("lost-worker-0", "lost-worker-1"):
                await scene.client.delete(Pod, pod, scene.namespace, grace_seconds=0)
            await scene.apply(endless("lost"))
            await running(scene, "lost")
            assert not operator.done()


FOREIGN = {
    "that keeps no Record": (foreign(status={"type": "object", "properties": {}}), "IncompatibleCRD"),
    "without a status of its own": (foreign(), "StatusUpdateFailed"),
    "whose phases are numbers": (
        foreign(status={"type": "object", "properties": {"phase": {"type": "integer"}}}),
        "StatusUpdateFailed",
    ),
}


@pytest.mark.parametrize(("definition", "reason"), FOREIGN.values(), ids=FOREIGN.keys())
async def test_a_definition_of_somebody_else(
    scene: Scene, definition: dict[str, object], reason: str
) -> None:
    """Nothing is made, an event says why, and ours in its place cures it."""
    await define(scene.client, definition)
    with captured_lines():
        async with scene.operator() as operator:
            await scene.apply(short("job"))

            async def told() -> bool:
                return any(event.reason == reason and CRD in event.message for event in await scene.events())

            await scene.until("an event tells", told)
            assert not await scene.pods()
            await define(scene.client, crd_for(TrainingRun))
            await scene.apply(short("job"))
            await succeeded(scene, "job")
            assert not operator.done()


async def test_a_definition_without_our_version_holds_up_nobody(scene: Scene) -> None:
    await define(scene.client, foreign(version="v1"))
    port = free_port()
    with captured_lines():
        async with scene.operator(**shown_at(port)):
            client = WireClient(Origin.from_url(f"http://127.0.0.1:{port}"))

            async def ready() -> bool:
                try:
                    return (await client.send("GET", "/readyz", {})).status == 200
                except ConnectionError:
                    return False

            try:
                await until(ready, "the operator is ready")
            finally:
                await client.close()
            await define(scene.client, crd_for(TrainingRun))
            await scene.apply(short("job"))
            await succeeded(scene, "job")
