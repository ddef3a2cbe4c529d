"""Defines what the operator needs to know about a scheduler of gangs, as plain data and pure functions.

A `GangScheduler` says which object is created before the pods, which metadata makes pods members of it,
whether pods are created before the gang is admitted, and how the object's status is read. Everything else is
the same for all schedulers and is in `workload.gang`.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from argosy.kinds.meta import Condition
from argosy.kinds.pod_groups import PodGroupStatus, PodGroupType
from argosy.workload.model import Json, Workload
from argosy.workload.observed import ObservedGroup

DEFAULT_QUEUE = "default"
"""Queue of a gang that names none; always written, so that a queue removed from the spec has no effect."""


class Membership(Struct, frozen=True):
    """What makes the pods of one role members of their gang."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    """For pods whose template names no scheduler."""
    fields: Json = field(default_factory=dict)
    """Additional fields of the pod's spec."""


def no_membership(workload: Workload, role: str) -> Membership:
    del workload, role
    return Membership()


class Group(Struct, frozen=True):
    """The pod group: an object that is created before the pods, with the name of the job."""

    kind: PodGroupType
    spec: Callable[[Workload], Json]
    parse_status: Callable[[PodGroupStatus], ObservedGroup]
    immutable: bool = False
    """Its spec cannot be changed; it is deleted and recreated while it has no pods."""

    @property
    def child_kind(self) -> str:
        """Kind and API group, since several APIs have a kind PodGroup."""
        return f"{self.kind.resource.kind}.{self.kind.resource.group}"


class GangScheduler(Struct, frozen=True):
    name: str
    required_crd: str
    """CRD that the cluster must serve, as `plural.group`; empty: none."""
    install_hint: str = ""
    """What to do if the cluster does not serve it."""
    group: Group | None = None
    membership: Callable[[Workload, str], Membership] = no_membership
    waits_for_admission: bool = False
    """Pods are created after the gang is admitted; otherwise the scheduler waits for the pods."""


def true_conditions(status: PodGroupStatus) -> Mapping[str, Condition]:
    return {condition.type: condition for condition in status.conditions if condition.status == "True"}
