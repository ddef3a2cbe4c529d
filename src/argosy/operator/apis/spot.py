"""Registers SpotInstanceJob, its VMs and its checkpoints, and pools of such VMs.

They are the APIs of spot-instance-training-operator (`training.training.dcnlab.com`) and of
stateful-migration-operator (`migration.dcnlab.com`); MachinePool is Argosy's own.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from argosy.dialects.spot.settings import SpotSettings
from argosy.kinds.kubernetes import Job, Namespace, Node, Pod, Secret
from argosy.kinds.machinepool import MachinePool
from argosy.kinds.migration import CheckpointBackup, CheckpointRestore, StatefulMigration
from argosy.kinds.spot import INSTANCE_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
from argosy.operator.apis.base import Api, Preset, RunningApi, SettingOption, StartContext
from argosy.operator.apis.machines import RULES as POOL_RULES
from argosy.operator.apis.machines import add_machine_pools
from argosy.operator.apis.spot_agent import RULES as AGENT_RULES
from argosy.operator.apis.spot_migration import POD_WEBHOOK, add_migrations, add_pod_reviews
from argosy.operator.apis.spot_migration import RULES as MIGRATION_RULES
from argosy.operator.apis.spot_summary import PODS, summarize
from argosy.operator.apis.summary import job_kind
from argosy.operator.rbac import READ, PolicyRule, ResourceName, kind_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.checkpoint.drivers.registry_driver import RegistryDriver
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings
    from argosy.operator.webhooks import Review

NAMESPACE: Final = "spot-instance-training-operator-system"
NAME: Final = "spot-instance-training-operator-controller-manager"
"""Where and under which name spot-instance-training-operator is installed."""


def _seconds(field: str, value: str, help: str, minimum: int = 1) -> SettingOption:
    return SettingOption(
        flag=f"--{field.replace('_', '-')}",
        field=field,
        value=f"spot.{value}",
        help=f"Seconds {help}.",
        minimum=minimum,
    )


OPTIONS: Final = (
    _seconds("join_timeout", "joinTimeoutSeconds", "for a VM to join the cluster and be ready"),
    SettingOption(
        flag="--max-join-attempts",
        field="max_join_attempts",
        value="spot.maxJoinAttempts",
        help="VMs that are bought for one incarnation of a replica of a SpotInstanceJob.",
        minimum=1,
    ),
    _seconds("pods_ready_grace", "podsReadyGraceSeconds", "for DaemonSets' pods on a new node", minimum=0),
    _seconds("instance_poll", "instancePollSeconds", "between two looks at the VMs of a zone"),
    _seconds("backup_pickup_timeout", "backupPickupTimeoutSeconds", "for a CheckpointBackup to be begun"),
    _seconds("backup_timeout", "backupTimeoutSeconds", "for a CheckpointBackup to be finished"),
    _seconds("rescue_timeout", "rescueTimeoutSeconds", "for a checkpoint of a surviving replica"),
    _seconds("lease_loss_timeout", "leaseLossTimeoutSeconds", "of silence after which a node is lost"),
    _seconds("zone_cooldown", "zoneCooldownSeconds", "for which a zone without capacity is left out"),
    _seconds("quota_cooldown", "quotaCooldownSeconds", "for which a region without quota is left out"),
    _seconds("no_capacity_backoff", "noCapacityBackoffSeconds", "before all zones are tried again"),
    _seconds("notice_margin", "noticeMarginSeconds", "before a deadline, for nothing new", minimum=0),
    SettingOption(
        flag="--gce-endpoint",
        field="gce_endpoint",
        value="spot.gceEndpoint",
        help="URL of the API of GCE.",
    ),
    SettingOption(
        flag="--catalog-path",
        field="catalog_path",
        value="spot.catalogPath",
        help="File with the prices of VMs.",
    ),
    SettingOption(
        flag="--bootstrap-token-namespaces",
        field="bootstrap_token_namespaces",
        value="spot.bootstrapTokenNamespaces",
        help="Namespaces, separated by commas, whose VMs may get bootstrap tokens of their own; * for all.",
    ),
    SettingOption(
        flag="--plain-http-registries",
        field="plain_http_registries",
        value="spot.plainHttpRegistries",
        help="Registries, separated by commas, that are asked about images without TLS.",
    ),
    SettingOption(
        flag="--registry-ca",
        field="registry_authority",
        value="registryCA.name",
        file="/etc/argosy-registry-ca/ca.crt",
        help="File with the CA of registries' certificates; empty: those of the system.",
    ),
    SettingOption(
        flag="--cluster-name",
        field="cluster_name",
        value="spot.clusterName",
        help="Name of this cluster in StatefulMigrations.",
    ),
)


def spot_settings(settings: "Settings") -> SpotSettings:
    """Return the part of an operator's settings that concerns SpotInstanceJobs."""
    found = (api.settings for api in settings.apis if isinstance(api.settings, SpotSettings))
    return next(found, SpotSettings())


def registry_driver(settings: SpotSettings) -> "RegistryDriver":
    """Return what asks registries about images."""
    from argosy.checkpoint.drivers.registry_driver import RegistryDriver

    plain_http = [host.strip() for host in settings.plain_http_registries.split(",")]
    authority = Path(settings.registry_authority) if settings.registry_authority else None
    return RegistryDriver(plain_http, authority)


