"""Parts of several kinds: conditions in the form of Kubernetes' `metav1.Condition`, references to Secrets."""

from datetime import datetime
from typing import Annotated, ClassVar

from msgspec import Meta, Struct


class StatusCondition(Struct, frozen=True, rename="camel", omit_defaults=True):
    """One condition, for `kubectl wait`."""

    type: str
    status: str
    """True, False or Unknown."""
    reason: str = ""
    """Why the condition has this status, as one CamelCase word."""
    message: str = ""
    last_transition_time: datetime | None = None
    """When the status last changed."""
    observed_generation: int | None = None
    """The generation of the object that the condition describes."""


StatusConditions = Annotated[
    list[StatusCondition],
    Meta(extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}),
]


class SecretReference(Struct, frozen=True, omit_defaults=True):
    """A Secret."""

    always_written: ClassVar[tuple[str, ...]] = ("name",)

    name: str = ""
    namespace: str = ""
    """Defaults to the namespace of the object."""


AtomicSecretReference = Annotated[
    SecretReference, Meta(extra_json_schema={"x-kubernetes-map-type": "atomic"})
]
