"""Orders to save a checkpoint: reads orders.json, and watches it for `on_notice`.

The file is replaced in one step, so it is read whole. What cannot be read counts as no order: training never
ends because of it.
"""

import atexit
import json
import os
import signal
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

_WATCH_SECONDS = 0.2
_MAX_BYTES = 64 * 1024


class Order(NamedTuple):
    """An order to save a checkpoint."""

    epoch: int
    """Its number within the job, which only grows."""
    reason: str
    """Why, for example `Preempted`, `Maintenance` or `Suspended`."""
    by: Optional[datetime]
    """When the checkpoint must be complete; None if there is no deadline."""
    stop: bool
    """Whether the pod is ended afterwards. Do not exit by yourself: that would count as success.

    It may become true while the order is open, or after it was answered (`should_stop`).
    """


def read_order(path: Path) -> Optional[Order]:
    """Return the order to save in a file; None if there is none or it cannot be read."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        if content["version"] != 1 or content["action"] != "Save":
            return None
        return Order(
            int(content["epoch"]),
            str(content.get("reason") or ""),
            _time(content.get("by")),
            content.get("stop") is True,
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _time(text: Optional[str]) -> Optional[datetime]:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


class Watcher:
    """Calls a function for each new order, from a thread that a SIGUSR1 wakes.

    The process is registered in the folder `pids` next to orders.json, after its signal handler is in place:
    SIGUSR1 ends a process without one. Callbacks run in the thread, never within the handler.
    """

    def __init__(self, path: Path, callback: Callable[[Order], None], epoch: int) -> None:
        self._path = path
        self._callback = callback
        self._epoch = epoch
        self._wake = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="argosy-orders", daemon=True).start()
        if threading.current_thread() is threading.main_thread():
            self._register()

    def _watch(self) -> None:
        while True:
            order = read_order(self._path)
            if order is not None and order.epoch > self._epoch:
                self._epoch = order.epoch
                self._callback(order)
            self._wake.wait(_WATCH_SECONDS)
            self._wake.clear()

    def _register(self) -> None:
        before = signal.getsignal(signal.SIGUSR1)

        def handle(number: int, frame: Any) -> None:
            self._wake.set()
            if callable(before):
                before(number, frame)

        signal.signal(signal.SIGUSR1, handle)
        pid = self._path.parent / "pids" / str(os.getpid())
        try:
            pid.parent.mkdir(parents=True, exist_ok=True)
            pid.touch()
        except OSError:
            return  # The thread sees the file anyway.
        atexit.register(_remove, pid, os.getpid())


def _remove(path: Path, owner: int) -> None:
    if os.getpid() == owner:
        try:
            path.unlink()
        except OSError:
            pass
