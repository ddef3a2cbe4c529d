"""`argosy nodes`: lists and changes the nodes of a local control plane."""

import asyncio
import time
from datetime import datetime

import click
import msgspec

from argosy.cli.cluster_access import async_command, connection_options
from argosy.cli.group import SuggestingGroup
from argosy.cli.jobs import output_option
from argosy.cli.local_nodes import LocalNodes, local_nodes, report, seconds_until
from argosy.cli.tables import columns
from argosy.engine.errors import NotFound
from argosy.kinds.kubernetes import Node
from argosy.kinds.labels import TERMINATION_DEADLINE, TERMINATION_SOURCE
from argosy.kinds.text import truncate
from argosy.local.node_set import NodeEntry
from argosy.local.readiness import is_ready

_READY_SECONDS = 30.0


class NodeRow(msgspec.Struct, frozen=True):
    """A node as `argosy nodes` shows it."""

    name: str
    status: str
    pods: int
    notice: str


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@connection_options
@output_option
@click.pass_context
def nodes(ctx: click.Context, kubeconfig: str | None, context: str | None, output: str) -> None:
    """List and change the nodes of the local control plane.

    Without a command, list them: how many pods each has, and what was announced or done to it. Changes last
    until `argosy down`; the next `argosy up` starts the nodes that it is asked for.
    """
    if ctx.invoked_subcommand is None:
        _list(kubeconfig, context, output)


@async_command
async def _list(kubeconfig: str | None, context: str | None, output: str) -> None:
    async with local_nodes(kubeconfig, context) as local:
        present = {node.metadata.name: node for node in (await local.client.list(Node)).items}
        pods = await local.pod_counts()
    rows = [node_row(entry, present.get(name), pods[name]) for name, entry in local.entries.items()]
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows)))
        return
    titles = ("NAME", "STATUS", "PODS", "NOTICE")
    click.echo(columns([titles, *((row.name, row.status, str(row.pods), row.notice) for row in rows)]))


def node_row(entry: NodeEntry, node: Node | None, pods: int) -> NodeRow:
    """Return what `argosy nodes` shows of a node; `node` is None if it is not registered."""
    return NodeRow(entry.name, _status(entry, node), pods, _notice(entry, node))


def _status(entry: NodeEntry, node: Node | None) -> str:
    """Return the status as kubectl prints it; that of a node without an object is its state."""
    if node is None:
        return "NotReady" if entry.state == "Running" else entry.state
    status = "Ready" if is_ready(node) else "NotReady"
    return f"{status},SchedulingDisabled" if node.spec.unschedulable else status


def _notice(entry: NodeEntry, node: Node | None) -> str:
    """Say what was done to a node, and what is announced."""
    parts = []
    if entry.state != "Running":
        parts.append(entry.state.lower())
    if entry.back_at is not None:
        parts.append(f"back in {seconds_until(entry.back_at)}")
    marks = node.metadata.annotations if node is not None else {}
    if deadline := marks.get(TERMINATION_DEADLINE):
        parts.append(f"ends {_when(deadline)} ({marks.get(TERMINATION_SOURCE, 'unknown source')})")
    return ", ".join(parts)


def _when(deadline: str) -> str:
    try:
        return f"in {seconds_until(datetime.fromisoformat(deadline))}"
    except (TypeError, ValueError):  # anyone may write the annotation
        return f"at {truncate(deadline)}"


@nodes.command()
@connection_options
@click.argument("name", required=False)
@click.option(
    "--pretend-gpus",
    type=click.IntRange(0, 64),
    help="Number of GPUs that the node claims to have; default: as for `argosy up`.",
)
@output_option
@async_command
async def add(
    kubeconfig: str | None, context: str | None, name: str | None, pretend_gpus: int | None, output: str
) -> None:
    """Add a node and wait until it is Ready.

    Without a NAME it is the first free one of node-1, node-2, … Like every node it offers all CPUs, and as
    much memory as those of `argosy up`.
    """
    async with local_nodes(kubeconfig, context) as local:
        entry = await local.send("POST", "nodes", NodeEntry, name=name, pretendGpus=pretend_gpus)
        await _wait_until_ready(local, entry.name)
    report(entry, output, f"{entry.name} added; it is Ready")


@nodes.command()
@connection_options
@click.argument("name")
@output_option
@async_command
async def remove(kubeconfig: str | None, context: str | None, name: str, output: str) -> None:
    """Switch a node off for good: kill its pods and delete its Node."""
    async with local_nodes(kubeconfig, context) as local:
        pods = (await local.pod_counts())[name]
        entry = await local.send("DELETE", f"nodes/{name}", NodeEntry)
    report(entry, output, f"{name} removed: its pods ({pods}) were killed and are garbage-collected shortly")


@nodes.command()
@connection_options
@click.argument("name")
@output_option
@async_command
async def silence(kubeconfig: str | None, context: str | None, name: str, output: str) -> None:
    """Cut a node off: its pods keep running, but nothing is reported.

    No heartbeat, no status of the node or of its pods; no deletion, log or exec reaches them. After the node
    monitor grace period the node is NotReady, and its pods are evicted when their tolerations end.
    """
    async with local_nodes(kubeconfig, context) as local:
        entry = await local.change(name, "silence")
        pods = (await local.pod_counts())[name]
    report(
        entry,
        output,
        f"{name} is silenced: its pods ({pods}) run on, and it becomes NotReady; "
        f"`argosy nodes resume {name}` reconnects it",
    )


@nodes.command()
@connection_options
@click.argument("name")
@output_option
@async_command
async def resume(kubeconfig: str | None, context: str | None, name: str, output: str) -> None:
    """Bring a silenced or stopped node back, and wait until it is Ready.

    An announced reclaim is withdrawn.
    """
    async with local_nodes(kubeconfig, context) as local:
        entry = await local.change(name, "resume")
        await _wait_until_ready(local, name)
    report(entry, output, f"{name} is back and Ready; it ends pods that were deleted meanwhile")


def _cordon_command(command: str, *, unschedulable: bool, summary: str, effect: str) -> click.Command:
    """Return `cordon` or `uncordon`, which set the same field."""

    @click.command(command, help=summary)
    @connection_options
    @click.argument("name")
    @output_option
    @async_command
    async def set_unschedulable(kubeconfig: str | None, context: str | None, name: str, output: str) -> None:
        async with local_nodes(kubeconfig, context) as local:
            local.check(name)
            await local.client.patch(Node, name, {"spec": {"unschedulable": unschedulable}})
        report(local.entries[name], output, f"{name} {command}ed: {effect}")

    return set_unschedulable


nodes.add_command(
    _cordon_command(
        "cordon",
        unschedulable=True,
        summary="Keep new pods off a node; those on it stay.",
        effect="no new pod is scheduled on it, and its pods stay",
    )
)
nodes.add_command(
    _cordon_command(
        "uncordon",
        unschedulable=False,
        summary="Let new pods on a node again.",
        effect="pods are scheduled on it again",
    )
)


async def _wait_until_ready(local: LocalNodes, name: str) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while time.monotonic() < deadline:
        try:
            if is_ready(await local.client.get(Node, name)):
                return
        except NotFound:
            pass
        await asyncio.sleep(0.05)
    raise click.ClickException(f"{name} is not Ready after {_READY_SECONDS:g} s; see `argosy status`")
