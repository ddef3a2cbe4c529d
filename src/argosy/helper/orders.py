"""Delivers orders to save a checkpoint to the programs of a pod, and acknowledges complete checkpoints.

Runs as a sidecar. One thread asks the operator, which answers at the next order, and replaces `orders.json`.
Another one looks for complete checkpoints in the folder, acknowledges the newest one and deletes old ones.
Whatever fails is tried again; only SIGTERM ends it, after a last look: the program may have saved just
before.

In a folder that all pods share every sidecar sees each checkpoint. That of replica 0 of a role acknowledges
it at once, the others a while later, when the operator knows it already and writes nothing.
"""

import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

from argosy.helper.checkpoint_folder import Checkpoint, CheckpointFolder, read_checkpoint
from argosy.helper.endpoint import Endpoint
from argosy.helper.errors import RejectedError
from argosy.helper.files import replace_file
from argosy.helper.steps import StepReporter
from argosy_sdk import surplus

POLL_SECONDS = 30
REJECTED_SECONDS = 30.0
RETRY_SECONDS = 1.0
"""Seconds until a failed acknowledgement is repeated; doubled up to MAX_RETRY_SECONDS."""
MAX_RETRY_SECONDS = 8.0
ACK_TIMEOUT_SECONDS = 15.0
LOOK_SECONDS = 1.0
"""Seconds between two looks into the folder, while no order is open."""
ORDERED_LOOK_SECONDS = 0.1
OTHERS_ACK_SECONDS = (2.0, 5.0)
"""Seconds, drawn between these, after which a replica other than 0 acknowledges."""
MAX_LISTED = 8
"""Old checkpoints that the program is asked to delete at a time, while training waits."""
MANY_LEFT = 3
"""So many old checkpoints mean that the program does not delete them."""


class Store(Protocol):
    """What becomes of a complete checkpoint before it is acknowledged."""

    def publish(self, checkpoint: Checkpoint) -> Checkpoint | None:
        """Return the checkpoint as it is stored; None while parts of other pods are missing.

        Raises OSError if it could not be stored.
        """
        ...

    def prune(self) -> None:
        """Delete what need not be kept in the store."""
        ...


class Settings(NamedTuple):
    """What the renderer passes to the sidecar."""

    folder: Path
    orders: Path
    keep_last: int
    pod: str
    uid: str
    role: str
    replica: int
    is_shared: bool
    may_signal: bool
    resume: Path
    step_file: Path | None = None
    """Where the program writes its step; None: this pod does not report it."""
    attempt: str = ""
    replacement: str = ""
    """Which pod of the replica it is; empty for copies of one program."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Settings":
        step_file = environ.get("ARGOSY_STEP_FILE")
        return cls(
            folder=Path(environ["ARGOSY_CHECKPOINT_DIR"]),
            orders=Path(environ["ARGOSY_ORDERS"]),
            keep_last=int(environ["ARGOSY_KEEP_LAST"]),
            pod=environ["ARGOSY_POD_NAME"],
            uid=environ["ARGOSY_POD_UID"],
            role=environ["ARGOSY_ROLE"],
            replica=int(environ["ARGOSY_INDEX"]),
            is_shared=environ.get("ARGOSY_CHECKPOINT_SHARED", "1") != "0",
            may_signal=environ.get("ARGOSY_SHARED_PROCESSES", "0") == "1",
            resume=Path(environ["ARGOSY_RESUME_FROM"]),
            step_file=Path(step_file) if step_file and environ["ARGOSY_INDEX"] == "0" else None,
            attempt=environ.get("ARGOSY_ATTEMPT", ""),
            replacement=environ.get("ARGOSY_REPLACEMENT", ""),
        )

    @property
    def own_pod(self) -> Mapping[str, object]:
        """The fields by which a report names its pod."""
        return {"pod": self.pod, "uid": self.uid}


def keep_current(endpoint: Endpoint, settings: Settings, store: Store | None = None) -> NoReturn:
    """Deliver orders, acknowledge checkpoints and report steps until SIGTERM.

    Steps do not wait for checkpoints: sending one may take minutes, and longer while the store is down.
    """
    wake, woken, stopped = threading.Event(), threading.Event(), threading.Event()

    def stop(*_: object) -> None:
        for event in (stopped, wake, woken):
            event.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    listener = OrderListener(endpoint, settings, wake)
    threading.Thread(target=listener.run, name="orders", daemon=True).start()
    reports = _Reports(endpoint)
    looks = _Looks(CheckpointWatcher(reports, settings, store), listener, wake, woken)
    looks.start()
    steps = StepReporter(reports, settings.step_file, settings.own_pod)
    while not stopped.is_set() and looks.is_alive():
        steps.look()
        woken.wait(LOOK_SECONDS)
        woken.clear()
    steps.look(is_last=True)
    # Exit code 0: kubectl shows another one of a sidecar as the state of a pod that succeeded.
    sys.exit(0 if looks.end() else 1)


class _Reports(Endpoint):
    """Sends one report at a time: the operator rejects a second one while it writes the pod."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()

    def post_json(self, path: str, body: Mapping[str, object], timeout: float) -> str:
        with self._lock:
            return self._endpoint.post_json(path, body, timeout)


