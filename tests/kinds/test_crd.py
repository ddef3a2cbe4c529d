from typing import Annotated, ClassVar, Literal

import pytest
from msgspec import Meta, Struct, field

from argosy.kinds.crd import MAX_CRD_BYTES, CrdError, crd_for, dump, schema_of
from argosy.kinds.crd_options import CustomResource, Rule
from argosy.kinds.scalers import ScaleInCrd, ScaleOutCrd
from argosy.kinds.trainingjob import TrainingJobCrd
from argosy.operator.apis.registry import CUSTOM_RESOURCES

KINDS: list[type[CustomResource]] = [*CUSTOM_RESOURCES, TrainingJobCrd, ScaleInCrd, ScaleOutCrd]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.resource.kind)
def test_crd_can_be_applied_on_the_client_side(kind: type[CustomResource]) -> None:
    assert len(dump(crd_for(kind))) < MAX_CRD_BYTES


class Leaf(Struct):
    """A small thing."""

    rules: ClassVar[tuple[Rule, ...]] = (Rule("self.size > 0", message="too small"),)

    size: Annotated[int, Meta(gt=0, le=9)]
    """How large
    it is."""
    word: Annotated[str, Meta(pattern="^a", max_length=5)] = "abc"


class Tree(Struct, rename="camel"):
    """Everything at once."""

    kind_of: Literal["a", "b"] = "a"
    leaf: Leaf | None = None
    port: int | str = 80
    names: Annotated[list[str], Meta(max_length=3)] = field(default_factory=list)
    by_name: dict[str, Leaf] = field(default_factory=dict)
    anything: dict[str, object] = field(default_factory=dict)


def test_schema_of_a_struct_with_all_supported_types() -> None:
    leaf = {
        "type": "object",
        "description": "A small thing.",
        "required": ["size"],
        "properties": {
            "size": {
                "type": "integer",
                "maximum": 9,
                "minimum": 0,
                "exclusiveMinimum": True,
                "description": "How large it is.",
            },
            "word": {"type": "string", "maxLength": 5, "pattern": "^a", "default": "abc"},
        },
        "x-kubernetes-validations": [{"rule": "self.size > 0", "message": "too small"}],
    }
    assert schema_of(Tree) == {
        "type": "object",
        "description": "Everything at once.",
        "properties": {
            "kindOf": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "leaf": leaf,
            "port": {"x-kubernetes-int-or-string": True, "default": 80},
            "names": {"type": "array", "maxItems": 3, "items": {"type": "string"}},
            "byName": {"type": "object", "additionalProperties": leaf},
            "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }


class Counted(Struct, frozen=True):
    always_written: ClassVar[tuple[str, ...]] = ("count",)

    count: int = 1
    other: int = 2


class Counting(Struct):
    status: Counted = Counted()


def test_fields_that_are_always_written_are_required_and_have_no_default() -> None:
    """Without a default of its own, an object that lacks them cannot be a default either."""
    assert schema_of(Counting)["properties"] == {
        "status": {
            "type": "object",
            "required": ["count"],
            "properties": {"count": {"type": "integer"}, "other": {"type": "integer", "default": 2}},
        }
    }


class Looped(Struct):
    inner: "Looped | None" = None


class TaggedA(Struct, tag=True):
    pass


class TaggedB(Struct, tag=True):
    pass


class Either(Struct):
    one: TaggedA | TaggedB


class Numbered(Struct):
    by_number: dict[int, str]


class Raw(Struct):
    data: bytes


UNSUPPORTED = {
    "struct that contains itself: error names the field": (Looped, "Looped.inner: Looped contains itself"),
    "union of objects: error names the field": (Either, "Either.one: a union of 2 types"),
    "map with integer keys: error names the field": (
        Numbered,
        "Numbered.by_number: the keys of a map must be strings",
    ),
    "bytes: error names the field": (Raw, "Raw.data: BytesType is not supported"),
}


@pytest.mark.parametrize(("kind", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED.keys())
def test_unsupported_types_are_errors(kind: type, message: str) -> None:
    with pytest.raises(CrdError, match=message.replace(".", r"\.")):
        schema_of(kind)
