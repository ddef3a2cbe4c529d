"""Dumps a running container to a tar, from which it can be continued elsewhere.

Runs in a child of the shim. Every process of the container is stopped while CRIU dumps them and while their
files are copied: a file that grew in between could not be restored. CRIU runs in the container's own
namespaces, so that there are no namespaces and mounts to dump; a restore makes them as any start does. The
container goes on afterwards, whatever happened. Standard library only.
"""

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from argosy.checkpoint.drivers import criu
from argosy.local.node import checkpoint_files, container_process, kernel, mounts
from argosy.local.node.checkpoint_files import CheckpointError, Metadata, Part
from argosy.local.node.event_loop import EventLoop
from argosy.local.node.runspec import ContainerConfig, RunSpec
from argosy.local.node.spawn import Program, StartError, fork_function, spawn

PREFIX_DESCRIPTOR: Final = 198
IMAGES_DESCRIPTOR: Final = 199
WORK_DESCRIPTOR: Final = 194
OUTPUT: Final = "criu.out"
"""What CRIU prints before it opens its log, in its working folder."""

CACHE: Final = "criu.kdat"
"""CRIU's cache about the kernel, in /run. A container could forge it, so it never outlives a call."""

_OTHERS_SECONDS: Final = 5.0
"""How long a probe or hook may take to end before it counts as a session of exec."""
_STOP_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.002
_STOPPED: Final = "TZX"
_MAX_PROBLEM_BYTES: Final = 4000


class DumpJob(NamedTuple):
    runspec: RunSpec
    container: container_process.RunningContainer
    folder: Path
    """Of the pod."""
    scratch: Path
    """Of this run of the container."""
    pipes: dict[str, int]
    image: str
    prefix: Path
    target: Path


class _Process(NamedTuple):
    pid: int
    parent: int
    state: str
    name: str


def find_obstacle(runspec: RunSpec, config: ContainerConfig, scratch: Path) -> str:
    """Return why containers like this one cannot be dumped; empty if they can."""
    if runspec["rootless"]:
        return "checkpoints need a control plane that runs as root"
    if config["tty"]:
        return "a container with a terminal (tty: true) cannot be checkpointed"
    if runspec["share_pids"]:
        return "a container that shares its processes (shareProcessNamespace) cannot be checkpointed"
    if (scratch / "layers").exists():
        return "the state folder is on a file system that cannot hold the changes of a container's root"
    return ""


def start(job: DumpJob, loop: EventLoop, done: Callable[[str], None]) -> None:
    """Dump a container in a child process; calls back with the problem, or nothing."""
    reader, writer = os.pipe()

    def run() -> int:
        try:
            dump(job)
        except (CheckpointError, StartError, OSError) as error:
            os.write(writer, str(error).encode()[:_MAX_PROBLEM_BYTES])
            return 1
        return 0

    pid = fork_function(run)
    os.close(writer)

    def ended(status: int) -> None:
        with open(reader, "rb") as pipe:  # noqa: PTH123 (a descriptor)
            problem = pipe.read().decode(errors="replace")
        if os.WIFSIGNALED(status):
            resume(job.container)
        done(problem or ("the process that writes the checkpoint has failed" if status else ""))

    loop.on_exit(pid, ended)


def dump(job: DumpJob) -> None:
    """Write the checkpoint of a container to the job's target; raises CheckpointError or OSError."""
    os.umask(0o077)
    kernel.become_subreaper()  # of CRIU
    folder = job.target.with_name(f"{job.target.name}.tmp")
    checkpoint_files.remove_unfinished(job.target)
    (folder / criu.IMAGES).mkdir(parents=True)
    try:
        _wait_for_others(job)
        with _stop_processes(job) as tree:
            ids = _ids(tree)
            _remove_cache(job)
            _run_criu(job, folder / criu.IMAGES, _innermost_ids(job.container.pid, "NSpid")[0])
            _remove_cache(job)
            parts = _copy_files(job, folder)
        _describe(job, folder, ids, parts)
        checkpoint_files.pack_checkpoint(folder, job.target)
    finally:
        checkpoint_files.remove_unfinished(job.target)