class _Looks(threading.Thread):
    """Looks for checkpoints until it is ended, and then a last time."""

    def __init__(
        self,
        watcher: "CheckpointWatcher",
        listener: "OrderListener",
        wake: threading.Event,
        woken: threading.Event,
    ) -> None:
        super().__init__(name="checkpoints", daemon=True)
        self._watcher = watcher
        self._listener = listener
        self._wake = wake
        self._woken = woken
        """Set before each look, for those who look at something else then."""
        self._ends = False
        self._has_succeeded = False

    def run(self) -> None:
        while not self._ends:
            self._watcher.look()
            self._wake.wait(
                ORDERED_LOOK_SECONDS if self._listener.is_ordered(self._watcher.epoch) else LOOK_SECONDS
            )
            self._wake.clear()
            self._woken.set()
        self._watcher.look(is_last=True)
        self._has_succeeded = True

    def end(self) -> bool:
        """Wait for the last look; return False if there was an error, which is printed."""
        self._ends = True
        self._wake.set()
        self.join()
        return self._has_succeeded


class OrderListener:
    """Asks the operator for orders and writes them for the programs."""

    def __init__(self, endpoint: Endpoint, settings: Settings, wake: threading.Event) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._wake = wake
        """Set for each new order."""
        self._order: Mapping[str, object] = _last_order(settings.orders)

    def is_ordered(self, answered: int) -> bool:
        """Return True if there is an order that no checkpoint up to this one answers."""
        epoch = self._order.get("epoch")
        return self._order.get("action") == "Save" and isinstance(epoch, int) and epoch > answered

    def run(self) -> None:
        while True:
            started = time.monotonic()
            try:
                is_new = self.run_once()
            except RejectedError as error:
                _print(f"the operator rejects the request: {error}")
                time.sleep(REJECTED_SECONDS)
                continue
            except OSError as error:
                _print(f"order not written: {error}")
                is_new = False
            if not is_new:
                # A replica that is stopping, or whose cache lags, answers at once and perhaps again.
                time.sleep(max(started + RETRY_SECONDS - time.monotonic(), 0.0))

    def run_once(self) -> bool:
        """Wait for a newer order and write it; return False if there was none for some time.

        Another notice may ask this pod to stop after an order that it has seen. Nothing takes that back: a
        replica whose cache lags shows how it was before.
        """
        seen = self._order.get("epoch")
        query = {
            "wait": f"{POLL_SECONDS}s",
            "role": self._settings.role,
            "index": str(self._settings.replica),
            "attempt": self._settings.attempt,
            "replacement": self._settings.replacement,
            "seen": "" if seen is None else str(seen),
        }
        if seen is not None:
            query["stop"] = str(int(_stops(self._order)))
        order = self._endpoint.get("orders", query, None, read_order)
        is_known = isinstance(seen, int) and _epoch(order) <= seen
        if is_known and not (_epoch(order) == seen and _stops(order) and not _stops(self._order)):
            return False
        replace_file(self._settings.orders, json.dumps(order).encode(), 0o644)
        self._order = order
        self._wake.set()
        if is_known:
            print(f"argosy: this pod ends too once order {_epoch(order)} is answered", flush=True)
        elif order.get("action") == "Save":
            print(f"argosy: order {_epoch(order)} to save a checkpoint ({order.get('reason')})", flush=True)
            self._signal_programs()
        return True

    def _signal_programs(self) -> None:
        """Send SIGUSR1 to the programs that have asked for it, if the pod's processes can be seen."""
        if not self._settings.may_signal:
            return
        folder = self._settings.orders.parent / "pids"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        for pid in (int(name) for name in names if name.isascii() and name.isdecimal()):
            if pid > 1 and pid != os.getpid():
                with suppress(OSError):
                    os.kill(pid, signal.SIGUSR1)


