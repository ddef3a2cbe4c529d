"""The click group of all commands: looks them up in the table and imports only the one that is called."""

import importlib
import sys

import click

from argosy import __version__
from argosy.cli.main import COMMANDS, HELP_OPTIONS, help_text


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for one that is unknown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        commands = self.list_commands(ctx)
        if args and args[0] not in commands and not args[0].startswith("-"):
            from argosy.kinds.text import closest

            program = "argosy" if ctx.parent is None else f"argosy {ctx.info_name}"
            suggestion = closest(args[0], commands)
            hint = f"did you mean `{program} {suggestion}`?" if suggestion else f"see `{program} --help`"
            raise click.UsageError(f'unknown command "{args[0]}"; {hint}')
        return super().resolve_command(ctx, args)


class Commands(SuggestingGroup):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def get_help(self, ctx: click.Context) -> str:
        return help_text().rstrip()


@click.command(cls=Commands, context_settings={"help_option_names": list(HELP_OPTIONS)})
@click.version_option(__version__, "-V", "--version", message="argosy %(version)s")
def cli() -> None:
    """All commands are in the table."""


def run() -> None:
    """Run the command of the command line, then exit."""
    try:
        cli.main(prog_name="argosy", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