def resume(container: container_process.RunningContainer) -> None:
    """Continue every process of a container, after a dump that was killed."""
    for pid in container_process.processes(container):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def _tree(job: DumpJob) -> tuple[list[_Process], list[_Process]]:
    """Return the descendants of the first process, with it, and the container's other processes."""
    pids = container_process.processes(job.container)
    processes = {process.pid: process for pid in pids if (process := _read_process(pid)) is not None}
    inside = {job.container.pid}
    while fresh := {pid for pid, process in processes.items() if process.parent in inside} - inside:
        inside |= fresh
    tree = [process for pid, process in processes.items() if pid in inside]
    return tree, [process for pid, process in processes.items() if pid not in inside]


def _read_process(pid: int) -> _Process | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    head, _, tail = text.rpartition(")")
    state, parent = tail.split()[:2]
    return _Process(pid, int(parent), state, head.partition("(")[2])


def _wait_for_others(job: DumpJob) -> None:
    """Wait until probes and hooks have ended; refuse what is no descendant of the first process."""
    deadline = time.monotonic() + _OTHERS_SECONDS
    while time.monotonic() < deadline and _others(_tree(job)[1]):
        time.sleep(_POLL_SECONDS * 10)
    _refuse_others(_tree(job)[1])


def _others(processes: list[_Process]) -> list[str]:
    return sorted({process.name for process in processes if process.state not in "ZX"})


def _refuse_others(processes: list[_Process]) -> None:
    if names := _others(processes):
        raise CheckpointError(
            "only the container's program and its descendants can be checkpointed, but there are also: "
            f"{', '.join(names)} (started by exec, or a daemon whose parent has ended)"
        )


@contextlib.contextmanager
def _stop_processes(job: DumpJob) -> Iterator[list[_Process]]:
    """Stop every process of the container for the block; those that were stopped already stay so."""
    stopped: set[int] = set()
    deadline = time.monotonic() + _STOP_SECONDS
    try:
        while True:
            tree, others = _tree(job)
            if not any(process.pid == job.container.pid for process in tree):
                raise CheckpointError("the container has ended")
            running = [process for process in tree if process.state not in _STOPPED]
            if not running:
                _refuse_others(others)  # a daemon may have been started meanwhile
                break
            if time.monotonic() > deadline:
                first = running[0]
                raise CheckpointError(f"process {first.name} does not stop (state {first.state})")
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGSTOP)
                    stopped.add(process.pid)
            time.sleep(_POLL_SECONDS)
        yield tree
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _ids(tree: list[_Process]) -> list[int]:
    """Return all ids that the processes use in their PID namespace."""
    ids: set[int] = set()
    for process in tree:
        ids.update(_innermost_ids(process.pid, "NSpid", "NSpgid", "NSsid"))
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            ids.update(_innermost_ids(f"{process.pid}/task/{thread.name}", "NSpid"))
    return sorted(ids)


def _innermost_ids(process: int | str, *fields: str) -> list[int]:
    ids = []
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, numbers = line.partition(":")
        if name in fields:
            ids.append(int(numbers.split()[-1]))
    return ids


def _remove_cache(job: DumpJob) -> None:
    """Remove CRIU's cache from the container, which stands still."""
    try:
        Path(f"/proc/{job.container.pid}/root/run/{CACHE}").unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(f"/run/{CACHE} cannot be removed from the container: {error}") from None


def _run_criu(job: DumpJob, images: Path, pid: int) -> None:
    isolation = job.container.isolation

    def prepare(_control: socket.socket) -> None:
        kernel.setns(isolation.pid_namespace.descriptor, kernel.NEW_PID)
        kernel.setns(job.container.mount_namespace, kernel.NEW_MOUNT)

    with open_files(job.prefix, images, images) as files:
        at = f"/proc/self/fd/{PREFIX_DESCRIPTOR}"
        argv = criu.prefix_command(job.prefix, at)
        argv += criu.dump_arguments(pid, f"/proc/self/fd/{IMAGES_DESCRIPTOR}")
        started, _ = spawn(prepare, Program(argv, {}, files, tty=False, data_limit=None))
    if os.waitpid(started, 0)[1] != 0:
        reason = criu.failure_reason(images / "dump.log", images / OUTPUT)
        raise CheckpointError(f"criu dump failed: {reason}")


