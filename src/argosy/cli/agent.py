"""`argosy agent`: runs the node agent of one node, as its DaemonSet does."""

from pathlib import Path
from typing import Literal

import click


@click.command()
@click.option("--node", required=True, envvar="NODE_NAME", help="Name of the Node of this machine.")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Path of the kubeconfig file; default: the ServiceAccount of the pod.",
)
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--notices",
    type=click.Choice(["auto", "gce", "ec2", "azure", "none"]),
    default="auto",
    show_default=True,
    help="The cloud whose metadata service announces the end of this machine.",
)
@click.option(
    "--metadata-endpoint",
    default="http://169.254.169.254",
    show_default=True,
    help="URL of the metadata service.",
)
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
)
def agent(
    node: str,
    kubeconfig: Path | None,
    context: str | None,
    notices: str,
    metadata_endpoint: str,
    log_format: Literal["json", "text"],
    log_level: str,
) -> None:
    """Announce the end of this machine, and make checkpoints on it."""
    from argosy.agent.main import run
    from argosy.agent.settings import AgentSettings
    from argosy.engine.kubeconfig_entries import KubeconfigError
    from argosy.engine.loop import run as run_loop

    settings = AgentSettings(
        node=node,
        kubeconfig=kubeconfig,
        context=context,
        notices=notices,
        metadata_endpoint=metadata_endpoint,
        log_format=log_format,
        log_level=log_level,
    )
    try:
        run_loop(run(settings))
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
