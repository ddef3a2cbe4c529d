"""Runs node agents for nodes of a local control plane, and a registry in their network."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from tests.support import commands
from tests.support.commands import ARGOSY
from tests.support.local_control_plane import ControlPlane
from tests.support.registry import RunningRegistry, running_registry


@contextmanager
def running_agents(plane: ControlPlane, folder: Path, *nodes: str) -> Iterator[RunningRegistry]:
    """Run the agents of these nodes and a registry for the duration of the block."""
    holder = msgspec.json.decode((plane.state.pods / "holder.json").read_bytes())["pid"]
    enter = ("nsenter", f"--net=/proc/{holder}/ns/net")
    with ExitStack() as stack:
        registry = stack.enter_context(running_registry(folder, enter=enter))
        for node in nodes:
            stack.enter_context(_running_agent(plane, node, enter))
        yield registry


@contextmanager
def _running_agent(plane: ControlPlane, node: str, enter: Sequence[str]) -> Iterator[None]:
    state = plane.state
    words = ["agent", "--node", node, "--kubeconfig", str(state.kubeconfigs / "operator")]
    words += ["--notices", "none", "--checkpoint-folder", str(state.folder / "checkpoints")]
    agent = commands.start((*enter, str(ARGOSY), *words), plane.environment)
    try:
        yield
    finally:
        agent.terminate()
        agent.communicate(timeout=60)
