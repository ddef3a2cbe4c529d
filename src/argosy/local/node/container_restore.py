"""Starts a container from a checkpoint: CRIU is executed where its program would be.

The container is made as for any start; its files are unpacked before, in a child of the shim, and CRIU makes
the processes with their former ids. The first one is a sibling of CRIU and so a child of the shim, as in any
container. They were dumped while they were stopped, so they are restored like that, and continue only
when everything is in place. Connections to other pods are closed. Standard library only.
"""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Final

from argosy.checkpoint.drivers import criu
from argosy.local.node import capabilities, checkpoint_files, container_process, kernel, mounts
from argosy.local.node.checkpoint_files import CheckpointError, Metadata, read_metadata
from argosy.local.node.container_dump import (
    CACHE,
    IMAGES_DESCRIPTOR,
    OUTPUT,
    PREFIX_DESCRIPTOR,
    WORK_DESCRIPTOR,
    open_files,
    resume,
)
from argosy.local.node.container_process import Isolation, Process, RunningContainer
from argosy.local.node.event_loop import EventLoop
from argosy.local.node.runspec import ContainerConfig, RunSpec
from argosy.local.node.spawn import Program, StartError, fork_function, spawn

Done = Callable[[Process | None, str], None]
"""Called with the restored first process, or with the reason why there is none."""

_STREAMS: Final = {"0": 195, "1": 196, "2": 197}
"""Descriptors of the standard streams that CRIU gives to the restored processes, by their number."""

_FREE_IDS: Final = (20_000, 10_000, 30_000, 5_000)
_ID_MARGIN: Final = 100
_MAX_REASON_BYTES: Final = 4000


class Restore:
    """One attempt to restore a container; calls back once."""

    def __init__(
        self,
        runspec: RunSpec,
        config: ContainerConfig,
        folder: Path,
        scratch: Path,
        isolation: Isolation,
        loop: EventLoop,
        done: Done,
    ) -> None:
        self._runspec = runspec
        self._config = config
        self._folder = folder
        self._scratch = scratch
        self._isolation = isolation
        self._loop = loop
        self._done = done
        self._source = Path(config["restore"])
        self._metadata = _usable_metadata(runspec, config)
        self._streams: container_process.StandardStreams | None = None
        self._mount_namespace = -1

    def start(self) -> None:
        """Unpack the files of the container in a child, then go on."""
        reader, writer = os.pipe()

        def unpack() -> int:
            try:
                self._unpack()
            except (CheckpointError, OSError) as error:
                os.write(writer, str(error).encode()[:_MAX_REASON_BYTES])
                return 1
            return 0

        pid = fork_function(unpack)
        os.close(writer)
        self._loop.on_exit(pid, lambda status: self._on_unpacked(status, reader))

    def _unpack(self) -> None:
        private = {path: n for n, (path, _) in enumerate(mounts.private_folders(self._runspec, self._config))}
        (self._scratch / "run").mkdir(parents=True, exist_ok=True)
        (self._scratch / "criu").mkdir(exist_ok=True)
        for part in self._metadata["parts"]:
            kind, name = part["kind"], part["name"]
            if kind == "private" and name not in private:
                continue  # a home of the other machine
            if kind == "volume" and name not in self._runspec["scratch_volumes"]:
                continue
            targets = {
                "root": self._scratch / "upper",
                "run": self._scratch / "run",
                "shm": self._folder / "shm",
                "private": self._scratch / "private" / str(private.get(name, 0)),
                "volume": self._folder / "volumes" / name,
            }
            exclude = (f"./{CACHE}",) if kind == "run" else ()
            checkpoint_files.unpack_folder(self._source / part["file"], targets[kind], exclude=exclude)

    def _on_unpacked(self, status: int, reader: int) -> None:
        with open(reader, "rb") as pipe:
            reason = pipe.read().decode(errors="replace")
        if status != 0:
            self._done(None, reason or "the files of the checkpoint could not be unpacked")
            return
        self._streams = streams = container_process.StandardStreams(stdin=self._config["stdin"])
        try:
            pid = self._spawn_criu(streams)
        except (StartError, OSError) as error:
            streams.close_ours()
            self._done(None, str(error))
            return
        finally:
            streams.close_theirs()
        self._loop.on_exit(pid, self._on_restored)

    def _spawn_criu(self, streams: container_process.StandardStreams) -> int:
        def prepare(control: socket.socket) -> None:
            last_pid = os.open("/proc/sys/kernel/ns_last_pid", os.O_WRONLY | os.O_CLOEXEC)
            with self._isolation.enter():
                kernel.unshare(kernel.NEW_MOUNT)
                container_process.send_descriptor(control, b"M", "/proc/self/ns/mnt")
                mounts.enter_root(
                    self._runspec,
                    self._config,
                    self._folder,
                    self._scratch,
                    self._isolation.pid_namespace.proc,
                )
            _set_last_pid(last_pid, _free_id(self._metadata))

        prefix = Path(self._runspec["criu"])
        pipes = {_STREAMS[number]: inode for number, inode in self._metadata["pipes"].items()}
        with open_files(prefix, self._source / criu.IMAGES, self._scratch / "criu") as files:
            for number, descriptor in streams.theirs.items():
                files[_STREAMS[str(number)]] = descriptor
            argv = criu.prefix_command(prefix, f"/proc/self/fd/{PREFIX_DESCRIPTOR}")
            argv += criu.restore_arguments(
                f"/proc/self/fd/{IMAGES_DESCRIPTOR}",
                f"/proc/self/fd/{WORK_DESCRIPTOR}",
                {descriptor: inode for descriptor, inode in pipes.items() if descriptor in files},
            )
            pid, handed = spawn(prepare, Program(argv, {}, files, tty=False, data_limit=None))
        self._mount_namespace = handed[b"M"]
        return pid

    def _on_restored(self, status: int) -> None:
        streams, logs = self._streams, self._scratch / "criu"
        assert streams is not None
        problem, pid = "", 0
        if status != 0:
            problem = _explain(criu.failure_reason(logs / "restore.log", logs / OUTPUT), self._metadata)
        else:
            container = RunningContainer(
                self._config, 0, self._mount_namespace, self._isolation, self._runspec["rootless"]
            )
            pids = {pid: _status(pid) for pid in container_process.processes(container)}
            firsts = [pid for pid, status in pids.items() if _last(status, "NSpid") == self._metadata["pid"]]
            problem = (
                _excess(self._config, list(pids.values())) if firsts else "the restored process has ended"
            )
            pid = firsts[0] if firsts else 0
        (self._scratch / "run" / CACHE).unlink(missing_ok=True)
        if problem:
            streams.close_ours()
            os.close(self._mount_namespace)
            self._done(None, problem)
            return
        self._done(Process(pid, streams.stdin, streams.outputs, None, self._mount_namespace), "")
        resume(container)


