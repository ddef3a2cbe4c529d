"""The helper's command line. Exit codes: 0 done, 1 cannot be done, 2 not in time, 64 wrong usage.

It runs once in every pod: what speaks to the operator is loaded by the steps that do.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from argosy.helper.errors import DeadlineExceededError, RejectedError


def main(arguments: Sequence[str]) -> int:
    """Run the steps, separated by the word `then`, up to the first that does not succeed."""
    if arguments[:1] in (["cache"], ["mpi"]):
        from argosy.helper.initializer import main as initializer

        return initializer(arguments)
    steps: list[list[str]] = [[]]
    for word in arguments:
        if word == "then":
            steps.append([])
        else:
            steps[-1].append(word)
    try:
        chosen = [_parser().parse_args(step) for step in steps]
    except SystemExit as stop:
        return 64 if stop.code else 0
    for step in chosen:
        if code := _run(step):
            return code
    return 0


def _run(step: argparse.Namespace) -> int:
    try:
        return _perform(step)
    except DeadlineExceededError:
        print(f"argosy: not done within {step.deadline:g} s", file=sys.stderr)
        return 2
    except (RejectedError, OSError) as error:
        print(f"argosy: {error}", file=sys.stderr)
        return 1


def _perform(step: argparse.Namespace) -> int:
    if step.command == "remote-exec":
        from argosy.helper.remote import prepare

        prepare(step.to, step.kubectl)
        return 0
    if step.command == "resume":
        from argosy.helper.checkpoint_folder import prepare as prepare_resume

        return prepare_resume(step.folder, step.link, step.sdk, step.copies)
    from argosy.helper.endpoint import Endpoint

    if step.command == "orders":
        from argosy.helper.orders import Settings
        from argosy.helper.orders import keep_current as deliver_orders

        deliver_orders(Endpoint.from_environment(), Settings.from_environment())
    if step.command == "hosts":
        from argosy.helper.hosts import keep_current, write_once

        endpoint = Endpoint.from_environment()
        if step.once:
            return write_once(endpoint, step.deadline)
        keep_current(endpoint)
    from argosy.helper.wait import wait_for, wait_to_join

    if step.command == "join":
        return wait_to_join(Endpoint.from_environment(), step.role, step.index)
    return wait_for(Endpoint.from_environment(), step.conditions, step.deadline)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="argosy-helper", description="Argosy's helper inside pods.")
    commands = parser.add_subparsers(dest="command", required=True)

    wait = commands.add_parser("wait", help="wait for phases of other roles")
    wait.add_argument("conditions", nargs="+", type=_condition, metavar="ROLE=PHASE")
    wait.add_argument("--deadline", type=float, default=None, metavar="SECONDS")

    hosts = commands.add_parser("hosts", help="keep the host list of a launcher current")
    hosts.add_argument("--once", action="store_true", help="write the files, and end")
    hosts.add_argument("--deadline", type=float, default=None, metavar="SECONDS", help="with --once")

    join = commands.add_parser("join", help="wait until this replica is a member of its role")
    join.add_argument("role")
    join.add_argument("index", type=int)

    commands.add_parser("orders", help="deliver orders to save checkpoints, and acknowledge checkpoints")
    resume = commands.add_parser("resume", help="find the checkpoint to resume from, and copy the SDK")
    resume.add_argument("--folder", type=Path, required=True, help="of all checkpoints")
    resume.add_argument(
        "--copies", type=Path, help="whose subfolders have those of other copies of the program"
    )
    resume.add_argument("--link", type=Path, required=True, help="the link to make to the newest of them")
    resume.add_argument("--sdk", type=Path, required=True, help="the folder for argosy_sdk")

    remote = commands.add_parser("remote-exec", help="put kubectl and remote-exec into a folder")
    remote.add_argument("--to", type=Path, required=True)
    remote.add_argument("--kubectl", default=None, help="the binary to copy (default: from PATH)")
    return parser


def _condition(text: str) -> tuple[str, str]:
    role, _, phase = text.partition("=")
    if not role or not phase:
        raise argparse.ArgumentTypeError(f"{text!r}: write ROLE=PHASE, such as worker=Running")
    return role, phase
