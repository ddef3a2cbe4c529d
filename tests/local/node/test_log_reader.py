"""Tests that every log line is read once, also while more lines are written."""

from pathlib import Path

from argosy.local.node.log_reader import LogReader
from argosy.local.node.logs import LogWriter


def _texts(reader: LogReader) -> list[str]:
    texts: list[str] = []
    while True:
        lines, some = reader.read_new()
        texts += [line.text.decode() for line in lines]
        if not some:
            return texts


def test_a_line_written_during_the_first_read_is_returned_once(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "0.log", 1 << 20)
    writer.write("stdout", b"one\ntwo\n")
    reader = LogReader(tmp_path / "0.log")
    first = reader.read_existing()
    lines = [next(first).text.decode()]
    writer.write("stdout", b"three\n")
    lines += [line.text.decode() for line in first]
    assert lines + _texts(reader) == ["one", "two", "three"]


def test_a_rotation_during_reads_neither_loses_nor_repeats_lines(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "0.log", 500)
    reader = LogReader(tmp_path / "0.log")
    writer.write("stdout", b"0\n")
    lines = [line.text.decode() for line in reader.read_existing()]
    for number in range(1, 100):
        writer.write("stdout", f"{number}\n".encode())
        lines += _texts(reader) if number % 5 == 0 else []
    assert lines + _texts(reader) == [str(number) for number in range(100)]


def test_a_log_rotated_before_the_first_read_starts_with_the_kept_lines(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "0.log", 500)
    for number in range(20):
        writer.write("stdout", f"{number}\n".encode())
    reader = LogReader(tmp_path / "0.log")
    lines = [line.text.decode() for line in reader.read_existing()]
    assert lines == [str(number) for number in range(20)][-len(lines) :]
    assert len(lines) > 10
    assert _texts(reader) == []


def test_a_log_that_does_not_exist_yet_is_read_once_it_does(tmp_path: Path) -> None:
    reader = LogReader(tmp_path / "0.log")
    assert list(reader.read_existing(tail=3)) == []
    LogWriter(tmp_path / "0.log", 500).write("stderr", b"at last\n")
    assert _texts(reader) == ["at last"]


def test_an_incomplete_line_is_returned_once_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"2026-01-01T00:00:00.000000000Z stdout F one\n2026-01-01T00:0")
    reader = LogReader(path)
    assert [line.text for line in reader.read_existing()] == [b"one"]
    with path.open("ab") as file:
        file.write(b"0:01.000000000Z stdout F two\n")
    lines, _ = reader.read_new()
    assert [(line.time, line.text) for line in lines] == [("2026-01-01T00:00:01.000000000Z", b"two")]
