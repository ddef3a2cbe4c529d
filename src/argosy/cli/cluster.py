"""`argosy up`, `down` and `status`: start, stop and show the control plane on this machine."""

import asyncio
import sys
import time

import click
import msgspec

from argosy.local.cluster import ClusterError, start, stop
from argosy.local.processes import NODE_MONITOR_GRACE_SECONDS, Options
from argosy.local.state import DEFAULT_CLUSTER, State, StateError

cluster_option = click.option(
    "--cluster",
    default=DEFAULT_CLUSTER,
    show_default=True,
    help="Name of the control plane; each has its own state folder.",
)


_POD_NOTES = """\
pods run as processes of this machine: isolated for rehearsal, not a security boundary
images are not pulled: `image: NAME` is this machine's file system, or DIR with `up --image NAME=DIR`"""


@click.command()
@cluster_option
@click.option(
    "--nodes", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of simulated nodes."
)
@click.option(
    "--pretend-gpus",
    type=click.IntRange(0, 64),
    default=0,
    help="Number of GPUs that each node claims to have.",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API server; default: a free one.")
@click.option(
    "--image",
    "images",
    multiple=True,
    metavar="NAME=DIR",
    help="Use DIR as the root file system of containers with image NAME.",
)
@click.option(
    "--node-monitor-grace-period",
    type=click.FloatRange(min=2),
    default=NODE_MONITOR_GRACE_SECONDS,
    show_default=True,
    help="Seconds without a heartbeat after which a node is NotReady.",
)
@click.option("--no-operator", is_flag=True, help="Do not start the operator (to run your own).")
@click.option(
    "--timeout",
    type=float,
    default=30.0,
    show_default=True,
    help="Seconds to wait until all nodes are ready.",
)
def up(
    cluster: str,
    nodes: int,
    pretend_gpus: int,
    port: int | None,
    images: tuple[str, ...],
    node_monitor_grace_period: float,
    no_operator: bool,
    timeout: float,
) -> None:
    """Start a control plane on this machine, or check that it runs.

    Pods run as processes of this machine, isolated for rehearsal; this is not a security boundary. Images are
    not pulled: a container sees this machine's file system, with its own writes on top, or the folder that
    --image names for its `image:`.
    """
    started = time.monotonic()
    options = Options(
        nodes=nodes,
        pretend_gpus=pretend_gpus,
        port=port or 0,
        images=dict(map(_parse_image, images)),
        operator=not no_operator,
        node_monitor_grace=node_monitor_grace_period,
    )
    state = State.of(cluster)
    try:
        run = start(state, options)
        from argosy.local.readiness import ready
        from argosy.operator.apis.registry import CUSTOM_RESOURCES

        ready_nodes = asyncio.run(
            ready(
                state,
                run,
                CUSTOM_RESOURCES,
                timeout=timeout,
                say=lambda line: click.echo(line, err=True),
            )
        )
    except (ClusterError, StateError) as error:
        raise click.ClickException(str(error)) from error
    count = "1 node" if len(ready_nodes) == 1 else f"{len(ready_nodes)} nodes"
    names = ", ".join(node.name for node in ready_nodes)
    click.echo(f"{count} ready: {names} ({time.monotonic() - started:.1f} s)")
    click.echo(_POD_NOTES)
    click.echo(f"kubectl: export KUBECONFIG={state.kubeconfig}, or `argosy kubectl …`")


@click.command()
@cluster_option
@click.option("--delete", is_flag=True, help="Also delete its objects and keys.")
def down(cluster: str, delete: bool) -> None:
    """Stop the local control plane and all its pods.

    Objects are kept for the next `argosy up`, unless --delete is given.
    """
    try:
        was_running = stop(State.of(cluster), delete=delete)
    except StateError as error:
        raise click.ClickException(str(error)) from error
    click.echo("stopped" if was_running else "nothing was running")


@click.command()
@cluster_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(cluster: str, output: str) -> None:
    """Show the state of the local control plane.

    Exit code 0 if it is running and its nodes are ready, else 1.
    """
    from argosy.local.readiness import report

    current = asyncio.run(report(State.of(cluster)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(current)))
    elif not current.running:
        click.echo("not running; `argosy up` starts it")
    else:
        click.echo(
            f"server      {current.server}\nkubeconfig  {current.kubeconfig}\nstate       {current.folder}"
        )
        # On a full disk a restarted component cannot be recorded, so it may be running after all.
        not_running = "unknown" if current.disk else "not responding"
        for name, alive in current.components.items():
            click.echo(f"{name:<11} {'running' if alive else not_running}")
        for node in current.nodes:
            notes = f"; {node.notes}" if node.notes else ""
            click.echo(f"{node.name:<11} {'Ready' if node.ready else 'NotReady'}{notes}")
        if current.disk:
            click.echo(f"disk        {current.disk}")
    sys.exit(0 if current.healthy else 1)


def _parse_image(pair: str) -> tuple[str, str]:
    name, separator, root = pair.partition("=")
    if not separator or not name or not root:
        raise click.BadParameter(f"{pair!r}: must be NAME=DIR", param_hint="--image")
    return name, root
