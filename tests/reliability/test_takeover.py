"""Tests for leader changes between two operators; the audit log shows which of them wrote what, and when."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence
from typing import cast

import pytest

from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import Lease
from argosy.operator.settings import NAME
from tests.support.faults import (
    endless_job,
    grant_all_rights,
    short_job,
    wait_until_running,
    wait_until_succeeded,
)
from tests.support.killable_apiserver import KillableApiServer
from tests.support.operator_harness import Scene
from tests.support.servers import READER, STRANGER
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


PROGRAM = """
import sys
from pathlib import Path
from argosy.engine.loop import run as run_loop
from argosy.operator.main import run
from argosy.operator.settings import Settings
kubeconfig, namespace, identity = sys.argv[1:]
run_loop(run(Settings(kubeconfig=Path(kubeconfig), namespace=namespace, operator_namespace=namespace,
                      identity=identity, endpoint="", metrics_address="", probe_address="",
                      log_level="error")))
"""

TAKEOVER = 15.0
"""Seconds from the end of one leader to the work of the next, at most."""


@pytest.mark.parametrize(
    "jobs",
    [pytest.param(2, id="two jobs", marks=pytest.mark.long), pytest.param(12, id="burst of jobs")],
)
async def test_stalled_or_killed_leader_is_replaced_and_writes_nothing_afterwards(
    killable_apiserver: KillableApiServer, scene: Scene, jobs: int
) -> None:
    """Each operator is a separate user, so that the audit log of the API server tells them apart.

    The first one loses the lease while jobs start, keeps running, and leads again once the jobs have
    succeeded and their pods are deleted: none of them runs a second time.
    """
    users = {user.name: user for user in (READER, STRANGER)}
    processes = {}
    try:
        for user in users.values():
            kubeconfig = await grant_all_rights(scene, user)
            processes[user.name] = await asyncio.create_subprocess_exec(
                sys.executable, "-c", PROGRAM, str(kubeconfig), scene.namespace, user.name
            )

        async def lease() -> Lease | None:
            try:
                return await scene.client.get(Lease, NAME, scene.namespace)
            except NotFound:
                return None

        async def led() -> bool:
            return bool((current := await lease()) and current.spec.holder_identity)

        await scene.until("one of them leads", led)
        first = cast("Lease", await lease()).spec.holder_identity
        (second,) = set(users) - {first}
        await scene.apply(endless_job("stays"))
        before = await wait_until_running(scene, "stays")

        async def led_by_second() -> bool:
            return cast("Lease", await lease()).spec.holder_identity == second

        async def led_by_first() -> bool:
            return cast("Lease", await lease()).spec.holder_identity == first

        names = [f"busy-{number}" for number in range(jobs)]
        making = asyncio.create_task(_make(scene, names))

        async def only_stays() -> bool:
            return {pod.metadata.uid for pod in (await scene.pods()).values()} == before

        async def busy() -> bool:
            return len(await scene.pods()) > len(before) + 3

        await scene.until("it is busy", busy)
        processes[first].send_signal(signal.SIGSTOP)
        await making
        await until(led_by_second, "the other takes over", TAKEOVER)
        taken = cast("Lease", await lease()).spec.acquire_time
        assert taken is not None
        processes[first].send_signal(signal.SIGCONT)
        await wait_until_succeeded(scene, *names)
        await scene.until("all but the one that stays is cleaned up", only_stays)
        finished = await _versions(scene, names)
        changes = [request for request in killable_apiserver.audited() if request.changed]
        own = [request.stage_timestamp for request in changes if request.user.username == first]
        assert own, "it was seen at work"
        assert max(own) < taken
        assert any(request.user.username == second and request.stage_timestamp > taken for request in changes)

        processes[second].kill()
        await processes[second].wait()
        await until(led_by_first, "the first leads again", TAKEOVER)
        await scene.apply(short_job("after-a-death"))
        await wait_until_succeeded(scene, "after-a-death")
        assert await wait_until_running(scene, "stays") == before
        assert await _versions(scene, names) == finished, "finished jobs are left as they were"
        late = [
            request
            for request in killable_apiserver.audited()
            if request.user.username == first and request.stage_timestamp > taken
        ]
        assert not [
            request for request in late if request.changed and request.object_ref.name.startswith("busy-")
        ]
        assert processes[first].returncode is None
    finally:
        for process in processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
            await process.wait()


async def _make(scene: Scene, names: Sequence[str]) -> None:
    await asyncio.gather(*(scene.apply(short_job(name, 3).having(cleanup="All")) for name in names))


async def _versions(scene: Scene, names: Sequence[str]) -> dict[str, str]:
    return {name: (await scene.run(name)).metadata.resource_version for name in names}
