"""Defines `IndexSet`, a set of replica indexes that is stored as ranges: `0-3,7`.

A role usually has the indexes from 0 to its size, which is one range, however large the role is.
"""

from collections.abc import Container, Iterable, Iterator
from functools import cached_property
from itertools import count as count_from
from itertools import islice, pairwise

from msgspec import Struct

MAX_INDEX = 1_000_000
"""Higher indexes are rejected, so that a damaged Record cannot fill the memory."""


class IndexSet(Struct, frozen=True, dict=True):
    """A set of indexes. Use `of` or `first` to create one."""

    ranges: tuple[tuple[int, int], ...] = ()
    """First and last index of each range, ascending, with a gap between two ranges."""

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "IndexSet":
        """Return the set of these indexes."""
        unique = set(indexes)
        if not unique:
            return EMPTY
        ranges: list[tuple[int, int]] = []
        for index in sorted(unique):
            if ranges and ranges[-1][1] == index - 1:
                ranges[-1] = (ranges[-1][0], index)
            else:
                ranges.append((index, index))
        return cls(tuple(ranges))

    @classmethod
    def first(cls, count: int) -> "IndexSet":
        """Return the indexes from 0 to `count` - 1."""
        return cls(((0, count - 1),)) if count > 0 else cls()

    @classmethod
    def decode(cls, text: str) -> "IndexSet":
        """Return the set that `encode` wrote; ValueError if the text is not of this form."""
        if not text:
            return EMPTY
        ranges: list[tuple[int, int]] = []
        for part in text.split(","):
            first, dash, last = part.partition("-")
            lowest = int(first)
            highest = int(last) if dash else lowest
            if highest > MAX_INDEX:
                raise ValueError(f"invalid index in {part!r}: must be at most {MAX_INDEX}")
            ranges.append((lowest, highest))
        is_encoded = all(lowest <= highest for lowest, highest in ranges)
        if is_encoded and all(before[1] + 1 < after[0] for before, after in pairwise(ranges)):
            return cls(tuple(ranges))
        return cls.of(index for lowest, highest in ranges for index in range(lowest, highest + 1))

    def encode(self) -> str:
        return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)

    @property
    def lookup(self) -> Container[int]:
        """The same set for loops over many pods: `in` is a single C call."""
        if len(self.ranges) == 1:
            return range(self.ranges[0][0], self.ranges[0][1] + 1)
        return self._members

    @cached_property
    def _members(self) -> frozenset[int]:
        return frozenset(self)

    @property
    def highest(self) -> int:
        """The highest index, or -1 if there is none."""
        return self.ranges[-1][1] if self.ranges else -1

    def lowest(self, count: int) -> "IndexSet":
        """Return the `count` lowest indexes."""
        return IndexSet.of(index for index, _ in zip(self, range(count), strict=False))

    def __contains__(self, index: object) -> bool:
        return index in self.lookup

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)

    def __or__(self, other: "IndexSet") -> "IndexSet":
        if not other.ranges or self == other:
            return self
        return other if not self.ranges else IndexSet.of((*self, *other))

    def __sub__(self, other: "IndexSet") -> "IndexSet":
        if not other.ranges or not self.ranges:
            return self
        excluded = other.lookup
        return IndexSet.of(index for index in self if index not in excluded)

    def __and__(self, other: "IndexSet") -> "IndexSet":
        if not self.ranges or self == other:
            return self
        if not other.ranges:
            return other
        included = other.lookup
        return IndexSet.of(index for index in self if index in included)


EMPTY = IndexSet()


def next_indexes(used: IndexSet, taken: IndexSet, count: int) -> IndexSet:
    """Return the first `count` indexes after the highest one of `used` that are not taken."""
    free = (index for index in count_from(used.highest + 1) if index not in taken.lookup)
    return IndexSet.of(islice(free, count))


def free_indexes(taken: IndexSet, count: int) -> IndexSet:
    """Return the `count` lowest indexes that are not taken."""
    free: list[int] = []
    index = 0
    while len(free) < count:
        if index not in taken.lookup:
            free.append(index)
        index += 1
    return IndexSet.of(free)
