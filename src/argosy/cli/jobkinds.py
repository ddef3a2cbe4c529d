"""Finds jobs of all kinds by name, and summarizes them in one form for `ps`, `describe` and `run`.

If two kinds have a job of the same name, `tr/NAME` and `aj/NAME` select one.
"""

import contextlib
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
    """What the CLI shows of a job, independent of its kind."""

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
        """Return running and succeeded pods of the desired ones, of role worker if there is one: `3/4`."""
        roles = [role for role in self.roles if role.name == WORKER] or self.roles
        if not roles:
            return ""
        return f"{sum(role.ready for role in roles)}/{sum(role.desired for role in roles)}"


async def find(client: Client, namespace: str, name: str) -> Job:
    """Return the job of this name; raise NotFound if no kind has one."""
    prefix, _, plain = name.rpartition("/")
    if prefix and prefix not in KINDS:
        raise click.ClickException(
            f"{name}: invalid name: must be {' or '.join(f'{known}/{plain}' for known in KINDS)}"
        )
    not_found: NotFound | None = None
    for kind in (KINDS[prefix],) if prefix else KINDS.values():
        try:
            return await client.get(kind, plain, namespace)
        except NotFound as error:
            not_found = not_found or error
    assert not_found is not None
    raise not_found


async def find_all(client: Client, namespace: str | None) -> list[Job]:
    """Return all jobs of the kinds that the cluster serves; raise NotFound if it has no TrainingRun CRD."""
    jobs: list[Job] = list((await client.list(TrainingRun, namespace)).items)
    with contextlib.suppress(NotFound):  # installed without that API
        jobs += (await client.list(AresJob, namespace)).items
    return jobs


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
        conditions=[(c.type, c.status, c.reason, c.message) for c in status.conditions],
        restart_history=status.restart_history,
    )


def _training_run_role(run: TrainingRun, name: str) -> RoleSummary:
    role, desired = run.status.roles.get(name), run.spec.roles[name].replicas
    if role is None:
        return RoleSummary(name, "Pending", 0, desired, 0, "")
    return RoleSummary(name, role.phase, role.active + role.succeeded, desired, role.restarts, role.message)


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
        conditions=[(c.type, c.status, c.reason, c.message) for c in status.conditions],
        restart_history=status.restart_history,
    )


def _ares_job_role(job: AresJob, name: str) -> RoleSummary:
    role, desired = job.status.role_statuses[name], _ares_job_replicas(job, name)
    return RoleSummary(name, role.phase, role.active + role.succeeded, desired, role.restarts, role.message)


def _ares_job_replicas(job: AresJob, name: str) -> int:
    roles = job.spec.get("roleSpecs")
    role = roles.get(name) if isinstance(roles, dict) else None
    replicas = role.get("replicas") if isinstance(role, dict) else None
    return replicas if isinstance(replicas, int) else 1
