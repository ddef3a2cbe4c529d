"""What is written to the Node: annotations that never extend a deadline, and the taint of a hint."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from argosy.agent.notices.base import Notice, Report
from argosy.agent.notices.publisher import (
    HINT_TAINT,
    NoticePublisher,
    annotations_patch,
    taint_patch,
)
from argosy.agent.objects import NodeSpec, OwnNode, OwnPod
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.kinds.kubernetes import Taint
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot import TERMINATION_DEADLINE, TERMINATION_SOURCE
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.waiting import eventually

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EARLY, LATE = NOON + timedelta(seconds=30), NOON + timedelta(seconds=90, microseconds=5)
EARLY_TEXT, LATE_TEXT = "2026-03-01T12:00:30Z", "2026-03-01T12:01:30Z"
PREEMPTED = Notice("gce-preempted", EARLY)
MAINTENANCE = Notice("gce-maintenance", LATE)

WRITTEN_EARLY = {TERMINATION_DEADLINE: EARLY_TEXT, TERMINATION_SOURCE: "gce-preempted"}
WRITTEN_LATE = {TERMINATION_DEADLINE: LATE_TEXT, TERMINATION_SOURCE: "gce-maintenance"}
BY_OTHERS = {TERMINATION_DEADLINE: LATE_TEXT, TERMINATION_SOURCE: "node-problem-detector"}
REMOVED = {TERMINATION_DEADLINE: None, TERMINATION_SOURCE: None}

PATCHES = {
    "nothing announced, nothing there: no patch": ({}, [], None),
    "announced: written": ({}, [PREEMPTED], WRITTEN_EARLY),
    "written already: no patch": (WRITTEN_EARLY, [PREEMPTED], None),
    "two notices: the earlier": ({}, [MAINTENANCE, PREEMPTED], WRITTEN_EARLY),
    "earlier than what is there: shortened": (WRITTEN_LATE, [MAINTENANCE, PREEMPTED], WRITTEN_EARLY),
    "same notice with a later deadline: not extended": (
        WRITTEN_EARLY,
        [Notice("gce-preempted", LATE)],
        None,
    ),
    "the earlier of two notices is withdrawn: the later": (WRITTEN_EARLY, [MAINTENANCE], WRITTEN_LATE),
    "withdrawn: removed": (WRITTEN_EARLY, [], REMOVED),
    "deadline by others is later: shortened": (BY_OTHERS, [PREEMPTED], WRITTEN_EARLY),
    "deadline by others is earlier: kept": (
        {TERMINATION_DEADLINE: EARLY_TEXT, TERMINATION_SOURCE: "other"},
        [MAINTENANCE],
        None,
    ),
    "deadline by others, nothing announced: kept": (BY_OTHERS, [], None),
    "unreadable deadline by others: replaced": (
        {TERMINATION_DEADLINE: "soon", TERMINATION_SOURCE: "other"},
        [PREEMPTED],
        WRITTEN_EARLY,
    ),
    "deadline without a zone by others: replaced": (
        {TERMINATION_DEADLINE: "2026-03-01T00:00:00", TERMINATION_SOURCE: "other"},
        [PREEMPTED],
        WRITTEN_EARLY,
    ),
    "hint: no deadline": ({}, [Notice("ec2-rebalance", EARLY, is_hint=True)], None),
}


@pytest.mark.parametrize("case", PATCHES)
def test_annotations(case: str) -> None:
    annotations, notices, want = PATCHES[case]
    assert annotations_patch(annotations, notices, "gce-") == want


HINT = Notice("ec2-rebalance", NOON, is_hint=True)
HINTED = Taint(HINT_TAINT, "PreferNoSchedule")
OTHER = Taint("dedicated", "NoSchedule", "training")

TAINTS = {
    "hint on a node without taints: added": ([], [HINT], ("add", "/spec/taints")),
    "hint on a node with taints: appended": ([OTHER], [HINT], ("add", "/spec/taints/-")),
    "hint that is there: no patch": ([OTHER, HINTED], [HINT], None),
    "hint withdrawn: removed": ([OTHER, HINTED], [], ("remove", "/spec/taints/1")),
    "taint of another effect, which others have set: kept": ([Taint(HINT_TAINT, "NoSchedule")], [], None),
    "no hint: no patch": ([OTHER], [PREEMPTED], None),
}


@pytest.mark.parametrize("case", TAINTS)
def test_taint_of_a_hint(case: str) -> None:
    taints, notices, want = TAINTS[case]
    node = OwnNode(ObjectMeta(name="n", resource_version="7"), NodeSpec(taints=list(taints)))
    patch = taint_patch(node, notices)
    if want is None:
        assert patch is None
        return
    assert patch is not None
    assert patch[0] == {"op": "test", "path": "/metadata/resourceVersion", "value": "7"}
    assert (patch[1]["op"], patch[1]["path"]) == want


class Announcer:
    """A source of notices by hand."""

    prefix = "gce-"

    def __init__(self) -> None:
        self.report: Report | None = None
        self.acknowledged = False

    async def run(self, report: Report) -> None:
        self.report = report
        await asyncio.Event().wait()

    async def acknowledge(self) -> None:
        self.acknowledged = True


@asynccontextmanager
async def publishing(server: FakeServer, source: Announcer | None = None) -> AsyncIterator[Report]:
    source = source or Announcer()
    async with Client(server.connection()) as client, asyncio.TaskGroup() as tasks:
        nodes = Cache(client, OwnNode, fields="metadata.name=n")
        pods = Cache(client, OwnPod, fields="spec.nodeName=n")
        publisher = NoticePublisher(client, nodes, pods, "n", source)
        running = [tasks.create_task(task) for task in (nodes.run(), pods.run(), publisher.run())]
        await eventually(lambda: source.report is not None)
        assert source.report is not None
        yield source.report
        for task in running:
            task.cancel()


def annotations(server: FakeServer) -> dict[str, str]:
    [node] = server.objects("nodes")
    metadata = node["metadata"]
    assert isinstance(metadata, dict)
    return dict(metadata.get("annotations") or {})


def patches(server: FakeServer) -> int:
    return sum(request.method == "PATCH" for request in server.requests)


async def test_notice_is_written_once_and_removed_when_withdrawn() -> None:
    async with FakeServer() as server:
        await server.put("nodes", {"metadata": {"name": "n"}})
        async with publishing(server) as report:
            for _ in range(3):
                report((PREEMPTED,))
                await eventually(lambda: annotations(server) == WRITTEN_EARLY)
            report(())
            await eventually(lambda: annotations(server) == {})
        assert patches(server) == 2


async def test_annotation_that_someone_removes_is_written_again() -> None:
    async with FakeServer() as server:
        await server.put("nodes", {"metadata": {"name": "n"}})
        async with publishing(server) as report:
            report((PREEMPTED,))
            await eventually(lambda: annotations(server) == WRITTEN_EARLY)
            await server.put("nodes", {"metadata": {"name": "n"}})
            await eventually(lambda: annotations(server) == WRITTEN_EARLY)


async def test_notice_is_written_when_the_node_registers() -> None:
    async with FakeServer() as server, publishing(server) as report:
        report((PREEMPTED,))
        await server.put("nodes", {"metadata": {"name": "n"}})
        await eventually(lambda: annotations(server) == WRITTEN_EARLY)


async def test_refused_write_is_retried() -> None:
    async with FakeServer() as server:
        await server.put("nodes", {"metadata": {"name": "n"}})
        async with publishing(server) as report:
            server.faults.append(Fault(500, times=2, match=lambda seen: seen.method == "PATCH"))
            report((PREEMPTED,))
            await eventually(lambda: annotations(server) == WRITTEN_EARLY)


async def test_annotation_of_an_earlier_agent_is_removed_if_nothing_is_announced_any_more() -> None:
    async with FakeServer() as server:
        await server.put("nodes", {"metadata": {"name": "n", "annotations": dict(WRITTEN_EARLY)}})
        async with publishing(server) as report:
            report(())
            await eventually(lambda: annotations(server) == {})


async def test_notice_is_acknowledged_when_no_pod_needs_the_node_any_more() -> None:
    source = Announcer()
    async with FakeServer() as server:
        await server.put("nodes", {"metadata": {"name": "n"}})
        owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
        spec = {"nodeName": "n", "containers": [{"name": "main"}]}
        for name, owners in (("training", []), ("daemon", [owner])):
            metadata = {"name": name, "namespace": "default", "ownerReferences": owners}
            await server.put("pods", {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})
        async with publishing(server, source) as report:
            report((PREEMPTED,))
            await eventually(lambda: annotations(server) == WRITTEN_EARLY)
            assert not source.acknowledged
            await server.remove("pods", "default", "training")
            await eventually(lambda: source.acknowledged)
