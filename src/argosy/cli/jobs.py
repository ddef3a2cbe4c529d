"""`argosy ps`, `scale`, `suspend`, `resume` and `rm`: the everyday verbs on jobs."""

import asyncio
from datetime import UTC, datetime

import click
import msgspec

from argosy.cli.cluster_access import async_command, cluster_options, connect
from argosy.cli.jobkinds import KINDS, Job, JobSummary, find, find_all, summarize
from argosy.cli.submit import remove
from argosy.cli.tables import age, columns
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
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="Of every namespace.")
@output_option
@async_command
async def ps(
    kubeconfig: str | None, context: str | None, namespace: str, all_namespaces: bool, output: str
) -> None:
    """List jobs of all kinds, the newest last."""
    async with connect(kubeconfig, context) as client:
        where = None if all_namespaces else namespace
        if output == "json":
            click.echo(msgspec.json.format(await _list_as_json(client, where)))
            return
        found = await find_all(client, where)
    now = datetime.now(UTC)
    jobs = sorted(map(summarize, found), key=lambda job: job.created or now)
    rows = [_row(job, now) for job in jobs]
    if all_namespaces:
        rows = [(job.namespace, *row) for job, row in zip(jobs, rows, strict=True)]
    if not rows:
        click.echo("no runs" if all_namespaces else f"no runs in namespace {namespace}", err=True)
        return
    titles = ("NAME", "KIND", "FRAMEWORK", "PHASE", "WORKERS", "ATTEMPT", "AGE", "MESSAGE")
    click.echo(columns([("NAMESPACE", *titles) if all_namespaces else titles, *rows]))


@click.command()
@cluster_options
@click.argument("name")
@click.argument("replicas", type=click.IntRange(0, 100_000))
@click.option("--role", default="worker", show_default=True, help="The role to resize.")
@async_command
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


def _suspend_command(word: str, done: str, *, suspended: bool, told: str) -> click.Command:
    """`suspend` and `resume` are one command with two values."""

    @click.command(word, help=told)
    @cluster_options
    @click.argument("name")
    @async_command
    async def switch(kubeconfig: str | None, context: str | None, namespace: str, name: str) -> None:
        async with connect(kubeconfig, context) as client:
            run = await client.get(TrainingRun, name, namespace)
            if run.status.phase in ("Succeeded", "Failed"):
                raise click.ClickException(f"{name} has ended ({run.status.phase}); it cannot be {done}")
            await client.patch(TrainingRun, name, {"spec": {"suspend": suspended}}, namespace)
        click.echo(f"{name} {done}")

    return switch


suspend = _suspend_command(
    "suspend",
    "suspended",
    suspended=True,
    told="Stop a run's pods and keep its place; `argosy resume` lets it go on.",
)
resume = _suspend_command("resume", "resumed", suspended=False, told="Let a suspended run go on.")


@click.command()
@cluster_options
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every job of the namespace.")
@async_command
async def rm(
    kubeconfig: str | None, context: str | None, namespace: str, names: tuple[str, ...], everything: bool
) -> None:
    """Delete jobs, and wait until they and their pods are gone."""
    if not names and not everything:
        raise click.UsageError("name the jobs to delete, or say --all")
    async with connect(kubeconfig, context) as client:
        if everything:
            present = {job.metadata.name: job for job in await find_all(client, namespace)}
        else:
            found = {name: await _find_if_present(client, namespace, name) for name in names}
            present = {name: job for name, job in found.items() if job is not None}
        missing = [name for name in names if name not in present]
        await asyncio.gather(
            *(remove(client, namespace, job.metadata.name, type(job)) for job in present.values())
        )
    for name in present:
        click.echo(f"{name} deleted")
    if missing:
        raise click.ClickException(f"there is no run {', '.join(missing)} in namespace {namespace}")


async def _find_if_present(client: Client, namespace: str, name: str) -> Job | None:
    try:
        return await find(client, namespace, name)
    except NotFound:
        return None


async def _list_as_json(client: Client, namespace: str | None) -> bytes:
    """All jobs as one list, as the API server writes them."""
    items: list[msgspec.Raw] = []
    for kind in KINDS.values():
        try:
            body = await client.request("GET", kind.resource.path(namespace=namespace))
        except NotFound:
            if kind is TrainingRun:
                raise
            continue  # installed without that API
        items += msgspec.json.decode(body, type=_Items).items
    return msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": items})


class _Items(msgspec.Struct):
    items: list[msgspec.Raw]


def _row(job: JobSummary, now: datetime) -> tuple[str, ...]:
    return (
        job.name,
        job.kind,
        job.framework,
        job.phase,
        job.workers if job.started else "",
        str(job.attempt or ""),
        age(now - (job.created or now)),
        job.message or job.reason,
    )
