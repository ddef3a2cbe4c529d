"""What a gang back end is: plain data and pure functions, one value per scheduler that can place gangs.

A back end says which object is made before the pods, what pods carry to belong to it, whether pods are made
before the scheduler has let the group in, and how what the scheduler tells of the group is read. Everything
else about gangs is the same for all and stands in `workload.gang`.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct, field

from argosy.kinds.meta import Condition
from argosy.kinds.pod_groups import PodGroupStatus, PodGroupType
from argosy.workload.model import Json, Workload
from argosy.workload.observed import ObservedGroup

DEFAULT_QUEUE = "default"
"""Where a group waits that names no queue; said outright, so that a queue which is taken away is left."""


class Membership(Struct, frozen=True):
    """What the pods of one role carry to belong to their gang."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""
    """For pods that name none themselves."""
    fields: Json = field(default_factory=dict)
    """Of the pod's spec."""


def no_membership(workload: Workload, role: str) -> Membership:
    del workload, role
    return Membership()


class Group(Struct, frozen=True):
    """The object that is made before the pods, named like the job."""

    kind: PodGroupType
    spec: Callable[[Workload], Json]
    parse_status: Callable[[PodGroupStatus], ObservedGroup]
    immutable: bool = False
    """What it says cannot be changed: another takes its place while no pod depends on it."""

    @property
    def child_kind(self) -> str:
        """What it is called among a job's children, where PodGroups of several APIs must be told apart."""
        return f"{self.kind.resource.kind}.{self.kind.resource.group}"


class GangScheduler(Struct, frozen=True):
    name: str
    required_crd: str
    """What the cluster must serve for it, as `plural.group`; empty: nothing."""
    install_hint: str = ""
    """What to do where the cluster does not serve it."""
    group: Group | None = None
    membership: Callable[[Workload, str], Membership] = no_membership
    waits_for_admission: bool = False
    """No pod is made before the group is let in; else the scheduler waits until it sees the pods."""


def true_conditions(status: PodGroupStatus) -> Mapping[str, Condition]:
    return {one.type: one for one in status.conditions if one.status == "True"}
