"""Group commit: a thread commits all rows that were added during the previous commit together.

So the cost of durability is paid once per group, and a single write is committed immediately. When a commit
fails (disk full), the thread stops until `discard` drops the rows added so far, because later writes may be
based on failed ones.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence

from argosy.local.apiserver.wal import Log, Row


class Writer:
    def __init__(
        self,
        log: Log,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[Sequence[Row], Exception | None], None],
    ) -> None:
        self._log, self._loop, self._done = log, loop, done
        self._rows: list[Row] = []
        self._dropped: list[int] = []
        self._marks: dict[str, int] = {}
        self._wakeup = threading.Condition()
        self._failed = self._stopping = False
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def add(self, rows: Sequence[Row]) -> None:
        with self._wakeup:
            self._rows.extend(rows)
            self._wakeup.notify()

    def drop(self, rvs: Sequence[int], marks: dict[str, int]) -> None:
        """Delete rows together with the next commit."""
        with self._wakeup:
            self._dropped.extend(rvs)
            self._marks.update(marks)

    def discard(self) -> None:
        """Drop the rows that were added since a commit failed, and continue."""
        with self._wakeup:
            self._rows.clear()
            self._failed = False

    def stop(self) -> None:
        """Commit the rows that were added, then end the thread."""
        with self._wakeup:
            self._stopping = True
            self._wakeup.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wakeup:
                while not self._stopping and (self._failed or not self._rows):
                    self._wakeup.wait()
                if self._stopping and (self._failed or not (self._rows or self._dropped)):
                    return
                rows, dropped, marks = self._rows, self._dropped, self._marks
                self._rows, self._dropped, self._marks = [], [], {}
            self._commit(rows, dropped, marks)

    def _commit(self, rows: list[Row], dropped: list[int], marks: dict[str, int]) -> None:
        error: Exception | None = None
        try:
            self._log.commit(rows, dropped, list(marks.items()))
        except Exception as failure:
            error = failure
            with self._wakeup:
                self._failed = True
        try:
            self._loop.call_soon_threadsafe(self._done, rows, error)
        except RuntimeError:  # the event loop is closed
            return
