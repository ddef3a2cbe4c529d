"""Connects a command to its cluster, and turns errors of the API server into messages.

The kubeconfig is, in this order: --kubeconfig, $KUBECONFIG, that of the local control plane if it is running,
~/.kube/config.
"""

import asyncio
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from argosy.engine.client import Client
from argosy.engine.errors import ApiError, NotFound, Unavailable
from argosy.engine.kubeconfig import Connection
from argosy.engine.kubeconfig_entries import KubeconfigError
from argosy.kinds.crd_options import APPLY_CRDS_COMMAND
from argosy.local.processes import read_run
from argosy.local.state import State

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_kubeconfig_option = click.option(
    "--kubeconfig", type=click.Path(dir_okay=False), help="Path of the kubeconfig file."
)
_context_option = click.option("--context", help="Context of the kubeconfig.")
_namespace_option = click.option(
    "-n", "--namespace", help="Namespace of the job; by default that of the kubeconfig's context."
)


def connection_options(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Add the options that select a cluster."""
    return _kubeconfig_option(_context_option(command))


def cluster_options(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Add the options that select a cluster and the namespace of a job."""

    @functools.wraps(command)
    def with_namespace(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        if kwargs["namespace"] is None:
            kubeconfig, context = kwargs["kubeconfig"], kwargs["context"]
            assert isinstance(kubeconfig, str | None)
            assert isinstance(context, str | None)
            kwargs["namespace"] = _connection(kubeconfig, context).namespace
        return command(*args, **kwargs)

    return connection_options(_namespace_option(with_namespace))


def connect(kubeconfig: str | None, context: str | None, *, field_manager: str = "argosy") -> Client:
    """Return a client for the cluster that the options and the environment select."""
    connection = _connection(kubeconfig, context)
    return Client(connection, user_agent="argosy-cli", field_manager=field_manager, strict=True)


def _connection(kubeconfig: str | None, context: str | None) -> Connection:
    try:
        return Connection.from_kubeconfig(kubeconfig_path(kubeconfig), context=context)
    except KubeconfigError as error:
        raise click.ClickException(
            f"{error}\nNo cluster? `argosy up` starts a control plane on this machine."
        ) from error


def kubeconfig_path(option: str | None) -> Path | None:
    """Return the kubeconfig to use; None means $KUBECONFIG or ~/.kube/config."""
    if option:
        return Path(option)
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
    """Run an async command, and report errors of the API server as one line."""

    @functools.wraps(command)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return asyncio.run(_report_errors(command(*args, **kwargs)))

    return wrapper


async def _report_errors(work: Awaitable[Result]) -> Result:
    try:
        return await work
    except Unavailable as error:
        problem = "failed" if error.status >= 500 else "is not reachable"
        raise click.ClickException(f"the API server {problem}: {error.message}") from error
    except NotFound as error:
        raise click.ClickException(_not_found(error)) from error
    except ApiError as error:
        raise click.ClickException(error.message) from error


def _not_found(error: NotFound) -> str:
    if "the server could not find the requested resource" in error.message:
        return f"this cluster lacks a CRD of Argosy; `{APPLY_CRDS_COMMAND}` installs them"
    return error.message