def _add_controllers(manager: "Manager", settings: "Settings") -> None:
    from argosy.checkpoint.image_requests import REGISTRY_DRIVER
    from argosy.dialects.spot import pods
    from argosy.dialects.spot.reconciler import SpotInstanceJobReconciler
    from argosy.engine.cache import Cache
    from argosy.operator.apis.spot_instances import add_instances
    from argosy.operator.apis.spot_metrics import SpotMetrics
    from argosy.operator.apis.spot_views import JOBS_BY_LABEL, add_job_views, jobs_by_label
    from argosy.reconcile.runner import ReconciledKind

    if manager.sources.shared(Node) is None:
        manager.sources.share(manager.caches.nodes)
    by_label = {JOBS_BY_LABEL: jobs_by_label}
    jobs = Cache(manager.client, SpotInstanceJob, namespace=manager.namespace, indexes=by_label)
    manager.sources.share(jobs)
    spot = spot_settings(settings)
    metrics = SpotMetrics(manager.client.metrics.registry, manager.job_metrics.usage)
    add_migrations(manager, spot)
    manager.add_kind(
        ReconciledKind(
            kind=SpotInstanceJob,
            reconciler=SpotInstanceJobReconciler(spot, settings.notices, manager.pods.with_checkpoint),
            needed={
                SpotInstanceVM: {},
                InstanceTemplate: {},
                Node: {pods.ALL_INDEX: pods.everything},
                pods.ClusterPod: {
                    pods.JOB_INDEX: pods.pods_by_job,
                    pods.USAGE_INDEX: pods.pods_by_usage,
                },
                SpotInstanceJob: {pods.ALL_INDEX: pods.everything},
            },
            optional=frozenset({CheckpointBackup}),
            on_demand=frozenset({pods.ClusterPod}),
            drivers={REGISTRY_DRIVER: registry_driver(spot)},
            observer=metrics.jobs,
        )
    )
    job_pods = manager.sources.shared(pods.ClusterPod)
    if job_pods is not None:  # None: this replica only answers pods of other APIs
        add_job_views(manager.job_views, jobs, job_pods)
    add_instances(manager, spot, metrics)
    add_machine_pools(manager)


@asynccontextmanager
async def _start(context: "StartContext") -> "AsyncIterator[RunningApi]":
    from argosy.engine.transport import HttpTransport
    from argosy.operator.apis.spot_checkpoint_http import SEGMENT, CheckpointApi
    from argosy.operator.apis.spot_sweep import InstanceSweeper

    settings, tasks = context.settings, []
    reviews: dict[str, Review] = {}
    transport = HttpTransport(context.connection)
    checkpoints = CheckpointApi(transport)

    def add(manager: "Manager") -> None:
        if settings.webhooks and not settings.endpoint_only:
            reviews.update(add_pod_reviews(manager))
        _add_controllers(manager, settings)
        tasks.append(InstanceSweeper(manager, settings.operator_namespace).run)

    try:
        yield RunningApi(
            add_controllers=add,
            leader_tasks=tasks,
            routes=lambda _endpoint: {SEGMENT: checkpoints.handle},
            reviews=reviews,
        )
    finally:
        await transport.close()


_RULES: Final = (
    *kind_rules(SpotInstanceJob, owns=(Job, CheckpointBackup, ProvisionedInstance)),
    *kind_rules(SpotInstanceVM),
    *kind_rules(InstanceTemplate),
    *kind_rules(ProvisionedInstance),
    *POOL_RULES,
    *MIGRATION_RULES,
    *AGENT_RULES,
    PolicyRule(
        scope="cluster",
        resources=(Node.resource.plural,),
        verbs=("patch", "delete"),
        reason="nodes of VMs that it has bought",
    ),
    PolicyRule(scope="operator", resources=("configmaps",), verbs=("create",)),
    PolicyRule(
        scope="operator",
        resources=("configmaps",),
        names=(ResourceName("argosy-machine-scopes", "`argosy-machine-scopes`"),),
        verbs=("get", "patch"),
        reason="where VMs were requested, to find those that belong to nothing any more",
    ),
    PolicyRule(
        scope="cluster",
        resources=(Namespace.resource.plural,),
        verbs=("get",),
        reason="the uid of kube-system, by which VMs of this cluster are recognized",
    ),
    PolicyRule(
        resources=(Pod.resource.plural,), verbs=("patch", "delete"), reason="replicas and restored pods"
    ),
    PolicyRule(
        resources=(Secret.resource.plural,),
        verbs=(*READ, "create", "delete"),
        reason="credentials that jobs name, and pull Secrets of restored replicas",
    ),
)

SPOT: Final = Api(
    name="spot",
    custom_resources=(
        SpotInstanceJob,
        SpotInstanceVM,
        InstanceTemplate,
        ProvisionedInstance,
        MachinePool,
        CheckpointBackup,
        CheckpointRestore,
        StatefulMigration,
    ),
    jobs=(job_kind(SpotInstanceJob, "sij", summarize, PODS),),
    rules=_RULES,
    start=_start,
    settings=SpotSettings(),
    options=OPTIONS,
    webhooks=(POD_WEBHOOK,),
    preset=Preset(
        NAMESPACE,
        {
            "name": NAME,
            "replicas": 1,
            "podDisruptionBudget": {"enabled": False},
            "features": {"remoteExec": False, "sshKeys": False},
            "gang": {"backend": "none"},
            "tolerations": [
                {
                    "key": "node-role.kubernetes.io/control-plane",
                    "operator": "Exists",
                    "effect": "NoSchedule",
                }
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": INSTANCE_LABEL, "operator": "DoesNotExist"}]}
                        ]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 100,
                            "preference": {
                                "matchExpressions": [
                                    {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
                                ]
                            },
                        }
                    ],
                }
            },
        },
    ),
)
