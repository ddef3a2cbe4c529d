"""The writer thread: what is handed in while a commit is under way shares the next one.

So the cost of making writes durable is paid once per group, and a lone write waits for nobody. When a commit
fails (a full disk), the thread stops committing until `discard` says that everything handed in so far has
been given up, because later writes may build on the ones that failed.
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
        """Forget rows with the next commit; not worth a commit of their own."""
        with self._wakeup:
            self._dropped.extend(rvs)
            self._marks.update(marks)

    def discard(self) -> None:
        """Give up what was handed in since a commit failed, and go on."""
        with self._wakeup:
            self._rows.clear()
            self._failed = False

    def stop(self) -> None:
        """Commit what is waiting, then end."""
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
        except RuntimeError:  # the loop is gone: nobody waits for the answer any more
            return
