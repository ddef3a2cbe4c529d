"""Tests that the rehearsal cloud's metadata servers announce what becomes of a VM, as those of GCE do."""

import asyncio

from argosy.agent.notices.base import Notice
from argosy.agent.notices.gce import GceNotices
from argosy.local.gce.api import GceApi
from argosy.local.gce.cloud import Cloud, Latency
from argosy.local.gce.server import GceServer, utc_now


async def test_preemption_is_announced_to_the_vm_and_not_to_others() -> None:
    cloud = Cloud(utc_now, Latency(insert=0, boot=0))
    async with GceServer(GceApi(cloud)).serving() as url:
        reports: dict[str, asyncio.Queue[tuple[Notice, ...]]] = {}
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            following = []
            for name in ("taken", "other"):
                cloud.insert("p", "us-central1-a", {"name": name, "scheduling": {}}, name)
                reports[name] = asyncio.Queue()
                source = GceNotices(f"{url}/vms/{name}", has_gpus=lambda: False)
                following.append(tasks.create_task(source.run(reports[name].put_nowait)))
                assert await reports[name].get() == ()
            cloud.preempt("p", "us-central1-a", "taken")
            [notice] = await reports["taken"].get()
            assert notice.source == "gce-preempted"
            assert reports["other"].empty()
            for task in following:
                task.cancel()
