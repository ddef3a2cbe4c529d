"""Registers TrainingJobs: the dialect with everything that this API has beyond a translation."""

from argosy.dialects.base import Adoption, JobApi, RequestKind
from argosy.dialects.checkpoints import CHILD_KINDS
from argosy.dialects.et import adoption, events, requests
from argosy.dialects.et.dialect import TrainingJobDialect
from argosy.dialects.et.injection import inject
from argosy.dialects.et.max_wait_time import resumed_patch, suspending_patch
from argosy.dialects.et.settings import EtSettings
from argosy.frameworks.base import Injection
from argosy.kinds.kubernetes import ConfigMapMetadata
from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.kinds.trainingjob import TrainingJob
from argosy.plan.children import KubernetesObject
from argosy.workload.model import DEFAULT_CLUSTER_DOMAIN, Role, Workload
from argosy.workload.scale_request import ScaleRequest


def training_job_api(
    settings: EtSettings = EtSettings(), cluster_domain: str = DEFAULT_CLUSTER_DOMAIN
) -> JobApi[TrainingJob]:
    """Return what is registered for TrainingJobs."""

    def inject_pod(workload: Workload, role: Role, index: int) -> Injection:
        return inject(workload, role, index, settings.init_container_image)

    return JobApi(
        dialect=TrainingJobDialect(settings, cluster_domain),
        inject=inject_pod,
        empty=TrainingJob,
        status_events=events.status_events,
        action_events=events.action_events,
        spec_patch=resumed_patch,
        timed_patch=suspending_patch,
        adoption=Adoption(adoption.adopted_record, adoption.adopted_replica),
        requests=tuple(RequestKind(kind, _job_name, _to_request, _asks) for kind in (ScaleIn, ScaleOut)),
        child_kinds=(ConfigMapMetadata, *CHILD_KINDS),
        write_time_field="last_reconcile_time",
    )


def _job_name(obj: KubernetesObject) -> str:
    return requests.job_name(obj) if isinstance(obj, ScaleIn | ScaleOut) else ""


def _asks(obj: KubernetesObject) -> object:
    return requests.asks(obj) if isinstance(obj, ScaleIn | ScaleOut) else None


def _to_request(obj: KubernetesObject, workload: Workload) -> ScaleRequest | None:
    return requests.to_request(obj, workload) if isinstance(obj, ScaleIn | ScaleOut) else None
