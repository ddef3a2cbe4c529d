"""`argosy crds`: the definitions of our kinds, as YAML."""

import click
import yaml


@click.command()
def crds() -> None:
    """Print the kinds' definitions, for `kubectl apply --server-side -f -`."""
    from argosy.kinds.catalog import OURS
    from argosy.kinds.crd import crd_for
    from argosy.kinds.volcano import PodGroupKind

    own = [crd_for(kind) for kind in OURS if kind is not PodGroupKind]
    click.echo(yaml.safe_dump_all(own, sort_keys=False), nl=False)
