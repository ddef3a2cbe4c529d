"""The sources of notices against metadata services that speak the clouds' protocols."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from argosy.agent.notices import azure, base, ec2, gce
from argosy.agent.notices.base import Notice, NoticeSource
from argosy.agent.notices.detect import detect_cloud
from argosy.engine.backoff import Backoff
from tests.support.clouds.metadata import AzureMetadata, Ec2Metadata, GceMetadata, Handler, serving
from tests.support.manual_clock import ManualClock
from tests.support.raw_server import Call, http, raw_server
from tests.support.waiting import eventually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
CLOCK = ManualClock()


@pytest.fixture(autouse=True)
def frequent_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ec2, azure):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    for module in (base, gce):
        monkeypatch.setattr(module, "RETRY", Backoff(initial=0.01, maximum=0.02))


class Reports(list[tuple[Notice, ...]]):
    @property
    def last(self) -> dict[str, datetime]:
        """Deadlines of the last report by source."""
        return {notice.source: notice.deadline for notice in self[-1]} if self else {"nothing": NOON}


@asynccontextmanager
async def running(source: NoticeSource) -> AsyncIterator[Reports]:
    reports = Reports()
    task = asyncio.create_task(source.run(reports.append))
    try:
        yield reports
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_gce_preemption_is_reported_by_the_long_poll() -> None:
    cloud = GceMetadata()
    async with serving(cloud.handle) as url:
        source = gce.GceNotices(url, has_gpus=lambda: False, clock=CLOCK)
        async with running(source) as reports:
            await eventually(lambda: cloud.long_polls == 2)
            assert list(reports) == [()]
            await cloud.preempt()
            await eventually(lambda: "gce-preempted" in reports.last)
    assert reports.last == {"gce-preempted": CLOCK.now() + timedelta(seconds=30)}


@pytest.mark.parametrize(("has_gpus", "want_seconds"), [(False, 60), (True, 3600)])
async def test_gce_maintenance_that_ends_the_machine(has_gpus: bool, want_seconds: int) -> None:
    cloud = GceMetadata()
    async with serving(cloud.handle) as url:
        source = gce.GceNotices(url, has_gpus=lambda: has_gpus, clock=CLOCK)
        async with running(source) as reports:
            await cloud.announce_maintenance()
            want = {"gce-maintenance": CLOCK.now() + timedelta(seconds=want_seconds)}
            await eventually(lambda: reports.last == want)
            await cloud.announce_maintenance("NONE")
            await eventually(lambda: reports.last == {})


async def test_gce_live_migration_ends_nothing() -> None:
    cloud = GceMetadata(instance__maintenance_event="MIGRATE_ON_HOST_MAINTENANCE")
    async with serving(cloud.handle) as url, running(gce.GceNotices(url, has_gpus=lambda: True)) as reports:
        await eventually(lambda: cloud.long_polls == 2)
    assert list(reports) == [()]


async def test_gce_preemption_while_the_metadata_service_restarts_is_reported() -> None:
    cloud = GceMetadata()
    async with serving(cloud.handle) as url:
        source = gce.GceNotices(url, has_gpus=lambda: False)
        port = int(url.rpartition(":")[2])
        context = running(source)
        reports = await context.__aenter__()
        await eventually(lambda: cloud.long_polls == 2)
    await cloud.preempt()
    try:
        async with serving(cloud.handle, port):
            await eventually(lambda: "gce-preempted" in reports.last)
    finally:
        await context.__aexit__(None, None, None)


async def test_gce_answer_of_another_server_is_not_believed() -> None:
    async def answer(call: Call) -> bytes:
        return http(200, b"TRUE", {"ETag": "1"})

    async with (
        raw_server(answer) as server,
        running(gce.GceNotices(server.url, has_gpus=lambda: False)) as reports,
    ):
        await eventually(lambda: len(server.calls) > 4)
    assert not reports


async def test_ec2_interruption_and_rebalance_recommendation() -> None:
    cloud = Ec2Metadata()
    async with serving(cloud.handle) as url, running(ec2.Ec2Notices(url)) as reports:
        await eventually(lambda: list(reports) == [()])
        cloud.recommend_rebalance(NOON)
        await eventually(lambda: [notice.is_hint for notice in reports[-1]] == [True])
        cloud.interrupt(NOON)
        await eventually(lambda: reports.last.get("ec2-spot-terminate") == NOON)
        cloud.tokens.clear()  # as when they expire
        cloud.instance_action = None
        await eventually(lambda: set(reports.last) == {"ec2-rebalance"})
    assert len(cloud.tokens) == 1


async def test_ec2_hibernation_begins_at_once() -> None:
    cloud = Ec2Metadata()
    cloud.interrupt(NOON + timedelta(minutes=2), "hibernate")
    async with serving(cloud.handle) as url, running(ec2.Ec2Notices(url, clock=CLOCK)) as reports:
        await eventually(lambda: reports.last == {"ec2-spot-hibernate": CLOCK.now()})


async def test_azure_events_of_this_machine_only() -> None:
    cloud = AzureMetadata("vm-0")
    cloud.schedule("1", "Preempt", NOON, "vm-1")
    cloud.schedule("2", "Freeze", NOON)
    async with serving(cloud.handle) as url, running(azure.AzureNotices(url)) as reports:
        await eventually(lambda: list(reports) == [()])
        cloud.schedule("3", "Preempt", NOON, "vm-1", "vm-0")
        await eventually(lambda: reports.last == {"azure-preempt": NOON})
        cloud.cancel("3")
        await eventually(lambda: reports.last == {})


async def test_azure_event_is_acknowledged_and_then_has_no_time_left() -> None:
    cloud = AzureMetadata()
    cloud.schedule("1", "Preempt", NOON)
    async with serving(cloud.handle) as url:
        source = azure.AzureNotices(url, clock=CLOCK)
        async with running(source) as reports:
            await eventually(lambda: reports.last == {"azure-preempt": NOON})
            await source.acknowledge()
            await eventually(lambda: reports.last == {"azure-preempt": CLOCK.now()})
            await source.acknowledge()
    assert cloud.acknowledged == ["1"]


GARBAGE = {
    "HTML": http(200, b"<html>", {"Metadata-Flavor": "Google", "Content-Type": "text/html"}),
    "truncated JSON": http(200, b'{"Events": [', {"ETag": "1"}),
    "time without a zone": http(200, b'{"action": "terminate", "time": "2026-03-01T12:00:00"}'),
    "server error": http(503),
    "no HTTP": b"hello\r\n\r\n",
}


@pytest.mark.parametrize("case", GARBAGE)
@pytest.mark.parametrize("cloud", ["gce", "ec2", "azure"])
async def test_garbage_is_asked_for_again(case: str, cloud: str) -> None:
    async def answer(call: Call) -> bytes:
        return GARBAGE[case]

    async with raw_server(answer) as server:
        sources: dict[str, NoticeSource] = {
            "gce": gce.GceNotices(server.url, has_gpus=lambda: False),
            "ec2": ec2.Ec2Notices(server.url),
            "azure": azure.AzureNotices(server.url),
        }
        async with running(sources[cloud]) as reports:
            await eventually(lambda: len(server.calls) > 3)
    assert not [report for report in reports if report]


CLOUDS: dict[str, Handler] = {
    "gce": GceMetadata().handle,
    "ec2": Ec2Metadata().handle,
    "azure": AzureMetadata().handle,
}


@pytest.mark.parametrize("cloud", CLOUDS)
async def test_cloud_is_found_by_its_metadata_service(cloud: str) -> None:
    async with serving(CLOUDS[cloud]) as url:
        assert await detect_cloud("", url) == cloud


async def test_cloud_is_known_from_the_provider_id_without_asking() -> None:
    assert await detect_cloud("gce://project/zone/vm", "http://127.0.0.1:1") == "gce"
    assert await detect_cloud("aws:///eu-1a/i-1", "http://127.0.0.1:1") == "ec2"


async def test_machine_without_metadata_service_is_in_no_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argosy.agent.notices.detect.PROBE_SECONDS", 0.001)
    assert await detect_cloud("", "http://127.0.0.1:1") == ""
