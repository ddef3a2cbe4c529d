"""`argosy rehearse`: shows how jobs behave when nodes and pods are lost, on a local control plane."""

import signal

import click
import msgspec

from argosy.cli.cluster_access import async_command, cluster_options, connection_options
from argosy.cli.group import SuggestingGroup
from argosy.cli.jobs import output_option
from argosy.cli.local_nodes import duration, local_nodes, report, seconds_until
from argosy.cli.rehearse_spot import preempt, spot
from argosy.kinds.labels import TERMINATION_DEADLINE
from argosy.kinds.quantity import format_duration
from argosy.kinds.text import did_you_mean


@click.group(cls=SuggestingGroup)
def rehearse() -> None:
    """Rehearse the loss of nodes and pods on the local control plane.

    Each command starts a loss and returns. What follows at a later time (`--in`, `--back-after`, `--for`)
    is done by the control plane itself, so it happens even if this terminal is closed. `argosy nodes` shows
    what is pending, and `argosy nodes resume NODE` calls it off.

    \b
    argosy rehearse reclaim node-2 --in 30s --back-after 20s   a spot machine with a notice
    argosy rehearse stop-node node-2 --for 1m                  a machine that loses power
    argosy rehearse kill-pod worker-0                          a process that crashes
    argosy nodes silence node-2                                a machine that is cut off
    argosy rehearse spot                                       a cloud whose VMs become nodes
    argosy rehearse spot --story                               a training on such VMs that loses one
    """


rehearse.add_command(spot)
rehearse.add_command(preempt)


@rehearse.command()
@connection_options
@click.argument("node")
@click.option("--in", "notice", type=duration, required=True, help="Time until the node vanishes: 30s.")
@click.option("--back-after", type=duration, help="Time after which a new node of that name appears.")
@output_option
@async_command
async def reclaim(
    kubeconfig: str | None,
    context: str | None,
    node: str,
    notice: float,
    back_after: float | None,
    output: str,
) -> None:
    """Announce the end of a node, as a cloud does that takes a spot machine back.

    The Node gets the annotations argosy.dev/termination-deadline and argosy.dev/termination-source, and a
    NoSchedule taint. At the deadline the machine is gone: its pods are killed at once, their files are lost,
    and its Node is deleted.
    """
    async with local_nodes(kubeconfig, context) as local:
        entry = await local.change(node, "reclaim", **{"in": notice, "backAfter": back_after})
        pods = (await local.pod_counts())[node]
    assert entry.reclaim_at is not None
    line = (
        f"announced on {node} ({TERMINATION_DEADLINE}): "
        f"in {seconds_until(entry.reclaim_at)} it vanishes with its pods ({pods})"
    )
    if back_after is not None:
        line += f"; a new {node} appears {format_duration(back_after)} later"
    report(entry, output, line)


@rehearse.command("stop-node")
@connection_options
@click.argument("node")
@click.option("--for", "pause", type=duration, help="Time after which it is switched on: 20s.")
@output_option
@async_command
async def stop_node(
    kubeconfig: str | None, context: str | None, node: str, pause: float | None, output: str
) -> None:
    """Power a node off at once, and on again after --for.

    Its pods are killed without a grace period and nothing is reported, so it is NotReady after the node
    monitor grace period. When it is on again, its pods start again or fail, by their restartPolicy.
    """
    async with local_nodes(kubeconfig, context) as local:
        pods = (await local.pod_counts())[node]
        entry = await local.change(node, "stop", **{"for": pause})
    on = f"`argosy nodes resume {node}` switches it on" if pause is None else ""
    on = on or f"it is switched on in {format_duration(pause or 0.0)}"
    report(entry, output, f"{node} is off: its pods ({pods}) were killed; {on}")


@rehearse.command("kill-pod")
@cluster_options
@click.argument("pod")
@click.option("--signal", "signal_name", default="KILL", show_default=True, help="Signal, such as TERM.")
@output_option
@async_command
async def kill_pod(
    kubeconfig: str | None, context: str | None, namespace: str, pod: str, signal_name: str, output: str
) -> None:
    """Kill the processes of a pod, as the OOM killer or a crash does.

    The first process of each running container gets the signal; when it ends, so do the others of its
    container.
    """
    number = _parse_signal(signal_name)
    async with local_nodes(kubeconfig, context) as local:
        killed = await local.send("POST", f"pods/{namespace}/{pod}/kill", _Killed, signal=int(number))
    containers = ", ".join(killed.containers)
    outcome = {"OnFailure": "what fails is restarted", "Never": "what ends is not restarted"}
    next_step = outcome.get(killed.restart_policy, "what ends is restarted")
    report(
        killed,
        output,
        f"sent {number.name} to {pod} on {killed.node} ({containers}); "
        f"{next_step} (restartPolicy {killed.restart_policy})",
    )


class _Killed(msgspec.Struct, rename="camel"):
    node: str
    containers: list[str]
    restart_policy: str


def _parse_signal(text: str) -> signal.Signals:
    name = text.upper().removeprefix("SIG")
    names = [number.name.removeprefix("SIG") for number in signal.Signals]
    if name not in names:
        hint = did_you_mean(name, names) or "; must be a name such as KILL, TERM or SEGV"
        raise click.BadParameter(f"unknown signal {text}{hint}", param_hint="--signal")
    return signal.Signals[f"SIG{name}"]
