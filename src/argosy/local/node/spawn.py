"""Forks processes for a container from the shim, so that no container sees the shim's processes.

The process that sets everything up (mounts, user, capabilities) stays in the shim's PID namespace, which no
container can inspect. Only its child, which has given up all privileges, is in the container's. Both report
over a socket that closes when the program is executed, so the shim learns at once whether the start worked
and why not. Standard library only.
"""

import fcntl
import os
import pwd
import resource
import signal
import socket
import termios
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from argosy.local.node import kernel

NOT_FOUND: Final = 127
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_FAILED: Final = b"failed "
_STARTED: Final = b"started "


class StartError(Exception):
    """The program could not be executed; the message has the attempted command."""


class Program(NamedTuple):
    argv: list[str]
    env: dict[str, str]
    descriptors: dict[int, int]
    """Descriptors of its standard streams, by number; empty with a terminal."""
    tty: bool
    """Whether `prepare` opens a terminal as its standard streams."""
    data_limit: int | None
    """Maximum of its private memory in bytes (RLIMIT_DATA)."""


def spawn(prepare: Callable[[socket.socket], None], program: Program) -> tuple[int, dict[bytes, int]]:
    """Fork, prepare, fork into the PID namespace that `prepare` chose, and execute.

    Returns the program's pid and the descriptors that `prepare` handed out, by label. The program is adopted
    by the calling process, which is PID 1 of its namespace.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    between = os.fork()
    if between == 0:
        ours.close()
        _prepare_and_execute(prepare, program, theirs)
    theirs.close()
    handed: dict[bytes, int] = {}
    pid, error = 0, ""
    with ours:
        while True:
            data, received, _, _ = socket.recv_fds(ours, 4096, 1)
            if not data:
                break
            if received:
                os.set_inheritable(received[0], False)
                handed[data] = received[0]
            elif data.startswith(_STARTED):
                pid = int(data.removeprefix(_STARTED))
            else:
                error = data.removeprefix(_FAILED).decode(errors="replace")
    os.waitpid(between, 0)
    if error or not pid:
        for descriptor in handed.values():
            os.close(descriptor)
        raise StartError(error or "the process that starts it was killed")
    return pid, handed


def fork_function(function: Callable[[], int]) -> int:
    """Run a function in a child process whose exit code is what it returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        reset_signals()
        code = function()
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def reset_signals() -> None:
    """Restore the default signal handling, in a child of the shim."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _prepare_and_execute(
    prepare: Callable[[socket.socket], None], program: Program, control: socket.socket
) -> NoReturn:
    try:
        reset_signals()
        # Move the pipes away from descriptors 0, 1 and 2 before those are assigned.
        moved = {target: os.dup(source) for target, source in program.descriptors.items()}
        prepare(control)
        kernel.set_dumpable(False)  # its memory may contain data of other containers
        pid = os.fork()
        if pid:
            control.sendall(_STARTED + str(pid).encode())
            os._exit(0)
        os.setsid()
        if program.tty:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        elif 0 not in moved:
            moved[0] = os.open("/dev/null", os.O_RDONLY)
        for target, source in moved.items():
            os.dup2(source, target)
        if program.data_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (program.data_limit, program.data_limit))
        _execute(program.argv, program.env)
    except BaseException as error:
        control.sendall(_FAILED + (str(error) or repr(error)).encode()[:4000])
    finally:
        os._exit(NOT_FOUND)


def _execute(argv: list[str], env: dict[str, str]) -> None:
    env = {"PATH": DEFAULT_PATH, **env}
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
