"""Registers TrainingRun, the API of Argosy's own (`argosy.dev`)."""

from typing import TYPE_CHECKING, Final

from argosy.kinds.trainingrun import TrainingRun
from argosy.operator.apis.base import Api, start_controllers
from argosy.operator.apis.summary import JobSummary, RoleSummary, job_kind
from argosy.operator.rbac import CHECKPOINT_RULES, job_rules

if TYPE_CHECKING:  # needed by a running operator only
    from argosy.operator.manager import Manager
    from argosy.operator.settings import Settings


def _add_controllers(manager: "Manager", settings: "Settings") -> None:
    from argosy.dialects.trainingrun.dialect import training_run_api

    manager.add_jobs(training_run_api(cluster_domain=settings.cluster_domain))


def summarize(run: TrainingRun) -> JobSummary:
    """Return what the CLI shows of a TrainingRun."""
    status = run.status
    return JobSummary(
        kind=run.resource.kind,
        namespace=run.metadata.namespace,
        name=run.metadata.name,
        uid=run.metadata.uid,
        created=run.metadata.creation_timestamp,
        framework=run.spec.framework,
        phase=status.phase or "Pending",
        reason=status.reason,
        message=status.message,
        attempt=status.attempt,
        restarts=status.restarts,
        started=status.start_time is not None,
        roles=[_summarize_role(run, name) for name in sorted(run.spec.roles)],
        conditions=[(c.type, c.status, c.reason, c.message) for c in status.conditions],
        restart_history=status.restart_history,
        notices=status.notices,
        checkpoint=status.checkpoint,
        recoveries=status.recoveries,
        usage=status.usage,
    )


def _summarize_role(run: TrainingRun, name: str) -> RoleSummary:
    role, desired = run.status.roles.get(name), run.spec.roles[name].replicas
    if role is None:
        return RoleSummary(name, "Pending", 0, desired, 0, "")
    return RoleSummary(name, role.phase, role.active + role.succeeded, desired, role.restarts, role.message)


ARGOSY: Final = Api(
    name="argosy",
    custom_resources=(TrainingRun,),
    jobs=(job_kind(TrainingRun, "tr", summarize),),
    rules=(
        *job_rules(TrainingRun.resource.group, TrainingRun.resource.plural),
        *CHECKPOINT_RULES,
    ),
    start=start_controllers(_add_controllers),
)
