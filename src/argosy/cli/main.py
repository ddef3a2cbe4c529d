"""The `argosy` command: a table of commands, each imported only when it is called.

Help is answered from the table alone, before anything is imported, so it comes at once. A user's mistake ends
with one line that says what to do and exit code 2 or 1, never with a traceback.
"""

import sys

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("argosy.cli.cluster:up", "Start a control plane on this machine, or see that it runs."),
    "down": ("argosy.cli.cluster:down", "Stop it, with every pod."),
    "status": ("argosy.cli.cluster:status", "How the control plane is."),
    "run": ("argosy.cli.run:run", "Run a job from a file, or a command as a job, and follow it."),
    "ps": ("argosy.cli.jobs:ps", "List training runs."),
    "logs": ("argosy.cli.logs:logs", "Print or follow what a run's pods say."),
    "describe": ("argosy.cli.describe:describe", "Show one job: roles, pods, restarts, events."),
    "scale": ("argosy.cli.jobs:scale", "Change the number of a role's pods."),
    "suspend": ("argosy.cli.jobs:suspend", "Stop a run's pods and keep its place."),
    "resume": ("argosy.cli.jobs:resume", "Let a suspended run go on."),
    "rm": ("argosy.cli.jobs:rm", "Delete runs and wait until they are gone."),
    "frameworks": ("argosy.cli.frameworks:frameworks", "List the frameworks that a run can name."),
    "conformance": ("argosy.cli.frameworks:conformance", "Check an adapter of a framework."),
    "crds": ("argosy.cli.crds:crds", "Print the kinds' definitions, for kubectl apply."),
    "kubectl": ("argosy.cli.kubectl:kubectl", "kubectl, with the right kubeconfig."),
    "install": ("argosy.cli.install:install", "Install the operator on a cluster."),
    "upgrade": ("argosy.cli.install:upgrade", "Change an installation: version and values."),
    "uninstall": ("argosy.cli.install:uninstall", "Take the operator away; jobs stay."),
    "rotate-keys": ("argosy.cli.keys:rotate_keys", "Replace the keys that pods and the operator trust."),
    "operator": ("argosy.cli.operator:operator", "Run the operator against any cluster."),
    "observer": ("argosy.cli.observer:observer", "Answer pods of AresJobs that wait for other roles."),
    "completion": ("argosy.cli.completion:completion", "Print shell completion, to be sourced."),
}
"""Where each is, and what it does."""

HELP_OPTIONS = ("-h", "--help")
HELP = """\
Usage: argosy [OPTIONS] COMMAND [ARGS]...

  Run distributed training: any framework, on any capacity, from a laptop up.

  Start with `argosy up`, then `argosy run -- python train.py` or `argosy run
  job.yaml`.

Options:
  -V, --version  Show the version and exit.
  -h, --help     Show this message and exit.

Commands:
"""


def help_text() -> str:
    return HELP + "".join(f"  {name:<11}  {what}\n" for name, (_, what) in COMMANDS.items())


def main() -> None:
    """The console script."""
    try:
        if len(sys.argv) == 2 and sys.argv[1] in HELP_OPTIONS:
            sys.stdout.write(help_text())
            sys.stdout.flush()
        else:
            from argosy.cli.group import run

            run()
    except BrokenPipeError:  # whoever read it has left
        sys.stderr.close()
        sys.exit(141)
