"""`argosy rotate-keys`: replaces the credentials of the operator without interrupting jobs."""

import click

from argosy.cli.cluster_access import async_command, connect, connection_options
from argosy.install.presets import PRESETS, choose_preset
from argosy.kinds.labels import OPERATOR_NAMESPACE


@click.command("rotate-keys")
@connection_options
@click.option("-n", "--namespace", help=f"Namespace of the operator; default: {OPERATOR_NAMESPACE}.")
@click.option(
    "--api",
    "apis",
    multiple=True,
    type=click.Choice(tuple(PRESETS)),
    help="Select the installation that serves only this API.",
)
@click.option("--name", help="Name of the operator; default: argosy-operator.")
@click.option("--ca", "authority", is_flag=True, help="Also replace the certificate authority.")
@async_command
async def rotate_keys(
    kubeconfig: str | None,
    context: str | None,
    namespace: str | None,
    apis: tuple[str, ...],
    name: str | None,
    authority: bool,
) -> None:
    """Replace the keys that pods and the operator trust.

    These are the key of job tokens and, with --ca, the certificate authority. Running pods are not
    interrupted: the old keys are accepted until the next rotation.
    """
    from argosy.engine.clock import SystemClock
    from argosy.operator.credentials import RotationError, SecretStore, rotate
    from argosy.operator.endpoint_credentials import TOKEN_KEY_DELAY
    from argosy.operator.settings import NAME, Settings

    defaults = choose_preset(apis)
    settings = Settings(
        name=name or str(defaults.values.get("name", NAME)),
        operator_namespace=namespace or defaults.namespace,
    )
    async with connect(kubeconfig, context) as client:
        store = SecretStore(client, settings.operator_namespace, settings.secret)
        try:
            old = await rotate(store, SystemClock(), ca=authority)
        except RotationError as error:
            raise click.ClickException(str(error)) from error
    click.echo(f"Secret {store}: new token key{' and certificate authority' if authority else ''}")
    click.echo("the old keys of running pods are accepted until the next rotation")
    if old.rotated_at:
        accepted_since = old.rotated_at + TOKEN_KEY_DELAY
        click.echo(f"keys of pods created before {accepted_since:%Y-%m-%d %H:%M:%S} UTC are now rejected")
