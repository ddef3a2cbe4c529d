"""Starts a container's first process, and later ones by exec.

Both are forked from the shim (spawn.py), enter the container's mount namespace, cgroup and PID namespace, and
take the container's user, capabilities and limits. Standard library only.
"""

import contextlib
import os
import socket
import struct
import termios
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Final, NamedTuple

from argosy.local.node import capabilities, cgroups, kernel, mounts
from argosy.local.node.pid_namespace import PidNamespace
from argosy.local.node.runspec import ContainerConfig, RunSpec
from argosy.local.node.spawn import Program, StartError, spawn

_GET_TERMINAL_NUMBER: Final = 0x80045430  # TIOCGPTN and TIOCSPTLCK, which termios lacks
_LOCK_TERMINAL: Final = 0x40045431


class Process(NamedTuple):
    pid: int
    stdin: int | None
    outputs: dict[int, str]
    """Descriptor to read, and the stream that it is."""
    terminal: int | None
    mount_namespace: int


class StandardStreams:
    """The pipes of a container without a terminal: our ends, and those that its first process gets."""

    def __init__(self, *, stdin: bool) -> None:
        out, out_write = os.pipe()
        error, error_write = os.pipe()
        self.outputs = {out: "stdout", error: "stderr"}
        self.stdin: int | None = None
        self.theirs = {1: out_write, 2: error_write}
        if stdin:
            self.theirs[0], self.stdin = os.pipe()

    def close_theirs(self) -> None:
        for descriptor in self.theirs.values():
            os.close(descriptor)

    def close_ours(self) -> None:
        for descriptor in (*self.outputs, *([self.stdin] if self.stdin is not None else [])):
            os.close(descriptor)


class Isolation(NamedTuple):
    """The cgroup and PID namespace of a container's processes."""

    pid_namespace: PidNamespace
    cgroup_hierarchy: cgroups.Hierarchy | None
    cgroup: str

    @contextlib.contextmanager
    def enter(self) -> Iterator[None]:
        """Put the calling process into the cgroup, and its later children into the PID namespace.

        Joining a cgroup waits for a grace period of the kernel, often 20 ms; it runs in parallel to the
        block, and is complete at its end. So is the making of the PID namespace.
        """
        joining = self._join() if self.cgroup_hierarchy else 0
        yield
        if joining and os.waitpid(joining, 0)[1] != 0:
            raise StartError(f"the cgroup {self.cgroup} cannot be joined")
        self.pid_namespace.wait_sealed()
        kernel.setns(self.pid_namespace.descriptor, kernel.NEW_PID)

    def _join(self) -> int:
        """Fork a process that moves this one into the cgroup."""
        pid = os.getpid()
        joining = os.fork()
        if joining:
            return joining
        try:
            assert self.cgroup_hierarchy is not None
            cgroups.join(self.cgroup_hierarchy, self.cgroup, pid)
            os._exit(0)
        finally:
            os._exit(1)

    def data_limit(self, config: ContainerConfig) -> int | None:
        """The memory limit of each process of the container, if no cgroup enforces it."""
        return None if self.cgroup_hierarchy else config["memory"]


class RunningContainer(NamedTuple):
    """A running container, in which further processes can be started."""

    config: ContainerConfig
    pid: int
    mount_namespace: int
    isolation: Isolation
    rootless: bool


def start(
    runspec: RunSpec, config: ContainerConfig, folder: Path, scratch: Path, isolation: Isolation
) -> Process:
    """Fork the container's first process; raises StartError if it could not be executed."""
    make_scratch(scratch)

    def prepare(control: socket.socket) -> None:
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        with isolation.enter():
            kernel.unshare(kernel.NEW_MOUNT)
            send_descriptor(control, b"M", "/proc/self/ns/mnt")
            mounts.enter_root(runspec, config, folder, scratch, isolation.pid_namespace.proc)
        if config["tty"]:
            _open_terminal(control)
        Path(config["cwd"]).mkdir(parents=True, exist_ok=True)
        os.chdir(config["cwd"])
        apply_identity(config, runspec["rootless"], proc)
        os.close(proc)

    program = Program(config["argv"], config["env"], {}, config["tty"], isolation.data_limit(config))
    if config["tty"]:
        pid, handed = spawn(prepare, program)
        terminal = handed[b"T"]
        stdin = terminal if config["stdin"] else None
        return Process(pid, stdin, {terminal: "stdout"}, terminal, handed[b"M"])
    streams = StandardStreams(stdin=config["stdin"])
    try:
        pid, handed = spawn(prepare, program._replace(descriptors=streams.theirs))
    except StartError:
        streams.close_ours()
        raise
    finally:
        streams.close_theirs()
    return Process(pid, streams.stdin, streams.outputs, None, handed[b"M"])