def _usable_metadata(runspec: RunSpec, config: ContainerConfig) -> Metadata:
    if not runspec["criu"]:
        raise StartError(f"a checkpoint cannot be restored: {criu.MISSING}")
    if runspec["rootless"]:
        raise StartError("restoring a checkpoint needs a control plane that runs as root")
    if config["tty"] or runspec["share_pids"]:
        raise StartError("a checkpoint cannot be restored with tty or shareProcessNamespace")
    try:
        metadata = read_metadata(Path(config["restore"]))
    except CheckpointError as error:
        raise StartError(str(error)) from None
    if metadata is None:
        raise StartError(f"{config['restore']} has no checkpoint that was made on a local control plane")
    if metadata["machine"] != os.uname().machine:
        raise StartError(f"the checkpoint is of {metadata['machine']}, this machine is {os.uname().machine}")
    return metadata


def _free_id(metadata: Metadata) -> int:
    """Return the process id after which CRIU's own processes start: it must not use any that it restores."""
    used = set(metadata["ids"])
    for first in _FREE_IDS:
        if used.isdisjoint(range(first, first + _ID_MARGIN)):
            return first
    raise StartError("the checkpoint uses too many process ids")


def _set_last_pid(descriptor: int, number: int) -> None:
    """Let the next process in the PID namespace into which this one forks have the id after `number`."""

    def write() -> int:
        os.write(descriptor, str(number).encode())
        return 0

    if os.waitpid(fork_function(write), 0)[1] != 0:
        raise StartError("the ids of processes cannot be set")


def _status(pid: int) -> dict[str, str]:
    """Return the fields of /proc/PID/status."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


def _last(status: dict[str, str], field: str) -> int:
    return int(status[field].split()[-1]) if field in status else -1


def _excess(config: ContainerConfig, restored: list[dict[str, str]]) -> str:
    """Return which privileges the restored processes have that the container must not have."""
    if config["privileged"]:
        return ""
    allowed = sum(1 << number for number in capabilities.numbers(config["capabilities"]))
    for status in restored:
        if int(status.get("CapBnd", "0"), 16) & ~allowed or int(status.get("CapEff", "0"), 16) & ~allowed:
            return "the checkpoint has capabilities that the container may not have"
        if config["no_new_privileges"] and status.get("NoNewPrivs") == "0":
            return "the checkpoint may gain privileges, but allowPrivilegeEscalation is false"
        if config["uid"] != 0 and "0" in status.get("Uid", "").split():
            return f"the checkpoint runs as root, but the container as user {config['uid']}"
    return ""


def _explain(reason: str, metadata: Metadata) -> str:
    """Add how this machine differs from that of the checkpoint."""
    kernel = os.uname().release
    differs = (
        f" (dumped on kernel {metadata['kernel']}, this is {kernel})" if metadata["kernel"] != kernel else ""
    )
    return f"criu restore failed: {reason}{differs}"
