"""Follower prints the output of a job: whole lines, each with its source, none twice."""

import asyncio

import click
import pytest

from argosy.cli import follow
from argosy.cli.follow import Follower, Printer
from argosy.engine.client import Client
from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.kinds.spot import JOB_LABEL, REPLICA_LABEL, SpotInstanceJob
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.waiting import until


def test_sources_are_aligned_and_keep_their_colour() -> None:
    printed: list[str] = []
    printer = Printer(printed.append)
    printer.line("worker-10", "x")
    printer.line("ps-0", "y")
    printer.line("worker-10", "z")
    plain = [click.unstyle(line) for line in printed]
    assert plain == ["worker-10 │ x", "ps-0      │ y", "worker-10 │ z"]
    assert printed[0].split("w")[0] == printed[2].split("w")[0] != printed[1].split("p")[0]


FAULTS = {
    "log requests fail for longer than the drain time: all lines are printed": Fault(
        503, times=4, match=lambda request: "/log" in request.path
    ),
    "the watch of the pods starts late: all lines are printed": Fault(
        503,
        times=3,
        match=lambda request: request.path.endswith("/pods") and request.query.get("watch") == "true",
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
async def test_all_output_of_an_ended_job_is_printed(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_DRAIN_SECONDS", 0.5)
    printed: list[str] = []
    async with FakeServer() as server:
        await server.put("trainingruns", _failed_run())
        await server.put("pods", _failed_pod())
        server.log_chunks = [b"2026-01-01T00:00:00.000000000Z the last line\n"]
        server.faults = [fault]
        async with Client(server.connection()) as client:
            outcome = await Follower(client, "default", "a", Printer(printed.append)).outcome()
    assert outcome == "Failed"
    assert [click.unstyle(line) for line in printed] == [
        "worker-0 │ the last line",
        "a  Failed     it failed",
    ]


async def test_a_spot_instance_job_is_followed_by_the_labels_of_its_replicas() -> None:
    printed: list[str] = []
    job = {
        "metadata": {"name": "a", "namespace": "default", "uid": "1"},
        "status": {
            "phase": "Failed",
            "conditions": [{"type": "Failed", "status": "True", "reason": "RestartLimitExceeded"}],
        },
    }
    labels = {JOB_LABEL: "a", REPLICA_LABEL: "1"}
    pod = _pod("main")
    pod |= {"metadata": {"name": "a-1-1700000000-x", "namespace": "default", "labels": labels}}
    async with FakeServer() as server:
        await server.put("spotinstancejobs", job)
        await server.put("pods", {**pod, "spec": {"containers": [{"name": "main"}]}})
        server.log_chunks = [_stamped("step 7")]
        async with Client(server.connection()) as client:
            follower = Follower(client, "default", "a", Printer(printed.append), kind=SpotInstanceJob)
            assert await follower.outcome() == "Failed"
    lines = [click.unstyle(line) for line in printed]
    assert lines == ["replica-1 │ step 7", "a  Failed     RestartLimitExceeded"]


async def test_output_of_a_pod_that_was_replaced_before_its_status_was_seen_is_printed() -> None:
    """The pod starts, fails and is replaced by one of the same name before a status of it is watched."""
    printed: list[str] = []
    async with FakeServer() as server:
        await server.put("trainingruns", {**_failed_run(), "status": {"phase": "Running"}})
        first = _uid(await server.put("pods", _pod("side")))
        server.logs_by_uid = {(first, "0"): [_stamped("the first")]}
        async with Client(server.connection()) as client:
            following = asyncio.create_task(
                Follower(client, "default", "a", Printer(printed.append)).outcome()
            )
            await until(lambda: _already("worker-0/side" in str(printed)), "the first pod is seen")
            await server.remove("pods", "default", "a-worker-0")
            second = _uid(await server.put("pods", _pod("main", "side")))
            server.logs_by_uid[second, "0"] = [_stamped("the second")]
            await server.put("trainingruns", _failed_run())
            await following
    lines = sorted(click.unstyle(line) for line in printed[1:-1])
    assert lines == [
        "worker-0/main │ the first",
        "worker-0/main │ the second",
        "worker-0/side │ the first",
        "worker-0/side │ the second",
    ]


async def test_late_last_lines_of_a_pod_are_printed_before_those_of_its_successor() -> None:
    """The node of the first pod is not reachable when the pod ends."""
    printed: list[str] = []
    async with FakeServer() as server:
        await server.put("trainingruns", {**_failed_run(), "status": {"phase": "Running"}})
        first = _uid(await server.put("pods", _failed_pod()))
        server.faults = [Fault(503, times=3, match=lambda request: request.path.endswith(f"/log/{first}"))]
        server.logs_by_uid = {(first, "0"): [_stamped("the first")]}
        async with Client(server.connection()) as client:
            following = asyncio.create_task(
                Follower(client, "default", "a", Printer(printed.append)).outcome()
            )
            requested = lambda: _already(  # noqa: E731
                any(f"/log/{first}" in request.path for request in server.requests)
            )
            await until(requested, "the log of the first pod is requested")
            await server.remove("pods", "default", "a-worker-0")
            second = _uid(await server.put("pods", _failed_pod()))
            server.logs_by_uid[second, "0"] = [_stamped("the second")]
            await server.put("trainingruns", _failed_run())
            await following
    lines = [click.unstyle(line) for line in printed[1:-1]]
    assert lines == ["worker-0 │ the first", "worker-0 │ the second"]


async def _already(condition: bool) -> bool:
    return condition


def _stamped(text: str) -> bytes:
    return f"2026-01-01T00:00:00.000000000Z {text}\n".encode()


def _failed_run() -> dict[str, object]:
    return {
        "metadata": {"name": "a", "namespace": "default", "uid": "1"},
        "spec": {"framework": "custom", "roles": {"worker": {"template": {}}}},
        "status": {"phase": "Failed", "message": "it failed"},
    }


def _failed_pod() -> dict[str, object]:
    return {**_pod("main"), "spec": {"containers": [{"name": "main"}]}}


def _pod(*terminated: str) -> dict[str, object]:
    """Return a pod of two containers with the statuses of those that have terminated."""
    labels = {JOB: "a", ROLE: "worker", INDEX: "0"}
    state = {"terminated": {"exitCode": 3}}
    return {
        "metadata": {"name": "a-worker-0", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": name, "restartCount": 0, "state": state} for name in terminated],
        },
    }


def _uid(obj: dict[str, object]) -> str:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])
