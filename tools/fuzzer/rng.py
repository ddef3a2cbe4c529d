"""The random generator of a sequence, from a seed."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent

    def number(self, low: int, high: int) -> int:
        return self._random.randint(low, high)

    def pick(self, items: Sequence[T]) -> T:
        return items[self._random.randrange(len(items))]

    def some(self, items: Sequence[T], low: int, high: int) -> list[T]:
        """Between `low` and `high` of the items, each at most once, in any order."""
        return self._random.sample(items, min(len(items), self.number(low, high)))

    def weighted(self, items: Sequence[T], weights: Sequence[int]) -> T:
        return self._random.choices(items, weights)[0]
