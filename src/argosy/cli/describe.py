"""`argosy describe`: shows the state and history of one job."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import click
import msgspec

from argosy.cli.cluster_access import async_command, cluster_options, connect
from argosy.cli.follow import sort_pods
from argosy.cli.jobkinds import find, kind_of
from argosy.cli.jobs import output_option
from argosy.cli.tables import age, byte_count, columns, command_line
from argosy.kinds.checkpoint_status import CheckpointStatus
from argosy.kinds.kubernetes import Event, Pod
from argosy.kinds.labels import ATTEMPT
from argosy.kinds.notice_status import NoticeStatus
from argosy.kinds.restart_status import RestartStatus
from argosy.kinds.text import join_names, pluralize
from argosy.kinds.usage_status import ACTIVITIES, UsageStatus
from argosy.operator.apis.summary import JobSummary, PodLabels, ReplicaSummary

MAX_EVENTS = 20
_REPLICA_COLUMNS = (
    *("REPLICA", "PHASE", "INCARNATION", "START", "NODE", "MACHINE", "ZONE", "PRICE/H"),
    *("RESTARTS", "PREEMPTIONS"),
)
_RECOVERY_COLUMNS = ("AGE", "CAUSE", "SOURCE", "ACTION", "OUTCOME", "STEPS LOST", "MESSAGE")


@click.command()
@cluster_options
@click.argument("name")
@output_option
@async_command
async def describe(
    kubeconfig: str | None, context: str | None, namespace: str, name: str, output: str
) -> None:
    """Show one job: phase, roles, pods, restarts, conditions and events."""
    async with connect(kubeconfig, context) as client:
        job = await find(client, namespace, name)
        if output == "json":
            path = job.resource.path(job.metadata.name, namespace)
            click.echo(msgspec.json.format(await client.request("GET", path)))
            return
        kind = kind_of(job)
        summary, labels = kind.summarize(job), kind.pods
        pods = sort_pods(
            (await client.list(Pod, namespace, labels=labels.selector(summary.name))).items, labels
        )
        events = (await client.list(Event, namespace, fields=f"involvedObject.uid={summary.uid}")).items
    click.echo(format_job(summary, pods, events, datetime.now(UTC), labels))


def format_job(
    job: JobSummary,
    pods: Sequence[Pod],
    events: Sequence[Event],
    now: datetime,
    labels: PodLabels = PodLabels(),
) -> str:
    """Return the header and a titled table for each part that has rows."""
    tables: dict[str, tuple[tuple[str, ...], Sequence[tuple[str, ...]]]] = {
        "Roles": (("ROLE", "PHASE", "READY", "RESTARTS", "MESSAGE"), _roles(job)),
        "Replicas": (_REPLICA_COLUMNS, _replicas(job.replicas)),
        "Pods": (("POD", "STATUS", "ATTEMPT", "NODE", "AGE", "MESSAGE"), _pods(pods, labels, now)),
        "Time": (("ACTIVITY", "REPLICA TIME", "SHARE"), _usage(job.usage, now)),
        "Restarts": (("AGE", "ATTEMPT", "CAUSE", "SCOPE", "MESSAGE"), _restarts(job.restart_history, now)),
        "Notices": (("DEADLINE", "CAUSE", "RESPONSE", "REPLICAS", "MESSAGE"), _notices(job.notices, now)),
        "Recoveries": (_RECOVERY_COLUMNS, _recoveries(job, now)),
        "Conditions": (("CONDITION", "STATUS", "REASON", "MESSAGE"), job.conditions),
        "Events": (("LAST SEEN", "TYPE", "REASON", "MESSAGE"), _events(events, now)),
    }
    filled = [f"{title}:\n{columns([head, *rows])}" for title, (head, rows) in tables.items() if rows]
    return "\n\n".join([_header(job, pods, now), *filled])


def _header(job: JobSummary, pods: Sequence[Pod], now: datetime) -> str:
    rows = [
        ("name", f"{job.namespace}/{job.name}"),
        ("kind", job.kind),
        ("framework", job.framework),
        ("phase", job.phase),
        ("reason", " ".join(filter(None, [job.reason, job.message]))),
        ("attempt", f"{job.attempt} ({pluralize(job.restarts, 'restart')})" if job.attempt else ""),
        ("checkpoint", _checkpoint(job.checkpoint, now)),
        ("age", age(now - (job.created or now))),
        ("price", job.price),
        ("cost", _cost(job.usage)),
        ("logs", _logs_command(job, pods)),
    ]
    return columns([row for row in rows if row[1]])


def _logs_command(job: JobSummary, pods: Sequence[Pod]) -> str:
    """Return the command that shows the pods' output; empty if there is none and none is expected."""
    ended = job.phase in ("Succeeded", "Failed")
    if not pods and (ended or not job.started):
        return ""
    return command_line("logs", job.namespace, job.name, *(() if ended else ("-f",)))


def _roles(job: JobSummary) -> list[tuple[str, ...]]:
    return [
        (role.name, role.phase, f"{role.ready}/{role.desired}", str(role.restarts), role.message)
        for role in job.roles
    ]


