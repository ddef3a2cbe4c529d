"""Tests that what the operator checks of `spec.checkpoint` is what the API server checks by the CRD."""

import msgspec
import pytest

from argosy.dialects.checkpoints import spec_problems
from argosy.kinds.checkpoint_spec import CheckpointSpec
from argosy.kinds.crd import schema_of
from argosy.local.schema.crd.definition import object_schema
from argosy.local.schema.crd.validate import validate

Json = dict[str, object]
IMAGES: Json = {"images": {"repository": "registry.example/team/train"}}

SPECS: dict[str, tuple[Json, list[str]]] = {
    "a claim": ({"store": "pvc://claim/runs"}, []),
    "a bucket with credentials": ({"store": "s3://bucket", "credentials": "keys"}, []),
    "images of processes": ({"level": "Process", **IMAGES}, []),
    "images and a store": ({"level": "auto", "store": "file:///shared", **IMAGES}, []),
    "an adaptive interval": ({"store": "file:///shared", "mode": "Adaptive", "interval": "10m"}, []),
    "nothing": ({}, [".store"]),
    "credentials for a claim": ({"store": "pvc://claim", "credentials": "keys"}, [".credentials"]),
    "a folder above": ({"store": "pvc://claim/../other"}, [".store"]),
    "two dots in a name": ({"store": "pvc://claim/a..b"}, []),
    "adaptive without an interval": ({"store": "file:///shared", "mode": "Adaptive"}, [".mode"]),
    "no images for processes": ({"level": "Process"}, [".images"]),
    "no images and no store": ({"level": "auto"}, [".images", ".store"]),
    "images for a program": ({"store": "file:///shared", **IMAGES}, [".images"]),
    "a signal": ({"store": "file:///shared", "signal": "SIGTERM"}, []),
    "a signal and an interval": (
        {"store": "file:///shared", "signal": "SIGTERM", "interval": "10m"},
        [".interval"],
    ),
    "a signal and evictions held back": (
        {"store": "file:///shared", "signal": "SIGTERM", "onDrain": "Save"},
        [".onDrain"],
    ),
    "a signal and processes": ({"level": "Process", "signal": "SIGTERM", **IMAGES}, [".signal"]),
    "a store for processes": ({"level": "Process", "store": "file:///shared", **IMAGES}, [".store"]),
}


SCHEMA = object_schema(
    {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"checkpoint": schema_of(CheckpointSpec)}}},
    }
)


@pytest.mark.parametrize(("spec", "want"), SPECS.values(), ids=SPECS.keys())
def test_problems_are_those_of_the_rules(spec: Json, want: list[str]) -> None:
    found = sorted(
        (problem.path, problem.message) for problem in spec_problems(msgspec.convert(spec, CheckpointSpec))
    )
    assert [path for path, _ in found] == [f"spec.checkpoint{path}" for path in want]
    body: Json = {"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": {"checkpoint": spec}}
    assert sorted((error.path, error.detail) for error in validate(body, SCHEMA)) == found
