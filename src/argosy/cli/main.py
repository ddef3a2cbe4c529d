"""The `argosy` command: a table of commands, each imported only when it is called.

Help is answered from the table alone, so it comes at once. A user's mistake ends with one line that says
what to do and exit code 2 or 1, never with a traceback.
"""

import importlib
import sys
from typing import NamedTuple

import click

from argosy import __version__


class Entry(NamedTuple):
    target: str
    help: str


COMMANDS = {
    "up": Entry("argosy.cli.cluster:up", "Start a control plane on this machine, or see that it runs."),
    "down": Entry("argosy.cli.cluster:down", "Stop it, with every pod."),
    "status": Entry("argosy.cli.cluster:status", "How the control plane is."),
    "run": Entry("argosy.cli.run:run", "Run a job from a file, or a command as a job, and follow it."),
    "ps": Entry("argosy.cli.jobs:ps", "List training runs."),
    "logs": Entry("argosy.cli.logs:logs", "Print or follow what a run's pods say."),
    "describe": Entry(
        "argosy.cli.describe:describe", "Tell all about one run: roles, pods, history, events."
    ),
    "scale": Entry("argosy.cli.jobs:scale", "Change the number of a role's pods."),
    "suspend": Entry("argosy.cli.jobs:suspend", "Stop a run's pods and keep its place."),
    "resume": Entry("argosy.cli.jobs:resume", "Let a suspended run go on."),
    "rm": Entry("argosy.cli.jobs:rm", "Delete runs and wait until they are gone."),
    "crds": Entry("argosy.cli.crds:crds", "Print the kinds' definitions, for kubectl apply."),
    "kubectl": Entry("argosy.cli.kubectl:kubectl", "kubectl, with the right kubeconfig."),
    "operator": Entry("argosy.cli.operator:operator", "Run the operator against any cluster."),
    "completion": Entry("argosy.cli.completion:completion", "Print shell completion, to be sourced."),
}


class Commands(click.Group):
    """A group that knows its commands' names and one-line helps without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        entry = COMMANDS.get(name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            close = _closest(args[0])
            hint = f"; did you mean `argosy {close}`?" if close else "; `argosy --help` lists them"
            raise click.UsageError(f"there is no command `{args[0]}`{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="argosy %(version)s")
def cli() -> None:
    """Run distributed training: any framework, on any capacity, from a laptop up.

    Start with `argosy up`, then `argosy run -- python train.py` or `argosy run job.yaml`.
    """


def main() -> None:
    """The console script."""
    try:
        cli.main(prog_name="argosy", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


def _closest(name: str) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(name, COMMANDS, n=1)), None)
