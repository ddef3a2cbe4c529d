"""Serves logs, exec, attach and checkpoints of pods on a Unix socket; the API server proxies to it.

It also passes on requests below `/argosy`, which change the nodes themselves.

Only requests with the API server's token are accepted: authorization happens there. A pod is identified by
name and uid. Answers come from files, so they are available before the agent has synced and after the pod's
object was deleted.
"""

import asyncio
import hmac
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from argosy.local.node import pod_state, streams
from argosy.local.node.checkpoint_requests import CheckpointRequests
from argosy.local.node.log_reader import LogReader
from argosy.local.node.logs import log_path, timestamp
from argosy.local.node.shim_manager import has_shim
from argosy.wire.messages import HandlerResult, HttpError, Request, Response, Upgrade, text_response
from argosy.wire.server import Server
from argosy.wire.websocket import WebSocket

NodeHandler = Callable[[Request], Awaitable[Response]]

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_POLL_SECONDS = 0.05
_GRACE_SECONDS = 0.5


class LocatedPod(NamedTuple):
    folder: Path
    containers: list[str]


class PodLookup(Protocol):
    """Finds pods of this machine."""

    def find(self, namespace: str, name: str, uid: str) -> LocatedPod | None: ...

    @property
    def starting(self) -> bool:
        """Return True while the agent has not read all pods, so that an unknown one may still appear."""
        ...


class LogOptions:
    """The options of a log request, as kubectl sends them."""

    def __init__(self, request: Request) -> None:
        parameter = request.parameter
        self.follow = _parse_flag(parameter("follow"))
        self.previous = _parse_flag(parameter("previous"))
        self.run = _parse_int(parameter("run"))
        self.timestamps = _parse_flag(parameter("timestamps"))
        self.tail = _parse_int(parameter("tailLines"))
        self.limit = _parse_int(parameter("limitBytes"))
        self.since = ""
        if seconds := _parse_int(parameter("sinceSeconds")):
            moment = datetime.now(UTC) - timedelta(seconds=seconds)
            self.since = timestamp(moment.timestamp())
        elif parameter("sinceTime"):
            self.since = timestamp(datetime.fromisoformat(parameter("sinceTime")).timestamp())


async def serve(
    path: Path,
    token: str,
    lookup: PodLookup,
    nodes: NodeHandler,
    checkpoints: CheckpointRequests,
    listening: asyncio.Event,
) -> None:
    """Serve until cancelled; sets `listening` once it listens."""
    server = Server(_Handlers(lookup, nodes, checkpoints, token).answer)
    try:
        await server.listen_unix(path)
        listening.set()
        await asyncio.Event().wait()
    finally:
        await server.close(_GRACE_SECONDS)


