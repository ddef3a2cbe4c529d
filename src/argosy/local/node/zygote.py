"""A small single-threaded process that forks one shim per pod; its small memory makes forks fast.

The agent starts it, but it survives the agent and serves the next one. A request on its Unix socket is one
line, the pod's folder; the answer is the shim's pid. Shims are its children, and it reaps them. If it dies,
shims keep running (their state and locks are in the state folder) and the agent starts another zygote.
Standard library only.
"""

import errno
import gc
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import NoReturn

from argosy.local.node import kernel, shim, shim_socket
from argosy.local.node.event_loop import EventLoop
from argosy.local.node.pod_state import replace_file
from argosy.local.procfs import process_id

_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
)


def zygote_environment() -> dict[str, str]:
    """Return the variables that Python needs; the rest is kept from processes that start pods."""
    return {name: os.environ[name] for name in _VARIABLES if name in os.environ}


def main(folder: Path) -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kernel.become_subreaper()
    loop = EventLoop()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    listener = shim_socket.listen(folder, shim_socket.ZYGOTE_SOCKET)
    replace_file(
        folder / shim_socket.ZYGOTE_PID,
        json.dumps(process_id(os.getpid())).encode(),
    )
    own_pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    gc.freeze()
    Zygote(loop, listener, own_pid_namespace)
    loop.run()


class Zygote:
    def __init__(self, loop: EventLoop, listener: socket.socket, own_pid_namespace: int) -> None:
        self._loop = loop
        self._listener = listener
        self._own_pid_namespace = own_pid_namespace
        self._may_return = _may_enter(own_pid_namespace)
        self._clients: dict[int, tuple[socket.socket, bytearray]] = {}
        loop.on_readable(listener.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except BlockingIOError:
            return
        self._clients[client.fileno()] = (client, bytearray())
        self._loop.on_readable(client.fileno(), lambda: self._read(client))

    def _read(self, client: socket.socket) -> None:
        number = client.fileno()
        try:
            data = client.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(number)
            del self._clients[number]
            client.close()
            return
        received = self._clients[number][1]
        received += data
        while b"\n" in received:
            line, _, rest = bytes(received).partition(b"\n")
            received[:] = rest
            folder = Path(os.fsdecode(line))
            try:
                answer: dict[str, object] = {"folder": str(folder), "pid": self._fork(folder)}
            except OSError as error:
                answer = {"folder": str(folder), "error": str(error)}
            try:
                client.sendall(json.dumps(answer).encode() + b"\n")
            except OSError:
                return

    def _fork(self, folder: Path) -> int:
        lock = shim.take_lock(folder)
        try:
            return self._fork_directly(folder, lock) if self._may_return else self._fork_twice(folder, lock)
        finally:
            os.close(lock)

    def _fork_directly(self, folder: Path, lock: int) -> int:
        """Fork a child that is PID 1 of a new PID namespace, and leave that namespace again."""
        kernel.unshare(kernel.NEW_PID)
        pid = os.fork()
        if pid == 0:
            self._run_shim(folder, lock)
        kernel.setns(self._own_pid_namespace, kernel.NEW_PID)
        return pid

    def _fork_twice(self, folder: Path, lock: int) -> int:
        """Fork through an intermediate child, because a user namespace cannot return to the PID namespace.

        It exits at once, and this process adopts its child.
        """
        reader, writer = os.pipe()
        between = os.fork()
        if between == 0:
            try:
                kernel.unshare(kernel.NEW_PID)
                pid = os.fork()
                if pid == 0:
                    self._run_shim(folder, lock)
                os.write(writer, str(pid).encode())
            finally:
                os._exit(0)
        os.close(writer)
        answer = os.read(reader, 32)
        os.close(reader)
        os.waitpid(between, 0)
        if not answer:
            raise OSError(errno.EPERM, "no PID namespace could be made for the pod")
        return int(answer)

    def _run_shim(self, folder: Path, lock: int) -> NoReturn:
        code = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            os.closerange(3, lock)
            os.closerange(lock + 1, 1 << 10)
            shim.main(folder)
            code = 0
        except BaseException as error:
            import traceback

            traceback.print_exception(error, file=sys.stderr)
        finally:
            os._exit(code)


def _may_enter(pid_namespace: int) -> bool:
    try:
        kernel.setns(pid_namespace, kernel.NEW_PID)
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]))
