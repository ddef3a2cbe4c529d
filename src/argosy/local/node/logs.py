"""Container logs: the shim writes lines with time and stream, the agent reads them.

A line is `<RFC 3339 time> <stdout|stderr> <F|P> <text>`, as container runtimes write it; P marks a part of a
line that was too long or was cut off at the end. A log that reaches its size limit is renamed to `<file>.1`,
so a container uses at most twice the limit. Times never go back within a container's logs even if the clock
does, because clients continue after the last time they read. Standard library only.
"""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

_MAX_LINE_BYTES: Final = 16384


class LogWriter:
    def __init__(
        self, path: Path, limit: int, clock: Callable[[], float] = time.time, earliest: float = 0.0
    ) -> None:
        self.latest = earliest
        """The time of the last line; no later line carries an earlier one."""
        self._path = path
        self._limit = limit
        self._clock = clock
        self._torn = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._open()
        self._pending = {"stdout": b"", "stderr": b""}

    def write(self, stream: str, data: bytes) -> None:
        """Write the complete lines of what was read from a pipe; keep the rest until its line ends."""
        lines = (self._pending[stream] + data).split(b"\n")
        partial_line = lines.pop()
        records = [self._record(stream, b"F", line) for line in lines]
        while len(partial_line) > _MAX_LINE_BYTES:
            records.append(self._record(stream, b"P", partial_line[:_MAX_LINE_BYTES]))
            partial_line = partial_line[_MAX_LINE_BYTES:]
        self._pending[stream] = partial_line
        if records:
            self._put(b"".join(records))

    def close(self) -> None:
        for stream, partial_line in self._pending.items():
            if partial_line:
                self._put(self._record(stream, b"P", partial_line))
        os.close(self._descriptor)

    def _put(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._limit:
            os.close(self._descriptor)
            self._path.rename(rotated_path(self._path))
            self._open()
        if self._torn:
            data = b"\n" + data
        try:
            written = os.write(self._descriptor, data)
        except OSError:  # a full disk loses log lines, not the pod
            return
        self._size += written
        self._torn = written < len(data)

    def _record(self, stream: str, tag: bytes, text: bytes) -> bytes:
        self.latest = max(self.latest, self._clock())
        return b"%s %s %s %s\n" % (timestamp(self.latest).encode(), stream.encode(), tag, text)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size


class LogLine(NamedTuple):
    time: str
    stream: str
    whole: bool
    text: bytes

    def format(self, timestamps: bool) -> bytes:
        prefix = f"{self.time} ".encode() if timestamps else b""
        return prefix + self.text + (b"\n" if self.whole else b"")


def rotated_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def log_path(folder: Path, container: str, run: int) -> Path:
    """Return the path of the log of a run of a container; runs are counted from 0."""
    return folder / "logs" / container / f"{run}.log"


def parse(record: bytes) -> LogLine | None:
    parts = record.split(b" ", 3)
    if len(parts) < 4:
        return None
    return LogLine(parts[0].decode(), parts[1].decode(), parts[2] == b"F", parts[3])


def read_lines(path: Path, *, tail: int | None = None, since: str = "") -> Iterator[LogLine]:
    """Return the lines logged so far, including rotated ones; `since` has the format of the file."""
    lines: Iterator[LogLine] = (line for line in _all_lines(path) if line.time >= since)
    return iter(deque(lines, maxlen=tail)) if tail is not None else lines


def timestamp(seconds: float) -> str:
    whole = int(seconds)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{int((seconds - whole) * 1e9):09d}Z"


def tail_text(path: Path, lines: int, limit: int) -> str:
    """Return the end of a log as text, for a termination message from the logs."""
    text = b"".join(line.format(False) for line in read_lines(path, tail=lines))
    return text[-limit:].decode(errors="replace")


def _all_lines(path: Path) -> Iterator[LogLine]:
    for file in (rotated_path(path), path):
        try:
            with file.open("rb") as stream:
                for record in stream:
                    line = parse(record.removesuffix(b"\n"))
                    if line and record.endswith(b"\n"):
                        yield line
        except FileNotFoundError:
            continue
