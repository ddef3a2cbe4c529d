"""Runs node agents for nodes of a local control plane, and a registry for them and the operator."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tests.support import commands
from tests.support.commands import ARGOSY
from tests.support.local_control_plane import ControlPlane
from tests.support.registry import RunningRegistry, running_registry


def enter_node_network(plane: ControlPlane) -> Sequence[str]:
    """Return the command that executes others in the network of the nodes."""
    holder = msgspec.json.decode((plane.state.pods / "holder.json").read_bytes())["pid"]
    return ("nsenter", f"--net=/proc/{holder}/ns/net")


@contextmanager
def running_agents(plane: ControlPlane, folder: Path, *nodes: str) -> Iterator[RunningRegistry]:
    """Run the agents of these nodes and a registry for the duration of the block."""
    with ExitStack() as stack:
        registry = stack.enter_context(registry_for_nodes(plane, folder))
        for node in nodes:
            stack.enter_context(running_agent(plane, node))
        yield registry


@contextmanager
def registry_for_nodes(plane: ControlPlane, folder: Path) -> Iterator[RunningRegistry]:
    """Run a registry that has one address in the network of the nodes and in that of the machine.

    The operator is in the network of the machine. Two processes serve one folder.
    """
    with running_registry(folder, enter=enter_node_network(plane)) as registry:
        port = int(registry.address.rpartition(":")[2])
        with running_registry(folder, port=port):
            yield registry


@contextmanager
def running_agent(plane: ControlPlane, node: str) -> Iterator[None]:
    """Run the agent of a node, which makes checkpoints, for the duration of the block."""
    state = plane.state
    words = ["agent", "--node", node, "--kubeconfig", str(state.kubeconfigs / "operator")]
    words += ["--notices", "none", "--checkpoint-folder", str(state.folder / "checkpoints")]
    agent = commands.start((*enter_node_network(plane), str(ARGOSY), *words), plane.environment)
    try:
        yield
    finally:
        agent.terminate()
        agent.communicate(timeout=60)
