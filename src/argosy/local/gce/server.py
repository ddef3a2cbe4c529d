"""Serves the rehearsal cloud over HTTP: its API, the metadata of each VM, and what happens in rehearsals.

| path | what it is |
|---|---|
| `/compute/v1/…` | the API; see `api` |
| `/vms/NAME/computeMetadata/v1/instance/…` | the metadata server as the VM of this name sees it |
| `POST /rehearsal/preempt/NAME` | takes a spot VM back |
| `GET /rehearsal/vms` | all VMs and their statuses |
"""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec

from argosy.local.gce.api import GceApi, show_instance, show_operation
from argosy.local.gce.cloud import Change, Instance, metadata_of
from argosy.wire.messages import HttpError, Request, Response
from argosy.wire.server import Server

MAX_BODY_BYTES = 1 << 20
MAX_WAIT_SECONDS = 300.0
_METADATA_HEADERS = [(b"Metadata-Flavor", b"Google")]


def utc_now() -> datetime:
    return datetime.now(UTC)


class GceServer:
    """One rehearsal cloud on one port."""

    def __init__(self, api: GceApi) -> None:
        self.api = api
        self._changed = asyncio.Condition()
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        api.cloud.subscribe(self._instance_changed)

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0, host: str = "127.0.0.1") -> AsyncIterator[str]:
        """Serve until the block ends, and let things happen when they are due."""
        server = Server(self.handle)
        chosen = await server.listen_tcp(host, port)
        ticking = asyncio.create_task(self._tick())
        try:
            yield f"http://{host}:{chosen}"
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            await server.close(0.1)

    async def handle(self, request: Request) -> Response:
        match request.path.strip("/").split("/"):
            case ["compute", *_]:
                return await self._answer_api(request)
            case ["vms", name, "computeMetadata", "v1", "instance", *path]:
                return await self._answer_metadata(request, name, "/".join(path))
            case ["rehearsal", "preempt", name] if request.method == "POST":
                instance = self._find(name)
                operation = self.api.cloud.preempt(instance.project, instance.zone, instance.name)
                self._wake.set()
                return _json(show_operation(operation))
            case ["rehearsal", "vms"]:
                self.api.cloud.advance()
                return _json([show_instance(item) for item in self.api.cloud.instances.values()])
        raise HttpError(404, f"{request.method} {request.path} is not served here")

    async def _answer_api(self, request: Request) -> Response:
        body = await request.body(MAX_BODY_BYTES)
        target = f"{request.raw_path}?{request.raw_query}" if request.raw_query else request.raw_path
        try:
            status, content = self.api.handle(request.method, target, body, request.header(b"authorization"))
        except ConnectionError:
            # A client cannot tell a lost answer from a broken one; this one is not JSON.
            return Response(b"<html>bad gateway</html>", status=502, content_type=b"text/html", close=True)
        self._wake.set()
        return Response(content, status=status)

    async def _answer_metadata(self, request: Request, name: str, path: str) -> Response:
        if request.header(b"metadata-flavor") != "Google":
            raise HttpError(403, "the header Metadata-Flavor: Google is missing")
        etag = request.parameter("last_etag") or _version(self._metadata(name, path))
        if request.parameter("wait_for_change") == "true":
            limit = min(float(request.parameter("timeout_sec") or MAX_WAIT_SECONDS), MAX_WAIT_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit), self._changed:
                    await self._changed.wait_for(lambda: _version(self._metadata(name, path)) != etag)
        value = self._metadata(name, path)
        headers = [*_METADATA_HEADERS, (b"ETag", _version(value).encode())]
        return Response(value.encode(), content_type=b"application/text", headers=headers)

    def _metadata(self, name: str, path: str) -> str:
        """Return a value of a VM's metadata; for a VM that is gone, only that it was preempted."""
        self.api.cloud.advance()
        instance = next((item for item in self.api.cloud.instances.values() if item.name == name), None)
        if instance is None:
            if any(ever[2] == name for ever in self.api.cloud.ever) and path == "preempted":
                return "TRUE"
            raise HttpError(404, f"there is no VM {name}")
        attributes = metadata_of(instance)
        values = {
            "preempted": "TRUE" if instance.preempted else "FALSE",
            "maintenance-event": instance.maintenance,
            "name": instance.name,
            "id": instance.id,
            "zone": f"projects/{instance.project}/zones/{instance.zone}",
            **{f"attributes/{key}": value for key, value in attributes.items()},
        }
        if path not in values:
            raise HttpError(404, f"there is no metadata instance/{path}")
        return values[path]

    def _find(self, name: str) -> Instance:
        self.api.cloud.advance()
        matches = [instance for instance in self.api.cloud.instances.values() if instance.name == name]
        if not matches:
            raise HttpError(404, f"there is no VM {name}")
        return matches[0]

    async def _tick(self) -> None:
        """Execute changes of the cloud when they are due, also without requests."""
        while True:
            self._wake.clear()
            self.api.cloud.advance()
            at = self.api.cloud.next_change_at()
            seconds = None if at is None else max((at - utc_now()).total_seconds(), 0.01)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()

    def _instance_changed(self, instance: Instance, change: Change) -> None:
        del instance, change
        self._loop.call_soon(lambda: asyncio.ensure_future(self._notify()))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def _version(value: str) -> str:
    """Return the ETag of a value of the metadata."""
    return hashlib.sha256(value.encode()).hexdigest()[:16]


def _json(content: object) -> Response:
    return Response(msgspec.json.encode(content))
