"""All built-in controllers and the scheduler together, over one client."""

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.events import Recorder
from argosy.local.controllers.aggregation import AggregationController
from argosy.local.controllers.deployment.controller import DeploymentController
from argosy.local.controllers.disruption.controller import DisruptionController
from argosy.local.controllers.endpoints.controller import EndpointsController
from argosy.local.controllers.gc.controller import REDISCOVER, GarbageCollector
from argosy.local.controllers.informers import Shared, run_all
from argosy.local.controllers.job.backoff import Backoff
from argosy.local.controllers.job.controller import JobController
from argosy.local.controllers.namespaces import NamespacesController
from argosy.local.controllers.node_lifecycle.controller import GRACE, NodeController
from argosy.local.controllers.node_lifecycle.podgc import QUARANTINE, PodCollector
from argosy.local.controllers.quotas import QuotasController
from argosy.local.controllers.replicaset.controller import ReplicaSetController
from argosy.local.controllers.serviceaccounts import AccountsController
from argosy.local.controllers.volumeclaims import VolumeClaimsController
from argosy.local.scheduler.scheduler import Scheduler

COMPONENT = "argosy-controllers"


class Timings(Struct, frozen=True):
    """Everything that takes its time; tests shorten it."""

    node_grace: float = GRACE
    longest_toleration: float | None = None
    quarantine: float = QUARANTINE
    namespace_again: float = 1.0
    rediscover: float = REDISCOVER
    job_backoff: Backoff = Backoff()


async def run(client: Client, timings: Timings = Timings(), clock: Clock = SystemClock()) -> None:
    """Run until cancelled."""
    recorder = Recorder(client, COMPONENT, clock=clock)
    shared = Shared(client, recorder, clock)
    authority = client.connection.certificate_authority or b""
    rooms = (
        Scheduler(shared),
        JobController(shared, timings.job_backoff),
        ReplicaSetController(shared),
        DeploymentController(shared),
        EndpointsController(shared),
        AccountsController(shared, authority.decode()),
        AggregationController(shared),
        NodeController(shared, grace=timings.node_grace, longest_toleration=timings.longest_toleration),
        PodCollector(shared, timings.quarantine),
        DisruptionController(shared),
        QuotasController(shared),
        VolumeClaimsController(shared),
        NamespacesController(shared, timings.namespace_again),
        GarbageCollector(shared, timings.rediscover),
    )
    try:
        await run_all(shared, rooms)
    finally:
        await recorder.close()
