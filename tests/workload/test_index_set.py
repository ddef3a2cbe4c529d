"""Tests sets of indexes: encoding, set operations, and the same results as Python's own sets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.workload.index_set import EMPTY, MAX_INDEX, IndexSet, free_indexes

SETS = st.frozensets(st.integers(0, 30), max_size=12)

ENCODED = {
    "no index: an empty text": (frozenset[int](), ""),
    "a single index: its number": (frozenset({7}), "7"),
    "consecutive indexes: one range": (frozenset({0, 1, 2, 3}), "0-3"),
    "indexes with gaps: ranges and numbers": (frozenset({0, 1, 2, 3, 7, 9, 10}), "0-3,7,9-10"),
}


@pytest.mark.parametrize(("indexes", "text"), ENCODED.values(), ids=ENCODED)
def test_encoding(indexes: frozenset[int], text: str) -> None:
    assert IndexSet.of(indexes).encode() == text
    assert IndexSet.decode(text) == IndexSet.of(indexes)


@pytest.mark.parametrize("text", ["a", "1-", "1-b", ",", f"0-{MAX_INDEX + 1}"])
def test_other_texts_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid"):
        IndexSet.decode(text)


@given(SETS, SETS)
def test_behaves_like_a_set(left: frozenset[int], right: frozenset[int]) -> None:
    first, second = IndexSet.of(left), IndexSet.of(right)
    assert list(first) == sorted(left)
    assert len(first) == len(left)
    assert first.highest == max(left, default=-1)
    assert first | second == IndexSet.of(left | right)
    assert first - second == IndexSet.of(left - right)
    assert first & second == IndexSet.of(left & right)
    assert {index for index in range(31) if index in first} == left
    assert IndexSet.decode(first.encode()) == first


def test_first_and_lowest() -> None:
    assert IndexSet.first(3) == IndexSet.of({0, 1, 2})
    assert IndexSet.first(0) == EMPTY
    assert IndexSet.of({1, 4, 5, 9}).lowest(2) == IndexSet.of({1, 4})
    assert IndexSet.of({1}).lowest(5) == IndexSet.of({1})


def test_free_indexes_fill_gaps_first() -> None:
    assert free_indexes(IndexSet.of({0, 2, 3}), 3) == IndexSet.of({1, 4, 5})