def make_scratch(scratch: Path) -> None:
    """Make the folder of a run, with the file for its termination message."""
    scratch.mkdir(parents=True, exist_ok=True)
    message = scratch / "message"
    message.touch()
    message.chmod(0o666)


def execute(
    container: RunningContainer, argv: list[str], descriptors: dict[int, int], *, tty: bool
) -> tuple[int, int | None]:
    """Run a command in a container, within its limits.

    Returns its pid and, with `tty`, the master end of its terminal.
    """
    config = container.config

    def prepare(control: socket.socket) -> None:
        proc = os.open("/proc", os.O_PATH | os.O_CLOEXEC)
        user = (
            os.open(f"/proc/{container.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
            if container.rootless
            else None
        )
        with container.isolation.enter():
            kernel.setns(container.mount_namespace, kernel.NEW_MOUNT)
        if tty:
            _open_terminal(control)
        os.chdir(config["cwd"] if Path(config["cwd"]).is_dir() else "/")
        if user is not None and config["uid"] != 0:
            kernel.setns(user, kernel.NEW_USER)
            if config["no_new_privileges"]:
                kernel.no_new_privileges()
        else:
            apply_identity(config, container.rootless, proc)
        os.close(proc)

    program = Program(argv, config["env"], descriptors, tty, container.isolation.data_limit(config))
    pid, handed = spawn(prepare, program)
    return pid, handed.get(b"T")


def apply_identity(config: ContainerConfig, rootless: bool, proc: int) -> None:
    """Switch this process irrevocably to the container's user, groups and capabilities.

    `proc` is a descriptor of a /proc that lists this process; the container's own does not.
    """
    if rootless and config["uid"] != 0:
        _map_to_user(config["uid"], config["gid"], proc)
    elif not rootless:
        if not config["privileged"]:
            kernel.drop_from_bounding_set(
                range(kernel.last_capability() + 1), capabilities.numbers(config["capabilities"])
            )
        os.setgroups(config["groups"])
        os.setgid(config["gid"])
        os.setuid(config["uid"])
    if config["uid"] == 0 and not config["privileged"]:
        mask = sum(1 << number for number in capabilities.numbers(config["capabilities"]))
        if rootless:
            kernel.drop_from_bounding_set(
                range(kernel.last_capability() + 1), capabilities.numbers(config["capabilities"])
            )
        kernel.set_capabilities(mask & kernel.permitted_capabilities())
    if config["no_new_privileges"]:
        kernel.no_new_privileges()


def processes(container: RunningContainer) -> set[int]:
    """Find the processes of a container that shares its PID namespace: by its cgroup, and where it has none
    by its mount namespace.
    """
    if container.isolation.cgroup_hierarchy:
        return cgroups.processes(container.isolation.cgroup_hierarchy, container.isolation.cgroup)
    pids = set()
    name = f"mnt:[{os.fstat(container.mount_namespace).st_ino}]"
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/ns/mnt") == name:  # noqa: PTH115
                    pids.add(int(entry.name))
            except OSError:
                continue
    return pids


def resize_terminal(terminal: int, width: int, height: int) -> None:
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def _open_terminal(control: socket.socket) -> None:
    """Open a terminal in the container's devpts, send its master out, and use the other end as standard
    streams.
    """
    master = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    number = struct.unpack("I", ioctl(master, _GET_TERMINAL_NUMBER, b"\0" * 4))[0]
    ioctl(master, _LOCK_TERMINAL, struct.pack("i", 0))
    slave = os.open(f"/dev/pts/{number}", os.O_RDWR)
    socket.send_fds(control, [b"T"], [master])
    os.close(master)
    for target in (0, 1, 2):
        os.dup2(slave, target)
    os.close(slave)


def send_descriptor(control: socket.socket, label: bytes, path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    socket.send_fds(control, [label], [descriptor])
    os.close(descriptor)


def _map_to_user(uid: int, gid: int, proc: int) -> None:
    """Map another uid to the only user of this user namespace, in a nested user namespace."""
    own_uid, own_gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.NEW_USER)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {own_uid} 1"),
        ("gid_map", f"{gid} {own_gid} 1"),
    ):
        descriptor = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        os.write(descriptor, text.encode())
        os.close(descriptor)
