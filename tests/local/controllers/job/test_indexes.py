"""Tests for the format of completion indexes."""

import pytest

from argosy.local.controllers.job.indexes import format_indexes, parse_indexes

FORMS = {
    "no index: empty": ("", set()),
    "one index: its number": ("3", {3}),
    "two neighbours: listed": ("1,2", {1, 2}),
    "three neighbours: a range": ("1-3", {1, 2, 3}),
    "ranges and single indexes: listed in order": ("0-2,5,7,8", {0, 1, 2, 5, 7, 8}),
}


@pytest.mark.parametrize("case", FORMS.values(), ids=FORMS)
def test_parse_and_format_indexes(case: tuple[str, set[int]]) -> None:
    text, indexes = case
    assert format_indexes(indexes) == text
    assert parse_indexes(text) == indexes
