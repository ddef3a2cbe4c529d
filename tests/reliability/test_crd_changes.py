"""Tests for operators whose CRDs are deleted, created again, or replaced by foreign ones."""

import pytest

from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import Pod, Service
from argosy.kinds.trainingrun import TrainingRun
from argosy.wire.client import Client as WireClient
from argosy.wire.origin import Origin
from tests.support.captured_logs import captured_lines
from tests.support.faults import (
    CRD,
    endless_job,
    foreign_crd,
    install_crd,
    short_job,
    wait_until_running,
    wait_until_succeeded,
)
from tests.support.operator_harness import Scene, shown_at
from tests.support.parameters import marked
from tests.support.servers import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


async def test_jobs_run_again_after_the_crd_was_deleted_and_recreated(scene: Scene) -> None:
    with captured_lines():
        async with scene.operator() as operator:
            await scene.apply(endless_job("lost"))
            await wait_until_running(scene, "lost")
            await install_crd(scene.client, crd_for(TrainingRun))
            await scene.apply(short_job("new"))
            await wait_until_succeeded(scene, "new")
            # What the garbage collector would do, since their job is gone.
            await scene.client.delete(Service, "lost-worker", scene.namespace)
            for pod in ("lost-worker-0", "lost-worker-1"):
                await scene.client.delete(Pod, pod, scene.namespace, grace_seconds=0)
            await scene.apply(endless_job("lost"))
            await wait_until_running(scene, "lost")
            assert not operator.done()


FOREIGN = {
    "CRD that prunes the Record": (
        foreign_crd(status={"type": "object", "properties": {}}),
        "IncompatibleCRD",
    ),
    "CRD without the status subresource": (foreign_crd(), "StatusUpdateFailed"),
    "CRD whose phases are numbers": (
        foreign_crd(status={"type": "object", "properties": {"phase": {"type": "integer"}}}),
        "StatusUpdateFailed",
    ),
}


@pytest.mark.parametrize("case", marked(FOREIGN, ["CRD whose phases are numbers"], pytest.mark.long))
async def test_foreign_crd_is_reported_and_nothing_is_created(
    scene: Scene, case: tuple[dict[str, object], str]
) -> None:
    """No pod is created, an event has the reason, and the job runs once our CRD is installed.

    tests/operator and tests/reconcile have the other cases by default.
    """
    definition, reason = case
    await install_crd(scene.client, definition)
    with captured_lines():
        async with scene.operator() as operator:
            await scene.apply(short_job("job"))

            async def has_event() -> bool:
                return any(event.reason == reason and CRD in event.message for event in await scene.events())

            await scene.until("an event names the CRD", has_event)
            assert not await scene.pods()
            await install_crd(scene.client, crd_for(TrainingRun))
            await scene.apply(short_job("job"))
            await wait_until_succeeded(scene, "job")
            assert not operator.done()


async def test_operator_becomes_ready_despite_a_crd_without_our_version(scene: Scene) -> None:
    await install_crd(scene.client, foreign_crd(version="v1"))
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
            await install_crd(scene.client, crd_for(TrainingRun))
            await scene.apply(short_job("job"))
            await wait_until_succeeded(scene, "job")
