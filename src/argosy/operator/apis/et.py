"""Registers TrainingJob, ScaleIn and ScaleOut, the API of et-operator (`kai.alibabacloud.com`)."""

from typing import TYPE_CHECKING, Final

from argosy.kinds.scalers import ScaleIn, ScaleInCrd, ScaleOut, ScaleOutCrd
from argosy.kinds.trainingjob import LAUNCHER, WORKER, TrainingJob, TrainingJobCrd
from argosy.operator.apis.base import Api, Preset, start_controllers
from argosy.operator.apis.summary import JobSummary, RoleSummary, job_kind
from argosy.operator.rbac import EXEC_RULE, HOST_LIST_RULES, job_rules, kind_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings

NAMESPACE: Final = "kube-ai"
"""The namespace in which et-operator is installed."""


def _add_controllers(manager: "Manager", settings: "Settings") -> None:
    from argosy.dialects.et.api import training_job_api
    from argosy.dialects.et.scaler import ScalerReconciler
    from argosy.reconcile.runner import ReconciledKind

    manager.add_jobs(training_job_api(cluster_domain=settings.cluster_domain))
    for kind in (ScaleIn, ScaleOut):
        manager.add_kind(ReconciledKind(kind=kind, reconciler=ScalerReconciler(), needed={TrainingJob: {}}))


def summarize(job: TrainingJob) -> JobSummary:
    """Return what the CLI shows of a TrainingJob."""
    status = job.status
    last = next((item for item in reversed(status.conditions) if item.status == "True"), None)
    return JobSummary(
        kind=job.resource.kind,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        created=job.metadata.creation_timestamp,
        framework="",
        phase=status.phase or "Pending",
        reason=last.reason if last else "",
        message=last.message if last else "",
        attempt=status.restart_count + 1,
        restarts=status.restart_count,
        started=status.start_time is not None,
        roles=[_summarize_role(job, role) for role in (LAUNCHER, WORKER)],
        conditions=[(c.type, c.status, c.reason, c.message) for c in status.conditions],
        restart_history=status.restart_history,
    )


def _summarize_role(job: TrainingJob, role: str) -> RoleSummary:
    counts = job.status.replica_statuses.get(role.capitalize())
    desired = 1 if role == LAUNCHER else len(job.status.target_workers)
    running = (counts.active + counts.succeeded) if counts else 0
    return RoleSummary(role, job.status.phase or "Pending", running, desired, 0, "")


ET: Final = Api(
    name="et",
    custom_resources=(TrainingJobCrd, ScaleInCrd, ScaleOutCrd),
    jobs=(job_kind(TrainingJob, "tj", summarize),),
    rules=(
        *job_rules(TrainingJob.resource.group, TrainingJob.resource.plural),
        *kind_rules(ScaleIn),
        *kind_rules(ScaleOut),
        *HOST_LIST_RULES,
        EXEC_RULE,
    ),
    start=start_controllers(_add_controllers),
    preset=Preset(
        NAMESPACE,
        {"name": "et-operator", "replicas": 1, "features": {"remoteExec": True, "sshKeys": True}},
    ),
)
