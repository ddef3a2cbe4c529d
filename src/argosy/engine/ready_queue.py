"""Orders the keys that are ready: immediate ones before deferred ones, and namespaces in turn.

A key added without delay usually needs an action: a new object, or one that lost a child. A key whose delay
has passed mostly has a status to write. When more keys are ready than workers are free, immediate keys go
first. One of every eight keys is a deferred one, so that none waits for ever. Each class is first in, first
out.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

MAX_IMMEDIATE_RUN = 7
"""Immediate keys that are taken in a row while a deferred key waits."""


class ReadyQueue(Generic[K]):
    """The ready keys of one namespace."""

    def __init__(self) -> None:
        self._immediate: dict[K, float] = {}
        self._deferred: dict[K, float] = {}
        """When each key became ready, oldest first."""
        self._immediate_run = 0

    def __len__(self) -> int:
        return len(self._immediate) + len(self._deferred)

    def __contains__(self, key: K) -> bool:
        return key in self._immediate or key in self._deferred

    @property
    def oldest(self) -> float | None:
        """When the first immediate or the first deferred key became ready, whichever is earlier."""
        heads = [next(iter(keys.values())) for keys in (self._immediate, self._deferred) if keys]
        return min(heads, default=None)

    def add(self, key: K, now: float, *, immediate: bool) -> None:
        """Add a key. A deferred key that is added as immediate moves up and keeps its time."""
        if immediate and key not in self._immediate:
            self._immediate[key] = self._deferred.pop(key, now)
        elif not immediate and key not in self:
            self._deferred[key] = now

    def take(self) -> tuple[K, float]:
        """Remove and return the next key, and when it became ready."""
        both = bool(self._immediate and self._deferred)
        take_deferred = not self._immediate or (both and self._immediate_run >= MAX_IMMEDIATE_RUN)
        self._immediate_run = self._immediate_run + 1 if both and not take_deferred else 0
        keys = self._deferred if take_deferred else self._immediate
        key = next(iter(keys))
        return key, keys.pop(key)

    def discard(self, key: K) -> None:
        self._immediate.pop(key, None)
        self._deferred.pop(key, None)


class FairReadyQueue(Generic[K]):
    """The ready keys of all namespaces; namespaces are served in turn."""

    def __init__(self, bucket: Callable[[K], str]) -> None:
        self._bucket = bucket
        self._queues: OrderedDict[str, ReadyQueue[K]] = OrderedDict()
        """By namespace, the next in turn first. No queue is empty."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        queue = self._queues.get(self._bucket(key))
        return queue is not None and key in queue

    @property
    def oldest(self) -> float | None:
        """When the key that has waited longest became ready."""
        times = (queue.oldest for queue in self._queues.values())
        return min((time for time in times if time is not None), default=None)

    def add(self, key: K, now: float, *, immediate: bool) -> None:
        bucket = self._bucket(key)
        queue = self._queues.get(bucket)
        if queue is None:
            queue = self._queues[bucket] = ReadyQueue()
        before = len(queue)
        queue.add(key, now, immediate=immediate)
        self._size += len(queue) - before

    def take(self, can_start: Callable[[str], bool]) -> tuple[K, float] | None:
        """Remove and return the next key of the next namespace that `can_start` one, and its ready time."""
        for bucket, queue in self._queues.items():
            if can_start(bucket):
                taken = queue.take()
                self._size -= 1
                if queue:
                    self._queues.move_to_end(bucket)
                else:
                    del self._queues[bucket]
                return taken
        return None

    def discard(self, key: K) -> None:
        bucket = self._bucket(key)
        queue = self._queues.get(bucket)
        if queue is None:
            return
        before = len(queue)
        queue.discard(key)
        self._size += len(queue) - before
        if not queue:
            del self._queues[bucket]
