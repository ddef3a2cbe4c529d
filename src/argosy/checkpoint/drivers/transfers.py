"""Runs transfers of chunks in parallel with a bounded number under way, and so with bounded memory."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

WORKERS: Final = 8
"""Transfers at a time; each holds a chunk, and its compressed form."""


class Transfers:
    """A pool for the duration of a `with` block, which ends when all transfers have ended.

    The first error ends the rest: `submit` and the end of the block raise it.
    """

    def __init__(self, workers: int = WORKERS) -> None:
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="argosy-checkpoint")
        self._free = threading.BoundedSemaphore(workers * 2)
        self._error: BaseException | None = None

    def submit(self, transfer: Callable[[], object]) -> None:
        """Start a transfer, when one of those under way has ended."""
        self._free.acquire()
        if self._error is not None:
            self._free.release()
            raise self._error
        self._pool.submit(self._run, transfer).add_done_callback(self._finish)

    def _run(self, transfer: Callable[[], object]) -> None:
        if self._error is None:
            transfer()

    def _finish(self, future: Future[None]) -> None:
        self._error = self._error or future.exception()
        self._free.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._error = self._error or error
        self._pool.shutdown(wait=True)
        if error is None and self._error is not None:
            raise self._error
