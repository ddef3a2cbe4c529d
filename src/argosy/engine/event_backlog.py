"""Queues items to be written, counts repeats, and takes namespaces in turn.

There is a bound for each namespace and one for all of them. When all together are too many, the namespace
with the most gives way, so that a tenant whose jobs fail by the thousand drops events of its own and nobody
else's. One item of a namespace is written at a time, and other namespaces do not wait for it.
"""

from collections import OrderedDict
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class EventBacklog(Generic[K]):
    def __init__(self, total: int, per_namespace: int) -> None:
        self._total = total
        self._per_namespace = per_namespace
        self._counts: OrderedDict[str, OrderedDict[K, int]] = OrderedDict()
        """By namespace, the next in turn first. None is empty."""
        self._size = 0
        self._busy: set[str] = set()

    def __len__(self) -> int:
        """Things that wait, each once however often it happened."""
        return self._size

    def add(self, namespace: str, item: K) -> int:
        """Note that it happened (again); return how often something was dropped for it, itself or others."""
        counts: Mapping[K, int] = self._counts.get(namespace, {})
        dropped = 0
        if item not in counts:
            if len(counts) >= self._per_namespace:
                return 1
            if self._size >= self._total:
                largest = max(self._counts, key=lambda name: len(self._counts[name]))
                if len(self._counts[largest]) <= len(counts) + 1:
                    return 1
                dropped = self._drop_last(largest)
        mine = self._counts.setdefault(namespace, OrderedDict())
        self._size += item not in mine
        mine[item] = mine.get(item, 0) + 1
        return dropped

    def take(self) -> tuple[str, K, int] | None:
        """The next thing, how often it happened, and its namespace, which is passed over until `done`."""
        for namespace, counts in self._counts.items():
            if namespace not in self._busy:
                item, count = counts.popitem(last=False)
                self._size -= 1
                del self._counts[namespace]
                if counts:
                    self._counts[namespace] = counts  # after all others
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
