"""Reads a log while it is written and rotated: every line once, in order, none lost between two reads.

`read_existing` reads up to a position that is fixed before the first line is returned; `read_new` continues
from there. A rotated log is read to its end under its new name before the next file is opened.
"""

import os
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from argosy.local.node.logs import LogLine, parse, rotated_path

_READ_BYTES = 1 << 20
_MAX_RECORD_BYTES = 1 << 18


class LogReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = 0
        self._offset = 0
        self._partial = b""

    def read_existing(self, *, tail: int | None = None, since: str = "") -> Iterator[LogLine]:
        """Return the lines logged so far, including rotated ones; `since` has the format of the file."""
        lines = (line for line in self._all() if line.time >= since)
        return iter(deque(lines, maxlen=tail)) if tail is not None else lines

    def read_new(self) -> tuple[list[LogLine], bool]:
        """Return the lines added since the last read, and whether anything was read at all."""
        data = self._read_more()
        whole, _, self._partial = (self._partial + data).rpartition(b"\n")
        lines = [parse(record) for record in whole.split(b"\n")] if whole else []
        return [line for line in lines if line], bool(data)

    def _all(self) -> Iterator[LogLine]:
        try:
            current = self._path.open("rb")
        except FileNotFoundError:
            return
        with current:
            self._inode, self._offset = os.fstat(current.fileno()).st_ino, _end_of_lines(current)
            until = self._offset
            try:
                earlier = rotated_path(self._path).open("rb")
            except FileNotFoundError:
                earlier = None
            if earlier is not None:
                with earlier:
                    # It was just rotated: this is the file that is open already.
                    if os.fstat(earlier.fileno()).st_ino != self._inode:
                        yield from _lines(earlier, _end_of_lines(earlier))
            yield from _lines(current, until)

    def _read_more(self) -> bytes:
        for candidate in (self._path, rotated_path(self._path)):
            try:
                with candidate.open("rb") as file:
                    if os.fstat(file.fileno()).st_ino == self._inode:
                        file.seek(self._offset)
                        data = file.read(_READ_BYTES)
                        if data or candidate == self._path:
                            self._offset += len(data)
                            return data
            except FileNotFoundError:
                continue
        try:
            with self._path.open("rb") as file:
                data = file.read(_READ_BYTES)
                self._inode, self._offset = os.fstat(file.fileno()).st_ino, len(data)
                return data
        except FileNotFoundError:
            return b""


def _lines(file: IO[bytes], end: int) -> Iterator[LogLine]:
    for record in file:
        end -= len(record)
        if end < 0:
            return
        line = parse(record.removesuffix(b"\n"))
        if line:
            yield line


def _end_of_lines(file: IO[bytes]) -> int:
    """Return the end of the last complete line; an incomplete one is read later."""
    size = os.fstat(file.fileno()).st_size
    last = os.pread(file.fileno(), _MAX_RECORD_BYTES, max(0, size - _MAX_RECORD_BYTES))
    return size - len(last) + last.rfind(b"\n") + 1
