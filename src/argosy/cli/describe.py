"""`argosy describe`: all about one job on one screen, for a person who wonders why."""

from datetime import UTC, datetime

import click
import msgspec

from argosy.cli.follow import in_order, pods_of, source_of
from argosy.cli.jobkinds import Shown, find, shown
from argosy.cli.jobs import output_option
from argosy.cli.session import asynchronous, connect, target_options
from argosy.cli.text import age, columns
from argosy.kinds.kubernetes import Event, Pod
from argosy.kinds.labels import ATTEMPT
from argosy.kinds.restarts import RestartStatus
from argosy.workload.words import many


@click.command()
@target_options
@click.argument("name")
@output_option
@asynchronous
async def describe(
    kubeconfig: str | None, context: str | None, namespace: str, name: str, output: str
) -> None:
    """Tell all about one job: phase and why, roles, pods, restarts, events."""
    async with connect(kubeconfig, context) as client:
        job = await find(client, namespace, name)
        if output == "json":
            path = job.resource.path(job.metadata.name, namespace)
            click.echo(msgspec.json.format(await client.request("GET", path)))
            return
        one = shown(job)
        pods = in_order((await client.list(Pod, namespace, labels=pods_of(one.name))).items)
        found = (await client.list(Event, namespace, fields=f"involvedObject.uid={one.uid}")).items
    now = datetime.now(UTC)
    click.echo(_head(one, now))
    if one.roles:
        click.echo("\n" + columns([("ROLE", "PHASE", "READY", "RESTARTS", "MESSAGE"), *_roles(one)]))
    if pods:
        click.echo("\n" + columns([("POD", "PHASE", "ATTEMPT", "NODE", "AGE", "WHY"), *_pods(pods, now)]))
    if one.restart_history:
        titles = ("RESTARTED", "ATTEMPT", "CAUSE", "RUNG", "WHAT HAPPENED")
        click.echo("\n" + columns([titles, *_restarts(one.restart_history, now)]))
    if one.conditions:
        click.echo("\n" + columns([("CONDITION", "STATUS", "REASON", "MESSAGE"), *one.conditions]))
    if found:
        events = sorted(found, key=lambda event: event.last_timestamp or now)
        rows = [(age(now - (e.last_timestamp or now)), e.type, e.reason, _counted(e)) for e in events[-20:]]
        click.echo("\n" + columns([("SEEN", "TYPE", "EVENT", "MESSAGE"), *rows]))


def _head(one: Shown, now: datetime) -> str:
    rows = [
        ("name", f"{one.namespace}/{one.name}"),
        ("kind", one.kind),
        ("framework", one.framework),
        ("phase", one.phase),
        ("reason", " ".join(filter(None, [one.reason, one.message]))),
        ("attempt", f"{one.attempt} ({many(one.restarts, 'restart')})" if one.attempt else ""),
        ("age", age(now - (one.created or now))),
    ]
    return columns([row for row in rows if row[1]])


def _roles(one: Shown) -> list[tuple[str, ...]]:
    return [
        (role.name, role.phase, f"{role.up}/{role.wanted}", str(role.restarts), role.message)
        for role in one.roles
    ]


def _restarts(history: list[RestartStatus], now: datetime) -> list[tuple[str, ...]]:
    return [
        (f"{age(now - one.time)} ago", str(one.attempt), one.cause, one.rung, one.message) for one in history
    ]


def _pods(pods: list[Pod], now: datetime) -> list[tuple[str, ...]]:
    return [
        (
            f"{source_of(pod.metadata.labels)} ({pod.metadata.name})",
            "Terminating" if pod.metadata.deletion_timestamp else pod.status.phase,
            pod.metadata.labels.get(ATTEMPT, ""),
            pod.spec.node_name,
            age(now - (pod.metadata.creation_timestamp or now)),
            _why(pod),
        )
        for pod in pods
    ]


def _why(pod: Pod) -> str:
    """Why a pod is not simply running: what it waits for, or how it ended."""
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


def _counted(event: Event) -> str:
    return f"{event.message} (x{event.count})" if event.count > 1 else event.message
