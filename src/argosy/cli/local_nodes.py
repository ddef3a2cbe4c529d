"""Connects `argosy nodes` and `argosy rehearse` to the nodes of a local control plane."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

import click
import msgspec

from argosy.cli.cluster_access import connect
from argosy.engine.client import Client
from argosy.engine.errors import Forbidden, NotFound
from argosy.kinds.kubernetes import Pod
from argosy.kinds.quantity import format_duration, parse_duration
from argosy.kinds.text import unknown_name
from argosy.local.node_set import NodeEntry

Result = TypeVar("Result")

_MAX_SECONDS = 86400.0


class LocalNodes:
    """The nodes of a local control plane, and what was changed of them at run time."""

    def __init__(self, client: Client, entries: dict[str, NodeEntry]) -> None:
        self.client = client
        self.entries = entries

    def check(self, name: str) -> None:
        """Fail if there is no such node."""
        if name not in self.entries:
            raise click.ClickException(unknown_name("node", name, self.entries))

    async def send(self, method: str, path: str, type: type[Result], **parameters: object) -> Result:
        """Send a request to the node agent; parameters that are None are omitted."""
        query = {name: str(value) for name, value in parameters.items() if value is not None}
        return msgspec.json.decode(
            await self.client.request(method, f"/argosy/{path}", query=query), type=type
        )

    async def change(self, name: str, action: str, **parameters: object) -> NodeEntry:
        return await self.send("POST", f"nodes/{name}/{action}", NodeEntry, **parameters)

    async def pod_counts(self) -> Counter[str]:
        """Return the number of pods that have not ended, by node."""
        pods = (await self.client.list(Pod)).items
        return Counter(pod.spec.node_name for pod in pods if pod.status.phase not in ("Succeeded", "Failed"))


@asynccontextmanager
async def local_nodes(kubeconfig: str | None, context: str | None) -> AsyncIterator[LocalNodes]:
    """Connect to the local control plane that the options select; fail if the cluster is not one."""
    async with connect(kubeconfig, context) as client:
        try:
            entries = await client.request("GET", "/argosy/nodes")
        except (NotFound, Forbidden) as error:
            raise click.ClickException(
                f"{client.connection.server}: not a local control plane, or not yours; "
                "`argosy nodes` and `argosy rehearse` change only nodes that `argosy up` started"
            ) from error
        yield LocalNodes(client, msgspec.json.decode(entries, type=dict[str, NodeEntry]))


def report(content: object, output: str, line: str) -> None:
    """Print what a command did: one line, or the response as JSON."""
    click.echo(msgspec.json.format(msgspec.json.encode(content)) if output == "json" else line)


def seconds_until(time: datetime) -> str:
    """Return the time that is left, as `25 s`."""
    return format_duration(max(0, round((time - datetime.now(UTC)).total_seconds())))


def duration(text: str) -> float:
    """Return the seconds of an option such as `30s` or `1m30s`."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if seconds > _MAX_SECONDS:
        raise click.BadParameter(f"invalid value {text}: must be at most 24h")
    return seconds
