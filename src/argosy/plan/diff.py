"""The difference between the children that an owner shall have and those that it has, as actions."""

from collections.abc import Iterable

from argosy.kinds import labels
from argosy.kinds.meta import ObjectMeta
from argosy.plan.actions import Action, Apply, Remove
from argosy.plan.children import Child, KubernetesObject, version_of
from argosy.plan.contract import Inputs


def changes(
    wanted: Iterable[Child], inputs: Inputs, *, prune: bool = False, drift: bool = False
) -> tuple[Action, ...]:
    """Return what brings the children to the wanted ones.

    With `prune`, children that are not wanted are removed. With `drift`, a child that others changed since
    our last write is applied again; after a restart of the operator each is applied once, which changes
    nothing if nothing had changed. A child that is being deleted is waited for.
    """
    unwanted = {(child.resource, child.metadata.name): child for child in inputs.children}
    actions: list[Action] = []
    for child in wanted:
        existing = unwanted.pop((child.kind.resource, child.name), None)
        if existing is None:
            actions.append(Apply(child))
        elif _should_apply(child, existing.metadata, inputs, drift=drift):
            actions.append(Apply(child, existing.metadata.uid))
    if prune:
        actions += [remove(child) for child in unwanted.values() if child.metadata.deletion_timestamp is None]
    return tuple(actions)


def remove(child: KubernetesObject) -> Remove:
    """Return the removal of an existing child."""
    return Remove(type(child), child.metadata.name, child.metadata.uid)


def _should_apply(child: Child, existing: ObjectMeta, inputs: Inputs, *, drift: bool) -> bool:
    if child.generator or existing.deletion_timestamp is not None:
        return False
    if existing.annotations.get(labels.DIGEST) != child.digest:
        return True
    return drift and inputs.written.get(existing.uid) != version_of(existing)
