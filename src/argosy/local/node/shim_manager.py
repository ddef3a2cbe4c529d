"""Starts, finds, follows, stops and removes the shims of pods, by folders and sockets, without the API.

A shim is alive while it holds the lock on its folder, which a crash cannot leave behind; its pid and start
time are only used to kill it.
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
from argosy.local.node import cgroups, checkpoint_files, pod_state, shim_socket, zygote
from argosy.local.node.pod_state import PodState
from argosy.local.node.runspec import RUNSPEC_FILE, RunSpec
from argosy.local.node.shim_socket import ShimRequest
from argosy.local.procfs import is_alive

log = Logger(__name__)


class ShimEvent(msgspec.Struct, frozen=True):
    """An event to record on the pod."""

    type: str
    reason: str
    message: str


class ShimManager:
    """All shims of one state folder."""

    def __init__(self, folder: Path, log_path: Path, log_retention: float = 0.0) -> None:
        self.folder = folder
        self.log_retention = log_retention
        """Seconds for which the logs of a deleted pod are kept for readers."""
        self._log_path = log_path
        self._zygote: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._start_lock = asyncio.Lock()

    def pod_folder(self, uid: str) -> Path:
        return self.folder / uid

    def pod_uids(self) -> list[str]:
        """Return the uids of all pods that have a folder."""
        return [entry.name for entry in self.folder.iterdir() if (entry / RUNSPEC_FILE).exists()]

    def addresses(self) -> dict[str, str]:
        """Return the address of each pod that has not finished, by uid."""
        shims = {}
        for uid in self.pod_uids():
            state = pod_state.read_state(self.pod_folder(uid))
            if not (state and state["finished"]):
                runspec = self.runspec_of(uid)
                if runspec and runspec["network"]:
                    shims[uid] = runspec["network"]["address"]
        return shims

    def runspec_of(self, uid: str) -> RunSpec | None:
        """Return a pod's run spec; None if it was never started or has been removed."""
        if "/" in uid or uid.startswith(".") or not uid:
            return None
        try:
            runspec: RunSpec = json.loads((self.pod_folder(uid) / RUNSPEC_FILE).read_bytes())
        except FileNotFoundError:
            return None
        return runspec

    def pods_by_node(self) -> dict[str, list[str]]:
        """Return the uids of all pods that have a folder, by the name of their node."""
        pods: dict[str, list[str]] = {}
        for uid in self.pod_uids():
            runspec = self.runspec_of(uid)
            if runspec is not None:
                pods.setdefault(runspec["node"], []).append(uid)
        return pods

    async def start(self, runspec: RunSpec) -> int:
        """Have the zygote fork a shim for the pod; returns its pid. Starts a zygote if there is none."""
        folder = self.pod_folder(runspec["uid"])
        pod_state.replace_file(folder / RUNSPEC_FILE, json.dumps(runspec).encode())
        # A cancelled caller must not leave the response to be read as that of the next request.
        return await asyncio.shield(self._fork(folder))

    async def _fork(self, folder: Path) -> int:
        async with self._start_lock:
            for attempt in (1, 2, 3):
                try:
                    return await self._request_fork(folder)
                except (OSError, asyncio.IncompleteReadError) as error:
                    self._zygote = None
                    if attempt == 3:
                        raise OSError(f"the zygote does not answer: {error}") from error
        raise AssertionError("unreachable")

    async def follow(
        self, uid: str, changed: Callable[[PodState], None], happened: Callable[[ShimEvent], None]
    ) -> None:
        """Pass on states until the shim has exited, and then the last state."""
        folder = self.pod_folder(uid)
        while has_shim(folder):
            try:
                reader, writer = await open_connection(folder)
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
            await _wait_for_exit(folder)
        last = pod_state.read_state(folder)
        if last is not None:
            changed(last)

    async def stop(self, uid: str, grace: float) -> bool:
        """Ask the shim to stop its pod; False if it does not listen (it may be starting)."""
        return await self._ask(uid, {"op": "stop", "grace": grace})

    async def signal(self, uid: str, number: int) -> list[str]:
        """Send a signal to the first process of each running container; return the names of these."""
        folder = self.pod_folder(uid)
        state = pod_state.read_state(folder) if has_shim(folder) else None
        running = [name for name, entry in state["containers"].items() if entry["running"]] if state else []
        for name in running:
            await self._ask(uid, {"op": "signal", "container": name, "signal": number})
        return running

    async def checkpoint(self, uid: str, request: ShimRequest) -> str:
        """Have the shim write the checkpoint of a container; return the problem, or nothing.

        Cancelled, the container goes on and no checkpoint is kept.
        """
        try:
            reader, writer = await open_connection(self.pod_folder(uid))
        except OSError:
            return "the pod is not running"
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
        except OSError:
            line = b""
        finally:
            writer.close()
        if not line:
            checkpoint_files.remove_unfinished(Path(request["target"]))
            return "the pod has ended"
        problem: str = json.loads(line).get("error", "")
        return problem

    async def _ask(self, uid: str, request: ShimRequest) -> bool:
        """Send a request to a shim and wait until it has taken it; False if it does not listen."""
        try:
            reader, writer = await open_connection(self.pod_folder(uid))
        except OSError:
            return False
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            return bool(await reader.readline())
        except OSError:
            return False
        finally:
            writer.close()

    async def kill(self, uids: list[str]) -> None:
        """Kill all processes of these pods at once, and wait until they have ended."""
        async with self._start_lock:  # so that a pod that is being started has a shim to kill
            left = [self.pod_folder(uid) for uid in uids]
        while left := [folder for folder in left if has_shim(folder)]:
            for folder in left:
                kill_recorded_process(folder / pod_state.STATE_FILE)
            await asyncio.sleep(0.005)

    def has_logs(self, uid: str) -> bool:
        return (self.pod_folder(uid) / "logs").exists()

    async def clear(self, uid: str, *, keep_logs: bool) -> None:
        """Remove the files of a finished pod; its logs and last state may be kept for readers."""
        folder = self.pod_folder(uid)
        parts = ["containers", "volumes", "shm", "proc", "restore"] if keep_logs else [""]
        await asyncio.to_thread(_remove, folder, parts)

    async def _request_fork(self, folder: Path) -> int:
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
            return await open_connection(self.folder, shim_socket.ZYGOTE_SOCKET)
        except OSError:
            start_zygote(self.folder, self._log_path)
        deadline = asyncio.get_running_loop().time() + 10
        while True:
            try:
                return await open_connection(self.folder, shim_socket.ZYGOTE_SOCKET)
            except OSError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.005)


