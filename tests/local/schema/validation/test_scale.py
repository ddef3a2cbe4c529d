"""The scale subresource of a custom resource reads counts of replicas and a selector."""

import pytest

from argosy.local.schema.model import Json
from argosy.local.schema.validation.scale import scale_errors

REPLICAS = (".spec.replicas", ".status.replicas")
CASES: dict[str, tuple[Json, list[str]]] = {
    "a count is accepted": ({"spec": {"replicas": 3}}, []),
    "missing replicas are accepted": ({}, []),
    "a negative count is refused": ({"spec": {"replicas": -1}}, [".spec.replicas"]),
    "text is refused": ({"status": {"replicas": "3"}}, [".status.replicas"]),
    "a list in place of the spec is refused": ({"spec": []}, [".spec.replicas"]),
    "a number as the selector is refused": ({"status": {"selector": 1}}, [".status.selector"]),
}


@pytest.mark.parametrize(("obj", "want"), CASES.values(), ids=CASES.keys())
def test_scale_fields_are_validated(obj: Json, want: list[str]) -> None:
    assert [error.path for error in scale_errors(obj, REPLICAS, ".status.selector")] == want
