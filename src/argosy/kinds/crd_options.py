"""What a kind of ours says about its CustomResourceDefinition, beside its types.

Apart from the generator, which needs much more: every process reads the kinds, few write definitions.
"""

from typing import ClassVar, Protocol

from msgspec import Struct

from argosy.kinds.resource import Resource

PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"


class Rule(Struct, frozen=True):
    """One CEL validation of the object whose class lists it. Only CEL's standard functions."""

    rule: str
    message: str = ""
    message_expression: str = ""
    field_path: str = ""


class PrinterColumn(Struct, frozen=True):
    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


class Scale(Struct, frozen=True):
    spec_path: str
    status_path: str
    selector_path: str = ""


class CrdOptions(Struct, frozen=True):
    """What a CRD has beside its schema."""

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: Scale | None = None
    status: bool = True


class CustomResource(Protocol):
    """A kind of ours: a struct with its place in the API and its definition."""

    resource: ClassVar[Resource]
    crd_options: ClassVar[CrdOptions]
