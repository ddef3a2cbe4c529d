"""What a kubelet serves, on a Unix socket: logs, exec and attach of our pods. The API server relays to it.

A pod is asked for by name and uid. What is served is what is on disk, so that it can be before the agent has
heard of any pod, and after a pod's object is gone.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from aiohttp import web

from argosy.local.node import report, streams
from argosy.local.node.logs import log_path, parse, read_lines, timestamp
from argosy.local.node.pods import alive

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_POLL = 0.05


class Found(NamedTuple):
    folder: Path
    containers: list[str]


class Lookup(Protocol):
    """Finds pods of this machine."""

    def find(self, namespace: str, name: str, uid: str) -> Found | None: ...

    @property
    def starting(self) -> bool:
        """Whether a pod that is not found may be one of ours all the same."""
        ...


class Wanted:
    """The options of a log request, as kubectl sends them."""

    def __init__(self, request: web.Request) -> None:
        query = request.query
        self.follow = query.get("follow") in ("true", "1")
        self.previous = query.get("previous") in ("true", "1")
        self.run = int(query["run"]) if query.get("run") else None
        self.timestamps = query.get("timestamps") in ("true", "1")
        self.tail = int(query["tailLines"]) if query.get("tailLines") else None
        self.limit = int(query["limitBytes"]) if query.get("limitBytes") else None
        self.since = ""
        if query.get("sinceSeconds"):
            moment = datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"]))
            self.since = timestamp(moment.timestamp())
        elif query.get("sinceTime"):
            self.since = timestamp(datetime.fromisoformat(query["sinceTime"]).timestamp())


async def serve(path: Path, lookup: Lookup, listening: asyncio.Event) -> None:
    """Until cancelled; says when it can be asked."""
    application = web.Application()
    handlers = _Handlers(lookup)
    application.router.add_get("/healthz", handlers.health)
    application.router.add_get("/containerLogs/{namespace}/{pod}/{container}", handlers.logs)
    for method in ("GET", "POST"):
        application.router.add_route(method, "/exec/{namespace}/{pod}/{container}", handlers.exec)
        application.router.add_route(method, "/attach/{namespace}/{pod}/{container}", handlers.attach)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    await asyncio.to_thread(path.unlink, missing_ok=True)
    try:
        await web.UnixSite(runner, str(path)).start()
        await asyncio.to_thread(path.chmod, 0o600)
        listening.set()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


class _Handlers:
    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def logs(self, request: web.Request) -> web.StreamResponse:
        folder, container = self._find(request)
        wanted = Wanted(request)
        state = report.read(folder)
        entry = state["containers"].get(container) if state else None
        if entry is None or not (entry["running"] or entry["ended"] or entry["last"]):
            why = entry["waiting"] if entry and entry["waiting"] else "ContainerCreating"
            name = request.match_info["pod"]
            raise web.HTTPBadRequest(
                text=f'container "{container}" in pod "{name}" is waiting to start: {why}'
            )
        run = entry["restarts"] - (1 if wanted.previous else 0)
        if wanted.run is not None:
            run = wanted.run
        if run > entry["restarts"]:
            raise web.HTTPNotFound(text=f'container "{container}" has not run {run + 1} times')
        if wanted.previous and run < 0:
            name = request.match_info["pod"]
            raise web.HTTPBadRequest(
                text=f'previous terminated container "{container}" in pod "{name}" not found'
            )
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        left = wanted.limit
        try:
            async for piece in _log_pieces(folder, container, run, wanted):
                await response.write(piece if left is None else piece[:left])
                left = None if left is None else left - len(piece)
                if left is not None and left <= 0:
                    break
            await response.write_eof()
        except ConnectionResetError:
            pass
        return response

    async def exec(self, request: web.Request) -> web.StreamResponse:
        folder, container = self._find(request)
        query = request.query
        command = query.getall("command", [])
        if not command:
            raise web.HTTPBadRequest(text="you must specify at least 1 command for the container")
        session = streams.Session(
            stdin=_flag(query.get("stdin", query.get("input", ""))),
            stdout=_flag(query.get("stdout", query.get("output", ""))),
            stderr=_flag(query.get("stderr", query.get("error", ""))),
            tty=_flag(query.get("tty", "")),
        )
        socket = await _upgrade(request)
        await streams.execute(socket, folder, container, list(command), session)
        await socket.close()
        return socket

    async def attach(self, request: web.Request) -> web.StreamResponse:
        folder, container = self._find(request)
        socket = await _upgrade(request)
        await streams.attach(socket, folder, container)
        await socket.close()
        return socket

    def _find(self, request: web.Request) -> tuple[Path, str]:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        container = request.match_info["container"]
        found = self._lookup.find(namespace, name, request.query.get("uid", ""))
        if found is None and self._lookup.starting:
            raise web.HTTPServiceUnavailable(text="the node is starting")
        if found is None:
            raise web.HTTPNotFound(text=f'pod "{namespace}/{name}" is not on this node')
        if container not in found.containers:
            raise web.HTTPBadRequest(text=f"container {container} is not valid for pod {name}")
        return found.folder, container


async def _upgrade(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(protocols=_PROTOCOLS, max_msg_size=0, heartbeat=None)
    await socket.prepare(request)
    return socket


async def _log_pieces(folder: Path, container: str, run: int, wanted: Wanted) -> AsyncIterator[bytes]:
    """What is there now, and with follow what comes until that run of the container ends."""
    path = log_path(folder, container, run)
    position = _position(path)
    batch = bytearray()
    for line in read_lines(path, tail=wanted.tail, since=wanted.since):
        batch += line.shown(wanted.timestamps)
        if len(batch) > 1 << 16:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)
    if wanted.follow:
        async for piece in _follow(folder, container, run, position, wanted.timestamps):
            yield piece


async def _follow(
    folder: Path, container: str, run: int, position: tuple[int, int], timestamps: bool
) -> AsyncIterator[bytes]:
    path = log_path(folder, container, run)
    inode, offset = position
    rest = b""
    while True:
        ended = not _runs(folder, container, run)
        data, inode, offset = _read_from(path, inode, offset)
        whole, _, rest = (rest + data).rpartition(b"\n")
        lines = [parse(record) for record in whole.split(b"\n")] if whole else []
        shown = b"".join(line.shown(timestamps) for line in lines if line)
        if shown:
            yield shown
        if ended and not data:
            return
        if not data:
            await asyncio.sleep(_POLL)


def _runs(folder: Path, container: str, run: int) -> bool:
    """Whether that run of the container is still going on."""
    state = report.read(folder)
    entry = state["containers"].get(container) if state else None
    if entry is None or state is None or state["finished"]:
        return False
    return entry["restarts"] == run and entry["ended"] is None and alive(folder)


def _position(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_ino, found.st_size


def _read_from(path: Path, inode: int, offset: int) -> tuple[bytes, int, int]:
    """New bytes of a log, over a rotation: first the end of the file that was, then the one that is."""
    for candidate in (path, path.with_name(f"{path.name}.1")):
        try:
            with candidate.open("rb") as file:
                if os.fstat(file.fileno()).st_ino == inode:
                    file.seek(offset)
                    data = file.read(1 << 20)
                    if data or candidate == path:
                        return data, inode, offset + len(data)
        except FileNotFoundError:
            continue
    try:
        with path.open("rb") as file:
            data = file.read(1 << 20)
            return data, os.fstat(file.fileno()).st_ino, len(data)
    except FileNotFoundError:
        return b"", inode, offset


def _flag(text: str) -> bool:
    return text in ("true", "1")
