"""Bounds what runs in the background at a time, over all kinds.

Commands in containers share one lane; the calls of each driver have one of their own, so that a cloud that
does not answer holds up nothing else. In a lane namespaces take turns, and a namespace may use only as many
slots as are free: one alone uses half of them, two use a third each. So commands that hang in the pods of one
tenant leave slots to the others.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from argosy.engine.errors import LeaseExpired
from argosy.engine.logs import Logger
from argosy.engine.metrics import Metrics
from argosy.engine.ready_queue import FairReadyQueue
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import (
    BackgroundAction,
    BackgroundResult,
    Call,
    CallResult,
    CallStatus,
    Exec,
    ExecResult,
    ExecStatus,
)

log = Logger(__name__)

MAX_RUNNING = 64
"""Actions of one lane that run at a time."""

EXEC_LANE = ""
"""The lane of commands in containers; the others are named after their driver."""

RunExec = Callable[[str, Exec], Awaitable[ExecResult]]
"""Runs a command in a namespace."""

RunCall = Callable[[str, Call], Awaitable[CallResult]]
"""Makes a call for an object of a namespace."""


@dataclass(eq=False)
class Submitted:
    """One action, from the plan that asked for it until it has ended."""

    namespace: str
    action: BackgroundAction
    on_end: "Callable[[Submitted, BackgroundResult | None], None]"
    """Called with the answer; with None if there is none, because the Lease has expired. Not called for one
    that was cancelled."""


class BackgroundPool:
    """Runs the background actions of all kinds, a bounded number at a time."""

    def __init__(
        self,
        run_exec: RunExec,
        metrics: Metrics | None = None,
        *,
        run_call: RunCall | None = None,
        size: int = MAX_RUNNING,
    ) -> None:
        self._run_exec = run_exec
        self._run_call = run_call
        self._size = size
        self._metrics = metrics or Metrics()
        self._metrics.exec_in_progress.set_function(lambda: self._count_running(commands=True))
        self._metrics.calls_in_progress.set_function(lambda: self._count_running(commands=False))
        self._leads = False
        self._lanes: dict[str, _Lane] = {}

    def begin_term(self) -> None:
        """Accept actions."""
        self._leads = True

    async def end_term(self) -> None:
        """Cancel all actions, accept no more, and wait until the cancelled ones have ended."""
        self._leads = False
        await asyncio.gather(*(lane.clear() for lane in self._lanes.values()))

    def submit(self, submitted: Submitted) -> None:
        """Start the action as soon as there is a slot; never, if this replica does not lead."""
        if self._leads:
            self._lane(submitted.action).add(submitted)

    def cancel(self, submitted: Submitted) -> None:
        """End the action without an answer. If it runs, its slot is free when its connection is closed."""
        self._lane(submitted.action).cancel(submitted)

    def _lane(self, action: BackgroundAction) -> "_Lane":
        name = action.driver if isinstance(action, Call) else EXEC_LANE
        if name not in self._lanes:
            self._lanes[name] = _Lane(self._run, self._count, self._size)
        return self._lanes[name]

    def _count_running(self, *, commands: bool) -> int:
        return sum(len(lane.running) for name, lane in self._lanes.items() if (name == EXEC_LANE) is commands)

    async def _run(self, namespace: str, action: BackgroundAction) -> BackgroundResult | None:
        try:
            if isinstance(action, Exec):
                return await self._run_exec(namespace, action)
            if self._run_call is not None:
                return await self._run_call(namespace, action)
            return CallResult(action.key, CallStatus.UNAVAILABLE, message="calls are not possible here")
        except LeaseExpired:
            return None
        except Exception as error:
            message = truncate(repr(error), MAX_MESSAGE_CHARS)
            if isinstance(action, Exec):
                log.warning("exec failed", pod=action.pod, key=action.key, exc_info=error)
                return ExecResult(action.key, ExecStatus.NOT_REACHABLE, message=message)
            log.warning("call failed", driver=action.driver, key=action.key, exc_info=error)
            return CallResult(action.key, CallStatus.UNAVAILABLE, message=message)

    def _count(self, action: BackgroundAction, result: BackgroundResult | None) -> None:
        label = _metric_label(result)
        if isinstance(action, Call):
            self._metrics.calls_total.labels(action.driver, label).inc()
        else:
            self._metrics.exec_total.labels(label).inc()


class _Lane:
    """Runs actions that share a number of slots."""

    def __init__(
        self,
        run: Callable[[str, BackgroundAction], Awaitable[BackgroundResult | None]],
        count: Callable[[BackgroundAction, BackgroundResult | None], None],
        size: int,
    ) -> None:
        self._run_action = run
        self._count = count
        self._size = size
        self._waiting = _queue()
        self.running: dict[Submitted, asyncio.Task[BackgroundResult | None]] = {}
        self._running_in: Counter[str] = Counter()
        """Running actions by namespace."""

    def add(self, submitted: Submitted) -> None:
        self._waiting.add(submitted, 0.0, immediate=True)
        self._start_waiting()

    def cancel(self, submitted: Submitted) -> None:
        self._waiting.discard(submitted)
        if task := self.running.get(submitted):
            task.cancel()

    async def clear(self) -> None:
        """Drop what waits, cancel what runs, and wait until that has ended."""
        self._waiting = _queue()
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_waiting(self) -> None:
        while taken := self._waiting.take(self._can_start):
            submitted, _ = taken
            task = asyncio.create_task(self._run(submitted))
            self.running[submitted] = task
            self._running_in[submitted.namespace] += 1
            task.add_done_callback(partial(self._on_end, submitted))

    def _can_start(self, namespace: str) -> bool:
        return self._running_in[namespace] < self._size - len(self.running)

    async def _run(self, submitted: Submitted) -> BackgroundResult | None:
        return await self._run_action(submitted.namespace, submitted.action)

    def _on_end(self, submitted: Submitted, task: "asyncio.Task[BackgroundResult | None]") -> None:
        """Count the action, free its slot and pass on its answer. Called also if it never came to run."""
        del self.running[submitted]
        self._running_in[submitted.namespace] -= 1
        if not self._running_in[submitted.namespace]:
            del self._running_in[submitted.namespace]
        result = None if task.cancelled() else task.result()
        self._count(submitted.action, result)
        if not task.cancelled():
            submitted.on_end(submitted, result)
        self._start_waiting()


def _queue() -> FairReadyQueue[Submitted]:
    return FairReadyQueue(lambda submitted: submitted.namespace)


def _metric_label(result: BackgroundResult | None) -> str:
    if result is None:
        return "cancelled"
    if isinstance(result, ExecResult) and result.status is ExecStatus.DONE and result.exit_code:
        return "non-zero-exit"
    return _METRIC_LABELS[result.status]


_METRIC_LABELS: dict[ExecStatus | CallStatus, str] = {
    ExecStatus.DONE: "success",
    ExecStatus.NOT_REACHABLE: "not-reachable",
    ExecStatus.TIMED_OUT: "timed-out",
    ExecStatus.POD_GONE: "pod-gone",
    CallStatus.DONE: "success",
    CallStatus.REFUSED: "refused",
    CallStatus.UNAVAILABLE: "unavailable",
    CallStatus.NO_CREDENTIALS: "no-credentials",
}
