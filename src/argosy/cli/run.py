"""`argosy run`: submit a job and stay with it until it has ended.

Two forms: a file, or a command after `--` that becomes a job of one role. The exit code is the job's
outcome: 0 succeeded, 1 failed, 130 interrupted. An interrupt deletes the run that this call submitted and
waits until it is gone, so that nothing is left half done; a second one ends at once and says what is left. A
run that the operator cannot accept is taken away too. `--detach` submits and returns.
"""

import asyncio
import contextlib
import os
import re
import secrets
import shlex
import signal
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TypeVar

import click

from argosy.cli.cluster_access import async_command, cluster_options, connect
from argosy.cli.documents import load
from argosy.cli.follow import Follower, Printer, pod_selector
from argosy.cli.local_mounts import Manifest, mount_working_dir, with_variables
from argosy.cli.submit import Submitted, is_run, remove, submit
from argosy.cli.tables import command_line
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.kinds.kubernetes import Pod

Result = TypeVar("Result")

_EXIT_CODES = {"Succeeded": 0, "Failed": 1, "Deleted": 1}


@click.command(context_settings={"allow_interspersed_args": False})
@cluster_options
@click.argument("what", nargs=-1, required=True, metavar="FILE | -- COMMAND…", type=click.UNPROCESSED)
@click.option("--name", help="Name of the run; made from the command by default.")
@click.option("--framework", default="custom", show_default=True, help="For the command form.")
@click.option("--replicas", type=click.IntRange(1, 10_000), default=1, show_default=True, help="Workers.")
@click.option("--gpus", type=click.IntRange(0, 64), default=0, help="GPUs for each worker.")
@click.option(
    "--restarts", type=click.IntRange(0, 1000), default=3, show_default=True, help="Failures to survive."
)
@click.option("--image", default="local", show_default=True, help="Image of the containers.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set in every container.")
@click.option(
    "--here", is_flag=True, help="Show the current folder and environment to a file's containers too."
)
@click.option("-d", "--detach", is_flag=True, help="Submit and return.")
@async_command
async def run(
    what: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    name: str | None,
    framework: str,
    replicas: int,
    gpus: int,
    restarts: int,
    image: str,
    variables: tuple[str, ...],
    here: bool,
    detach: bool,
) -> None:
    """Run a job from a file, or a command as a job, and follow it to its end.

    \b
    argosy run job.yaml
    argosy run --replicas 4 -- python train.py
    """
    from_file = _is_file(what)
    if from_file:
        documents = load(Path(what[0]))
    else:
        made = command_run(name, framework, replicas, gpus, restarts, image, what)
        documents = [made]
        here = True
    if here:
        documents = [_with_local_mounts(document) if is_run(document) else document for document in documents]
    if variables:
        documents = [
            _with_variables(document, variables) if is_run(document) else document for document in documents
        ]
    runs = [document for document in documents if is_run(document)]
    if len(runs) != 1:
        raise click.ClickException(
            f"{what[0]}: holds {len(runs)} TrainingRuns; `argosy run` follows exactly one"
        )
    if name:
        runs[0]["metadata"] = {**_metadata(runs[0]), "name": name}
    async with connect(kubeconfig, context) as client:
        if detach:
            submitted = await submit(client, documents, namespace)
            click.echo(f"{submitted.name} submitted; `{_command('logs', submitted, '-f')}` shows its output")
            return
        sys.exit(await _submit_and_follow(client, documents, namespace))


def command_run(
    name: str | None,
    framework: str,
    replicas: int,
    gpus: int,
    restarts: int,
    image: str,
    command: tuple[str, ...],
) -> Manifest:
    """The TrainingRun that a command on the command line stands for."""
    container: Manifest = {"name": "main", "image": image, "command": list(command)}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    role = {"replicas": replicas, "restart": "OnFailure", "template": {"spec": {"containers": [container]}}}
    roles: Manifest = {"worker": role}
    if framework == "mpi":
        idle = {key: value for key, value in container.items() if key != "command"}
        roles = {
            "launcher": {"template": {"spec": {"containers": [{**container, "resources": {}}]}}},
            "worker": {**role, "template": {"spec": {"containers": [idle]}}},
        }
    return {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {
            "name": name or name_for(command),
            "annotations": {"argosy.dev/command": shlex.join(command)[:1024]},
        },
        "spec": {"framework": framework, "roles": roles, "limits": {"restarts": restarts}},
    }


