"""Keeps the background actions of objects, and their answers for later reconciles.

Background actions are commands in containers (`Exec`) and calls outside of Kubernetes (`Call`). A reconcile
starts them by `BackgroundCalls.update` and never waits for one. An answer is stored under the key of its
action and enqueues the object; it is an input of each reconcile of that object until the first plan without
the key has been recorded, and is then dropped. So nothing is remembered that no plan asks for.

They belong to one term of leadership: when the term ends they are cancelled, and their answers are
forgotten. One is started only while the Lease has time left, like a write (`engine.sender`).
`background_pool` bounds how many run at a time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial

from argosy.engine.objects import Key
from argosy.plan.actions import (
    Action,
    BackgroundAction,
    BackgroundResult,
    Call,
    CallResult,
    Exec,
    ExecResult,
)
from argosy.reconcile.background_pool import BackgroundPool, Submitted

MAX_RUNNING_PER_OBJECT = 16
"""Calls of one object that run, or wait for a slot, at a time; further ones wait until one of them ends."""

MAX_CALLS_PER_OBJECT = 32
"""Calls of one object that are waiting, running or answered. Further ones of its plan are accepted when a
plan has dropped others."""


@dataclass
class _ObjectCalls:
    """The calls of one object, each in exactly one of the three, by key."""

    uid: str
    waiting: dict[str, BackgroundAction] = field(default_factory=dict)
    """Not handed to the pool yet, in the order of the plans."""
    submitted: dict[str, Submitted] = field(default_factory=dict)
    answers: dict[str, BackgroundResult] = field(default_factory=dict)

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

    def exec_results(self, key: Key, uid: str) -> Mapping[str, ExecResult]:
        """Return the answers to commands for the object of this uid, by their keys."""
        answers = self._answers(key, uid).items()
        return {name: answer for name, answer in answers if isinstance(answer, ExecResult)}

    def call_results(self, key: Key, uid: str) -> Mapping[str, CallResult]:
        """Return the answers to calls for the object of this uid, by their keys."""
        answers = self._answers(key, uid).items()
        return {name: answer for name, answer in answers if isinstance(answer, CallResult)}

    def _answers(self, key: Key, uid: str) -> Mapping[str, BackgroundResult]:
        calls = self._objects.get(key)
        return calls.answers if calls is not None and calls.uid == uid else {}

    def update(self, key: Key, uid: str, actions: Iterable[BackgroundAction], *, recorded: bool) -> None:
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

    def _drop(self, calls: _ObjectCalls, wanted: Mapping[str, BackgroundAction]) -> None:
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
            action = calls.waiting.pop(name)
            submitted = Submitted(key.namespace, action, partial(self._on_end, key))
            calls.submitted[name] = submitted
            self._pool.submit(submitted)

    def _on_end(self, key: Key, submitted: Submitted, result: BackgroundResult | None) -> None:
        """Store an answer and enqueue its object, unless the action was dropped before it ended."""
        calls, name = self._objects.get(key), submitted.action.key
        if calls is None or calls.submitted.get(name) is not submitted:
            return
        del calls.submitted[name]
        if result is not None:
            calls.answers[name] = result
            self._enqueue(key)
        self._submit(key, calls)


def background_actions(actions: Iterable[Action]) -> list[BackgroundAction]:
    """Return the actions that run in the background."""
    return [action for action in actions if isinstance(action, Exec | Call)]
