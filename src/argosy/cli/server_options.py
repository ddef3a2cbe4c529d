"""Options, configuration file and start of `argosy operator` and `argosy observer`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

import click

if TYPE_CHECKING:  # imported only when one of them runs
    from argosy.operator.settings import Settings

Command = TypeVar("Command", bound=Callable[..., object])


class CommonOptions(TypedDict):
    """Values of the options, by the names of the settings."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    operator_namespace: str
    name: str
    endpoint: str
    max_connections: int
    max_connections_per_address: int
    metrics_address: str
    probe_address: str
    log_format: Literal["json", "text"]
    log_level: str


_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option(
        "--kubeconfig",
        type=_FILE,
        help="Path of the kubeconfig file; default: the ServiceAccount of the pod.",
    ),
    click.option("--context", help="Context of the kubeconfig."),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Configuration file of AresOperator; options override it.",
    ),
    click.option(
        "--namespace",
        callback=lambda _context, _parameter, value: value or None,
        help="Serve only jobs of this namespace; default: all.",
    ),
    click.option(
        "--operator-namespace",
        default="argosy-system",
        show_default=True,
        help="Namespace of the operator's Lease, Secrets and Service.",
    ),
    click.option(
        "--name",
        default="argosy-operator",
        show_default=True,
        help="Name of the operator's Lease and Service.",
    ),
    click.option(
        "--endpoint", default="0.0.0.0:8443", show_default=True, help="Host and port that pods connect to."
    ),
    click.option(
        "--max-connections",
        type=click.IntRange(min=1),
        default=5000,
        show_default=True,
        help="Maximum number of connections to the endpoint.",
    ),
    click.option(
        "--max-connections-per-address",
        type=click.IntRange(min=1),
        default=512,
        show_default=True,
        help="Maximum number of connections to the endpoint from one address.",
    ),
    click.option(
        "--metrics-bind-address",
        "--metrics-addr",
        "metrics_address",
        default=":8080",
        show_default=True,
        help="Host and port of /metrics; empty: off.",
    ),
    click.option(
        "--health-probe-bind-address",
        "probe_address",
        default=":8081",
        show_default=True,
        help="Host and port of /healthz and /readyz; empty: off.",
    ),
    click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
    ),
)


def server_options(command: Command) -> Command:
    """Add the options that both commands have."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def apply_config_file(file: Path | None, settings: "Settings") -> "Settings":
    """Return the settings with those of the file; report an invalid file."""
    from argosy.operator.apis.base import ConfigError
    from argosy.operator.apis.registry import APIS

    apply_config = next((api.apply_config for api in APIS if api.apply_config), None)
    if file is None or apply_config is None:
        return settings
    try:
        return apply_config(settings, file.read_text())
    except ConfigError as error:
        raise click.ClickException(f"{file}: {error}") from error


def run_operator(settings: "Settings") -> None:
    """Run the operator or the observer until it is stopped."""
    from argosy.engine.kubeconfig_entries import KubeconfigError
    from argosy.engine.loop import run as run_loop
    from argosy.engine.loop import use_batch_scheduling
    from argosy.operator.main import run

    use_batch_scheduling()
    try:
        run_loop(run(settings))
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
