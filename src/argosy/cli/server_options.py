"""What `argosy operator` and `argosy observer` have in common: flags, the file of settings, how they run."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

import click

if TYPE_CHECKING:  # loaded only when one of them runs
    from argosy.operator.settings import Settings

Command = TypeVar("Command", bound=Callable[..., object])


class CommonOptions(TypedDict):
    """The flags, by the names of the settings that they are."""

    kubeconfig: Path | None
    context: str | None
    namespace: str | None
    operator_namespace: str
    name: str
    endpoint: str
    max_connections: int
    max_connections_per_address: int
    metrics: str
    probes: str
    log_format: Literal["json", "text"]
    log_level: str


_FILE = click.Path(dir_okay=False, path_type=Path)
_OPTIONS = (
    click.option("--kubeconfig", type=_FILE, help="The cluster; the pod's own by default."),
    click.option("--context", help="A context of the kubeconfig."),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A file of settings, as AresOperator has it; flags win.",
    ),
    click.option(
        "--namespace",
        callback=lambda _context, _parameter, value: value or None,
        help="Serve the jobs of this namespace only; those of all by default.",
    ),
    click.option(
        "--operator-namespace",
        default="argosy-system",
        show_default=True,
        help="Where the operator keeps its lease, keys and service.",
    ),
    click.option(
        "--name",
        default="argosy-operator",
        show_default=True,
        help="What the operator's lease and service are called.",
    ),
    click.option("--endpoint", default="0.0.0.0:8443", show_default=True, help="Where pods are answered."),
    click.option(
        "--max-connections",
        type=click.IntRange(min=1),
        default=5000,
        show_default=True,
        help="Connections to the endpoint at once.",
    ),
    click.option(
        "--max-connections-per-address",
        type=click.IntRange(min=1),
        default=512,
        show_default=True,
        help="Connections to the endpoint from one address.",
    ),
    click.option(
        "--metrics-bind-address",
        "metrics",
        default=":8080",
        show_default=True,
        help="Where metrics are told; empty: nowhere.",
    ),
    click.option(
        "--health-probe-bind-address",
        "probes",
        default=":8081",
        show_default=True,
        help="Where probes are answered; empty: nowhere.",
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
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def apply_config_file(file: Path | None, settings: "Settings") -> "Settings":
    """The settings as the file has them; a file that is wrong is told, and nothing starts."""
    from argosy.operator.ares_config import ConfigError, configured, read

    if file is None:
        return settings
    try:
        return configured(settings, read(file.read_text()))
    except ConfigError as error:
        raise click.ClickException(f"{file}: {error}") from error


def run_operator(settings: "Settings") -> None:
    from argosy.engine.entries import KubeconfigError
    from argosy.engine.loop import run as run_loop
    from argosy.engine.loop import use_batch_scheduling
    from argosy.operator.main import run

    use_batch_scheduling()
    try:
        run_loop(run(settings))
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