def name_for(command: tuple[str, ...]) -> str:
    """A name that reminds of the command, with a suffix that keeps it apart from the last one."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    word = Path(scripts[0] if scripts else command[0]).stem.lower()
    plain = re.sub(r"[^a-z0-9]+", "-", word).strip("-")[:20].strip("-")
    return f"{plain if plain[:1].isalpha() else 'run'}-{secrets.token_hex(2)}"


async def _submit_and_follow(client: Client, documents: list[Manifest], namespace: str) -> int:
    """The exit code. Interrupted, or refused by the operator, it takes away what it submitted."""
    with _catch_interrupts() as interrupted:
        submitted = await submit(client, documents, namespace)  # not cut short: what it made must be known
        follower = Follower(client, *submitted, Printer(), stop_if_rejected=True)
        outcome = await _unless_interrupted(interrupted, follower.outcome())
        if outcome == "Failed":
            click.echo(await _next_steps(client, submitted))
        if outcome in _EXIT_CODES:
            return _EXIT_CODES[outcome]
        word = "refused" if outcome == "Refused" else "interrupted"
        click.echo(f"{word}: deleting {submitted.name} …", err=True)
        interrupted.clear()
        await _delete_run(client, submitted, interrupted)
    return 1 if outcome == "Refused" else 130


async def _next_steps(client: Client, run: Submitted) -> str:
    """Return where to read what the pods of a failed run printed, if any are kept, and why it failed."""
    pods = (await client.list(Pod, run.namespace, labels=pod_selector(run.name))).items
    kept = any(pod.metadata.deletion_timestamp is None for pod in pods)
    output = f"`{_command('logs', run)}` shows its output, " if kept else ""
    return f"{run.name} failed; {output}`{_command('describe', run)}` its history"


def _command(command: str, run: Submitted, *options: str) -> str:
    return command_line(command, run.namespace, run.name, *options)


async def _delete_run(client: Client, submitted: Submitted, interrupted: asyncio.Event) -> None:
    """Delete the run and wait until it is gone; say what is left if that is interrupted or cannot be."""
    why = "interrupted again"
    try:
        if await _unless_interrupted(interrupted, remove(client, *submitted)):
            return
    except ApiError as error:
        why = error.message
    click.echo(
        f"{why}: {submitted.name} and its pods may still be there; "
        f"`{_command('rm', submitted)}` removes them",
        err=True,
    )


@contextlib.contextmanager
def _catch_interrupts() -> Iterator[asyncio.Event]:
    """An event that is set when the user wants to stop, in place of the sudden end."""
    loop, interrupted = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted.set)
    try:
        yield interrupted
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _unless_interrupted(
    interrupted: asyncio.Event, work: Coroutine[object, object, Result]
) -> Result | None:
    """What the work gives, or None when the user interrupted first."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait((working, waiting), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


def _is_file(what: tuple[str, ...]) -> bool:
    """A single word that names a file or ends like one; a command may come with or without its `--`."""
    first = what[0]
    return len(what) == 1 and (first == "-" or first.endswith((".yaml", ".yml", ".json")))


def _with_local_mounts(document: Manifest) -> Manifest:
    prefix = Path(os.environ.get("VIRTUAL_ENV") or sys.prefix)
    python = prefix / "bin" / "python"
    return mount_working_dir(
        document, Path.cwd(), prefix, python if python.exists() else Path(sys.executable), os.environ
    )


def _with_variables(document: Manifest, variables: tuple[str, ...]) -> Manifest:
    pairs = {}
    for variable in variables:
        name, separator, value = variable.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{variable!r} is not NAME=VALUE", param_hint="--env")
        pairs[name] = value
    return with_variables(document, pairs)


def _metadata(document: Manifest) -> Manifest:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