def _replicas(replicas: Sequence[ReplicaSummary]) -> list[tuple[str, ...]]:
    return [
        (
            replica.name,
            replica.phase,
            str(replica.incarnation),
            replica.start,
            replica.node,
            replica.machine,
            replica.zone,
            replica.price,
            str(replica.restarts),
            str(replica.preemptions),
        )
        for replica in replicas
    ]


def _restarts(history: list[RestartStatus], now: datetime) -> list[tuple[str, ...]]:
    return [
        (age(now - restart.time), str(restart.attempt), restart.cause, restart.scope, restart.message)
        for restart in history
    ]


def _usage(usage: UsageStatus, now: datetime) -> list[tuple[str, ...]]:
    """Return what the replicas did, with what they do now; the most time first."""
    spent = {activity: getattr(usage, activity.lower()) for activity in ACTIVITIES}
    elapsed = max((now - usage.since).total_seconds(), 0.0) if usage.since is not None else 0.0
    for activity, replicas in (usage.activities or {usage.activity: usage.replicas}).items():
        if activity in spent:
            spent[activity] += elapsed * replicas
    total = sum(spent.values())
    return [
        (activity, age(timedelta(seconds=seconds)), f"{seconds / total:.0%}")
        for activity, seconds in sorted(spent.items(), key=lambda pair: -pair[1])
        if seconds
    ]


def _cost(usage: UsageStatus) -> str:
    if not usage.cost:
        return ""
    return f"{usage.cost} ({usage.lost_cost} for lost training)" if usage.lost_cost else usage.cost


def _notices(notices: list[NoticeStatus], now: datetime) -> list[tuple[str, ...]]:
    return [
        (
            f"in {age(notice.deadline - now)}" if notice.deadline > now else "passed",
            notice.cause,
            notice.response,
            join_names(notice.replicas),
            notice.message,
        )
        for notice in notices
    ]


def _checkpoint(checkpoint: CheckpointStatus | None, now: datetime) -> str:
    """Return the last good checkpoint, and whether another one is ordered; empty if the job keeps none."""
    if checkpoint is None:
        return ""
    last = "none yet"
    if checkpoint.last_step is not None and checkpoint.last_time is not None:
        size = f", {byte_count(checkpoint.size)}" if checkpoint.size else ""
        place = f", in {checkpoint.uri}" if checkpoint.uri else ""
        last = f"step {checkpoint.last_step}, {age(now - checkpoint.last_time)} ago{size}{place}"
    elif checkpoint.images and checkpoint.last_time is not None:
        size = f"{byte_count(checkpoint.size)}, " if checkpoint.size else ""
        images = ", ".join(sorted(checkpoint.images.values()))
        last = f"processes, {age(now - checkpoint.last_time)} ago, {size}in {images}"
    lost = f"{pluralize(checkpoint.steps_lost, 'step')} lost so far" if checkpoint.steps_lost else ""
    return "; ".join(filter(None, [last, lost, checkpoint.message]))


def _recoveries(job: JobSummary, now: datetime) -> list[tuple[str, ...]]:
    return [
        (
            age(now - recovery.time),
            recovery.cause,
            recovery.source,
            recovery.action,
            recovery.outcome or "under way",
            "" if recovery.steps_lost is None else str(recovery.steps_lost),
            recovery.message,
        )
        for recovery in job.recoveries
    ]


def _events(events: Sequence[Event], now: datetime) -> list[tuple[str, ...]]:
    """Return the latest events, newest last."""
    latest = sorted(events, key=lambda event: event.last_timestamp or now)[-MAX_EVENTS:]
    return [(age(now - (e.last_timestamp or now)), e.type, e.reason, _event_message(e)) for e in latest]


def _pods(pods: Sequence[Pod], labels: PodLabels, now: datetime) -> list[tuple[str, ...]]:
    return [
        (
            f"{labels.replica(pod.metadata.labels)} ({pod.metadata.name})",
            "Terminating" if pod.metadata.deletion_timestamp else pod.status.phase,
            pod.metadata.labels.get(ATTEMPT, ""),
            pod.spec.node_name,
            age(now - (pod.metadata.creation_timestamp or now)),
            _message(pod),
        )
        for pod in pods
    ]


def _message(pod: Pod) -> str:
    """Return why a pod is not running: what it waits for, or how it terminated."""
    if pod.status.reason or pod.status.message:
        return " ".join(filter(None, [pod.status.reason, pod.status.message]))
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        terminated, waiting = container.state.terminated, container.state.waiting
        if terminated is not None and terminated.exit_code:
            return f"{container.name}: {terminated.reason or 'Error'}, exit code {terminated.exit_code}"
        if waiting is not None and waiting.reason not in ("PodInitializing", "ContainerCreating"):
            return f"{container.name}: {waiting.reason} {waiting.message}".rstrip()
    unscheduled = [c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"]
    return unscheduled[0].message if unscheduled else ""


def _event_message(event: Event) -> str:
    return f"{event.message} (x{event.count})" if event.count > 1 else event.message
