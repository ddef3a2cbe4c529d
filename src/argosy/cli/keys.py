"""`argosy rotate-keys`: replaces the credentials of an operator, without interrupting jobs."""

import click

from argosy.cli.cluster_access import async_command, kubeconfig_path
from argosy.install.presets import PRESETS, preset
from argosy.kinds.labels import OPERATOR_NAMESPACE


@click.command("rotate-keys")
@click.option("--kubeconfig", type=click.Path(dir_okay=False), help="Talk to the cluster of this file.")
@click.option("--context", help="A context of the kubeconfig.")
@click.option("-n", "--namespace", help=f"Where the operator is; {OPERATOR_NAMESPACE} by default.")
@click.option(
    "--api",
    "apis",
    multiple=True,
    type=click.Choice(tuple(PRESETS)),
    help="The installation that serves this API alone.",
)
@click.option("--name", help="What the operator is called; argosy-operator by default.")
@click.option("--ca", "authority", is_flag=True, help="Replace the certificate authority too.")
@async_command
async def rotate_keys(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    name: str | None,
    authority: bool,
) -> None:
    """Replace the key of job tokens and, with --ca, the certificate authority.

    Running pods are not interrupted: what is replaced is accepted until the next rotation.
    """
    from argosy.engine.client import Client
    from argosy.engine.clock import SystemClock
    from argosy.engine.entries import KubeconfigError
    from argosy.engine.kubeconfig import Connection
    from argosy.operator.credentials import RotationError, Store, rotate
    from argosy.operator.endpoint_credentials import TOKEN_KEY_DELAY
    from argosy.operator.settings import NAME, Settings

    chosen = preset(apis)
    settings = Settings(
        name=name or str(chosen.values.get("name", NAME)), operator_namespace=namespace or chosen.namespace
    )
    try:
        connection = Connection.from_kubeconfig(kubeconfig_path(kubeconfig), context=context)
    except KubeconfigError as error:
        raise click.ClickException(str(error)) from error
    async with Client(connection, user_agent="argosy-cli", strict=True) as client:
        store = Store(client, settings.operator_namespace, settings.secret)
        try:
            old = await rotate(store, SystemClock(), authority=authority)
        except RotationError as error:
            raise click.ClickException(str(error)) from error
    click.echo(f"Secret {store}: new token key{' and certificate authority' if authority else ''}")
    click.echo("pods that run now are answered as before, until the next rotation")
    if old.rotated:
        oldest = old.rotated + TOKEN_KEY_DELAY
        click.echo(f"pods made before {oldest:%Y-%m-%d %H:%M:%S} UTC are not answered any more")
