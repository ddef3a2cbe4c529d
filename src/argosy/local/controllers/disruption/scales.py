"""Computes how many replicas the controllers of some pods want in total.

ReplicaSets and Deployments are read from the caches, other controllers by their scale subresource. As in
Kubernetes, a controller without one (a Job) is an error, and so is a controller that does not exist.
"""

from collections.abc import Iterable

from msgspec import Struct

from argosy.engine.errors import NotFound
from argosy.kinds.meta import OwnerReference
from argosy.local.controllers.api_types import Pod
from argosy.local.controllers.discovery import discover, metadata_type
from argosy.local.controllers.informers import ControllerContext


class ScaleError(Exception):
    """The scale of a controller is not known; the message names the pod or the controller."""


class Scale(Struct, frozen=True):
    replicas: int
    unmanaged: tuple[str, ...] = ()
    """Pods without a controller, which are not counted."""


async def total_scale(context: ControllerContext, pods: Iterable[Pod]) -> Scale:
    replicas_by_scale: dict[str, int] = {}
    resolved_owners: set[str] = set()
    unmanaged = []
    for pod in pods:
        owner, namespace = pod.metadata.controller, pod.metadata.namespace
        if owner is None:
            unmanaged.append(pod.metadata.name)
        elif owner.uid not in resolved_owners:
            scale = _scale_from_caches(context, owner, namespace) or await _scale_from_api(
                context, owner, namespace
            )
            if scale is None:
                raise ScaleError(f'found no controllers for pod "{pod.metadata.name}"')
            resolved_owners.add(owner.uid)
            replicas_by_scale[scale[0]] = scale[1]
    return Scale(sum(replicas_by_scale.values()), tuple(unmanaged))


def _scale_from_caches(
    context: ControllerContext, owner: OwnerReference, namespace: str
) -> tuple[str, int] | None:
    """Return uid and replicas of a ReplicaSet, or of the Deployment that controls it."""
    if owner.kind != "ReplicaSet" or not owner.api_version.startswith("apps/"):
        return None
    replica_set = context.replica_sets.get(namespace, owner.name)
    if replica_set is None or replica_set.metadata.uid != owner.uid:
        return None
    above = replica_set.metadata.controller
    if above is None or above.kind != "Deployment":
        return owner.uid, replica_set.spec.replicas
    deployment = context.deployments.get(namespace, above.name)
    if deployment is None or deployment.metadata.uid != above.uid:
        return None
    return above.uid, deployment.spec.replicas


async def _scale_from_api(
    context: ControllerContext, owner: OwnerReference, namespace: str
) -> tuple[str, int] | None:
    resource = (await discover(context.client)).find(owner.api_version, owner.kind)
    if resource is None:
        raise ScaleError(f'no matches for kind "{owner.kind}" in version "{owner.api_version}"')
    kind = metadata_type(resource)
    try:
        scale = await context.client.get_scale(kind, owner.name, namespace)
    except NotFound:
        try:
            await context.client.get(kind, owner.name, namespace)
        except NotFound:
            return None
        name = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        raise ScaleError(f"{name} does not implement the scale subresource") from None
    return (owner.uid, scale.spec.replicas) if scale.metadata.uid == owner.uid else None
