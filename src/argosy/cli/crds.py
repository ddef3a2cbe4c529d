"""`argosy crds`: the definitions of our kinds, as YAML."""

import click
import yaml


@click.command()
def crds() -> None:
    """Print the kinds' definitions, for `kubectl apply --server-side -f -`."""
    from argosy.kinds.catalog import custom_kinds
    from argosy.kinds.crd import crd_for

    click.echo(yaml.safe_dump_all([crd_for(kind) for kind in custom_kinds()], sort_keys=False), nl=False)
