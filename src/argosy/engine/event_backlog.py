"""A bounded backlog of events to write, which counts repeats and serves namespaces in turn.

There is a limit per namespace and one for all namespaces. When the total limit is reached, the namespace with
the most items loses one, so that a tenant whose jobs fail by the thousand drops only its own events. One item
per namespace is written at a time, and other namespaces do not wait for it.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class EventBacklog(Generic[K]):
    def __init__(self, total_limit: int, namespace_limit: int) -> None:
        self._total_limit = total_limit
        self._namespace_limit = namespace_limit
        self._counts: OrderedDict[str, OrderedDict[K, int]] = OrderedDict()
        """Items and their counts by namespace, the next in turn first. No namespace is empty."""
        self._size = 0
        self._busy: set[str] = set()

    def __len__(self) -> int:
        """The number of different items."""
        return self._size

    def add(self, namespace: str, item: K) -> int:
        """Add an item or count it once more; return how many events were dropped, of this item or another."""
        counts: Mapping[K, int] = self._counts.get(namespace, {})
        dropped = 0
        if item not in counts:
            if len(counts) >= self._namespace_limit:
                return 1
            if self._size >= self._total_limit:
                largest = max(self._counts, key=lambda name: len(self._counts[name]))
                if len(self._counts[largest]) <= len(counts) + 1:
                    return 1
                dropped = self._drop_last(largest)
        own = self._counts.setdefault(namespace, OrderedDict())
        self._size += item not in own
        own[item] = own.get(item, 0) + 1
        return dropped

    def take(self) -> tuple[str, K, int] | None:
        """Remove and return the next namespace, item and count. The namespace is skipped until `done`."""
        for namespace, counts in self._counts.items():
            if namespace not in self._busy:
                item, count = counts.popitem(last=False)
                self._size -= 1
                del self._counts[namespace]
                if counts:
                    self._counts[namespace] = counts  # moves it to the end of the turn order
                self._busy.add(namespace)
                return namespace, item, count
        return None

    def done(self, namespace: str) -> None:
        self._busy.discard(namespace)

    def _drop_last(self, namespace: str) -> int:
        _, count = self._counts[namespace].popitem()
        self._size -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]
        return count
