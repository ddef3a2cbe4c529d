"""The kinds of jobs that the everyday verbs know, and one way to show them all.

A job is named as it is called; where two kinds have one of that name, `tr/NAME` and `aj/NAME` say which.
"""

from datetime import datetime

import click
from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.kinds.aresjob import AresJob
from argosy.kinds.restart_status import RestartStatus
from argosy.kinds.trainingrun import WORKER, TrainingRun
from argosy.workload.record import decode

Job = TrainingRun | AresJob
Kind = type[TrainingRun] | type[AresJob]
KINDS: dict[str, Kind] = {"tr": TrainingRun, "aj": AresJob}


class RoleSummary(Struct, frozen=True):
    name: str
    phase: str
    ready: int
    desired: int
    restarts: int
    message: str


class JobSummary(Struct, frozen=True):
    """A job as it is shown to people, whatever kind it is of."""

    kind: str
    namespace: str
    name: str
    uid: str
    created: datetime | None
    framework: str
    phase: str
    reason: str
    message: str
    attempt: int
    restarts: int
    started: bool
    roles: list[RoleSummary] = field(default_factory=list)
    conditions: list[tuple[str, str, str, str]] = field(default_factory=list)
    restart_history: list[RestartStatus] = field(default_factory=list)

    @property
    def workers(self) -> str:
        """Running or succeeded of wanted pods, of role worker if there is one."""
        counted = [role for role in self.roles if role.name == WORKER] or self.roles
        return (
            f"{sum(role.ready for role in counted)}/{sum(role.desired for role in counted)}"
            if counted
            else ""
        )


async def find(client: Client, namespace: str, name: str) -> Job:
    """The job of this name; NotFound if there is none of any kind."""
    short, _, plain = name.rpartition("/")
    if short and short not in KINDS:
        raise click.ClickException(f"{short}/{plain}: write {' or '.join(f'{one}/{plain}' for one in KINDS)}")
    missing: NotFound | None = None
    for kind in (KINDS[short],) if short else KINDS.values():
        try:
            return await client.get(kind, plain, namespace)
        except NotFound as error:
            missing = missing or error
    assert missing is not None
    raise missing


async def find_all(client: Client, namespace: str | None) -> list[Job]:
    """All jobs of the kinds that the cluster knows; NotFound if it knows none of them."""
    found: list[Job] = list((await client.list(TrainingRun, namespace)).items)
    try:
        found += (await client.list(AresJob, namespace)).items
    except NotFound:
        return found  # installed without that API
    return found


def summarize(job: Job) -> JobSummary:
    return _summarize_training_run(job) if isinstance(job, TrainingRun) else _summarize_ares_job(job)


def _summarize_training_run(run: TrainingRun) -> JobSummary:
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
        roles=[_training_run_role(run, name) for name in sorted(run.spec.roles)],
        conditions=[(one.type, one.status, one.reason, one.message) for one in status.conditions],
        restart_history=status.restart_history,
    )


def _training_run_role(run: TrainingRun, name: str) -> RoleSummary:
    role, wanted = run.status.roles.get(name), run.spec.roles[name].replicas
    if role is None:
        return RoleSummary(name, "Pending", 0, wanted, 0, "")
    return RoleSummary(name, role.phase, role.active + role.succeeded, wanted, role.restarts, role.message)


def _summarize_ares_job(job: AresJob) -> JobSummary:
    status = job.status
    record = decode(status.argosy)
    return JobSummary(
        kind=job.resource.kind,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        uid=job.metadata.uid,
        created=job.metadata.creation_timestamp,
        framework=str(job.spec.get("frameworkType", "")),
        phase=status.phase or "Pending",
        reason="",
        message=status.message,
        attempt=record.attempt if record and status.start_time else 0,
        restarts=sum(role.restarts for role in status.role_statuses.values()),
        started=status.start_time is not None,
        roles=[_ares_job_role(job, name) for name in sorted(status.role_statuses)],
        conditions=[(one.type, one.status, one.reason, one.message) for one in status.conditions],
        restart_history=status.restart_history,
    )


def _ares_job_role(job: AresJob, name: str) -> RoleSummary:
    role, wanted = job.status.role_statuses[name], _ares_job_replicas(job, name)
    return RoleSummary(name, role.phase, role.active + role.succeeded, wanted, role.restarts, role.message)


def _ares_job_replicas(job: AresJob, name: str) -> int:
    roles = job.spec.get("roleSpecs")
    role = roles.get(name) if isinstance(roles, dict) else None
    replicas = role.get("replicas") if isinstance(role, dict) else None
    return replicas if isinstance(replicas, int) else 1
