"""Runs the scheduler and all built-in controllers with one client."""

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.events import Recorder
from argosy.local.controllers.aggregation import AggregationController
from argosy.local.controllers.deployment.controller import DeploymentController
from argosy.local.controllers.disruption.controller import DisruptionController
from argosy.local.controllers.endpoints.controller import EndpointsController
from argosy.local.controllers.gc.controller import REDISCOVERY_SECONDS, GarbageCollector
from argosy.local.controllers.informers import ControllerContext, run_all
from argosy.local.controllers.job.backoff import JobBackoff
from argosy.local.controllers.job.controller import JobController
from argosy.local.controllers.namespaces import NamespacesController
from argosy.local.controllers.node_lifecycle.controller import NodeLifecycleController
from argosy.local.controllers.node_lifecycle.podgc import QUARANTINE_SECONDS, PodGarbageCollector
from argosy.local.controllers.quotas import QuotasController
from argosy.local.controllers.replicaset.controller import ReplicaSetController
from argosy.local.controllers.serviceaccounts import ServiceAccountsController
from argosy.local.controllers.volumeclaims import VolumeClaimsController
from argosy.local.processes import NODE_MONITOR_GRACE_SECONDS
from argosy.local.scheduler.scheduler import Scheduler

COMPONENT = "argosy-controllers"


class Timings(Struct, frozen=True):
    """All delays of the controllers; tests shorten them."""

    node_grace: float = NODE_MONITOR_GRACE_SECONDS
    max_toleration: float | None = None
    quarantine: float = QUARANTINE_SECONDS
    namespace_retry: float = 1.0
    rediscovery: float = REDISCOVERY_SECONDS
    job_backoff: JobBackoff = JobBackoff()


async def run_controllers(client: Client, timings: Timings = Timings(), clock: Clock = SystemClock()) -> None:
    """Run until cancelled."""
    recorder = Recorder(client, COMPONENT, clock=clock)
    context = ControllerContext(client, recorder, clock)
    authority = client.connection.certificate_authority or b""
    runnables = (
        Scheduler(context),
        JobController(context, timings.job_backoff),
        ReplicaSetController(context),
        DeploymentController(context),
        EndpointsController(context),
        ServiceAccountsController(context, authority.decode()),
        AggregationController(context),
        NodeLifecycleController(context, grace=timings.node_grace, longest_toleration=timings.max_toleration),
        PodGarbageCollector(context, timings.quarantine),
        DisruptionController(context),
        QuotasController(context),
        VolumeClaimsController(context),
        NamespacesController(context, timings.namespace_retry),
        GarbageCollector(context, timings.rediscovery),
    )
    try:
        await run_all(context, runnables)
    finally:
        await recorder.close()
