"""Pods as processes: starts, finds, follows, stops and removes shims. Knows folders and sockets, but no API.

Whether a shim lives is asked of the lock that it holds on its folder, which no crash can leave behind; its
pid and start time are used only to end it.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from argosy.engine.logs import Logger
from argosy.local.node import cgroups, kernel, pod_state, shim_socket, zygote
from argosy.local.node.pod_state import Report
from argosy.local.node.runspec import LAUNCH, Launch

log = Logger(__name__)


class ShimEvent(msgspec.Struct, frozen=True):
    """Something worth an Event on the pod."""

    type: str
    reason: str
    message: str


class Pods:
    """All shims of one state folder."""

    def __init__(self, folder: Path, log_path: Path, log_patience: float = 0.0) -> None:
        self.folder = folder
        self.log_patience = log_patience
        """How many seconds the log of a deleted pod waits for whoever followed it."""
        self._log_path = log_path
        self._zygote: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._turn = asyncio.Lock()

    def of(self, uid: str) -> Path:
        return self.folder / uid

    def known(self) -> list[str]:
        """Uids of all pods that have a folder."""
        return [entry.name for entry in self.folder.iterdir() if (entry / LAUNCH).exists()]

    def addresses(self) -> dict[str, str]:
        """The address of each pod that has not finished."""
        found = {}
        for uid in self.known():
            state = pod_state.read(self.of(uid))
            if not (state and state["finished"]):
                launch = self.launch_of(uid)
                if launch and launch["network"]:
                    found[uid] = launch["network"]["address"]
        return found

    def launch_of(self, uid: str) -> Launch | None:
        """What a pod was started with; None for one that has not been, or has been removed."""
        if "/" in uid or uid.startswith(".") or not uid:
            return None
        try:
            launch: Launch = json.loads((self.of(uid) / LAUNCH).read_bytes())
        except FileNotFoundError:
            return None
        return launch

    async def start(self, launch: Launch) -> int:
        """Have the zygote fork a shim for the pod; returns its pid. Starts a zygote if there is none."""
        folder = self.of(launch["uid"])
        pod_state.replace(folder / LAUNCH, json.dumps(launch).encode())
        async with self._turn:
            for attempt in (1, 2, 3):
                try:
                    return await self._ask(folder)
                except (OSError, asyncio.IncompleteReadError) as error:
                    self._zygote = None
                    if attempt == 3:
                        raise OSError(f"the zygote does not answer: {error}") from error
        raise AssertionError("unreachable")

    async def follow(
        self, uid: str, changed: Callable[[Report], None], happened: Callable[[ShimEvent], None]
    ) -> None:
        """Pass on reports until the shim is gone, and then its last one."""
        folder = self.of(uid)
        while alive(folder):
            try:
                reader, writer = await open_shim(folder)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.write(b'{"op": "watch"}\n')
            try:
                while line := await reader.readline():
                    message = json.loads(line)
                    if "report" in message:
                        changed(message["report"])
                    elif "event" in message:
                        happened(ShimEvent(**message["event"]))
            except OSError:
                pass
            finally:
                writer.close()
            await _gone(folder)
        last = pod_state.read(folder)
        if last is not None:
            changed(last)

    async def stop(self, uid: str, grace: float) -> bool:
        """Ask the shim to end its pod; False if nobody has heard it. One that has just begun listens in a
        moment."""
        folder = self.of(uid)
        try:
            reader, writer = await open_shim(folder)
        except OSError:
            return False
        try:
            writer.write(json.dumps({"op": "stop", "grace": grace}).encode() + b"\n")
            return bool(await reader.readline())
        except OSError:
            return False
        finally:
            writer.close()

    def has_logs(self, uid: str) -> bool:
        return (self.of(uid) / "logs").exists()

    async def clear(self, uid: str, *, keep_logs: bool) -> None:
        """Remove what a finished pod left; its logs and last report may stay for readers."""
        folder = self.of(uid)
        parts = ["containers", "volumes", "shm", "proc"] if keep_logs else [""]
        await asyncio.to_thread(_remove, folder, parts)

    async def _ask(self, folder: Path) -> int:
        if self._zygote is None:
            self._zygote = await self._connect()
        reader, writer = self._zygote
        writer.write(os.fsencode(folder) + b"\n")
        await writer.drain()
        line = await reader.readline()
        if not line:
            raise OSError("it closed the connection")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        pid: int = answer["pid"]
        return pid

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await open_shim(self.folder, shim_socket.ZYGOTE_SOCKET)
        except OSError:
            start_zygote(self.folder, self._log_path)
        deadline = asyncio.get_running_loop().time() + 10
        while True:
            try:
                return await open_shim(self.folder, shim_socket.ZYGOTE_SOCKET)
            except OSError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.005)


def start_zygote(folder: Path, log_path: Path) -> None:
    (folder / shim_socket.ZYGOTE_SOCKET).unlink(missing_ok=True)
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "argosy.local.node.zygote", str(folder)],
            env=zygote.environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # It outlives us: not ours to wait for. Reaped by us while we live (`reap`), by init after.
    process.returncode = 0


def reap() -> None:
    """Collect a dead zygote, and shims that came to us when it died."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def alive(folder: Path) -> bool:
    """Whether a shim holds the folder's lock."""
    try:
        descriptor = os.open(folder / pod_state.LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def open_shim(
    folder: Path, name: str = shim_socket.SOCKET
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connected: socket.socket = shim_socket.connect(folder, name)
    return await asyncio.open_unix_connection(sock=connected, limit=1 << 24)


def kill_all(folder: Path) -> int:
    """End the zygote and every pod of a state folder, however they were left. Returns how many pods ran."""
    kill_recorded(folder / shim_socket.ZYGOTE_PID)
    count = 0
    if not folder.is_dir():
        return 0
    for entry in folder.iterdir():
        if (entry / LAUNCH).exists() and alive(entry):
            count += 1
            kill_recorded(entry / pod_state.FILE)
    return count


def remove_cgroups(folder: Path) -> bool:
    """Remove the cgroups of a state folder's pods; False while there are processes in them."""
    hierarchy = cgroups.find()
    return hierarchy is None or cgroups.remove(hierarchy, cgroup_of(folder))


def kill_recorded(path: Path) -> None:
    """End the process that a file names, if it is still that one."""
    try:
        known = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    if kernel.alive(known["pid"], known["start_time"]):
        os.kill(known["pid"], signal.SIGKILL)


def cgroup_of(pods_folder: Path) -> str:
    return f"argosy/{hashlib.sha256(str(pods_folder).encode()).hexdigest()[:12]}"


async def _gone(folder: Path) -> None:
    """The socket closed: the shim is about to be gone, or let a slow reader go. Give it a moment to tell
    which.
    """
    for _ in range(50):
        if not alive(folder):
            return
        await asyncio.sleep(0.002)


def _remove(folder: Path, parts: list[str]) -> None:
    """All of it, or an error: a process or mount that is just ending may still hold on to some."""
    for part in parts:
        path = folder / part if part else folder
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            raise OSError(f"{path} cannot be removed yet")
