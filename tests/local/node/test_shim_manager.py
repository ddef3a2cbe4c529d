"""Killing pods ends also those whose shim is just being forked."""

import asyncio
import json
import sys
from pathlib import Path

from argosy.local.node import pod_state, shim_socket
from argosy.local.node.shim_manager import ShimManager, has_shim
from argosy.local.procfs import process_id
from tests.support.runspecs import run_spec
from tests.support.waiting import connections_closed

_SHIM = """
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
print("locked", flush=True)
time.sleep(600)
"""


class SlowZygote:
    """Forks one shim, which only holds the lock of its pod, when it is told to."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.may_fork = asyncio.Event()
        self.shim: asyncio.subprocess.Process | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        folder = Path((await reader.readline()).decode().strip())
        self.asked.set()
        await self.may_fork.wait()
        lock = str(folder / pod_state.LOCK_FILE)
        self.shim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _SHIM, lock, stdout=asyncio.subprocess.PIPE
        )
        assert self.shim.stdout is not None
        await self.shim.stdout.readline()
        (folder / pod_state.STATE_FILE).write_text(json.dumps(process_id(self.shim.pid)))
        writer.write(json.dumps({"pid": self.shim.pid}).encode() + b"\n")
        await writer.drain()
        writer.close()


async def test_a_pod_whose_start_was_cancelled_is_killed_when_it_has_started(tmp_path: Path) -> None:
    zygote, manager = SlowZygote(), ShimManager(tmp_path, tmp_path / "log")
    server = await asyncio.start_unix_server(zygote.serve, tmp_path / shim_socket.ZYGOTE_SOCKET)
    runspec = run_spec()
    folder = manager.pod_folder(runspec["uid"])
    folder.mkdir()
    starting = asyncio.create_task(manager.start(runspec))
    await zygote.asked.wait()
    starting.cancel()
    killing = asyncio.create_task(manager.kill([runspec["uid"]]))
    await asyncio.wait((starting,))
    zygote.may_fork.set()
    await killing
    assert zygote.shim is not None
    assert await zygote.shim.wait() == -9
    assert not has_shim(folder)
    assert manager._zygote is not None
    manager._zygote[1].close()
    server.close()
    await connections_closed()
