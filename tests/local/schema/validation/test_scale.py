"""The scale subresource of a custom resource reads counts of replicas and a selector."""

import pytest

from argosy.local.schema.model import Json
from argosy.local.schema.validation.scale import scale_errors

REPLICAS = (".spec.replicas", ".status.replicas")
CASES: dict[str, tuple[Json, list[str]]] = {
    "number of replicas: valid": ({"spec": {"replicas": 3}}, []),
    "no replicas: valid": ({}, []),
    "negative number of replicas: error": ({"spec": {"replicas": -1}}, [".spec.replicas"]),
    "string as replicas: error": ({"status": {"replicas": "3"}}, [".status.replicas"]),
    "list as spec: error": ({"spec": []}, [".spec.replicas"]),
    "number as selector: error": ({"status": {"selector": 1}}, [".status.selector"]),
}


@pytest.mark.parametrize(("obj", "want"), CASES.values(), ids=CASES.keys())
def test_scale_fields_are_validated(obj: Json, want: list[str]) -> None:
    assert [error.path for error in scale_errors(obj, REPLICAS, ".status.selector")] == want