@contextlib.contextmanager
def open_files(prefix: Path, images: Path, work: Path) -> Iterator[dict[int, int]]:
    """Open what CRIU needs of the host, by the descriptors that it gets; its output goes to `work`."""
    flags = os.O_DIRECTORY | os.O_RDONLY | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        files = {}
        folders = {PREFIX_DESCRIPTOR: prefix, IMAGES_DESCRIPTOR: images, WORK_DESCRIPTOR: work}
        for number, folder in folders.items():
            files[number] = os.open(folder, flags)
            stack.callback(os.close, files[number])
        output = os.open(work / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        stack.callback(os.close, output)
        yield {**files, 1: output, 2: output}


def _copy_files(job: DumpJob, folder: Path) -> list[Part]:
    """Pack everything that the container may have changed and that no other volume keeps."""
    (folder / "files").mkdir()
    sources: list[tuple[Part, Path]] = [
        (Part(kind="root", name="/", file=checkpoint_files.ROOT_CHANGES), job.scratch / "upper"),
        (Part(kind="run", name="/run", file="files/run.tar"), Path(f"/proc/{job.container.pid}/root/run")),
        (Part(kind="shm", name="/dev/shm", file="files/shm.tar"), job.folder / "shm"),  # noqa: S108
    ]
    for number, (path, _) in enumerate(mounts.private_folders(job.runspec, job.container.config)):
        source = job.scratch / "private" / str(number)
        if source.is_dir():
            sources.append((Part(kind="private", name=path, file=f"files/private-{number}.tar"), source))
    for name in job.runspec["scratch_volumes"]:
        source = job.folder / "volumes" / name
        if any(Path(mount["source"]).is_relative_to(source) for mount in job.container.config["mounts"]):
            sources.append((Part(kind="volume", name=name, file=f"files/volume-{name}.tar"), source))
    for part, source in sources:
        checkpoint_files.pack_folder(source, folder / part["file"])
    return [part for part, _ in sources]


def _describe(job: DumpJob, folder: Path, ids: list[int], parts: list[Part]) -> None:
    runspec, config = job.runspec, job.container.config
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    metadata = Metadata(
        version=checkpoint_files.VERSION,
        namespace=runspec["namespace"],
        pod=runspec["name"],
        uid=runspec["uid"],
        node=runspec["node"],
        container=config["name"],
        image=job.image,
        created=created,
        criu=criu.version(criu.prefix_command(job.prefix)),
        kernel=os.uname().release,
        machine=os.uname().machine,
        pid=_innermost_ids(job.container.pid, "NSpid")[0],
        ids=ids,
        pipes=job.pipes,
        parts=parts,
    )
    description = {
        "id": f"{runspec['uid']}-{config['name']}",
        "name": config["name"],
        "rootfsImage": job.image,
        "rootfsImageRef": job.image,
        "rootfsImageName": job.image,
        "runtime": "argosy",
        "checkpointedTime": created,
    }
    for name, content in (
        (checkpoint_files.METADATA, metadata),
        ("config.dump", description),
        ("spec.dump", _specification(runspec, config)),
    ):
        (folder / name).write_text(json.dumps(content))
    (folder / criu.IMAGES / "dump.log").rename(folder / "dump.log")


def _specification(runspec: RunSpec, config: ContainerConfig) -> dict[str, object]:
    """Return how the container was started, in the words of the OCI runtime specification."""
    return {
        "ociVersion": "1.0.2",
        "hostname": runspec["hostname"],
        "process": {
            "args": config["argv"],
            "cwd": config["cwd"],
            "env": [f"{name}={value}" for name, value in config["env"].items()],
            "user": {"uid": config["uid"], "gid": config["gid"]},
        },
        "mounts": [{"destination": m["target"], "source": m["source"]} for m in config["mounts"]],
        "annotations": {
            "io.kubernetes.pod.name": runspec["name"],
            "io.kubernetes.pod.namespace": runspec["namespace"],
            "io.kubernetes.container.name": config["name"],
        },
    }
