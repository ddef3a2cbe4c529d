"""The metadata services of GCE, EC2 and Azure, with the parts that announce the end of a machine.

Each is a handler for `argosy.wire.server`: mount `handle` wherever a machine shall find it, or serve it alone
with `serving`. They are strict about headers, as the real ones are.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

import msgspec

from argosy.wire.messages import Request, Response
from argosy.wire.server import Server

Handler = Callable[[Request], Awaitable[Response]]


@asynccontextmanager
async def serving(handler: Handler, port: int = 0) -> AsyncIterator[str]:
    """Serve a handler on loopback, and return its URL."""
    server = Server(handler)
    chosen = await server.listen_tcp("127.0.0.1", port)
    try:
        yield f"http://127.0.0.1:{chosen}"
    finally:
        await server.close(0.1)


class GceMetadata:
    """Values below `/computeMetadata/v1/`; a long poll returns when its value changes."""

    def __init__(self, **values: str) -> None:
        self._values = {
            "instance/preempted": "FALSE",
            "instance/maintenance-event": "NONE",
            **{name.replace("__", "/").replace("_", "-"): value for name, value in values.items()},
        }
        self._versions = dict.fromkeys(self._values, "0" * 16)
        self._changed = asyncio.Condition()
        self.long_polls = 0
        """Requests that are waiting for a change."""

    async def set(self, name: str, value: str) -> None:
        """Change a value, such as `instance/preempted`."""
        async with self._changed:
            self._values[name] = value
            self._versions[name] = secrets.token_hex(8)
            self._changed.notify_all()

    async def preempt(self) -> None:
        await self.set("instance/preempted", "TRUE")

    async def announce_maintenance(self, event: str = "TERMINATE_ON_HOST_MAINTENANCE") -> None:
        """Announce maintenance; `NONE` withdraws it."""
        await self.set("instance/maintenance-event", event)

    async def handle(self, request: Request) -> Response:
        if request.header(b"metadata-flavor") != "Google" or request.header(b"x-forwarded-for"):
            return _text(403, "Missing Metadata-Flavor:Google header.")
        name = request.path.removeprefix("/computeMetadata/v1/")
        if not name:
            return _text(200, "instance/\nproject/\n", {b"Metadata-Flavor": b"Google"})
        if name not in self._values:
            return _text(404, "not found", {b"Metadata-Flavor": b"Google"})
        if request.parameter("wait_for_change") == "true":
            seconds = float(request.parameter("timeout_sec", "600"))
            await self._wait(name, request.parameter("last_etag"), seconds)
        headers = {b"Metadata-Flavor": b"Google", b"ETag": self._versions[name].encode()}
        return _text(200, self._values[name], headers)

    async def _wait(self, name: str, version: str, seconds: float) -> None:
        known = version or self._versions[name]
        self.long_polls += 1
        try:
            async with asyncio.timeout(seconds), self._changed:
                await self._changed.wait_for(lambda: self._versions[name] != known)
        except TimeoutError:
            pass
        finally:
            self.long_polls -= 1


class Ec2Metadata:
    """The instance metadata service, version 2 only: every request needs the token of a session."""

    def __init__(self) -> None:
        self.instance_action: dict[str, str] | None = None
        self.rebalance: dict[str, str] | None = None
        self.tokens: set[str] = set()

    def interrupt(self, at: datetime, action: str = "terminate") -> None:
        self.instance_action = {"action": action, "time": at.isoformat().replace("+00:00", "Z")}

    def recommend_rebalance(self, at: datetime) -> None:
        self.rebalance = {"noticeTime": at.isoformat().replace("+00:00", "Z")}

    async def handle(self, request: Request) -> Response:
        if request.path == "/latest/api/token":
            if request.method != "PUT" or not request.header(b"x-aws-ec2-metadata-token-ttl-seconds"):
                return _text(400, "Bad Request")
            token = secrets.token_urlsafe(42)
            self.tokens.add(token)
            return _text(200, token)
        if request.header(b"x-aws-ec2-metadata-token") not in self.tokens:
            return _text(401, "Unauthorized")
        documents = {
            "/latest/meta-data/spot/instance-action": self.instance_action,
            "/latest/meta-data/events/recommendations/rebalance": self.rebalance,
        }
        document = documents.get(request.path)
        return _text(404, "Not Found") if document is None else _json(document)


@dataclass
class AzureEvent:
    id: str
    type: str
    not_before: str
    """Empty once it has started."""
    resources: list[str]
    status: str = "Scheduled"


@dataclass
class AzureMetadata:
    """Scheduled events of a group of machines, of which this is one."""

    name: str = "vm-0"
    events: list[AzureEvent] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    def schedule(self, id: str, type: str, at: datetime, *resources: str) -> None:
        not_before = at.strftime("%a, %d %b %Y %H:%M:%S GMT")
        self.events.append(AzureEvent(id, type, not_before, list(resources or (self.name,))))

    def cancel(self, id: str) -> None:
        self.events = [event for event in self.events if event.id != id]

    async def handle(self, request: Request) -> Response:
        if request.header(b"metadata") != "true" or request.header(b"x-forwarded-for"):
            return _text(400, "Bad request: required metadata header not specified")
        if request.path == "/metadata/versions":
            return _json({"apiVersions": ["2021-02-01"]})
        if not request.parameter("api-version"):
            return _text(400, "Bad request: api-version is missing")
        if request.path == "/metadata/instance/compute/name":
            return _text(200, self.name)
        if request.path != "/metadata/scheduledevents":
            return _text(404, "Not found")
        if request.method == "POST":
            return await self._start(request)
        return _json({"DocumentIncarnation": 1, "Events": [_azure_event(event) for event in self.events]})

    async def _start(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body(1 << 16))
        for started in body["StartRequests"]:
            event = next((event for event in self.events if event.id == started["EventId"]), None)
            if event is None:
                return _text(400, "unknown event")
            self.acknowledged.append(event.id)
            event.status, event.not_before = "Started", ""
        return _text(200, "")


def _azure_event(event: AzureEvent) -> dict[str, object]:
    return {
        "EventId": event.id,
        "EventType": event.type,
        "ResourceType": "VirtualMachine",
        "Resources": event.resources,
        "EventStatus": event.status,
        "NotBefore": event.not_before,
        "Description": "",
        "EventSource": "Platform",
        "DurationInSeconds": -1,
    }


NO_HEADERS: Mapping[bytes, bytes] = {}


def _text(status: int, text: str, headers: Mapping[bytes, bytes] = NO_HEADERS) -> Response:
    return Response(text.encode(), status, b"application/text", list(headers.items()))


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value))
