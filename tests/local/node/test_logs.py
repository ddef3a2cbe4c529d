import os
from pathlib import Path

import pytest

from argosy.local.node.logs import LogWriter, log_path, parse, read_lines, rotated_path, tail_text, timestamp


def test_lines_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = log_path(tmp_path, "c", 0)
    writer = LogWriter(path, 1 << 20)
    writer.write("stdout", b"one\ntw")
    writer.write("stderr", b"error\n")
    writer.write("stdout", b"o\nno end")
    writer.close()
    assert b"".join(line.format(False) for line in read_lines(path)) == b"one\nerror\ntwo\nno end"
    assert [line.stream for line in read_lines(path)] == ["stdout", "stderr", "stdout", "stdout"]
    assert [line.text for line in read_lines(path, tail=1)] == [b"no end"]


def test_a_log_is_limited_in_size_and_keeps_the_newest_lines(tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    writer = LogWriter(path, 1000)
    for number in range(200):
        writer.write("stdout", f"line {number}\n".encode())
    writer.close()
    assert path.stat().st_size <= 1000
    assert rotated_path(path).stat().st_size <= 1000
    assert [line.text for line in read_lines(path)][-1] == b"line 199"


def test_an_endless_line_is_split(tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    writer = LogWriter(path, 1 << 20)
    writer.write("stdout", b"x" * 40000 + b"\n")
    writer.close()
    assert b"".join(line.format(False) for line in read_lines(path)) == b"x" * 40000 + b"\n"


def test_since_and_timestamps() -> None:
    line = parse(b"2026-05-01T12:00:00.000000001Z stdout F hello there")
    assert line is not None
    assert line.format(True) == b"2026-05-01T12:00:00.000000001Z hello there\n"
    assert timestamp(1777636800.5) == "2026-05-01T12:00:00.500000000Z"


def test_the_end_of_a_log_becomes_the_termination_message(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "c.log", 1 << 20)
    writer.write("stderr", b"a\nb\nc\n")
    writer.close()
    assert tail_text(tmp_path / "c.log", 2, 100) == "b\nc\n"


def test_times_do_not_decrease_when_the_clock_is_set_back(tmp_path: Path) -> None:
    path = tmp_path / "c.log"
    clock = iter([1000.0, 1001.0, 400.0, 401.0, 1002.0])
    writer = LogWriter(path, 1 << 20, lambda: next(clock))
    writer.write("stdout", b"a\nb\nc\nd\ne\n")
    writer.close()
    assert [line.time[17:19] for line in read_lines(path)] == ["40", "41", "41", "41", "42"]


def test_a_line_truncated_by_a_full_disk_does_not_damage_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "c.log"
    writer = LogWriter(path, 1 << 20)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:45]))
    writer.write("stdout", b"the first line\n")
    monkeypatch.undo()
    writer.write("stdout", b"the second line\n")
    writer.close()
    assert [line.text for line in read_lines(path)][-1] == b"the second line"


def test_times_do_not_decrease_from_one_run_to_the_next(tmp_path: Path) -> None:
    first = LogWriter(tmp_path / "0.log", 1 << 20, lambda: 1000.0)
    first.write("stdout", b"a\n")
    second = LogWriter(tmp_path / "1.log", 1 << 20, lambda: 400.0, earliest=first.latest)
    second.write("stdout", b"b\n")
    times = [line.time for name in ("0.log", "1.log") for line in read_lines(tmp_path / name)]
    assert times == [timestamp(1000.0)] * 2
