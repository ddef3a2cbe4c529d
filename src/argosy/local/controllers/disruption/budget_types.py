"""The parts of a PodDisruptionBudget that its controller reads and writes."""

from datetime import datetime
from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.resource import Resource
from argosy.local.controllers.api_types import LabelSelector


class BudgetSpec(Struct, rename="camel"):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: LabelSelector | None = None

    @property
    def needs_scale(self) -> bool:
        """Return True if the budget depends on the scale of the pods' controllers."""
        return self.max_unavailable is not None or isinstance(self.min_available, str)


class BudgetStatus(Struct, rename="camel"):
    observed_generation: int = 0
    disrupted_pods: dict[str, datetime] = field(default_factory=dict)
    """Pods whose eviction was accepted and whose deletion has not been observed, and since when."""
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    conditions: list[Condition] = field(default_factory=list)


class PodDisruptionBudget(Struct):
    resource: ClassVar[Resource] = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")

    metadata: ObjectMeta
    spec: BudgetSpec = field(default_factory=BudgetSpec)
    status: BudgetStatus = field(default_factory=BudgetStatus)
