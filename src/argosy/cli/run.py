"""`argosy run`: submits a job and follows it until it has ended.

The job is a file, or a command after `--` that becomes a job of one role. The exit code is 0 if the job
succeeded, 1 if it failed, 130 if the user interrupted. The first interrupt deletes the job that this call
submitted and waits until it is gone; a second one exits at once and says what may be left. A job that the
operator rejects is deleted too. `--detach` submits and returns.
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
from argosy.cli.follow import Follower, Printer
from argosy.cli.jobkinds import declared_kind, job_kinds, pods_of
from argosy.cli.local_mounts import Manifest, mount_working_dir, with_variables
from argosy.cli.submit import Submitted, remove, submit
from argosy.cli.tables import command_line
from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.kinds.kubernetes import Pod
from argosy.kinds.trainingrun import TrainingRun

Result = TypeVar("Result")

_EXIT_CODES = {"Succeeded": 0, "Failed": 1, "Deleted": 1}


@click.command(context_settings={"allow_interspersed_args": False})
@cluster_options
@click.argument(
    "file_or_command", nargs=-1, required=True, metavar="FILE | -- COMMAND…", type=click.UNPROCESSED
)
@click.option("--name", help="Name of the job; default: made from the command.")
@click.option("--framework", default="custom", show_default=True, help="Framework, if a command is run.")
@click.option(
    "--replicas",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Number of workers, if a command is run.",
)
@click.option(
    "--gpus", type=click.IntRange(0, 64), default=0, help="GPUs of each worker, if a command is run."
)
@click.option(
    "--restarts",
    type=click.IntRange(0, 1000),
    default=3,
    show_default=True,
    help="Maximum restarts before the job fails, if a command is run.",
)
@click.option("--image", default="local", show_default=True, help="Container image, if a command is run.")
@click.option("--env", "variables", multiple=True, metavar="NAME=VALUE", help="Set in every container.")
@click.option(
    "--mount-cwd",
    is_flag=True,
    help="Mount the current folder and virtual environment; always done for a command.",
)
@click.option("-d", "--detach", is_flag=True, help="Submit and return.")
@async_command
async def run(
    file_or_command: tuple[str, ...],
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
    mount_cwd: bool,
    detach: bool,
) -> None:
    """Run a job from a file, or a command as a job, and follow it to its end.

    \b
    argosy run job.yaml
    argosy run --replicas 4 -- python train.py
    """
    if _is_file(file_or_command):
        documents = load(Path(file_or_command[0]))
    else:
        documents = [
            training_run_for_command(name, framework, replicas, gpus, restarts, image, file_or_command)
        ]
        mount_cwd = True
    jobs = [document for document in documents if declared_kind(document)]
    if len(jobs) != 1:
        kinds = sorted(job.kind.resource.kind for job in job_kinds().values())
        raise click.ClickException(
            f"{file_or_command[0]}: has {len(jobs)} jobs: must have exactly one ({', '.join(kinds)})"
        )
    documents = [
        _prepare(document, name, variables, mount_cwd=mount_cwd) if document is jobs[0] else document
        for document in documents
    ]
    async with connect(kubeconfig, context) as client:
        if detach:
            submitted = await submit(client, documents, namespace)
            click.echo(f"{submitted.name} submitted; `{_command('logs', submitted, '-f')}` shows its output")
            return
        sys.exit(await _submit_and_follow(client, documents, namespace))


def training_run_for_command(
    name: str | None,
    framework: str,
    replicas: int,
    gpus: int,
    restarts: int,
    image: str,
    command: tuple[str, ...],
) -> Manifest:
    """Return the TrainingRun that runs a command."""
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
    """Return a job name made from the command, with a random suffix."""
    scripts = [word for word in command if word.endswith((".py", ".sh"))]
    word = Path(scripts[0] if scripts else command[0]).stem.lower()
    plain = re.sub(r"[^a-z0-9]+", "-", word).strip("-")[:20].strip("-")
    return f"{plain if plain[:1].isalpha() else 'run'}-{secrets.token_hex(2)}"


async def _submit_and_follow(client: Client, documents: list[Manifest], namespace: str) -> int:
    """Return the exit code. If the user interrupts, or the operator rejects the job, delete it."""
    with _catch_interrupts() as interrupted:
        submitted = await submit(client, documents, namespace)  # never interrupted: its name must be known
        namespace, name, kind = submitted
        follower = Follower(client, namespace, name, Printer(), kind=kind, stop_if_rejected=True)
        outcome = await _unless_interrupted(interrupted, follower.outcome())
        if outcome == "Failed":
            click.echo(await _next_steps(client, submitted))
        if outcome in _EXIT_CODES:
            return _EXIT_CODES[outcome]
        reason = "rejected" if outcome == "Rejected" else "interrupted"
        click.echo(f"{reason}: deleting {submitted.name} …", err=True)
        interrupted.clear()
        await _delete_run(client, submitted, interrupted)
    return 1 if outcome == "Rejected" else 130


async def _next_steps(client: Client, job: Submitted) -> str:
    """Return the commands that show the output of a failed job, if its pods are kept, and its history."""
    selector = pods_of(job.kind).selector(job.name)
    pods = (await client.list(Pod, job.namespace, labels=selector)).items
    kept = any(pod.metadata.deletion_timestamp is None for pod in pods)
    output = f"`{_command('logs', job)}` shows its output, " if kept else ""
    return f"{job.name} failed; {output}`{_command('describe', job)}` its history"


def _command(command: str, job: Submitted, *options: str) -> str:
    return command_line(command, job.namespace, job.name, *options)


async def _delete_run(client: Client, submitted: Submitted, interrupted: asyncio.Event) -> None:
    """Delete the job and wait until it is gone; report what may be left if that fails or is interrupted."""
    problem = "interrupted again"
    try:
        if await _unless_interrupted(interrupted, remove(client, *submitted)):
            return
    except ApiError as error:
        problem = error.message
    click.echo(
        f"{problem}: {submitted.name} and its pods may still exist; "
        f"`{_command('rm', submitted)}` deletes them",
        err=True,
    )


@contextlib.contextmanager
def _catch_interrupts() -> Iterator[asyncio.Event]:
    """Yield an event that is set by SIGINT and SIGTERM, which otherwise end the process."""
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
    """Return the result of the work, or None if the user interrupts first."""
    work_task, interrupt_task = asyncio.create_task(work), asyncio.create_task(interrupted.wait())
    try:
        await asyncio.wait((work_task, interrupt_task), return_when=asyncio.FIRST_COMPLETED)
        return work_task.result() if work_task.done() else None
    finally:
        for task in (work_task, interrupt_task):
            task.cancel()
        await asyncio.gather(work_task, interrupt_task, return_exceptions=True)


def _is_file(file_or_command: tuple[str, ...]) -> bool:
    """Return True for `-` or a single YAML or JSON file; everything else is a command, also without `--`."""
    first = file_or_command[0]
    return len(file_or_command) == 1 and (first == "-" or first.endswith((".yaml", ".yml", ".json")))


def _prepare(run: Manifest, name: str | None, variables: tuple[str, ...], *, mount_cwd: bool) -> Manifest:
    """Return the job with the name, the variables and the mounts of the command line."""
    if (mount_cwd or variables) and run.get("kind") != TrainingRun.resource.kind:
        raise click.ClickException(
            f"{run['kind']}: --env and --mount-cwd are not supported; only TrainingRuns have them"
        )
    if mount_cwd:
        run = _with_local_mounts(run)
    if variables:
        run = with_variables(run, dict(map(_parse_variable, variables)))
    if name:
        metadata = run.get("metadata")
        run = {**run, "metadata": {**(metadata if isinstance(metadata, dict) else {}), "name": name}}
    return run


def _with_local_mounts(run: Manifest) -> Manifest:
    prefix = Path(os.environ.get("VIRTUAL_ENV") or sys.prefix)
    python = prefix / "bin" / "python"
    interpreter = python if python.exists() else Path(sys.executable)
    return mount_working_dir(run, Path.cwd(), prefix, interpreter, os.environ)


def _parse_variable(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise click.BadParameter(f"{text!r}: must be NAME=VALUE", param_hint="--env")
    return name, value
