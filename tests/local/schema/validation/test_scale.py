"""Replicas of custom resources are counts."""

import pytest

from argosy.local.schema.errors import aggregate
from argosy.local.schema.model import Json
from argosy.local.schema.validation.scale import scale_errors

PATHS = (".spec.replicas", ".status.replicas")
CASES: dict[str, tuple[Json, str]] = {
    "a count": ({"spec": {"replicas": 3}}, ""),
    "nothing": ({}, ""),
    "less than nothing": (
        {"spec": {"replicas": -1}},
        ": .spec.replicas: Invalid value: -1: should be a non-negative integer",
    ),
    "no object": (
        {"spec": []},
        ": .spec.replicas: Invalid value: 0: .spec.replicas accessor error: [] is of the type []interface "
        "{}, expected map[string]interface{}",
    ),
}


@pytest.mark.parametrize(("obj", "want"), CASES.values(), ids=CASES.keys())
def test_replicas(obj: Json, want: str) -> None:
    assert aggregate(scale_errors(obj, PATHS)) == want
