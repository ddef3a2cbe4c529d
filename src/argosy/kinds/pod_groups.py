"""The PodGroup kinds of the supported gang schedulers, as far as Argosy reads them.

Their specs differ, but are only written, never read. Their statuses have a phase, conditions or both.
"""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.resource import Resource


class PodGroupStatus(Struct, gc=False):
    phase: str = ""
    conditions: list[Condition] = field(default_factory=list)


class VolcanoPodGroup(Struct):
    """Volcano's PodGroup, which the scheduler of the local control plane supports, too."""

    resource: ClassVar[Resource] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")

    metadata: ObjectMeta
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class KubernetesPodGroup(Struct):
    """Kubernetes' own PodGroup, behind the feature gates GenericWorkload and GangScheduling."""

    resource: ClassVar[Resource] = Resource("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")

    metadata: ObjectMeta
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class CoschedulingPodGroup(Struct):
    """The PodGroup of the coscheduling plugin in Kubernetes' scheduler-plugins."""

    resource: ClassVar[Resource] = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")

    metadata: ObjectMeta
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


PodGroup = VolcanoPodGroup | KubernetesPodGroup | CoschedulingPodGroup
PodGroupType = type[VolcanoPodGroup] | type[KubernetesPodGroup] | type[CoschedulingPodGroup]
