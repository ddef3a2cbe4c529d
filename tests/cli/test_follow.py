"""What a person sees of a run: whole lines, each with its source, none twice."""

import asyncio

import click
import pytest

from argosy.cli import follow
from argosy.cli.follow import Follower, Printer, replica_label
from argosy.engine.client import Client
from argosy.kinds.labels import INDEX, JOB, ROLE
from tests.support.fake_apiserver import FakeServer, Fault
from tests.support.waiting import until


def test_sources_are_aligned_and_keep_their_colour() -> None:
    said: list[str] = []
    printer = Printer(said.append)
    printer.line("worker-10", "x")
    printer.line("ps-0", "y")
    printer.line("worker-10", "z")
    plain = [click.unstyle(line) for line in said]
    assert plain == ["worker-10 │ x", "ps-0      │ y", "worker-10 │ z"]
    assert said[0].split("w")[0] == said[2].split("w")[0] != said[1].split("p")[0]


def test_a_pod_is_called_by_role_and_index() -> None:
    assert replica_label({ROLE: "worker", INDEX: "2"}) == "worker-2"
    assert replica_label({ROLE: "worker", INDEX: "2"}, "sidecar") == "worker-2/sidecar"


TROUBLES = {
    "though its node does not answer for longer than the usual patience": Fault(
        503, times=4, match=lambda seen: "/log" in seen.path
    ),
    "though the watch of its pods comes up late": Fault(
        503,
        times=3,
        match=lambda seen: seen.path.endswith("/pods") and seen.query.get("watch") == "true",
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES.values(), ids=TROUBLES.keys())
async def test_a_run_that_has_ended_still_says_all(trouble: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_DRAIN_SECONDS", 0.5)
    said: list[str] = []
    async with FakeServer() as server:
        await server.put("trainingruns", _ended_run())
        await server.put("pods", _ended_pod())
        server.log_chunks = [b"2026-01-01T00:00:00.000000000Z its last words\n"]
        server.faults = [trouble]
        async with Client(server.connection()) as client:
            outcome = await Follower(client, "default", "a", Printer(said.append)).outcome()
    assert outcome == "Failed"
    assert [click.unstyle(line) for line in said] == ["worker-0 │ its last words", "a  Failed     it fell"]


async def test_a_container_that_ran_unseen_is_heard_and_not_mistaken_for_its_successor() -> None:
    """It started, failed and was replaced by a pod of the same name, faster than any status was seen."""
    said: list[str] = []
    async with FakeServer() as server:
        await server.put("trainingruns", {**_ended_run(), "status": {"phase": "Running"}})
        first = _uid(await server.put("pods", _pod("side")))
        server.logs_by_uid = {(first, "0"): [_stamped("the first")]}
        async with Client(server.connection()) as client:
            following = asyncio.create_task(Follower(client, "default", "a", Printer(said.append)).outcome())
            await until(lambda: _already("worker-0/side" in str(said)), "the first pod is seen")
            await server.remove("pods", "default", "a-worker-0")
            second = _uid(await server.put("pods", _pod("main", "side")))
            server.logs_by_uid[second, "0"] = [_stamped("the second")]
            await server.put("trainingruns", _ended_run())
            await following
    heard = sorted(click.unstyle(line) for line in said[1:-1])
    assert heard == [
        "worker-0/main │ the first",
        "worker-0/main │ the second",
        "worker-0/side │ the first",
        "worker-0/side │ the second",
    ]


async def test_the_last_lines_of_a_pod_come_before_the_first_of_its_successor() -> None:
    """Its node was away when it ended, so they are late."""
    said: list[str] = []
    async with FakeServer() as server:
        await server.put("trainingruns", {**_ended_run(), "status": {"phase": "Running"}})
        first = _uid(await server.put("pods", _ended_pod()))
        server.faults = [Fault(503, times=3, match=lambda seen: seen.path.endswith(f"/log/{first}"))]
        server.logs_by_uid = {(first, "0"): [_stamped("the first")]}
        async with Client(server.connection()) as client:
            following = asyncio.create_task(Follower(client, "default", "a", Printer(said.append)).outcome())
            asked = lambda: _already(any(f"/log/{first}" in one.path for one in server.requests))  # noqa: E731
            await until(asked, "the first pod is asked for its lines")
            await server.remove("pods", "default", "a-worker-0")
            second = _uid(await server.put("pods", _ended_pod()))
            server.logs_by_uid[second, "0"] = [_stamped("the second")]
            await server.put("trainingruns", _ended_run())
            await following
    heard = [click.unstyle(line) for line in said[1:-1]]
    assert heard == ["worker-0 │ the first", "worker-0 │ the second"]


async def _already(truth: bool) -> bool:
    return truth


def _stamped(text: str) -> bytes:
    return f"2026-01-01T00:00:00.000000000Z {text}\n".encode()


def _ended_run() -> dict[str, object]:
    return {
        "metadata": {"name": "a", "namespace": "default", "uid": "1"},
        "spec": {"framework": "custom", "roles": {"worker": {"template": {}}}},
        "status": {"phase": "Failed", "message": "it fell"},
    }


def _ended_pod() -> dict[str, object]:
    return {**_pod("main"), "spec": {"containers": [{"name": "main"}]}}


def _pod(*ended: str) -> dict[str, object]:
    """With two containers, and a status of those that have ended."""
    labels = {JOB: "a", ROLE: "worker", INDEX: "0"}
    state = {"terminated": {"exitCode": 3}}
    return {
        "metadata": {"name": "a-worker-0", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main"}, {"name": "side"}]},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": name, "restartCount": 0, "state": state} for name in ended],
        },
    }


def _uid(obj: dict[str, object]) -> str:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])
