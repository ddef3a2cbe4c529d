"""`argosy completion SHELL`: prints what makes the shell complete our commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print shell completion, to be sourced: `source <(argosy completion bash)`."""
    from argosy.cli.group import cli

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(cli, {}, "argosy", "_ARGOSY_COMPLETE").source())
