"""`argosy observer`: answers the pods of AresJobs that wait for others, as its Deployment does."""

from pathlib import Path
from typing import Unpack

import click

from argosy.cli.server_options import CommonOptions, apply_config_file, run_operator, server_options

HTTP_PORT = 80
"""Of the original's observers, which know neither tokens nor TLS."""


@click.command()
@server_options
@click.option(
    "--auth",
    type=click.Choice(["token", "none"]),
    help="Answer only who has the job's token, or everybody; token by default.",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Answer in plain HTTP on this port too; {HTTP_PORT} by default where no token is asked for.",
)
def observer(
    config: Path | None, auth: str | None, port: int | None, **common: Unpack[CommonOptions]
) -> None:
    """Answer pods of AresJobs that wait for other roles, beside an operator on the same cluster."""
    from dataclasses import replace

    from argosy.operator.settings import Settings

    settings = apply_config_file(config, Settings(**common))
    if auth:
        settings = replace(settings, observer_tokens=auth == "token")
    plain = port or (None if settings.observer_tokens else HTTP_PORT)
    observing = replace(
        settings,
        apis=frozenset({"ares"}),
        observing=True,
        leader_elect=False,
        gang_backend="none",  # whatever the file says: it is the operator's, too
        remote_exec=False,
        plain_endpoint=f":{plain}" if plain else "",
    )
    run_operator(observing)
