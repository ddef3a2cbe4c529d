"""`argosy logs`: prints the output of a job's pods, once or until the job has ended."""

import asyncio

import click

from argosy.cli.cluster_access import async_command, cluster_options, connect
from argosy.cli.container_log import lines
from argosy.cli.follow import Follower, Printer, sort_pods
from argosy.cli.jobkinds import find, kind_of
from argosy.engine.client import Client
from argosy.engine.errors import BadRequest
from argosy.kinds.kubernetes import Pod


@click.command()
@cluster_options
@click.argument("name")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the job has ended.")
@click.option("--role", help="Print only pods of this role.")
@click.option("--index", type=int, help="Print only the pod of this index.")
@click.option("--tail", type=click.IntRange(0), help="Number of last lines to print of each pod.")
@async_command
async def logs(
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    name: str,
    follow: bool,
    role: str | None,
    index: int | None,
    tail: int | None,
) -> None:
    """Print or follow the output of a job's pods."""
    printer = Printer()
    async with connect(kubeconfig, context) as client:
        job = await find(client, namespace, name)
        name = job.metadata.name
        if follow:
            await Follower(
                client, namespace, name, printer, kind=type(job), role=role, index=index, tail=tail
            ).outcome()
            return
        labels = kind_of(job).pods
        selector = labels.selector(name, role, index)
        pods = sort_pods((await client.list(Pod, namespace, labels=selector)).items, labels)
        if not pods:
            raise click.ClickException(f"{name} has no such pod now; `argosy describe {name}` shows why")
        outputs = await asyncio.gather(*(_read_lines(client, pod, tail) for pod in pods))
        for pod, output in zip(pods, outputs, strict=True):
            for container, line in output:
                printer.line(labels.replica(pod.metadata.labels, container), line)


async def _read_lines(client: Client, pod: Pod, tail: int | None) -> list[tuple[str, str]]:
    """Return every line of a pod with its container's name, which is empty if the pod has only one."""
    names = [container.name for container in pod.status.container_statuses]
    output: list[tuple[str, str]] = []
    for name in names:
        stream = client.logs(pod.metadata.name, pod.metadata.namespace, container=name, tail=tail)
        try:
            output += [(name if len(names) > 1 else "", line) async for line in lines(stream)]
        except BadRequest:  # the container has not started
            continue
    return output
