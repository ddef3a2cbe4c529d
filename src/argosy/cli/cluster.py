"""`argosy up`, `down` and `status`: the control plane on this machine."""

import asyncio
import sys
import time

import click
import msgspec

from argosy.local.cluster import ClusterError, start, stop
from argosy.local.processes import Options
from argosy.local.state import DEFAULT_CLUSTER, State, StateError

cluster_option = click.option(
    "--cluster",
    default=DEFAULT_CLUSTER,
    show_default=True,
    help="Name of the control plane; each has its own state.",
)


_ABOUT_PODS = """\
pods run as processes of this machine: isolated for rehearsal, not a security boundary
images are not pulled: `image: NAME` is this machine's file system, or DIR with `up --image NAME=DIR`"""


@click.command()
@cluster_option
@click.option(
    "--nodes", type=click.IntRange(1, 64), default=1, show_default=True, help="How many nodes to pretend."
)
@click.option(
    "--pretend-gpus", type=click.IntRange(0, 64), default=0, help="Pretend that each node has so many GPUs."
)
@click.option("--port", type=click.IntRange(1, 65535), help="Port of the API server; a free one by default.")
@click.option(
    "--image", "images", multiple=True, metavar="NAME=DIR", help="Containers of image NAME see DIR as root."
)
@click.option("--no-operator", is_flag=True, help="Leave the operator out (to run your own).")
@click.option(
    "--timeout", type=float, default=30.0, show_default=True, help="Seconds to wait until it is ready."
)
def up(
    cluster: str,
    nodes: int,
    pretend_gpus: int,
    port: int | None,
    images: tuple[str, ...],
    no_operator: bool,
    timeout: float,
) -> None:
    """Start a control plane on this machine, or see that it runs.

    Pods run as processes of this machine, isolated for rehearsal; this is not a security boundary. Images are
    not pulled: a container sees this machine's file system, with its own writes on top, or the folder that
    --image gives for the name in its `image:`.
    """
    began = time.monotonic()
    options = Options(
        nodes=nodes,
        pretend_gpus=pretend_gpus,
        port=port or 0,
        images=dict(map(_image, images)),
        operator=not no_operator,
    )
    state = State.of(cluster)
    try:
        run = start(state, options)
        from argosy.local.readiness import ready

        found = asyncio.run(ready(state, run, timeout=timeout, say=lambda line: click.echo(line, err=True)))
    except (ClusterError, StateError) as error:
        raise click.ClickException(str(error)) from error
    count = "1 node" if len(found) == 1 else f"{len(found)} nodes"
    names = ", ".join(node.name for node in found)
    click.echo(f"{count} ready: {names} ({time.monotonic() - began:.1f} s)")
    click.echo(_ABOUT_PODS)
    click.echo(f"kubectl: export KUBECONFIG={state.kubeconfig}, or `argosy kubectl …`")


@click.command()
@cluster_option
@click.option("--delete", is_flag=True, help="Delete its objects and keys too.")
def down(cluster: str, delete: bool) -> None:
    """Stop the control plane, with every pod. Objects stay for the next `argosy up`, unless deleted."""
    try:
        ran = stop(State.of(cluster), delete=delete)
    except StateError as error:
        raise click.ClickException(str(error)) from error
    click.echo("stopped" if ran else "nothing was running")


@click.command()
@cluster_option
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(cluster: str, output: str) -> None:
    """How the control plane is. Exit code 0 if it is up and its nodes are ready, else 1."""
    from argosy.local.readiness import report

    found = asyncio.run(report(State.of(cluster)))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found)))
    elif not found.running:
        click.echo("not running; `argosy up` starts it")
    else:
        click.echo(f"server      {found.server}\nkubeconfig  {found.kubeconfig}\nstate       {found.folder}")
        # Without room a component that was started again could not be noted: it may well run.
        lost = "not known" if found.disk else "not answering"
        for name, alive in found.components.items():
            click.echo(f"{name:<11} {'running' if alive else lost}")
        for node in found.nodes:
            told = f"; {node.notes}" if node.notes else ""
            click.echo(f"{node.name:<11} {'Ready' if node.ready else 'NotReady'}{told}")
        if found.disk:
            click.echo(f"disk        {found.disk}")
    sys.exit(0 if found.healthy else 1)


def _image(pair: str) -> tuple[str, str]:
    name, separator, root = pair.partition("=")
    if not separator or not name or not root:
        raise click.BadParameter(f"{pair!r} is not NAME=DIR", param_hint="--image")
    return name, root