class _Handlers:
    def __init__(
        self, lookup: PodLookup, nodes: NodeHandler, checkpoints: CheckpointRequests, token: str
    ) -> None:
        self._lookup = lookup
        self._checkpoints = checkpoints
        self._nodes = nodes
        self._credentials = f"Bearer {token}".encode()

    async def answer(self, request: Request) -> HandlerResult:
        if not hmac.compare_digest(request.headers.get(b"authorization", b""), self._credentials):
            raise HttpError(401, "Unauthorized")
        match request.method, request.path.strip("/").split("/"):
            case "GET", ["healthz"]:
                return text_response(200, "ok")
            case "GET", ["containerLogs", namespace, pod, container]:
                return self._logs(request, self._find(request, namespace, pod, container), pod, container)
            case "GET" | "POST", ["exec", namespace, pod, container]:
                return self._exec(request, self._find(request, namespace, pod, container), container)
            case "GET" | "POST", ["attach", namespace, pod, container]:
                folder = self._find(request, namespace, pod, container)
                return _upgrade(request, lambda socket: streams.attach(socket, folder, container))
            case "POST", ["checkpoint", namespace, pod, container]:
                return await self._checkpoints.answer(request, namespace, pod, container)
            case _, ["argosy", *_]:
                return await self._nodes(request)
        raise HttpError(404, f"{request.method} {request.path} is not served here")

    def _logs(self, request: Request, folder: Path, pod: str, container: str) -> Response:
        try:
            wanted = LogOptions(request)
        except ValueError as error:
            raise HttpError(400, str(error)) from None
        state = pod_state.read_state(folder)
        entry = state["containers"].get(container) if state else None
        if entry is None or not (entry["running"] or entry["ended"] or entry["last"]):
            why = entry["waiting"] if entry and entry["waiting"] else "ContainerCreating"
            raise HttpError(400, f'container "{container}" in pod "{pod}" is waiting to start: {why}')
        run = entry["restarts"] - (1 if wanted.previous else 0)
        if wanted.run is not None:
            run = wanted.run
        if run > entry["restarts"]:
            raise HttpError(404, f'container "{container}" has not run {run + 1} times')
        if wanted.previous and run < 0:
            raise HttpError(400, f'previous terminated container "{container}" in pod "{pod}" not found')
        pieces = _log_chunks(folder, container, run, wanted)
        limited = pieces if wanted.limit is None else _limit_bytes(pieces, wanted.limit)
        return Response(limited, content_type=b"text/plain")

    def _exec(self, request: Request, folder: Path, container: str) -> Upgrade:
        parameter, command = request.parameter, request.query.get("command", [])
        if not command:
            raise HttpError(400, "you must specify at least 1 command for the container")
        session = streams.StreamOptions(
            stdin=_parse_flag(parameter("stdin", parameter("input"))),
            stdout=_parse_flag(parameter("stdout", parameter("output"))),
            stderr=_parse_flag(parameter("stderr", parameter("error"))),
            tty=_parse_flag(parameter("tty")),
        )
        return _upgrade(request, lambda socket: streams.execute(socket, folder, container, command, session))

    def _find(self, request: Request, namespace: str, name: str, container: str) -> Path:
        pod = self._lookup.find(namespace, name, request.parameter("uid"))
        if pod is None and self._lookup.starting:
            raise HttpError(503, "the node is starting")
        if pod is None:
            raise HttpError(404, f'pod "{namespace}/{name}" is not on this node')
        if container not in pod.containers:
            raise HttpError(400, f"container {container} is not valid for pod {name}")
        return pod.folder


def _upgrade(request: Request, serve: Callable[[WebSocket], Awaitable[None]]) -> Upgrade:
    if not request.wants_websocket:
        raise HttpError(400, "you must open a WebSocket")
    return Upgrade(next((name for name in request.subprotocols if name in _PROTOCOLS), ""), serve)


async def _limit_bytes(pieces: AsyncGenerator[bytes, None], limit: int) -> AsyncIterator[bytes]:
    """Yield at most `limit` bytes."""
    async with aclosing(pieces):
        async for piece in pieces:
            yield piece[:limit]
            limit -= len(piece)
            if limit <= 0:
                return


async def _log_chunks(
    folder: Path, container: str, run: int, wanted: LogOptions
) -> AsyncGenerator[bytes, None]:
    """Yield the log of a run; with follow, also what is added until the run ends."""
    reader = LogReader(log_path(folder, container, run))
    batch = bytearray()
    for line in reader.read_existing(tail=wanted.tail, since=wanted.since):
        batch += line.format(wanted.timestamps)
        if len(batch) > 1 << 16:
            yield bytes(batch)
            batch.clear()
    if batch:
        yield bytes(batch)
    while wanted.follow:
        ended = not _is_running(folder, container, run)
        lines, some = reader.read_new()
        if shown := b"".join(line.format(wanted.timestamps) for line in lines):
            yield shown
        if not some:
            if ended:
                return
            await asyncio.sleep(_POLL_SECONDS)


def _is_running(folder: Path, container: str, run: int) -> bool:
    """Return True if that run of the container has not ended."""
    state = pod_state.read_state(folder)
    entry = state["containers"].get(container) if state else None
    if entry is None or state is None or state["finished"]:
        return False
    return entry["restarts"] == run and entry["ended"] is None and has_shim(folder)


def _parse_flag(text: str) -> bool:
    return text in ("true", "1")


def _parse_int(text: str) -> int | None:
    return int(text) if text else None
