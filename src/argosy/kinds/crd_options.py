"""Declares what a CustomResourceDefinition has besides its schema: columns, CEL rules, scale.

These declarations are separate from the generator (`crd`) because every process imports the kinds, but few
generate CRDs.
"""

from typing import ClassVar, Protocol

from msgspec import Struct

from argosy.kinds.resource import Resource

PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"

APPLY_CRDS_COMMAND = "argosy crds | kubectl apply --server-side -f -"
"""Installs or upgrades the CustomResourceDefinitions; part of messages about missing or old ones."""


class Rule(Struct, frozen=True):
    """A CEL validation rule of the struct that lists it. It uses only CEL's standard functions."""

    rule: str
    message: str = ""
    message_expression: str = ""
    field_path: str = ""


class PrinterColumn(Struct, frozen=True):
    """A column of `kubectl get`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0
    description: str = ""


class Scale(Struct, frozen=True):
    """Where the `scale` subresource finds its values, as JSON paths."""

    spec_path: str
    status_path: str
    selector_path: str = ""


class CrdOptions(Struct, frozen=True):
    """What a CRD has besides its schema."""

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    scale: Scale | None = None
    status: bool = True


class CustomResource(Protocol):
    """A struct from which a CRD is generated."""

    resource: ClassVar[Resource]
    crd_options: ClassVar[CrdOptions]
