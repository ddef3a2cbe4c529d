"""Registers CheckpointRestore, StatefulMigration and the webhook for pods, and lists the rights they need."""

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from argosy.dialects.migration.job_targets import BY_TARGET, CronJob, target_keys
from argosy.dialects.migration.karmada import PropagationPolicy
from argosy.dialects.migration.targets import Deployment, StatefulSet
from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Pod
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore, StatefulMigration
from argosy.operator.apis.base import Webhook
from argosy.operator.rbac import MANAGE, READ, WEBHOOKS, PolicyRule, kind_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.manager import Manager
    from argosy.operator.webhooks import Review

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
    PolicyRule(
        group=CronJob.resource.group,
        resources=(CronJob.resource.plural,),
        verbs=("get",),
        when=(WEBHOOKS,),
        reason="whether the work of a checkpoint is done; read if its namespace has backups of CronJobs",
    ),
)

POD_WEBHOOK: Final = Webhook(
    type="Mutating",
    name="mpod.migration.dcnlab.com",
    path="/mutate-v1-pod",
    resource=Pod.resource,
    operations=("CREATE",),
    failure_policy="Ignore",
    timeout_seconds=5,
    label="job-name",
    system_namespaces=False,
    reinvocation=True,
)
"""Lets pods of Jobs start from checkpoints. Training starts without it too, so it must not hold up any pod.
Other webhooks may change images or add containers, so it looks again after them."""


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


def add_pod_reviews(manager: "Manager") -> "dict[str, Review]":
    """Return the review of new pods of Jobs, by its path."""
    from argosy.operator.apis.spot_pod_webhook import PodMetrics, PodReviewer

    backups = manager.watch(CheckpointBackup)
    backups.add_index(BY_TARGET, target_keys)
    reviewer = PodReviewer(manager.client, backups, PodMetrics(manager.client.metrics.registry))
    return {POD_WEBHOOK.path: reviewer.review}
