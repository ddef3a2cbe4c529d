"""A small event loop for the shim: file descriptors, timers and child processes in one thread.

asyncio would cost every pod several megabytes and its import time. A callback that raises ends the loop, and
the shim with it; the pod's state file then shows its last state.
"""

import heapq
import os
import selectors
import signal
import time
from collections.abc import Callable


class Timer:
    """A scheduled callback, which can be cancelled."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class EventLoop:
    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._children: dict[int, Callable[[int], None]] = {}
        self._running = True
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.on_readable(reader, lambda: self._on_signal(reader))

    def on_readable(self, descriptor: int, callback: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def remove_reader(self, descriptor: int) -> None:
        self._selector.unregister(descriptor)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(callback)
        self._sequence += 1
        heapq.heappush(self._timers, (time.monotonic() + max(0.0, seconds), self._sequence, timer))
        return timer

    def on_exit(self, pid: int, callback: Callable[[int], None]) -> None:
        """Call back once with the wait status of a child."""
        self._children[pid] = callback

    def stop(self) -> None:
        self._running = False

    def run(self) -> None:
        self._reap()
        while self._running:
            for key, _ in self._selector.select(self._timeout()):
                key.data()
            self._run_timers()

    def _timeout(self) -> float | None:
        return max(0.0, self._timers[0][0] - time.monotonic()) if self._timers else None

    def _run_timers(self) -> None:
        now = time.monotonic()
        while self._running and self._timers and self._timers[0][0] <= now:
            callback = heapq.heappop(self._timers)[2].callback
            if callback:
                callback()

    def _on_signal(self, reader: int) -> None:
        try:
            os.read(reader, 4096)
        except BlockingIOError:
            pass
        self._reap()

    def _reap(self) -> None:
        """Reap every dead child, including adopted orphans."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            callback = self._children.pop(pid, None)
            if callback:
                callback(status)
