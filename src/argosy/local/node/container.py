"""Starting processes inside a container: its first one, and later ones by exec.

Both are forked from the shim and report over a socket that closes by itself when the program has been
executed, so the shim knows at once whether a start worked and, if not, why. Standard library only.
"""

import os
import pwd
import resource
import signal
import socket
import struct
import termios
from collections.abc import Callable
from fcntl import ioctl
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from argosy.local.node import capabilities, cgroups, kernel, mounts
from argosy.local.node.launch import ContainerPlan, Launch

NOT_FOUND: Final = 127
_GET_TERMINAL_NUMBER: Final = 0x80045430  # TIOCGPTN and TIOCSPTLCK, which termios lacks
_LOCK_TERMINAL: Final = 0x40045431
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class StartError(Exception):
    """The program could not be executed; the message says what was tried."""


class Process(NamedTuple):
    pid: int
    stdin: int | None
    outputs: dict[int, str]
    """Descriptor to read, and the stream that it is."""
    terminal: int | None
    mount_namespace: int


class Place(NamedTuple):
    """A running container, as somewhere to put another process."""

    plan: ContainerPlan
    pid: int
    mount_namespace: int


def start(
    launch: Launch,
    plan: ContainerPlan,
    folder: Path,
    scratch: Path,
    hierarchy: cgroups.Hierarchy | None,
    group: str,
) -> Process:
    """Fork the container's first process; raises StartError when it could not be executed."""
    scratch.mkdir(parents=True, exist_ok=True)
    message = scratch / "message"
    message.touch()
    message.chmod(0o666)

    def prepare(control: socket.socket) -> None:
        if hierarchy:
            cgroups.join(hierarchy, group)
        kernel.unshare(kernel.NEW_MOUNT)
        _hand_out(control, b"M", "/proc/self/ns/mnt")
        mounts.enter_root(launch, plan, folder, scratch)
        if plan["tty"]:
            _own_terminal(control)
        Path(plan["cwd"]).mkdir(parents=True, exist_ok=True)
        os.chdir(plan["cwd"])
        if not hierarchy and plan["memory"]:
            resource.setrlimit(resource.RLIMIT_DATA, (plan["memory"], plan["memory"]))
        become(plan, launch["rootless"])

    if plan["tty"]:
        pid, handed = _spawn(prepare, plan["argv"], plan["env"], {})
        terminal = handed[b"T"]
        stdin = terminal if plan["stdin"] else None
        return Process(pid, stdin, {terminal: "stdout"}, terminal, handed[b"M"])
    out, out_write = os.pipe()
    error, error_write = os.pipe()
    descriptors = {1: out_write, 2: error_write}
    writer: int | None = None
    if plan["stdin"]:
        reader, writer = os.pipe()
        descriptors[0] = reader
    try:
        pid, handed = _spawn(prepare, plan["argv"], plan["env"], descriptors)
    except StartError:
        for descriptor in (out, error, *([writer] if writer is not None else [])):
            os.close(descriptor)
        raise
    finally:
        for descriptor in descriptors.values():
            os.close(descriptor)
    return Process(pid, writer, {out: "stdout", error: "stderr"}, None, handed[b"M"])


