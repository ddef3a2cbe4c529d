"""`argosy crds`: prints the CustomResourceDefinitions."""

import click
import yaml


@click.command()
def crds() -> None:
    """Print the CustomResourceDefinitions as YAML.

    \b
    argosy crds | kubectl apply --server-side -f -
    """
    from argosy.kinds.crd import crd_for
    from argosy.operator.apis.registry import CUSTOM_RESOURCES

    definitions = [crd_for(kind) for kind in CUSTOM_RESOURCES]
    click.echo(yaml.safe_dump_all(definitions, sort_keys=False), nl=False)
