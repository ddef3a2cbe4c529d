"""Registers CheckpointRestore and StatefulMigration with an operator, and lists the rights that they need."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from argosy.dialects.migration.karmada import PropagationPolicy
from argosy.dialects.migration.targets import Deployment, StatefulSet
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Pod
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore, StatefulMigration
from argosy.operator.rbac import MANAGE, READ, PolicyRule, kind_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.manager import Manager

RULES: Final = (
    *kind_rules(CheckpointRestore, owns=(Pod,)),
    *kind_rules(StatefulMigration, owns=(CheckpointBackup,)),
    PolicyRule(
        group=StatefulSet.resource.group,
        resources=(Deployment.resource.plural, StatefulSet.resource.plural),
        verbs=(*READ, "patch"),
        reason="workloads of StatefulMigrations; patch: their label",
    ),
    PolicyRule(
        group=PropagationPolicy.resource.group,
        resources=(PropagationPolicy.resource.plural,),
        verbs=MANAGE,
        reason="StatefulMigrations of other clusters, on the API server of Karmada",
    ),
)


def add_migrations(manager: "Manager", settings: SpotSettings) -> None:
    """Serve both kinds."""
    from argosy.dialects.migration.migration import MigrationReconciler
    from argosy.dialects.migration.restore import RestoreReconciler
    from argosy.dialects.migration.targets import NAMESPACE_INDEX, MigratedPod, pods_by_namespace
    from argosy.reconcile.runner import ReconciledKind

    restores: ReconciledKind[CheckpointRestore, Struct] = ReconciledKind(
        kind=CheckpointRestore,
        reconciler=RestoreReconciler(),
        needed={CheckpointBackup: {}},
        on_demand=frozenset({CheckpointBackup, Pod}),
    )
    migrations: ReconciledKind[StatefulMigration, Struct] = ReconciledKind(
        kind=StatefulMigration,
        reconciler=MigrationReconciler(settings.cluster_name),
        needed={
            StatefulSet: {},
            Deployment: {},
            MigratedPod: {NAMESPACE_INDEX: pods_by_namespace},
        },
        optional=frozenset({PropagationPolicy}),
        on_demand=frozenset({StatefulSet, Deployment, MigratedPod, PropagationPolicy}),
    )
    manager.add_kind(restores)
    manager.add_kind(migrations)
