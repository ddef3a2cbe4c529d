"""Every line of a container once, whatever happens to its streams, its runs and its pod."""

from collections.abc import AsyncIterator

import pytest
from msgspec import Struct, field

from argosy.cli.container_log import ContainerLog, LogPosition, LogSource, lines
from argosy.engine.client import Client
from tests.support.fake_apiserver import FakeServer, Fault


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
    place = LogPosition()
    assert [text async for text in place.new_lines(_lines("1 a", "2 b", "2 c"))] == ["a", "b", "c"]
    assert [text async for text in place.new_lines(_lines("1 a", "2 b", "2 c", "2 d", "3 e"))] == ["d", "e"]


class Case(Struct):
    want: list[str]
    newest: int = -1
    gone: bool = False
    tail: int | None = None
    by_name: list[bytes] = field(default_factory=list)
    by_uid: dict[tuple[str, str], list[bytes]] | None = None
    fault: Fault | None = None


CASES = {
    "all runs of a container that restarted are said, in their order": Case(
        newest=2,
        by_uid={("u", "0"): [b"1 a\n"], ("u", "1"): [b"2 b\n"], ("u", "2"): [b"3 c\n"]},
        want=["a", "b", "c"],
    ),
    "a run that cannot be had does not keep the next from being said": Case(
        newest=1, by_uid={("u", "1"): [b"2 b\n"]}, want=["b"]
    ),
    "with a tail only the newest run is said": Case(
        newest=1, tail=1, by_uid={("u", "0"): [b"1 a\n"], ("u", "1"): [b"2 b\n"]}, want=["b"]
    ),
    "a pod that is gone says what it has, though nobody saw it start": Case(
        gone=True, by_uid={("u", "0"): [b"1 a\n"], ("u", "1"): [b"2 b\n"]}, want=["a", "b"]
    ),
    "a pod that is gone is not mistaken for the next of its name": Case(
        gone=True, by_uid=None, by_name=[b"1 of another\n"], want=[]
    ),
    "a server that knows no logs by uid is asked by name": Case(
        newest=0, by_uid=None, by_name=[b"1 a\n"], want=["a"]
    ),
    "where runs cannot be asked for, the log that there is is said once": Case(
        newest=2, by_uid=None, by_name=[b"1 a\n", b"2 b\n"], want=["a", "b"]
    ),
    "a node that does not answer is asked again": Case(
        newest=0, by_uid={("u", "0"): [b"1 a\n"]}, fault=Fault(500, times=2), want=["a"]
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_what_is_said(case: Case) -> None:
    said: list[str] = []
    breaks: list[None] = []
    async with FakeServer() as server:
        server.log_chunks, server.logs_by_uid = case.by_name, case.by_uid
        server.faults = [case.fault] if case.fault else []
        async with Client(server.connection()) as client:
            origin = LogSource("default", "p", "u", "main")
            transcript = ContainerLog(client, origin, said.append, lambda: breaks.append(None), case.tail)
            if case.newest >= 0:
                transcript.run_started(case.newest)
            if case.gone:
                transcript.pod_deleted()
            reading = transcript.reading
            assert reading is not None
            await reading
            assert transcript.reading is None
    assert said == case.want
    assert len(breaks) == (2 if case.fault else 0)
