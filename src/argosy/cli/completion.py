"""`argosy completion SHELL`: prints the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    source <(argosy completion bash)
    """
    from argosy.cli.group import cli

    complete = get_completion_class(shell)
    assert complete is not None
    click.echo(complete(cli, {}, "argosy", "_ARGOSY_COMPLETE").source())
