"""Groups of pods as the schedulers know them that place gangs: the parts that Argosy reads.

All call them PodGroup, and mean nearly the same. They differ in what stands in their spec, which is written
and never read back, and in what their status tells: a phase, conditions, or both.
"""

from typing import ClassVar

from msgspec import Struct, field

from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.resource import Resource


class PodGroupStatus(Struct, gc=False):
    phase: str = ""
    conditions: list[Condition] = field(default_factory=list)


class VolcanoPodGroup(Struct):
    """Volcano's, which the local control plane's scheduler knows too."""

    resource: ClassVar[Resource] = Resource("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups")

    metadata: ObjectMeta
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class KubernetesPodGroup(Struct):
    """Kubernetes' own, behind the feature gates GenericWorkload and GangScheduling."""

    resource: ClassVar[Resource] = Resource("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")

    metadata: ObjectMeta
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


class CoschedulingPodGroup(Struct):
    """That of the coscheduling plugin among Kubernetes' scheduler-plugins."""

    resource: ClassVar[Resource] = Resource("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")

    metadata: ObjectMeta
    status: PodGroupStatus = field(default_factory=PodGroupStatus)


PodGroup = VolcanoPodGroup | KubernetesPodGroup | CoschedulingPodGroup
PodGroupType = type[VolcanoPodGroup] | type[KubernetesPodGroup] | type[CoschedulingPodGroup]
