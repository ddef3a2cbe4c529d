"""`argosy kubectl …`: replaces this process by kubectl, with the kubeconfig that the other commands use."""

import os
import shutil
import sys
from pathlib import Path

import click

from argosy.local.processes import read_run
from argosy.local.state import State


@click.command(
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": [],
    }
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl(arguments: tuple[str, ...]) -> None:
    """Run kubectl with the kubeconfig that `argosy` itself uses."""
    program = find_kubectl()
    if program is None:
        raise click.ClickException("kubectl is not installed; `pip install argosy[kubectl]` installs it")
    environment = dict(os.environ)
    state = State.of()
    run = read_run(state.run)
    if "KUBECONFIG" not in environment and run is not None and run.supervisor.alive:
        environment["KUBECONFIG"] = str(state.kubeconfig)
    os.execve(program, [program, *arguments], environment)  # noqa: S606 - this is what the command is for


def find_kubectl() -> str | None:
    """Return the kubectl in the folder of this interpreter, else the one on the PATH."""
    bundled = Path(sys.executable).parent / "kubectl"
    return str(bundled) if bundled.exists() else shutil.which("kubectl")
