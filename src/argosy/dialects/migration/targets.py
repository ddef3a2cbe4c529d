"""Workloads that can be migrated, and their pods, as far as a StatefulMigration reads them."""

from collections.abc import Iterable
from typing import ClassVar, Final

from msgspec import Struct, field

from argosy.kinds.kubernetes import Pod, PodStatus
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.node_matching import Expression, matches
from argosy.kinds.resource import Resource
from argosy.plan.children import KubernetesObject


class Selector(Struct, rename="camel"):
    """A label selector."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: list[Expression] = field(default_factory=list)

    def selects(self, labels: dict[str, str]) -> bool:
        """Return True if the labels match; a selector without requirements selects nothing here."""
        if not self.match_labels and not self.match_expressions:
            return False
        return self.match_labels.items() <= labels.items() and all(
            matches(expression, labels) for expression in self.match_expressions
        )


class MigratedContainer(Struct):
    name: str
    image: str = ""


class MigratedPodSpec(Struct):
    containers: list[MigratedContainer] = field(default_factory=list)


class PodTemplate(Struct):
    spec: MigratedPodSpec = field(default_factory=MigratedPodSpec)


class Ordinals(Struct):
    start: int = 0


class WorkloadSpec(Struct):
    selector: Selector = field(default_factory=Selector)
    replicas: int = 1
    ordinals: Ordinals = field(default_factory=Ordinals)
    """Of StatefulSets."""
    template: PodTemplate = field(default_factory=PodTemplate)


class StatefulSet(Struct):
    resource: ClassVar[Resource] = Resource("apps", "v1", "StatefulSet", "statefulsets")

    metadata: ObjectMeta
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class Deployment(Struct):
    resource: ClassVar[Resource] = Resource("apps", "v1", "Deployment", "deployments")

    metadata: ObjectMeta
    spec: WorkloadSpec = field(default_factory=WorkloadSpec)


class MigratedPod(Struct):
    """Any pod in the cluster."""

    resource: ClassVar[Resource] = Pod.resource

    metadata: ObjectMeta
    spec: MigratedPodSpec = field(default_factory=MigratedPodSpec)
    status: PodStatus = field(default_factory=PodStatus)


Target = StatefulSet | Deployment | MigratedPod
TARGETS: Final[dict[str, type[Target]]] = {
    "statefulset": StatefulSet,
    "deployment": Deployment,
    "pod": MigratedPod,
}
"""The kinds of workloads, in lower case: case does not matter in a StatefulMigration."""

NAMESPACE_INDEX: Final = "namespace"


def pods_by_namespace(pod: KubernetesObject) -> Iterable[str]:
    """File pods under their namespace."""
    return (pod.metadata.namespace,)


def pods_of(target: Target, pods: Iterable[MigratedPod]) -> list[MigratedPod]:
    """Return the pods of a workload that are not being deleted, by name."""
    live = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    if isinstance(target, MigratedPod):
        found = [pod for pod in live if pod.metadata.uid == target.metadata.uid]
    else:
        found = [pod for pod in live if target.spec.selector.selects(pod.metadata.labels)]
    ended = ("Succeeded", "Failed")
    return sorted((pod for pod in found if pod.status.phase not in ended), key=lambda pod: pod.metadata.name)


def pods_in_members(target: Target, pods: list[MigratedPod], limit: int) -> list[MigratedPod]:
    """Return the pods that a workload has in each member cluster: the same as here.

    The API server of Karmada has no pods of a StatefulSet that is propagated; they follow from its spec then.
    No more than `limit` of these are returned.
    """
    if pods or not isinstance(target, StatefulSet):
        return pods
    meta, spec = target.metadata, target.spec
    numbers = range(spec.ordinals.start, spec.ordinals.start + min(spec.replicas, limit))
    return [
        MigratedPod(ObjectMeta(name=f"{meta.name}-{number}", namespace=meta.namespace), spec.template.spec)
        for number in numbers
    ]
