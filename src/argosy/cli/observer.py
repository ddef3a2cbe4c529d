"""`argosy observer`: serves pods of AresJobs that wait for other roles, as its Deployment does."""

from pathlib import Path
from typing import Unpack

import click

from argosy.cli.server_options import CommonOptions, apply_config_file, run_operator, server_options
from argosy.operator.apis.ares.settings import HTTP_PORT


@click.command()
@server_options
@click.option(
    "--auth",
    type=click.Choice(["token", "none"]),
    help="Require the token of the job, or serve everyone; default: token.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Also serve plain HTTP on this port; default: {HTTP_PORT} with --auth none, else off.",
)
def observer(
    config: Path | None, auth: str | None, port: int | None, **common: Unpack[CommonOptions]
) -> None:
    """Serve pods of AresJobs that wait for other roles.

    It runs next to an operator of the same cluster, which does not serve these pods itself then.
    """
    from argosy.operator.apis.ares.settings import observer_settings
    from argosy.operator.settings import Settings

    settings = apply_config_file(config, Settings(**common))
    run_operator(observer_settings(settings, auth, port))