class CheckpointWatcher:
    """Finds complete checkpoints, acknowledges the newest one and deletes old ones."""

    def __init__(self, endpoint: Endpoint, settings: Settings, store: Store | None = None) -> None:
        self._endpoint = endpoint
        self._settings = settings
        self._store = store
        self.epoch = 0
        """Of the last checkpoint that was found: the order that it answers."""
        self._acknowledged = ""
        """Digest of the last checkpoint that was acknowledged."""
        self._pending: Checkpoint | None = None
        self._due = 0.0
        self._retry_seconds = RETRY_SECONDS
        self._published: tuple[str, Checkpoint | None] | None = None
        """Digest of the last checkpoint that was published, and what the store made of it."""
        self._folder = CheckpointFolder(settings.folder)
        self._resumed = read_checkpoint(settings.resume) if settings.replica == 0 else None
        self._problem = ""
        self._left = 0
        """Number of old checkpoints that only the program may delete."""
        self._listed: list[dict[str, object]] | None = None

    def look(self, *, is_last: bool = False) -> None:
        """Acknowledge the newest checkpoint, if that has not been done and is due; at the end it is."""
        now = time.monotonic()
        if self._resumed is not None and (now >= self._due or is_last):
            self._report_resumed(self._resumed)
        newest = next(iter(self._folder.find()), None)
        known = {self._acknowledged, self._pending.digest if self._pending else ""}
        if newest is not None and newest.digest not in known:
            self.epoch = max(self.epoch, newest.epoch)
            self._pending, self._due = newest, now + self._delay()
        if self._pending is not None and (now >= self._due or is_last):
            self._acknowledge(self._pending)

    def _delay(self) -> float:
        if not self._settings.is_shared or self._settings.replica == 0:
            return 0.0
        return random.uniform(*OTHERS_ACK_SECONDS)  # noqa: S311 - spreads requests, guards nothing

    def _acknowledge(self, checkpoint: Checkpoint) -> None:
        """Publish a checkpoint if there is a store to publish to, acknowledge it, and delete older ones."""
        try:
            if self._published is None or self._published[0] != checkpoint.digest:
                stored = self._store.publish(checkpoint) if self._store else checkpoint
                self._published = (checkpoint.digest, stored)
        except OSError as error:
            self._fail(f"checkpoint of step {checkpoint.step} not stored: {error}")
            self._prune(1)  # Or the pod's own folder would grow until its node evicts it.
            return
        _, stored = self._published
        # Without the files of other pods it is not complete: the last one of them acknowledges it.
        if stored is not None and not self._post("checkpoints/ack", stored.as_ack()):
            return
        self._acknowledged, self._pending = checkpoint.digest, None
        self._prune(self._settings.keep_last if self._store is None else 1)
        if stored is not None and self._store is not None:
            self._store.prune()

    def _prune(self, keep_last: int) -> None:
        """Delete old checkpoints; those that only the program may delete are listed for `argosy_sdk`."""
        left = self._folder.prune(keep_last)
        if len(left) >= MANY_LEFT > self._left:
            _print(f"{len(left)} old checkpoints belong to another user; the program must delete them")
        self._left = len(left)
        listed = [{"step": each.step, "digest": each.digest} for each in left[-MAX_LISTED:]]
        if listed == self._listed:
            return
        try:
            path = self._settings.orders.with_name(surplus.FILE_NAME)
            replace_file(path, json.dumps(listed).encode(), 0o644)
        except OSError as error:
            _print(f"old checkpoints not listed: {error}")
        else:
            self._listed = listed

    def _report_resumed(self, checkpoint: Checkpoint) -> None:
        if self._post("checkpoints/resumed", checkpoint.as_ack()):
            self._resumed = None

    def _post(self, path: str, fields: Mapping[str, object]) -> bool:
        body = {**self._settings.own_pod, **fields}
        problem = self._endpoint.post_json(path, body, ACK_TIMEOUT_SECONDS)
        if not problem:
            self._retry_seconds, self._problem = RETRY_SECONDS, ""
            return True
        self._fail(f"checkpoint of step {fields['step']} not acknowledged: {problem}")
        return False

    def _fail(self, problem: str) -> None:
        """Print a problem once, and try again later."""
        if problem != self._problem:
            _print(f"{problem}; trying again")
        self._problem, self._due = problem, time.monotonic() + self._retry_seconds
        self._retry_seconds = min(self._retry_seconds * 2, MAX_RETRY_SECONDS)


def read_order(body: bytes) -> dict[str, object] | None:
    """Return the operator's answer; None if it is not one."""
    try:
        order = json.loads(body)
        return order if order["version"] == 1 and int(order["epoch"]) >= 0 and "action" in order else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _last_order(file: Path) -> dict[str, object]:
    """Return the order that this sidecar has written before it was restarted; empty if there is none."""
    try:
        return read_order(file.read_bytes()) or {}
    except OSError:
        return {}


def _epoch(order: Mapping[str, object]) -> int:
    epoch = order["epoch"]
    return epoch if isinstance(epoch, int) else 0


def _stops(order: Mapping[str, object]) -> bool:
    """Return True if the pod ends once it has answered this order."""
    return order.get("action") == "Save" and order.get("stop") is True


def _print(text: str) -> None:
    print(f"argosy: {text}", file=sys.stderr, flush=True)
