"""`argosy ps`, `scale`, `suspend`, `resume` and `rm`: list and change jobs."""

import asyncio
from datetime import UTC, datetime

import click
import msgspec

from argosy.cli.cluster_access import async_command, cluster_options, connect
from argosy.cli.jobkinds import find, find_all, for_each_kind, summarize
from argosy.cli.submit import remove
from argosy.cli.tables import age, columns
from argosy.engine.client import Client
from argosy.engine.errors import NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds.text import unknown_name
from argosy.kinds.trainingrun import WORKER, TrainingRun
from argosy.operator.apis.summary import JobKind, JobSummary

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Output format.",
)


@click.command()
@cluster_options
@click.option("-A", "--all-namespaces", is_flag=True, help="List the jobs of all namespaces.")
@output_option
@async_command
async def ps(
    kubeconfig: str | None, context: str | None, namespace: str, all_namespaces: bool, output: str
) -> None:
    """List jobs of all kinds, newest last."""
    async with connect(kubeconfig, context) as client:
        scope = None if all_namespaces else namespace
        if output == "json":
            click.echo(msgspec.json.format(await _list_as_json(client, scope)))
            return
        jobs = await find_all(client, scope)
    now = datetime.now(UTC)
    summaries = sorted(map(summarize, jobs), key=lambda job: job.created or now)
    if not summaries:
        click.echo("no jobs" if all_namespaces else f"no jobs in namespace {namespace}", err=True)
        return
    titles: tuple[str, ...] = ("NAME", "KIND", "FRAMEWORK", "PHASE", "WORKERS", "ATTEMPT", "AGE", "MESSAGE")
    rows = [_row(job, now) for job in summaries]
    if all_namespaces:
        titles = ("NAMESPACE", *titles)
        rows = [(job.namespace, *row) for job, row in zip(summaries, rows, strict=True)]
    click.echo(columns([titles, *rows]))


@click.command()
@cluster_options
@click.argument("name")
@click.argument("replicas", type=click.IntRange(0, 100_000))
@click.option("--role", default=WORKER, show_default=True, help="Role to scale.")
@async_command
async def scale(
    kubeconfig: str | None, context: str | None, namespace: str, name: str, replicas: int, role: str
) -> None:
    """Change the number of pods of a role.

    The job continues if its framework supports that; otherwise it restarts with the new size.
    """
    async with connect(kubeconfig, context) as client:
        run = await client.get(TrainingRun, name, namespace)
        if role not in run.spec.roles:
            raise click.ClickException(f"{name}: {unknown_name('role', role, run.spec.roles)}")
        await client.patch(TrainingRun, name, {"spec": {"roles": {role: {"replicas": replicas}}}}, namespace)
    click.echo(f"{name}: {role} scaled from {run.spec.roles[role].replicas} to {replicas}")


def _suspend_command(command: str, participle: str, *, suspend: bool, summary: str) -> click.Command:
    """Return `suspend` or `resume`, which set the same field."""

    @click.command(command, help=summary)
    @cluster_options
    @click.argument("name")
    @async_command
    async def set_suspend(kubeconfig: str | None, context: str | None, namespace: str, name: str) -> None:
        async with connect(kubeconfig, context) as client:
            run = await client.get(TrainingRun, name, namespace)
            if run.status.phase in ("Succeeded", "Failed"):
                raise click.ClickException(
                    f"{name} has ended ({run.status.phase}) and cannot be {participle}"
                )
            await client.patch(TrainingRun, name, {"spec": {"suspend": suspend}}, namespace)
        click.echo(f"{name} {participle}")

    return set_suspend


suspend = _suspend_command(
    "suspend", "suspended", suspend=True, summary="Stop the pods of a job; `argosy resume` continues it."
)
resume = _suspend_command("resume", "resumed", suspend=False, summary="Continue a suspended job.")


@click.command()
@cluster_options
@click.argument("names", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Delete all jobs of the namespace.")
@async_command
async def rm(
    kubeconfig: str | None, context: str | None, namespace: str, names: tuple[str, ...], everything: bool
) -> None:
    """Delete jobs and wait until their pods are gone."""
    if not names and not everything:
        raise click.UsageError("name the jobs to delete, or use --all")
    async with connect(kubeconfig, context) as client:
        if everything:
            jobs = {job.metadata.name: job for job in await find_all(client, namespace)}
        else:
            by_name = {name: await _find_if_present(client, namespace, name) for name in names}
            jobs = {name: job for name, job in by_name.items() if job is not None}
        await asyncio.gather(
            *(remove(client, namespace, job.metadata.name, type(job)) for job in jobs.values())
        )
    for name in jobs:
        click.echo(f"{name} deleted")
    missing = [name for name in names if name not in jobs]
    if missing:
        raise click.ClickException(f"no job {', '.join(missing)} in namespace {namespace}")


async def _find_if_present(client: Client, namespace: str, name: str) -> ApiObject | None:
    try:
        return await find(client, namespace, name)
    except NotFound:
        return None


async def _list_as_json(client: Client, namespace: str | None) -> bytes:
    """Return the jobs of all kinds as one v1 List, each as the API server encodes it."""

    async def list_kind(job: JobKind) -> list[msgspec.Raw]:
        body = await client.request("GET", job.kind.resource.path(namespace=namespace))
        return msgspec.json.decode(body, type=_Items).items

    items = [item for listed in await for_each_kind(list_kind) for item in listed]
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
