"""The `argosy` command: a table of commands, each imported only when it is called.

`argosy --help` is printed from the table alone, without importing any command, so that it is fast. The help
of each command stands here and as the first paragraph of its docstring; a test compares the two. An error of
the user ends with one line that says what to do, and with exit code 2 or 1, never with a traceback.
"""

import sys

COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("argosy.cli.cluster:up", "Start a control plane on this machine, or check that it runs."),
    "down": ("argosy.cli.cluster:down", "Stop the local control plane and all its pods."),
    "status": ("argosy.cli.cluster:status", "Show the state of the local control plane."),
    "nodes": ("argosy.cli.nodes:nodes", "List and change the nodes of the local control plane."),
    "rehearse": (
        "argosy.cli.rehearse:rehearse",
        "Rehearse the loss of nodes and pods on the local control plane.",
    ),
    "run": ("argosy.cli.run:run", "Run a job from a file, or a command as a job, and follow it to its end."),
    "ps": ("argosy.cli.jobs:ps", "List jobs of all kinds, newest last."),
    "logs": ("argosy.cli.logs:logs", "Print or follow the output of a job's pods."),
    "describe": (
        "argosy.cli.describe:describe",
        "Show one job: phase, roles, pods, restarts, conditions and events.",
    ),
    "scale": ("argosy.cli.jobs:scale", "Change the number of pods of a role."),
    "suspend": ("argosy.cli.jobs:suspend", "Stop the pods of a job; `argosy resume` continues it."),
    "resume": ("argosy.cli.jobs:resume", "Continue a suspended job."),
    "rm": ("argosy.cli.jobs:rm", "Delete jobs and wait until their pods are gone."),
    "frameworks": ("argosy.cli.frameworks:frameworks", "List the frameworks that a job can use."),
    "conformance": ("argosy.cli.frameworks:conformance", "Check adapters of frameworks."),
    "checkpoints": (
        "argosy.cli.checkpoints:checkpoints",
        "List, verify, copy and delete the checkpoints of a job.",
    ),
    "crds": ("argosy.cli.crds:crds", "Print the CustomResourceDefinitions as YAML."),
    "kubectl": ("argosy.cli.kubectl:kubectl", "Run kubectl with the kubeconfig that `argosy` itself uses."),
    "install": ("argosy.cli.install:install", "Install the operator on a cluster."),
    "upgrade": ("argosy.cli.install:upgrade", "Upgrade an installed operator, or change its values."),
    "uninstall": ("argosy.cli.install:uninstall", "Remove the operator; jobs, pods and CRDs stay."),
    "rotate-keys": ("argosy.cli.keys:rotate_keys", "Replace the keys that pods and the operator trust."),
    "operator": ("argosy.cli.operator:operator", "Run the operator against any cluster."),
    "agent": ("argosy.cli.agent:agent", "Announce the end of this machine, and make checkpoints on it."),
    "observer": ("argosy.cli.observer:observer", "Serve pods of AresJobs that wait for other roles."),
    "completion": ("argosy.cli.completion:completion", "Print the completion script of a shell."),
}
"""Module and attribute of each command, and its help."""

HELP_OPTIONS = ("-h", "--help")
HELP = """\
Usage: argosy [OPTIONS] COMMAND [ARGS]...

  Run distributed training with any framework, on a laptop or a cluster.

  Start with `argosy up`, then `argosy run -- python train.py` or `argosy run
  job.yaml`.

Options:
  -V, --version  Show the version and exit.
  -h, --help     Show this message and exit.

Commands:
"""
BROKEN_PIPE_EXIT_CODE = 141
"""What a shell reports for a process that SIGPIPE ended."""


def help_text() -> str:
    return HELP + "".join(f"  {name:<11}  {summary}\n" for name, (_, summary) in COMMANDS.items())


def main() -> None:
    """The console script."""
    try:
        if len(sys.argv) == 2 and sys.argv[1] in HELP_OPTIONS:
            sys.stdout.write(help_text())
            sys.stdout.flush()
        else:
            from argosy.cli.group import run

            run()
    except BrokenPipeError:  # the reader of the output has closed it, as `head` does
        sys.stderr.close()
        sys.exit(BROKEN_PIPE_EXIT_CODE)
