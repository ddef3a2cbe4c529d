"""Runs commands in containers in the background, and keeps their answers for later reconciles.

A reconcile starts calls by `BackgroundCalls.update` and never waits for one. An answer is stored under the
key of its call and enqueues the object; it is an input of each reconcile of that object until the first plan
without the key has been recorded, and is then dropped. So nothing is remembered that no plan asks for.

Calls belong to one term of leadership: when the term ends they are cancelled, and their answers are
forgotten. A call is sent only while the Lease has time left, like a write (`engine.sender`).

`BackgroundPool` bounds the calls that run at a time, over all kinds. Namespaces take turns, and a namespace
may use only as many slots as are free: one alone uses half of them, two use a third each. So commands that
hang in the pods of one tenant leave slots to the others.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from argosy.engine.errors import LeaseExpired
from argosy.engine.logs import Logger
from argosy.engine.metrics import Metrics
from argosy.engine.objects import Key
from argosy.engine.ready_queue import FairReadyQueue
from argosy.kinds.text import MAX_MESSAGE_CHARS, truncate
from argosy.plan.actions import Exec, ExecResult, ExecStatus

log = Logger(__name__)

MAX_RUNNING = 64
"""Calls that run at a time."""

MAX_RUNNING_PER_OBJECT = 16
"""Calls of one object that run, or wait for a slot, at a time; further ones wait until one of them ends."""

MAX_CALLS_PER_OBJECT = 32
"""Calls of one object that are waiting, running or answered. Further ones of its plan are accepted when a
plan has dropped others."""

RunExec = Callable[[str, Exec], Awaitable[ExecResult]]
"""Runs a command in a namespace."""


@dataclass(eq=False)
class _Call:
    """One call, from the plan that asked for it until it has ended."""

    namespace: str
    action: Exec
    on_end: "Callable[[_Call, ExecResult | None], None]"
    """Called with the answer; with None if there is none, because the Lease has expired. Not called for a
    call that was cancelled."""


class BackgroundPool:
    """Runs the calls of all kinds, a bounded number at a time."""

    def __init__(self, run: RunExec, metrics: Metrics | None = None, *, size: int = MAX_RUNNING) -> None:
        self._run_exec = run
        self._size = size
        metrics = metrics or Metrics()
        self._total = metrics.exec_total
        metrics.exec_in_progress.set_function(lambda: len(self._running))
        self._leads = False
        self._waiting: FairReadyQueue[_Call] = FairReadyQueue(lambda call: call.namespace)
        self._running: dict[_Call, asyncio.Task[ExecResult | None]] = {}
        self._running_in: Counter[str] = Counter()
        """Running calls by namespace."""

    def begin_term(self) -> None:
        """Accept calls."""
        self._leads = True

    async def end_term(self) -> None:
        """Cancel all calls, accept no more, and wait until the cancelled ones have ended."""
        self._leads = False
        self._waiting = FairReadyQueue(lambda call: call.namespace)
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def submit(self, call: _Call) -> None:
        """Start the call as soon as there is a slot; never, if this replica does not lead."""
        if self._leads:
            self._waiting.add(call, 0.0, immediate=True)
            self._start_waiting()

    def cancel(self, call: _Call) -> None:
        """End the call without an answer. If it runs, its slot is free when its connection is closed."""
        self._waiting.discard(call)
        if task := self._running.get(call):
            task.cancel()

    def _start_waiting(self) -> None:
        while taken := self._waiting.take(self._can_start):
            call, _ = taken
            task = asyncio.create_task(self._run(call))
            self._running[call] = task
            self._running_in[call.namespace] += 1
            task.add_done_callback(partial(self._ended, call))

    def _can_start(self, namespace: str) -> bool:
        return self._running_in[namespace] < self._size - len(self._running)

    async def _run(self, call: _Call) -> ExecResult | None:
        try:
            return await self._run_exec(call.namespace, call.action)
        except LeaseExpired:
            return None
        except Exception as error:
            log.warning("exec failed", pod=call.action.pod, key=call.action.key, exc_info=error)
            message = truncate(repr(error), MAX_MESSAGE_CHARS)
            return ExecResult(call.action.key, ExecStatus.NOT_REACHABLE, message=message)

    def _ended(self, call: _Call, task: "asyncio.Task[ExecResult | None]") -> None:
        """Count the call, free its slot and pass on its answer. Called also if it never came to run."""
        del self._running[call]
        self._running_in[call.namespace] -= 1
        if not self._running_in[call.namespace]:
            del self._running_in[call.namespace]
        result = None if task.cancelled() else task.result()
        self._total.labels(_metric_label(result)).inc()
        if not task.cancelled():
            call.on_end(call, result)
        self._start_waiting()


def _metric_label(result: ExecResult | None) -> str:
    if result is None:
        return "cancelled"
    if result.status is ExecStatus.DONE and result.exit_code:
        return "non-zero-exit"
    return _METRIC_LABELS[result.status]


_METRIC_LABELS = {
    ExecStatus.DONE: "success",
    ExecStatus.NOT_REACHABLE: "not-reachable",
    ExecStatus.TIMED_OUT: "timed-out",
    ExecStatus.POD_GONE: "pod-gone",
}


@dataclass
class _ObjectCalls:
    """The calls of one object, each in exactly one of the three, by key."""

    uid: str
    waiting: dict[str, Exec] = field(default_factory=dict)
    """Not handed to the pool yet, in the order of the plans."""
    submitted: dict[str, _Call] = field(default_factory=dict)
    answers: dict[str, ExecResult] = field(default_factory=dict)

    def __contains__(self, key: str) -> bool:
        return key in self.waiting or key in self.submitted or key in self.answers

    def __len__(self) -> int:
        return len(self.waiting) + len(self.submitted) + len(self.answers)


class BackgroundCalls:
    """The background calls of the objects of one kind, and their answers."""

    def __init__(self, pool: BackgroundPool) -> None:
        self._pool = pool
        self._objects: dict[Key, _ObjectCalls] = {}
        self._enqueue: Callable[[Key], None] = lambda _key: None

    def on_answer(self, enqueue: Callable[[Key], None]) -> None:
        """Call with the key of each object for which an answer has arrived."""
        self._enqueue = enqueue

    def results(self, key: Key, uid: str) -> Mapping[str, ExecResult]:
        """Return the answers for the object of this uid, by the keys of their calls."""
        calls = self._objects.get(key)
        return dict(calls.answers) if calls is not None and calls.uid == uid else {}

    def update(self, key: Key, uid: str, actions: Iterable[Exec], *, recorded: bool) -> None:
        """Start the calls of a plan that are new; cancel and forget the calls that it does not contain.

        Called with every plan of the object that is executed. If writing its status has been put off, it is
        not `recorded`, and nothing is forgotten yet: the same will be decided again, on the same answers.
        """
        wanted = {action.key: action for action in actions}
        calls = self._objects.get(key)
        if calls is not None and calls.uid != uid:
            self.forget(key)  # another object of this name
            calls = None
        if calls is None:
            if not wanted:
                return
            calls = self._objects[key] = _ObjectCalls(uid)
        if recorded:
            self._drop(calls, wanted)
        for name, action in wanted.items():
            if name not in calls and len(calls) < MAX_CALLS_PER_OBJECT:
                calls.waiting[name] = action
        if calls:
            self._submit(key, calls)
        else:
            del self._objects[key]

    def forget(self, key: Key) -> None:
        """Cancel and forget all calls of an object that was deleted."""
        if (calls := self._objects.pop(key, None)) is not None:
            self._drop(calls, {})

    def clear(self) -> None:
        """Cancel and forget all calls: the term of leadership has ended."""
        for key in list(self._objects):
            self.forget(key)

    def _drop(self, calls: _ObjectCalls, wanted: Mapping[str, Exec]) -> None:
        """Cancel and forget the calls that are not wanted."""
        for name in [name for name in calls.waiting if name not in wanted]:
            del calls.waiting[name]
        for name in [name for name in calls.submitted if name not in wanted]:
            self._pool.cancel(calls.submitted.pop(name))
        for name in [name for name in calls.answers if name not in wanted]:
            del calls.answers[name]

    def _submit(self, key: Key, calls: _ObjectCalls) -> None:
        while calls.waiting and len(calls.submitted) < MAX_RUNNING_PER_OBJECT:
            name = next(iter(calls.waiting))
            call = _Call(
                key.namespace, calls.waiting.pop(name), lambda call, result: self._ended(key, call, result)
            )
            calls.submitted[name] = call
            self._pool.submit(call)

    def _ended(self, key: Key, call: _Call, result: ExecResult | None) -> None:
        """Store an answer and enqueue its object, unless the call was dropped before it ended."""
        calls, name = self._objects.get(key), call.action.key
        if calls is None or calls.submitted.get(name) is not call:
            return
        del calls.submitted[name]
        if result is not None:
            calls.answers[name] = result
            self._enqueue(key)
        self._submit(key, calls)
