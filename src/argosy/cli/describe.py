"""`argosy describe`: all about one run on one screen, for a person who wonders why."""

from datetime import UTC, datetime

import click
import msgspec

from argosy.cli.follow import in_order, pods_of, source_of
from argosy.cli.jobs import output_option
from argosy.cli.session import asynchronous, connect, target_options
from argosy.cli.text import age, columns
from argosy.kinds.kubernetes import Event, Pod
from argosy.kinds.labels import ATTEMPT
from argosy.kinds.trainingrun import TrainingRun
from argosy.workload.words import many


@click.command()
@target_options
@click.argument("name")
@output_option
@asynchronous
async def describe(
    kubeconfig: str | None, context: str | None, namespace: str, name: str, output: str
) -> None:
    """Tell all about one run: phase and why, roles, pods, events."""
    async with connect(kubeconfig, context) as client:
        if output == "json":
            click.echo(
                msgspec.json.format(await client.request("GET", TrainingRun.resource.path(name, namespace)))
            )
            return
        run = await client.get(TrainingRun, name, namespace)
        pods = in_order((await client.list(Pod, namespace, labels=pods_of(name))).items)
        found = (await client.list(Event, namespace, fields=f"involvedObject.uid={run.metadata.uid}")).items
    now = datetime.now(UTC)
    click.echo(_head(run, now))
    click.echo("\n" + columns([("ROLE", "PHASE", "READY", "RESTARTS", "MESSAGE"), *_roles(run)]))
    if pods:
        click.echo("\n" + columns([("POD", "PHASE", "ATTEMPT", "NODE", "AGE", "WHY"), *_pods(pods, now)]))
    if run.status.conditions:
        rows = [(c.type, c.status, c.reason, c.message) for c in run.status.conditions]
        click.echo("\n" + columns([("CONDITION", "STATUS", "REASON", "MESSAGE"), *rows]))
    if found:
        events = sorted(found, key=lambda event: event.last_timestamp or now)
        rows = [(age(now - (e.last_timestamp or now)), e.type, e.reason, _counted(e)) for e in events[-20:]]
        click.echo("\n" + columns([("SEEN", "TYPE", "EVENT", "MESSAGE"), *rows]))


def _head(run: TrainingRun, now: datetime) -> str:
    status = run.status
    rows = [
        ("name", f"{run.metadata.namespace}/{run.metadata.name}"),
        ("framework", run.spec.framework),
        ("phase", status.phase or "Pending"),
        ("reason", " ".join(filter(None, [status.reason, status.message]))),
        ("attempt", f"{status.attempt} ({many(status.restarts, 'restart')})" if status.attempt else ""),
        ("age", age(now - (run.metadata.creation_timestamp or now))),
    ]
    return columns([row for row in rows if row[1]])


def _roles(run: TrainingRun) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, wanted in sorted(run.spec.roles.items()):
        role = run.status.roles.get(name)
        if role is None:
            rows.append((name, "Pending", f"0/{wanted.replicas}", "0", ""))
        else:
            rows.append(
                (name, role.phase, f"{role.active}/{wanted.replicas}", str(role.restarts), role.message)
            )
    return rows


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
