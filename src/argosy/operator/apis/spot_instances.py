"""Adds the controllers for the VMs of SpotInstanceJobs to an operator."""

from pathlib import Path
from typing import TYPE_CHECKING

from argosy.dialects.spot.settings import SpotSettings
from argosy.engine.logs import Logger

if TYPE_CHECKING:  # needed by a running operator only
    from collections.abc import Mapping

    from argosy.capacity.catalog import Catalog
    from argosy.engine.client import Client
    from argosy.operator.apis.spot_metrics import SpotMetrics
    from argosy.operator.manager import Manager
    from argosy.plan.drivers import Driver
    from argosy.reconcile.sources import Index

log = Logger(__name__)


def add_instances(manager: "Manager", settings: SpotSettings, metrics: "SpotMetrics") -> None:
    """Serve ProvisionedInstance and the templates of VMs."""
    from argosy.dialects.spot.instance import (
        JOB_INDEX,
        MACHINE_INDEX,
        PROVIDER_INDEX,
        TEMPLATE_INDEX,
        InstanceReconciler,
        instances_by_job,
        instances_by_machine,
        instances_by_template,
        nodes_by_provider_id,
    )
    from argosy.kinds.kubernetes import Node
    from argosy.kinds.machinepool import MachinePool
    from argosy.kinds.spot import SpotInstanceJob
    from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
    from argosy.reconcile.runner import ReconciledKind

    catalog = read_catalog_file(settings.catalog_path)
    instances = {
        JOB_INDEX: instances_by_job,
        MACHINE_INDEX: instances_by_machine,
        TEMPLATE_INDEX: instances_by_template,
    }
    manager.add_kind(
        ReconciledKind(
            kind=ProvisionedInstance,
            reconciler=InstanceReconciler(settings, catalog, manager.notices),
            needed={
                ProvisionedInstance: instances,
                SpotInstanceVM: {},
                InstanceTemplate: {},
                SpotInstanceJob: {},
                MachinePool: {},
                Node: {PROVIDER_INDEX: nodes_by_provider_id},
            },
            optional=frozenset({MachinePool}),
            drivers=_drivers(manager.client, settings),
            observer=metrics.instances,
        )
    )
    _add_templates(manager, instances)


def _add_templates(manager: "Manager", instances: "Mapping[str, Index]") -> None:
    from argosy.dialects.spot.templates import InstanceTemplateReconciler, SpotInstanceVMReconciler
    from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
    from argosy.reconcile.runner import ReconciledKind

    manager.add_kind(ReconciledKind(kind=InstanceTemplate, reconciler=InstanceTemplateReconciler()))
    manager.add_kind(
        ReconciledKind(
            kind=SpotInstanceVM,
            reconciler=SpotInstanceVMReconciler(),
            needed={ProvisionedInstance: instances},
        )
    )


def _drivers(client: "Client", settings: SpotSettings) -> "dict[str, Driver]":
    from argosy.capacity.drivers.bootstrap_tokens import BootstrapTokens
    from argosy.capacity.drivers.cluster_identity import ClusterIdentityDriver
    from argosy.capacity.drivers.gce import GceDriver
    from argosy.capacity.drivers.node_pods import NodePodsDriver
    from argosy.capacity.join import TOKEN_DRIVER
    from argosy.capacity.machine_plan import NODE_PODS
    from argosy.capacity.provider import CLUSTER_VIEW
    from argosy.capacity.providers import gce

    return {
        gce.DRIVER: GceDriver(settings.gce_endpoint, client.check_lease),
        TOKEN_DRIVER: BootstrapTokens(client),
        NODE_PODS: NodePodsDriver(client),
        CLUSTER_VIEW.driver: ClusterIdentityDriver(client),
    }


def read_catalog_file(path: str) -> "Catalog":
    """Return the catalog of prices in a file; an empty one if there is none that can be read."""
    from argosy.capacity.catalog import EMPTY, read_catalog

    if not path:
        return EMPTY
    try:
        return read_catalog(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        log.warning("no catalog of prices", path=path, error=str(error))
        return EMPTY
