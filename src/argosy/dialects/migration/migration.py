"""Reconciles StatefulMigrations: one CheckpointBackup for each pod of a workload in each source cluster.

Pods of other clusters are checkpointed there: where the API server is Karmada's, each of their backups has a
policy that places it. Otherwise these clusters make the migration not ready, and the part of this cluster is
done all the same. The label on the workload is removed by the finalizer.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from argosy.checkpoint.backup import DEFAULT_TRUSTED
from argosy.checkpoint.image_names import InvalidImageNameError, with_registry
from argosy.checkpoint.schedules import InvalidScheduleError, parse_schedule
from argosy.dialects.migration import reasons
from argosy.dialects.migration.backups import backup_children
from argosy.dialects.migration.conditions import READY, with_ready
from argosy.dialects.migration.karmada import (
    MAX_BACKUPS,
    PropagationPolicy,
    can_be_member,
    policy_child,
)
from argosy.dialects.migration.targets import (
    NAMESPACE_INDEX,
    TARGETS,
    MigratedPod,
    Target,
    pods_in_members,
    pods_of,
)
from argosy.kinds.migration import MEMBER_CLUSTER, MIGRATION_FINALIZER, CheckpointBackup, StatefulMigration
from argosy.plan.actions import Action, ActionResult, ActionStatus, EmitEvent, Patch
from argosy.plan.children import Child, KubernetesObject
from argosy.plan.contract import Decision, Inputs, Matching, Need, Ref
from argosy.plan.diff import changes

TARGET_LABEL: Final = "checkpoint-migration.dcn.io"
RESYNC: Final = timedelta(minutes=5)


class MigrationReconciler:
    """Reconciles StatefulMigrations in the cluster of this name."""

    record = None
    owns: tuple[type[KubernetesObject], ...] = (CheckpointBackup, PropagationPolicy)
    finalizer = MIGRATION_FINALIZER

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster

    def needs(self, obj: StatefulMigration, record: Struct | None) -> Iterable[Need]:
        del record
        target = _target(obj)
        if target is None:
            return ()
        return (target, Matching(MigratedPod, NAMESPACE_INDEX, target.namespace))

    def decide(
        self, obj: StatefulMigration, record: Struct | None, inputs: Inputs, now: datetime
    ) -> Decision:
        del record
        reference = _target(obj)
        found = inputs.get(reference) if reference is not None else None
        target = found if isinstance(found, tuple(TARGETS.values())) else None
        if obj.metadata.deletion_timestamp is not None:
            is_other = bool(_foreign_namespace(obj))
            return Decision(obj.status, actions=() if is_other else _unlabel(target), released=True)
        kind, name = obj.spec.resource_ref.kind, obj.spec.resource_ref.name
        if reference is None:
            return _not_ready(obj, reasons.UNSUPPORTED_KIND, f"unsupported resource kind: {kind}", now)
        if problem := _problem(obj):
            return _not_ready(obj, reasons.INVALID_SPEC, problem, now)
        if target is None:
            message = f"{kind} {reference.namespace}/{name} not found"
            return _not_ready(obj, reasons.RESOURCE_NOT_FOUND, message, now)
        pods = pods_of(target, inputs.all(Matching(MigratedPod, NAMESPACE_INDEX, reference.namespace)))
        return self._back_up(obj, target, pods, inputs, now)

    def _back_up(
        self, obj: StatefulMigration, target: Target, pods: list[MigratedPod], inputs: Inputs, now: datetime
    ) -> Decision:
        served = self._served(obj, is_karmada=PropagationPolicy not in inputs.unserved)
        members = [name for name in served if name != self._cluster]
        elsewhere = pods_in_members(target, pods, MAX_BACKUPS + 1)
        if len(elsewhere) * len(members) > MAX_BACKUPS:
            problem = f"spec.sourceClusters: too many backups: must be at most {MAX_BACKUPS}"
            return _not_ready(obj, reasons.INVALID_SPEC, problem, now)
        backups: list[Child] = []
        policies: list[Child] = []
        taken = _taken_names(inputs)
        existing = {child.metadata.name for child in inputs.owned(CheckpointBackup)}
        for name in served:
            member = name != self._cluster
            found = elsewhere if member else pods
            added = backup_children(obj, found, name, existing, taken, member=member)
            taken |= {child.name for child in added}
            backups += added
            if member:
                policies += [policy_child(child, obj.metadata.namespace, name) for child in added]
        ready, reason, message = self._outcome(obj, served, backups, inputs)
        counted = replace(obj, status=replace(obj.status, backup_count=len(backups), served_clusters=served))
        actions = (*_label(target), *_changes(obj, served, backups + policies, inputs))
        return replace(_decision(counted, ready, reason, message, now), actions=actions)

    def _served(self, obj: StatefulMigration, *, is_karmada: bool) -> list[str]:
        """Return the source clusters that this operator can reach, each once."""
        names = dict.fromkeys(obj.spec.source_clusters)
        return [name for name in names if name == self._cluster or (is_karmada and can_be_member(name))]

    def _outcome(
        self, obj: StatefulMigration, served: list[str], backups: list[Child], inputs: Inputs
    ) -> tuple[str, str, str]:
        """Return status, reason and message of the condition Ready."""
        unknown = [name for name in dict.fromkeys(obj.spec.source_clusters) if name not in served]
        if unknown:
            own = self._cluster or "not named"
            message = f"unknown clusters: {', '.join(unknown)} (this cluster: {own})"
            return "False", reasons.CLUSTER_UNKNOWN, message
        for item in inputs.failures:
            if item.kind == PropagationPolicy.resource.kind:
                message = f"{item.kind} {item.name}: {item.message}"
                return "False", reasons.POLICY_REJECTED, message
            if not _is_taken(item):
                return "False", reasons.BACKUP_REJECTED, item.message
        if not backups:
            return "True", reasons.NO_PODS, "the workload has no pods"
        return "True", reasons.BACKUPS_CREATED, f"{len(backups)} backups"


def _changes(
    obj: StatefulMigration, served: list[str], wanted: list[Child], inputs: Inputs
) -> tuple[Action, ...]:
    """Return what brings both kinds of children to the wanted ones.

    An API server that has just been started may not serve Karmada's kinds yet. So backups of a source cluster
    that is not served are kept: without them Karmada would delete the copies there.
    """
    lost = {name for name in obj.spec.source_clusters if name not in served}
    backups = inputs.owned(CheckpointBackup)
    known = tuple(child for child in backups if child.metadata.annotations.get(MEMBER_CLUSTER) not in lost)
    policies = inputs.owned(PropagationPolicy)
    wanted_policies = [child for child in wanted if child.kind is PropagationPolicy]
    wanted_backups = [child for child in wanted if child.kind is not PropagationPolicy]
    return (
        *changes(wanted_backups, replace(inputs, children=known), prune=True),
        *changes(wanted_policies, replace(inputs, children=policies), prune=True, drift=True),
    )


def _taken_names(inputs: Inputs) -> set[str]:
    """Return the names of backups that other objects have."""
    return {item.name for item in inputs.failures if _is_taken(item)}


def _is_taken(item: ActionResult) -> bool:
    is_backup = item.kind == CheckpointBackup.resource.kind
    return is_backup and item.status is ActionStatus.NAME_CONFLICT


def _target(obj: StatefulMigration) -> Ref[Target] | None:
    """Return the workload; None if its kind is not supported."""
    reference = obj.spec.resource_ref
    kind = TARGETS.get(reference.kind.lower())
    if kind is None:
        return None
    return Ref(kind, reference.name, reference.namespace or obj.metadata.namespace)


def _problem(obj: StatefulMigration) -> str:
    """Return what is wrong with the spec; empty if nothing is."""
    spec = obj.spec
    if problem := _foreign_namespace(obj):
        return problem
    if not spec.source_clusters:
        return "spec.sourceClusters: must not be empty"
    try:
        parse_schedule(spec.schedule)
        with_registry(spec.registry.url, f"{spec.registry.repository}/image:tag")
    except (InvalidScheduleError, InvalidImageNameError) as error:
        return str(error)
    return ""


def _foreign_namespace(obj: StatefulMigration) -> str:
    """Return which namespace is named that must not be; empty if there is none."""
    spec, own = obj.spec, obj.metadata.namespace
    secret = spec.registry.secret_ref
    for path, namespace in (
        ("spec.resourceRef.namespace", spec.resource_ref.namespace),
        ("spec.registry.secretRef.namespace", secret.namespace if secret else ""),
    ):
        if namespace not in ("", own) and own not in DEFAULT_TRUSTED:
            return f"{path}: invalid value {namespace!r}: must be {own!r}"
    return ""


def _label(target: Target) -> tuple[Action, ...]:
    if target.metadata.labels.get(TARGET_LABEL) == "true":
        return ()
    return (_patch(target, "true"),)


def _unlabel(target: Target | None) -> tuple[Action, ...]:
    if target is None or TARGET_LABEL not in target.metadata.labels:
        return ()
    return (_patch(target, None),)


def _patch(target: Target, value: str | None) -> Patch:
    meta = target.metadata
    patch = {"metadata": {"labels": {TARGET_LABEL: value}}}
    return Patch(type(target), meta.name, meta.namespace, meta.uid, patch)


def _not_ready(obj: StatefulMigration, reason: str, message: str, now: datetime) -> Decision:
    return _decision(obj, "False", reason, message, now)


def _decision(obj: StatefulMigration, ready: str, reason: str, message: str, now: datetime) -> Decision:
    """Return the status with the condition Ready, and an event if its reason has changed."""
    before = next((item.reason for item in obj.status.conditions if item.type == READY), "")
    generation = obj.metadata.generation
    listed = with_ready(obj.status.conditions, ready, reason, message, generation, now)
    status = replace(obj.status, conditions=listed, observed_generation=generation)
    events = (EmitEvent("Normal" if ready == "True" else "Warning", reason, message),)
    return Decision(status, events=events if reason != before else (), requeue_at=now + RESYNC)
