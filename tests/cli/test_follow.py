"""What a person sees of a run: whole lines, each with its source, none twice."""

from collections.abc import AsyncIterator

import click
import pytest

from argosy.cli import follow
from argosy.cli.follow import Follower, Place, Printer, lines, source_of
from argosy.engine.client import Client
from argosy.kinds.labels import INDEX, JOB, ROLE
from argosy.testing.fakeserver import FakeServer, Fault


async def _chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _lines(*given: str) -> AsyncIterator[str]:
    for line in given:
        yield line


async def test_lines_are_whole_wherever_chunks_end() -> None:
    assert [line async for line in lines(_chunks(b"a\nb", b"c\n", b"", b"d"))] == ["a", "bc", "d"]


async def test_bytes_that_are_no_text_do_not_stop_the_stream() -> None:
    assert [line async for line in lines(_chunks(b"\xff\n"))] == ["�"]


async def test_a_stream_opened_again_goes_on_after_the_last_line() -> None:
    place = Place()
    assert [text async for text in place.unseen(_lines("1 a", "2 b", "2 c"))] == ["a", "b", "c"]
    assert [text async for text in place.unseen(_lines("1 a", "2 b", "2 c", "2 d", "3 e"))] == ["d", "e"]


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
    assert source_of({ROLE: "worker", INDEX: "2"}) == "worker-2"
    assert source_of({ROLE: "worker", INDEX: "2"}, "sidecar") == "worker-2/sidecar"


TROUBLES = {
    "though its node does not answer for longer than the usual patience": Fault(
        503, times=4, match=lambda seen: seen.path.endswith("/log")
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


def _ended_run() -> dict[str, object]:
    return {
        "metadata": {"name": "a", "namespace": "default", "uid": "1"},
        "spec": {"framework": "custom", "roles": {"worker": {"template": {}}}},
        "status": {"phase": "Failed", "message": "it fell"},
    }


def _ended_pod() -> dict[str, object]:
    labels = {JOB: "a", ROLE: "worker", INDEX: "0"}
    state = {"terminated": {"exitCode": 3}}
    return {
        "metadata": {"name": "a-worker-0", "namespace": "default", "uid": "2", "labels": labels},
        "status": {
            "phase": "Failed",
            "containerStatuses": [{"name": "main", "restartCount": 0, "state": state}],
        },
    }
