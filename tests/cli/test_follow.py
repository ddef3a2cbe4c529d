"""What a person sees of a run: whole lines, each with its source, none twice."""

from collections.abc import AsyncIterator

import click

from argosy.cli.follow import Place, Printer, lines, source_of
from argosy.kinds.labels import INDEX, ROLE


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
