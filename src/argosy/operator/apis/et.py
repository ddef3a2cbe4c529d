"""Registers TrainingJob, ScaleIn and ScaleOut, the API of et-operator (`kai.alibabacloud.com`)."""

from typing import TYPE_CHECKING, Final

from argosy.dialects.et.reasons import POD_CREATE_FAILED
from argosy.dialects.et.settings import EtSettings
from argosy.dialects.usage import recorded_usage
from argosy.kinds.scalers import ScaleIn, ScaleInCrd, ScaleOut, ScaleOutCrd
from argosy.kinds.trainingjob import LAUNCHER, WORKER, JobCondition, TrainingJob, TrainingJobCrd
from argosy.operator.apis.base import Api, Preset, SettingOption, start_controllers
from argosy.operator.apis.summary import JobSummary, RoleSummary, job_kind
from argosy.operator.rbac import APP_CHECKPOINT_RULES, EXEC_RULE, HOST_LIST_RULES, job_rules, kind_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings

NAMESPACE: Final = "kube-ai"
"""The namespace in which et-operator is installed."""

OPTIONS: Final = (
    SettingOption(
        flag="--create-ssh-secret",
        field="create_ssh_secret",
        value="et.createSshSecret",
        help="Create a Secret with ssh keys for TrainingJobs that name none.",
    ),
    SettingOption(
        flag="--init-container-image",
        field="init_container_image",
        value="et.initContainerImage",
        help="Image of the init container that copies the host list of a TrainingJob.",
    ),
    SettingOption(
        flag="--below-min-timeout",
        field="below_min_timeout",
        value="et.belowMinTimeoutSeconds",
        help="Seconds for which a TrainingJob may have fewer running workers than minReplicas.",
        minimum=1,
    ),
    SettingOption(
        flag="--worker-replacement-limit",
        field="worker_budget.limit",
        value="et.workerReplacementLimit",
        help="How often failed workers of a TrainingJob are replaced in a row.",
    ),
)


def et_settings(settings: "Settings") -> EtSettings:
    """Return the part of an operator's settings that concerns TrainingJobs."""
    return next((api.settings for api in settings.apis if isinstance(api.settings, EtSettings)), EtSettings())


def _add_controllers(manager: "Manager", settings: "Settings") -> None:
    from argosy.dialects.et.api import training_job_api
    from argosy.dialects.et.scaler import ScalerReconciler
    from argosy.reconcile.runner import ReconciledKind

    manager.add_jobs(training_job_api(et_settings(settings), settings.cluster_domain))
    for kind in (ScaleIn, ScaleOut):
        manager.add_kind(ReconciledKind(kind=kind, reconciler=ScalerReconciler(), needed={TrainingJob: {}}))


def summarize(job: TrainingJob) -> JobSummary:
    """Return what the CLI shows of a TrainingJob."""
    status = job.status
    last = next((item for item in reversed(status.conditions) if _is_reported(item)), None)
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
        checkpoint=status.checkpoint,
        recoveries=status.recoveries,
        usage=recorded_usage(status.argosy),
    )


def _is_reported(condition: JobCondition) -> bool:
    return condition.status == "True" or condition.reason == POD_CREATE_FAILED


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
        *APP_CHECKPOINT_RULES,
        EXEC_RULE,
    ),
    start=start_controllers(_add_controllers),
    settings=EtSettings(),
    options=OPTIONS,
    preset=Preset(
        NAMESPACE,
        {
            "name": "et-operator",
            "replicas": 1,
            "podDisruptionBudget": {"enabled": False},
            "features": {"remoteExec": True, "sshKeys": True},
            "gang": {"backend": "auto"},
        },
    ),
)