def start_zygote(folder: Path, log_path: Path) -> None:
    (folder / shim_socket.ZYGOTE_SOCKET).unlink(missing_ok=True)
    with log_path.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "argosy.local.node.zygote", str(folder)],
            env=zygote.zygote_environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # It outlives this process; while we run, `reap` reaps it, later init does.
    process.returncode = 0


def reap() -> None:
    """Reap a dead zygote, and shims that became our children when it died."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def has_shim(folder: Path) -> bool:
    """Return True if a shim holds the folder's lock."""
    try:
        descriptor = os.open(folder / pod_state.LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def open_connection(
    folder: Path, name: str = shim_socket.SHIM_SOCKET
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connected: socket.socket = shim_socket.connect(folder, name)
    return await asyncio.open_unix_connection(sock=connected, limit=1 << 24)


def kill_all(folder: Path) -> int:
    """Kill the zygote and every pod of a state folder; return how many pods ran."""
    kill_recorded_process(folder / shim_socket.ZYGOTE_PID)
    count = 0
    if not folder.is_dir():
        return 0
    for entry in folder.iterdir():
        if (entry / RUNSPEC_FILE).exists() and has_shim(entry):
            count += 1
            kill_recorded_process(entry / pod_state.STATE_FILE)
    return count


def remove_cgroups(folder: Path) -> bool:
    """Remove the cgroups of a state folder's pods; False while they contain processes."""
    hierarchy = cgroups.find_hierarchy()
    return hierarchy is None or cgroups.remove(hierarchy, pods_cgroup(folder))


def kill_recorded_process(path: Path) -> None:
    """Kill the process recorded in a file, if it still runs."""
    try:
        record = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    if is_alive(record["pid"], record["start_time"]):
        os.kill(record["pid"], signal.SIGKILL)


def pods_cgroup(pods_folder: Path) -> str:
    return f"argosy/{hashlib.sha256(str(pods_folder).encode()).hexdigest()[:12]}"


async def _wait_for_exit(folder: Path) -> None:
    """Wait a moment after the socket closed: the shim is exiting, or has only dropped a slow reader."""
    for _ in range(50):
        if not has_shim(folder):
            return
        await asyncio.sleep(0.002)


def _remove(folder: Path, parts: list[str]) -> None:
    """Remove the folders or raise OSError: an ending process or mount may still use one."""
    for part in parts:
        path = folder / part if part else folder
        shutil.rmtree(path, ignore_errors=True)
        if path.exists():
            raise OSError(f"{path} cannot be removed yet")