def execute(
    place: Place,
    argv: list[str],
    descriptors: dict[int, int],
    *,
    tty: bool,
    rootless: bool,
    hierarchy: cgroups.Hierarchy | None = None,
    group: str = "",
) -> tuple[int, int | None]:
    """Run a command in a container; returns its pid and, with `tty`, the master end of its terminal."""

    def prepare(control: socket.socket) -> None:
        if hierarchy:
            cgroups.join(hierarchy, group)
        user = os.open(f"/proc/{place.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC) if rootless else None
        kernel.setns(place.mount_namespace, kernel.NEW_MOUNT)
        if tty:
            _own_terminal(control)
        os.chdir(place.plan["cwd"] if Path(place.plan["cwd"]).is_dir() else "/")
        if user is not None and place.plan["uid"] != 0:
            kernel.setns(user, kernel.NEW_USER)
            kernel.no_new_privileges()
        else:
            become(place.plan, rootless)

    pid, handed = _spawn(prepare, argv, place.plan["env"], descriptors)
    return pid, handed.get(b"T")


def become(plan: ContainerPlan, rootless: bool) -> None:
    """Take on the container's user, groups and capabilities, for good."""
    if rootless and plan["uid"] != 0:
        _appear_as(plan["uid"], plan["gid"])
    elif not rootless:
        if not plan["privileged"]:
            kernel.drop_from_bounding_set(
                range(kernel.last_capability() + 1), capabilities.numbers(plan["capabilities"])
            )
        os.setgroups(plan["groups"])
        os.setgid(plan["gid"])
        os.setuid(plan["uid"])
    if plan["uid"] == 0 and not plan["privileged"]:
        mask = sum(1 << number for number in capabilities.numbers(plan["capabilities"]))
        if rootless:
            kernel.drop_from_bounding_set(
                range(kernel.last_capability() + 1), capabilities.numbers(plan["capabilities"])
            )
        kernel.set_capabilities(mask & kernel.permitted_capabilities())
    if plan["no_new_privileges"]:
        kernel.no_new_privileges()


def processes(mount_namespace: int) -> list[int]:
    """Every process of a container: those that live in its mount namespace, whoever their parent is."""
    found = []
    name = f"mnt:[{os.fstat(mount_namespace).st_ino}]"
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if os.readlink(f"/proc/{entry.name}/ns/mnt") == name:  # noqa: PTH115
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def resize(terminal: int, width: int, height: int) -> None:
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


def fork_call(function: Callable[[], int]) -> int:
    """Run a function in a child process whose exit code is what it returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _plain_signals()
        code = function()
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def _spawn(
    prepare: Callable[[socket.socket], None],
    argv: list[str],
    env: dict[str, str],
    descriptors: dict[int, int],
) -> tuple[int, dict[bytes, int]]:
    """Fork and execute; returns the pid and what the child handed out on its way, by label."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        _child(prepare, argv, env, descriptors, theirs)
    theirs.close()
    handed: dict[bytes, int] = {}
    error = b""
    with ours:
        while True:
            data, received, _, _ = socket.recv_fds(ours, 4096, 1)
            if not data:
                break
            if received:
                os.set_inheritable(received[0], False)
                handed[data] = received[0]
            else:
                error = data
    if error:
        os.waitpid(pid, 0)
        for descriptor in handed.values():
            os.close(descriptor)
        raise StartError(error.decode(errors="replace"))
    return pid, handed


def _child(
    prepare: Callable[[socket.socket], None],
    argv: list[str],
    env: dict[str, str],
    descriptors: dict[int, int],
    control: socket.socket,
) -> NoReturn:
    try:
        _plain_signals()
        os.setsid()
        # Keep the pipes out of the way of 0, 1 and 2 before anything is put there.
        moved = {target: os.dup(source) for target, source in descriptors.items()}
        prepare(control)
        if 0 not in moved and not os.isatty(0):
            moved[0] = os.open("/dev/null", os.O_RDONLY)
        for target, source in moved.items():
            os.dup2(source, target)
        _execute(argv, env)
    except BaseException as error:
        control.sendall(str(error).encode() or repr(error).encode())
    finally:
        os._exit(NOT_FOUND)


def _execute(argv: list[str], env: dict[str, str]) -> None:
    env = {"PATH": _DEFAULT_PATH, **env}
    if "HOME" not in env:
        env["HOME"] = _home()
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 (a shell is the user's to ask for)
    except FileNotFoundError:
        where = "no such file or directory" if "/" in argv[0] else "executable file not found in $PATH"
        raise StartError(f'exec: "{argv[0]}": {where}') from None
    except PermissionError:
        raise StartError(f'exec: "{argv[0]}": permission denied') from None


def _home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/"


def _own_terminal(control: socket.socket) -> None:
    """Open a terminal of this container's own devpts, hand the master out, and make the other end ours."""
    master = os.open("/dev/pts/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    number = struct.unpack("I", ioctl(master, _GET_TERMINAL_NUMBER, b"\0" * 4))[0]
    ioctl(master, _LOCK_TERMINAL, struct.pack("i", 0))
    slave = os.open(f"/dev/pts/{number}", os.O_RDWR)
    ioctl(slave, termios.TIOCSCTTY, 0)
    socket.send_fds(control, [b"T"], [master])
    os.close(master)
    for target in (0, 1, 2):
        os.dup2(slave, target)
    os.close(slave)


def _hand_out(control: socket.socket, label: bytes, path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    socket.send_fds(control, [label], [descriptor])
    os.close(descriptor)


def _appear_as(uid: int, gid: int) -> None:
    """In a user namespace with one user, another uid is that user seen through one more namespace."""
    own_uid, own_gid = os.getuid(), os.getgid()
    kernel.unshare(kernel.NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {own_uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {own_gid} 1")


def _plain_signals() -> None:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
