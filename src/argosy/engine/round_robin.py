"""Serves namespaces in turn wherever tenants share something: workers, writes, memory, events.

Items are put into buckets, one per namespace; cluster-scoped items share the bucket "". Buckets take turns,
and each bucket is first in, first out. A tenant that adds a thousand items delays another tenant by one turn,
not by a thousand.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """One queue per bucket; buckets are served in turn."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, deque[T]] = OrderedDict()
        """The next in turn first. No bucket is empty."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, bucket: str, item: T) -> None:
        queue = self._buckets.get(bucket)
        if queue is None:
            queue = self._buckets[bucket] = deque()
        queue.append(item)
        self._size += 1

    def peek(self, is_allowed: Callable[[str, T], bool] | None = None) -> tuple[str, T] | None:
        """Return the first item of the next bucket that `is_allowed`; the other buckets keep their turn."""
        for bucket, queue in self._buckets.items():
            if is_allowed is None or is_allowed(bucket, queue[0]):
                return bucket, queue[0]
        return None

    def take(self, bucket: str) -> T:
        """Remove and return the first item of a bucket, and move the bucket to the end of the turn order."""
        queue = self._buckets[bucket]
        item = queue.popleft()
        self._size -= 1
        if queue:
            self._buckets.move_to_end(bucket)
        else:
            del self._buckets[bucket]
        return item


def namespace_of(key: Hashable) -> str:
    """Return the namespace of a controller's (namespace, name) key; "" for any other key."""
    return key[0] if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) else ""
