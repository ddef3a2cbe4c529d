"""`argosy rehearse spot` and `argosy rehearse preempt`: a cloud on this machine whose VMs are local nodes."""

import asyncio
import sys
from collections.abc import Mapping

import click
import msgspec

from argosy.cli.cluster_access import async_command, connection_options
from argosy.cli.local_nodes import duration, local_nodes
from argosy.wire.client import Client
from argosy.wire.origin import Origin

DEFAULT_PORT = 8899


@click.command("spot")
@connection_options
@click.option("--port", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True)
@click.option("--boot", type=duration, default="3s", show_default=True, help="Time until a VM is RUNNING.")
@click.option("--notice", type=duration, default="30s", show_default=True, help="Notice of a preemption.")
@click.option(
    "--capacity",
    "capacities",
    multiple=True,
    metavar="ZONE=NUMBER",
    help="VMs that a zone has room for; may be repeated.",
)
@click.option("--story", is_flag=True, help="Show a whole training on such VMs, in a minute or so.")
def spot(
    kubeconfig: str | None,
    context: str | None,
    port: int,
    boot: float,
    notice: float,
    capacities: tuple[str, ...],
    story: bool,
) -> None:
    """Serve a cloud like Google Compute Engine until Ctrl-C, whose VMs become nodes of the local control
    plane.

    Start the operator with `--gce-endpoint http://127.0.0.1:8899`. No account is needed: credentials are
    only checked for their form. Each VM that has joined has a node agent, which announces its end.

    With --story it starts a control plane, this cloud and an operator itself, and shows a training that
    loses a VM: buy, train, notice, save, replace, resume, done, and what it cost. Then it stops everything.
    """
    limits = dict(map(_capacity, capacities))
    if not story:
        _serve(kubeconfig, context, port, boot, notice, limits)
        return
    if kubeconfig or context:
        raise click.UsageError(
            "--story has its own control plane: not supported with --kubeconfig or --context"
        )
    from argosy.cli.spot_story import tell_story

    options = ["--boot", f"{boot:g}s", "--notice", f"{notice:g}s"]
    sys.exit(tell_story(port, [*options, *(word for text in capacities for word in ("--capacity", text))]))


@async_command
async def _serve(
    kubeconfig: str | None,
    context: str | None,
    port: int,
    boot: float,
    notice: float,
    capacity: Mapping[str, int],
) -> None:
    from argosy.agent.main import run_agent
    from argosy.agent.settings import AgentSettings
    from argosy.local.gce.api import GceApi
    from argosy.local.gce.cloud import Cloud, Latency
    from argosy.local.gce.machines import JoiningMachines
    from argosy.local.gce.server import GceServer, utc_now

    cloud = Cloud(utc_now, Latency(boot=boot, notice=notice))
    cloud.capacity |= capacity
    async with local_nodes(kubeconfig, context) as local, GceServer(GceApi(cloud)).serving(port) as url:

        async def announce(node: str) -> None:
            endpoint = f"{url}/vms/{node}"
            settings = AgentSettings(node=node, notices="gce", metadata_endpoint=endpoint, checkpoints=False)
            await run_agent(settings, local.client.connection)

        machines = JoiningMachines(cloud, local.client, click.echo, announce)
        click.echo(f"serving at {url}; start the operator with --gce-endpoint {url}")
        try:
            await asyncio.Event().wait()
        finally:
            await machines.close()


@click.command("preempt")
@click.argument("vm")
@click.option("--endpoint", default=f"http://127.0.0.1:{DEFAULT_PORT}", show_default=True)
@async_command
async def preempt(vm: str, endpoint: str) -> None:
    """Take a spot VM of `argosy rehearse spot` back: it gets a notice, and is gone after it."""
    client = Client(Origin.from_url(endpoint))
    try:
        response = await client.send("POST", f"/rehearsal/preempt/{vm}", {}, timeout=10)
    except OSError as error:
        raise click.ClickException(f"{endpoint}: {error}; is `argosy rehearse spot` running?") from error
    finally:
        await client.close()
    if response.status != 200:
        raise click.ClickException(response.body.decode(errors="replace").strip())
    operation = msgspec.json.decode(response.body)
    click.echo(f"{vm} is taken back ({operation['name']})")


def _capacity(text: str) -> tuple[str, int]:
    zone, equals, number = text.partition("=")
    if not equals or not zone or not number.isdigit():
        raise click.BadParameter(f"invalid value {text}: must be ZONE=NUMBER", param_hint="--capacity")
    return zone, int(number)
