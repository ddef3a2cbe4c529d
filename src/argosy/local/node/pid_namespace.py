"""The PID namespace of a container, or of all containers of a pod that shares one.

PID 1 only keeps the namespace alive: it has an empty root and no capabilities, so that even a container with
SYS_PTRACE finds nothing of the host through /proc/1. The shim and the processes that set up containers are
outside the namespace, invisible to containers. Killing PID 1 ends every process in the namespace, whatever
other namespaces they have entered. Standard library only.
"""

import contextlib
import os
import signal
from pathlib import Path
from typing import NoReturn

from argosy.local.node import kernel
from argosy.local.node.spawn import StartError, reset_signals

_CREATED = b"made"
_SEALED = b"shut"


class PidNamespace:
    """A PID namespace; its /proc is mounted at `proc` in the shim's mount namespace.

    It can be used at once, but nothing may run in it before `wait_sealed`: until then PID 1 is moving to its
    empty root, while a container's root is built.
    """

    def __init__(self, proc: Path) -> None:
        proc.mkdir(parents=True, exist_ok=True)
        self.proc = proc
        self._killed = False
        self._holder, self._reports = _start_holder(proc)
        self.descriptor = os.open(f"/proc/{self._holder}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def wait_sealed(self) -> None:
        """Wait, in the process that prepares the first container, until PID 1 gives access to nothing."""
        if self._reports >= 0 and (answer := os.read(self._reports, 4096)) != _SEALED:
            raise StartError(answer.decode(errors="replace") or "the PID namespace ended")

    def mark_sealed(self) -> None:
        """Record that a process has been started in it."""
        if self._reports >= 0:
            os.close(self._reports)
            self._reports = -1

    def kill(self) -> None:
        """End every process in it, once: after PID 1 is reaped, its pid may belong to another process."""
        if not self._killed:
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._holder, signal.SIGKILL)

    def close(self) -> None:
        self.mark_sealed()
        os.close(self.descriptor)
        with contextlib.suppress(OSError):
            kernel.unmount(str(self.proc))


def _start_holder(proc: Path) -> tuple[int, int]:
    """Fork the first process of a new PID namespace; later children are in this process's own namespace.

    Returns its pid, and the descriptor on which it reports that it is sealed.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    reader, writer = os.pipe()
    try:
        kernel.unshare(kernel.NEW_PID)
        pid = os.fork()
        if pid == 0:
            _hold(proc, writer)
        kernel.setns(own, kernel.NEW_PID)
    finally:
        os.close(own)
        os.close(writer)
    answer = os.read(reader, len(_CREATED))
    if answer != _CREATED:
        answer += os.read(reader, 4096)
        os.close(reader)
        os.waitpid(pid, 0)
        raise StartError(answer.decode(errors="replace") or "no PID namespace could be made")
    return pid, reader


def _hold(proc: Path, writer: int) -> NoReturn:
    try:
        reset_signals()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps orphans
        kernel.mount("proc", str(proc), "proc", kernel.NO_SUID | kernel.NO_DEV | kernel.NO_EXEC)
        os.write(writer, _CREATED)
        kernel.unshare(kernel.NEW_MOUNT)
        kernel.mount("tmpfs", str(proc), "tmpfs", kernel.NO_SUID | kernel.NO_DEV, "size=0k,mode=000")
        os.chdir(proc)
        kernel.pivot_root(".", ".")
        kernel.unmount(".")
        kernel.remount("/", kernel.READ_ONLY)
        kernel.drop_from_bounding_set(range(64), frozenset())
        kernel.set_capabilities(0)
        kernel.no_new_privileges()
        kernel.set_dumpable(False)
        kernel.set_name("pause")
        os.write(writer, _SEALED)
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(writer, (str(error) or repr(error)).encode())
    finally:
        os._exit(1)
