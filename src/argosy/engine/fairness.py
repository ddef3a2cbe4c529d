"""Round-robin over namespaces, for whatever many tenants share: workers, writes, memory, events.

Everything is filed under a bucket, which is a namespace; what is cluster-scoped has the bucket "". Buckets
take turns, and within a bucket the first to come is the first to go. So a tenant who asks for a thousand
things delays another by one turn and not by a thousand.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class RoundRobin(Generic[T]):
    """Items in one queue per bucket; buckets are served in turn."""

    def __init__(self) -> None:
        self._buckets: OrderedDict[str, deque[T]] = OrderedDict()
        """The next in turn first. None is empty."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, bucket: str, item: T) -> None:
        queue = self._buckets.get(bucket)
        if queue is None:
            queue = self._buckets[bucket] = deque()
        queue.append(item)
        self._size += 1

    def peek(self, may: Callable[[str, T], bool] | None = None) -> tuple[str, T] | None:
        """The first item of the next bucket that `may` have it now; buckets that may not keep their turn."""
        for bucket, queue in self._buckets.items():
            if may is None or may(bucket, queue[0]):
                return bucket, queue[0]
        return None

    def take(self, bucket: str) -> T:
        """Take the first item of a bucket, whose next turn then comes after all others'."""
        queue = self._buckets[bucket]
        item = queue.popleft()
        self._size -= 1
        if queue:
            self._buckets.move_to_end(bucket)
        else:
            del self._buckets[bucket]
        return item


def namespace_of(key: Hashable) -> str:
    """The bucket of a key of namespace and name, as controllers have them; "" for any other key."""
    return key[0] if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str) else ""
