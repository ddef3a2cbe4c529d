"""ContainerLog prints every line of a container once, across broken streams, restarts and new pods."""

from collections.abc import AsyncIterator

import pytest
from msgspec import Struct, field

from argosy.cli.container_log import ContainerLog, LogPosition, LogSource, lines
from argosy.engine.client import Client
from tests.support.fake_apiserver import FakeServer, Fault


async def _chunks(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _lines(*texts: str) -> AsyncIterator[str]:
    for line in texts:
        yield line


async def test_lines_are_joined_across_chunks() -> None:
    assert [line async for line in lines(_chunks(b"a\nb", b"c\n", b"", b"d"))] == ["a", "bc", "d"]


async def test_invalid_utf8_does_not_end_the_stream() -> None:
    assert [line async for line in lines(_chunks(b"\xff\n"))] == ["�"]


async def test_a_reopened_stream_continues_after_the_last_line() -> None:
    position = LogPosition()
    assert [text async for text in position.new_lines(_lines("1 a", "2 b", "2 c"))] == ["a", "b", "c"]
    assert [text async for text in position.new_lines(_lines("1 a", "2 b", "2 c", "2 d", "3 e"))] == [
        "d",
        "e",
    ]


class Case(Struct):
    want: list[str]
    newest: int = -1
    gone: bool = False
    tail: int | None = None
    by_name: list[bytes] = field(default_factory=list)
    by_uid: dict[tuple[str, str], list[bytes]] | None = None
    fault: Fault | None = None


CASES = {
    "restarted container: all runs are printed in order": Case(
        newest=2,
        by_uid={("u", "0"): [b"1 a\n"], ("u", "1"): [b"2 b\n"], ("u", "2"): [b"3 c\n"]},
        want=["a", "b", "c"],
    ),
    "log of an old run not available: the next run is printed": Case(
        newest=1, by_uid={("u", "1"): [b"2 b\n"]}, want=["b"]
    ),
    "with a tail: only the newest run is printed": Case(
        newest=1, tail=1, by_uid={("u", "0"): [b"1 a\n"], ("u", "1"): [b"2 b\n"]}, want=["b"]
    ),
    "deleted pod that was never seen running: its runs are printed": Case(
        gone=True, by_uid={("u", "0"): [b"1 a\n"], ("u", "1"): [b"2 b\n"]}, want=["a", "b"]
    ),
    "deleted pod on a server without logs by uid: the log of its successor is not printed": Case(
        gone=True, by_uid=None, by_name=[b"1 of another\n"], want=[]
    ),
    "server without logs by uid: the log is read by name": Case(
        newest=0, by_uid=None, by_name=[b"1 a\n"], want=["a"]
    ),
    "server without logs by run: the log is printed once": Case(
        newest=2, by_uid=None, by_name=[b"1 a\n", b"2 b\n"], want=["a", "b"]
    ),
    "node that fails twice: the log is requested again": Case(
        newest=0, by_uid={("u", "0"): [b"1 a\n"]}, fault=Fault(500, times=2), want=["a"]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_printed_lines(case: Case) -> None:
    printed: list[str] = []
    breaks: list[None] = []
    async with FakeServer() as server:
        server.log_chunks, server.logs_by_uid = case.by_name, case.by_uid
        server.faults = [case.fault] if case.fault else []
        async with Client(server.connection()) as client:
            source = LogSource("default", "p", "u", "main")
            log = ContainerLog(client, source, printed.append, lambda: breaks.append(None), case.tail)
            if case.newest >= 0:
                log.run_started(case.newest)
            if case.gone:
                log.pod_deleted()
            reading = log.reading
            assert reading is not None
            await reading
            assert log.reading is None
    assert printed == case.want
    assert len(breaks) == (2 if case.fault else 0)
