"""Defines the annotations of a job that its pods and its pod group follow (`propagation`)."""

from collections.abc import Mapping
from functools import cached_property

from msgspec import Struct, field

from argosy.kinds.dns_names import is_label_value


class PropagatedMetadata(Struct, frozen=True, dict=True):
    """Annotations of the job that are copied to its pods and pod group, also as labels, and kept up to
    date."""

    keys: tuple[str, ...] = ()
    """Keys that are propagated; others are never changed."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Those of the keys that the job has, with their values."""

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """Those whose values are valid label values."""
        return {key: value for key, value in self.annotations.items() if is_label_value(value)}
