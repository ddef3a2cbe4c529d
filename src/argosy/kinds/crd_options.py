"""Declares what a CustomResourceDefinition has besides the types of its fields: columns, CEL rules, scale.

Also the schema of a pod template, which several kinds have. These declarations are separate from the
generator (`crd`) because every process imports the kinds, but few generate CRDs.
"""

from typing import Annotated, ClassVar, Protocol

from msgspec import Meta, Struct

from argosy.kinds.quantity import DURATION_PATTERN
from argosy.kinds.resource import Resource

PRESERVE_UNKNOWN_FIELDS = "x-kubernetes-preserve-unknown-fields"

PART_OF, PART_OF_ARGOSY = "app.kubernetes.io/part-of", "argosy"
"""Label of our CRDs, by which they differ from those of other operators of the same names."""

APPLY_CRDS_COMMAND = "argosy crds | kubectl apply --server-side -f -"
"""Installs or upgrades the CustomResourceDefinitions; part of messages about missing or old ones."""

_OBJECT: dict[str, object] = {"type": "object", PRESERVE_UNKNOWN_FIELDS: True}
PodTemplate = Annotated[
    dict[str, object],
    Meta(
        extra_json_schema={
            "required": ["spec"],
            "properties": {
                "metadata": _OBJECT,
                "spec": {
                    **_OBJECT,
                    "required": ["containers"],
                    "properties": {
                        "containers": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                **_OBJECT,
                                "required": ["name"],
                                "properties": {"name": {"type": "string"}},
                            },
                        }
                    },
                },
            },
        }
    ),
]
"""A pod template of which the schema checks only that it has a container with a name."""

Duration = Annotated[str, Meta(pattern=DURATION_PATTERN, max_length=32)]
"""A time such as 90s, 10m, 2h or 1h30m."""


class Rule(Struct, frozen=True):
    """A CEL validation rule of the struct that lists it. It uses only CEL's standard functions."""

    rule: str
    message: str = ""
    message_expression: str = ""
    field_path: str = ""


def digits(number: str) -> str:
    """Return a CEL expression for the decimal digits of a number below 100,000.

    The API server rejects rules that concatenate `string(int)`: it estimates their cost as unbounded.
    Therefore each digit is looked up in a list.
    """
    digit = "['0','1','2','3','4','5','6','7','8','9']"
    leading = [
        f"({number} > {10**power - 1} ? {digit}[{number} / {10**power} % 10] : '')" for power in (4, 3, 2, 1)
    ]
    return " + ".join([*leading, f"{digit}[{number} % 10]"])


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
    also_served: tuple[str, ...] = ()
    """Names of further versions with the same schema. Objects are stored in the version of the resource."""


class CustomResource(Protocol):
    """A struct from which a CRD is generated."""

    resource: ClassVar[Resource]
    crd_options: ClassVar[CrdOptions]
