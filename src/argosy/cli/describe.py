"""`argosy describe`: the state and history of one job on one screen, and where to look next."""

from collections.abc import Sequence
from datetime import UTC, datetime

import click
import msgspec

from argosy.cli.cluster_access import async_command, cluster_options, connect
from argosy.cli.follow import pod_selector, replica_label, sort_pods
from argosy.cli.jobkinds import JobSummary, find, summarize
from argosy.cli.jobs import output_option
from argosy.cli.tables import age, columns, command_line
from argosy.kinds.kubernetes import Event, Pod
from argosy.kinds.labels import ATTEMPT
from argosy.kinds.restart_status import RestartStatus
from argosy.workload.messages import many

MAX_EVENTS = 20


@click.command()
@cluster_options
@click.argument("name")
@output_option
@async_command
async def describe(
    kubeconfig: str | None, context: str | None, namespace: str, name: str, output: str
) -> None:
    """Show one job: phase and reason, roles, pods, restarts, conditions, events."""
    async with connect(kubeconfig, context) as client:
        job = await find(client, namespace, name)
        if output == "json":
            path = job.resource.path(job.metadata.name, namespace)
            click.echo(msgspec.json.format(await client.request("GET", path)))
            return
        one = summarize(job)
        pods = sort_pods((await client.list(Pod, namespace, labels=pod_selector(one.name))).items)
        events = (await client.list(Event, namespace, fields=f"involvedObject.uid={one.uid}")).items
    click.echo(report(one, pods, events, datetime.now(UTC)))


def report(job: JobSummary, pods: Sequence[Pod], events: Sequence[Event], now: datetime) -> str:
    """Return the whole screen: a head, then a titled table for each part that has rows."""
    tables: dict[str, tuple[tuple[str, ...], Sequence[tuple[str, ...]]]] = {
        "Roles": (("ROLE", "PHASE", "READY", "RESTARTS", "MESSAGE"), _roles(job)),
        "Pods": (("POD", "STATUS", "ATTEMPT", "NODE", "AGE", "MESSAGE"), _pods(pods, now)),
        "Restarts": (("AGE", "ATTEMPT", "CAUSE", "RUNG", "MESSAGE"), _restarts(job.restart_history, now)),
        "Conditions": (("CONDITION", "STATUS", "REASON", "MESSAGE"), job.conditions),
        "Events": (("LAST SEEN", "TYPE", "REASON", "MESSAGE"), _events(events, now)),
    }
    shown_tables = [f"{title}:\n{columns([head, *rows])}" for title, (head, rows) in tables.items() if rows]
    return "\n\n".join([_header(job, pods, now), *shown_tables])


def _header(one: JobSummary, pods: Sequence[Pod], now: datetime) -> str:
    rows = [
        ("name", f"{one.namespace}/{one.name}"),
        ("kind", one.kind),
        ("framework", one.framework),
        ("phase", one.phase),
        ("reason", " ".join(filter(None, [one.reason, one.message]))),
        ("attempt", f"{one.attempt} ({many(one.restarts, 'restart')})" if one.attempt else ""),
        ("age", age(now - (one.created or now))),
        ("output", _logs_command(one, pods)),
    ]
    return columns([row for row in rows if row[1]])


def _logs_command(job: JobSummary, pods: Sequence[Pod]) -> str:
    """Return the command that shows the pods' output; nothing if there is none and none will come."""
    ended = job.phase in ("Succeeded", "Failed")
    if not pods and (ended or not job.started):
        return ""
    return command_line("logs", job.namespace, job.name, *(() if ended else ("-f",)))


def _roles(one: JobSummary) -> list[tuple[str, ...]]:
    return [
        (role.name, role.phase, f"{role.ready}/{role.desired}", str(role.restarts), role.message)
        for role in one.roles
    ]


def _restarts(history: list[RestartStatus], now: datetime) -> list[tuple[str, ...]]:
    return [(age(now - one.time), str(one.attempt), one.cause, one.rung, one.message) for one in history]


def _events(events: Sequence[Event], now: datetime) -> list[tuple[str, ...]]:
    """Return the latest events, the newest last."""
    latest = sorted(events, key=lambda event: event.last_timestamp or now)[-MAX_EVENTS:]
    return [(age(now - (e.last_timestamp or now)), e.type, e.reason, _event_message(e)) for e in latest]


def _pods(pods: Sequence[Pod], now: datetime) -> list[tuple[str, ...]]:
    return [
        (
            f"{replica_label(pod.metadata.labels)} ({pod.metadata.name})",
            "Terminating" if pod.metadata.deletion_timestamp else pod.status.phase,
            pod.metadata.labels.get(ATTEMPT, ""),
            pod.spec.node_name,
            age(now - (pod.metadata.creation_timestamp or now)),
            _message(pod),
        )
        for pod in pods
    ]


def _message(pod: Pod) -> str:
    """Return why a pod is not simply running: what it waits for, or how it ended."""
    if pod.status.reason or pod.status.message:
        return " ".join(filter(None, [pod.status.reason, pod.status.message]))
    for container in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        ended, waiting = container.state.terminated, container.state.waiting
        if ended is not None and ended.exit_code:
            return f"{container.name}: {ended.reason or 'Error'}, exit code {ended.exit_code}"
        if waiting is not None and waiting.reason not in ("PodInitializing", "ContainerCreating"):
            return f"{container.name}: {waiting.reason} {waiting.message}".rstrip()
    unplaced = [c for c in pod.status.conditions if c.type == "PodScheduled" and c.status == "False"]
    return unplaced[0].message if unplaced else ""


def _event_message(event: Event) -> str:
    return f"{event.message} (x{event.count})" if event.count > 1 else event.message
