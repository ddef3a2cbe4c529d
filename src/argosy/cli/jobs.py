"""`argosy ps`, `scale`, `suspend`, `resume` and `rm`: the everyday verbs on training runs."""

import asyncio
from datetime import UTC, datetime

import click
import msgspec

from argosy.cli.session import asynchronous, connect, target_options
from argosy.cli.submit import remove
from argosy.cli.text import age, columns
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.kinds.trainingrun import TrainingRun

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of the output.",
)


@click.command()
@target_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@output_option
@asynchronous
async def ps(
    kubeconfig: str | None, context: str | None, namespace: str, all_namespaces: bool, output: str
) -> None:
    """List training runs, the newest last."""
    async with connect(kubeconfig, context) as client:
        where = None if all_namespaces else namespace
        if output == "json":
            body = await client.request("GET", TrainingRun.resource.path(namespace=where))
            click.echo(msgspec.json.format(body))
            return
        found = await client.list(TrainingRun, where)
    now = datetime.now(UTC)
    runs = sorted(found.items, key=lambda run: run.metadata.creation_timestamp or now)
    rows = [_row(run, now) for run in runs]
    if all_namespaces:
        rows = [(run.metadata.namespace, *row) for run, row in zip(runs, rows, strict=True)]
    if not rows:
        click.echo("no runs" if all_namespaces else f"no runs in namespace {namespace}", err=True)
        return
    titles = ("NAME", "FRAMEWORK", "PHASE", "WORKERS", "ATTEMPT", "AGE", "MESSAGE")
    click.echo(columns([("NAMESPACE", *titles) if all_namespaces else titles, *rows]))


@click.command()
@target_options
@click.argument("name")
@click.argument("replicas", type=click.IntRange(0, 100_000))
@click.option("--role", default="worker", show_default=True, help="The role to resize.")
@asynchronous
async def scale(
    kubeconfig: str | None, context: str | None, namespace: str, name: str, replicas: int, role: str
) -> None:
    """Change the number of a role's pods, while the run goes on if its framework can."""
    async with connect(kubeconfig, context) as client:
        run = await client.get(TrainingRun, name, namespace)
        if role not in run.spec.roles:
            raise click.ClickException(
                f"{name} has no role {role}; it has {', '.join(sorted(run.spec.roles))}"
            )
        await client.patch(TrainingRun, name, {"spec": {"roles": {role: {"replicas": replicas}}}}, namespace)
    click.echo(f"{name}: {role} scaled from {run.spec.roles[role].replicas} to {replicas}")


def _switch(word: str, done: str, *, suspended: bool, told: str) -> click.Command:
    """`suspend` and `resume` are one command with two values."""

    @click.command(word, help=told)
    @target_options
    @click.argument("name")
    @asynchronous
    async def switch(kubeconfig: str | None, context: str | None, namespace: str, name: str) -> None:
        async with connect(kubeconfig, context) as client:
            run = await client.get(TrainingRun, name, namespace)
            if run.status.phase in ("Succeeded", "Failed"):
                raise click.ClickException(f"{name} has ended ({run.status.phase}); it cannot be {done}")
            await client.patch(TrainingRun, name, {"spec": {"suspend": suspended}}, namespace)
        click.echo(f"{name} {done}")

    return switch


suspend = _switch(
    "suspend",
    "suspended",
    suspended=True,
    told="Stop a run's pods and keep its place; `argosy resume` lets it go on.",
)
resume = _switch("resume", "resumed", suspended=False, told="Let a suspended run go on.")


@click.command()
@target_options
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every run of the namespace.")
@asynchronous
async def rm(
    kubeconfig: str | None, context: str | None, namespace: str, names: tuple[str, ...], everything: bool
) -> None:
    """Delete runs, and wait until they and their pods are gone."""
    if not names and not everything:
        raise click.UsageError("name the runs to delete, or say --all")
    async with connect(kubeconfig, context) as client:
        if everything:
            names = tuple(run.metadata.name for run in (await client.list(TrainingRun, namespace)).items)
        missing = [name for name in names if not await _exists(client, namespace, name)]
        present = [name for name in names if name not in missing]
        await asyncio.gather(*(remove(client, namespace, name) for name in present))
    for name in present:
        click.echo(f"{name} deleted")
    if missing:
        raise click.ClickException(f"there is no run {', '.join(missing)} in namespace {namespace}")


async def _exists(client: Client, namespace: str, name: str) -> bool:
    try:
        await client.get(TrainingRun, name, namespace)
    except NotFound:
        return False
    return True


def _row(run: TrainingRun, now: datetime) -> tuple[str, ...]:
    status = run.status
    created = run.metadata.creation_timestamp or now
    return (
        run.metadata.name,
        run.spec.framework,
        status.phase or "Pending",
        status.workers or "",
        str(status.attempt or ""),
        age(now - created),
        status.message or status.reason or "",
    )
