"""Which API server a command talks to, and how its errors reach the user.

In order: what the command line says, $KUBECONFIG, the local control plane if it is up, ~/.kube/config.
"""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from argosy.engine.client import Client
from argosy.engine.entries import KubeconfigError
from argosy.engine.errors import ApiError, NotFound, Unavailable
from argosy.engine.kubeconfig import Connection
from argosy.kinds.messages import APPLY_CRDS_COMMAND
from argosy.local.processes import read_run
from argosy.local.state import State

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def cluster_options(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The options by which every command that talks to a cluster is told which, and in which namespace."""
    decorators = (
        click.option(
            "--kubeconfig", type=click.Path(dir_okay=False), help="Talk to the cluster of this file."
        ),
        click.option("--context", help="A context of the kubeconfig."),
        click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the job."),
    )
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


def connect(kubeconfig: str | None, context: str | None) -> Client:
    """A client for the cluster that the user means."""
    try:
        connection = Connection.from_kubeconfig(kubeconfig_path(kubeconfig), context=context)
        return Client(connection, user_agent="argosy-cli", strict=True)
    except KubeconfigError as error:
        raise click.ClickException(
            f"{error}\nIs there a control plane? `argosy up` starts one here."
        ) from error


def kubeconfig_path(given: str | None) -> Path | None:
    """The kubeconfig that a command should use; None means the user's ordinary one."""
    if given:
        return Path(given)
    if os.environ.get("KUBECONFIG"):
        return None
    state = State.of()
    run = read_run(state.run)
    if run is not None and run.supervisor.alive:
        return state.kubeconfig
    return None


def async_command(
    command: Callable[Parameters, Coroutine[object, object, Result]],
) -> Callable[Parameters, Result]:
    """Run an async command, and turn the API's errors into one line for the user."""

    @functools.wraps(command)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return asyncio.run(_report_errors(command(*args, **kwargs)))

    return wrapper


async def _report_errors(work: Awaitable[Result]) -> Result:
    try:
        return await work
    except Unavailable as error:
        problem = "cannot do this now" if error.status >= 500 else "does not answer"
        raise click.ClickException(f"the API server {problem}: {error.message}") from error
    except NotFound as error:
        raise click.ClickException(_not_found(error)) from error
    except ApiError as error:
        raise click.ClickException(error.message) from error


def _not_found(error: NotFound) -> str:
    if "the server could not find the requested resource" in error.message:
        return f"this cluster has no TrainingRun CRD; `{APPLY_CRDS_COMMAND}` installs it"
    return error.message
