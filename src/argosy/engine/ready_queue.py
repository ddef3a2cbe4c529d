"""Keys that could be worked on now, in two lanes: those that were asked for at once, and those whose time has
come; and those of many namespaces, which take turns.

What is asked for at once calls for something to be done: a new object, one whose child was lost. What was put
off mostly has something to tell. When there is more of both than can be done, doing goes first; but of every
eight keys at least one is of the others, so that nobody waits for ever. In a lane the first come is the first
served.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

ROW = 7
"""Keys in a row that are taken from the first lane while one of the second waits."""


class Lanes(Generic[K]):
    def __init__(self) -> None:
        self._first: dict[K, float] = {}
        self._second: dict[K, float] = {}
        """With when they came; the first is the oldest."""
        self._row = 0

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __contains__(self, key: K) -> bool:
        return key in self._first or key in self._second

    @property
    def oldest(self) -> float | None:
        """When the key came that has waited longest."""
        heads = [next(iter(lane.values())) for lane in (self._first, self._second) if lane]
        return min(heads, default=None)

    def add(self, key: K, now: float, *, first: bool) -> None:
        """A key that is there already keeps its time, and may move up."""
        if first and key not in self._first:
            self._first[key] = self._second.pop(key, now)
        elif not first and key not in self:
            self._second[key] = now

    def take(self) -> tuple[K, float]:
        """The next key, and when it came."""
        passed_over = bool(self._first and self._second)
        lane = self._second if not self._first or (passed_over and self._row >= ROW) else self._first
        self._row = self._row + 1 if passed_over and lane is self._first else 0
        key = next(iter(lane))
        return key, lane.pop(key)

    def drop(self, key: K) -> None:
        self._first.pop(key, None)
        self._second.pop(key, None)


class FairLanes(Generic[K]):
    """Lanes for each namespace, which are served in turn."""

    def __init__(self, bucket: Callable[[K], str]) -> None:
        self._bucket = bucket
        self._lanes: OrderedDict[str, Lanes[K]] = OrderedDict()
        """By namespace, the next in turn first. None is empty."""
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: K) -> bool:
        lanes = self._lanes.get(self._bucket(key))
        return lanes is not None and key in lanes

    @property
    def oldest(self) -> float | None:
        """When the key came that has waited longest."""
        return min((lanes.oldest for lanes in self._lanes.values() if lanes.oldest is not None), default=None)

    def add(self, key: K, now: float, *, first: bool) -> None:
        bucket = self._bucket(key)
        lanes = self._lanes.get(bucket)
        if lanes is None:
            lanes = self._lanes[bucket] = Lanes()
        before = len(lanes)
        lanes.add(key, now, first=first)
        self._size += len(lanes) - before

    def take(self, may: Callable[[str], bool]) -> tuple[K, float] | None:
        """The next key of the next namespace that `may` have one worked on, and when it came."""
        for bucket, lanes in self._lanes.items():
            if may(bucket):
                taken = lanes.take()
                self._size -= 1
                if lanes:
                    self._lanes.move_to_end(bucket)
                else:
                    del self._lanes[bucket]
                return taken
        return None

    def drop(self, key: K) -> None:
        bucket = self._bucket(key)
        lanes = self._lanes.get(bucket)
        if lanes is None:
            return
        before = len(lanes)
        lanes.drop(key)
        self._size += len(lanes) - before
        if not lanes:
            del self._lanes[bucket]
