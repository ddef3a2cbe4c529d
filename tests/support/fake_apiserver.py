"""A small API server in memory for tests of the engine, with the real wire protocol and faults on demand.

It has no schemas and no permissions. It behaves as Kubernetes does in: one version counter for all objects,
watches with history and bookmarks, initial events, paging, conflicts and preconditions. Tests can inject
faults: error responses (429, 500, 401), an expired history (410), and watches that end in any way.
"""

import asyncio
import copy
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from argosy.engine.credentials import Credentials, FixedCredentials
from argosy.engine.kubeconfig import Connection
from argosy.wire.messages import HandlerResult, Request, Response
from argosy.wire.server import Server

Json = dict[str, object]

_LARGEST_BODY = 64 << 20


@dataclass
class ReceivedRequest:
    """A request that the server received."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float


@dataclass
class Fault:
    """A response that replaces the real one for the next matching requests."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    times: int = 1
    match: Callable[[ReceivedRequest], bool] = lambda _seen: True
    reason: str = ""
    message: str = "made up"


@dataclass
class _Change:
    version: int
    collection: str
    type: str
    object: Json


@dataclass
class _Target:
    collection: str
    namespace: str
    name: str
    subresource: str


class FakeServer:
    """An async context manager; `connection()` gives what a `Client` needs."""

    def __init__(
        self, *, watch_list: bool = True, bookmark_every: float = 3600.0, tokens: set[str] | None = None
    ) -> None:
        self.version = 100
        self.requests: list[ReceivedRequest] = []
        self.faults: list[Fault] = []
        self.watch_list = watch_list
        self.ignore_watch_list = False
        """Send the initial events of a WatchList and never say that they are complete."""
        self.end_watches = False
        """Answer watches, and end them before anything is said."""
        self.garble_next = False
        """Cut the next event of a watch in half, and end the line and the watch there."""
        self.bookmark_every = bookmark_every
        self.tokens = tokens
        self.exec_handler: Callable[[Request], Awaitable[HandlerResult]] | None = None
        self.log_chunks: list[bytes] = []
        self.logs_by_uid: dict[tuple[str, str], list[bytes]] | None = None
        """Logs by uid and run, as only Argosy's own server has them; None for a server that does not."""
        self._objects: dict[str, dict[tuple[str, str], Json]] = {}
        self._history: list[_Change] = []
        self._oldest = 0
        self._changed = asyncio.Condition()
        self._watches: dict[Request, asyncio.Task[object] | None] = {}
        self._expiring: set[Request] = set()
        self._server: Server | None = None
        self.port = 0

    async def __aenter__(self) -> "FakeServer":
        self._server = Server(self._handle)
        self.port = await self._server.listen_tcp("127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            await self._server.close(0.1)

    def connection(self, credentials: Credentials | None = None, port: int | None = None) -> Connection:
        return Connection(
            server=f"http://127.0.0.1:{port or self.port}", credentials=credentials or FixedCredentials()
        )

    def write_kubeconfig(self, path: Path, token: str = "") -> Path:
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        config = {
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [{"name": "fake", "cluster": cluster}],
            "users": [{"name": "fake", "user": {"token": token} if token else {}}],
        }
        path.write_bytes(msgspec.json.encode(config))
        return path

    @property
    def watches(self) -> int:
        """The number of open watches."""
        return len(self._watches)

    def objects(self, collection: str) -> list[Json]:
        return list(self._objects.get(collection, {}).values())

    async def put(self, collection: str, obj: Json) -> Json:
        """Create or change an object, as another client would."""
        meta = _meta(obj)
        key = (str(meta.get("namespace", "")), str(meta["name"]))
        old = self._objects.get(collection, {}).get(key)
        return await self._write(collection, key, copy.deepcopy(obj), "MODIFIED" if old else "ADDED", old)

    async def remove(self, collection: str, namespace: str, name: str) -> None:
        obj = self._objects[collection].pop((namespace, name))
        await self._record(collection, "DELETED", copy.deepcopy(obj))

    def forget_history(self) -> None:
        """Make all versions so far too old to watch from."""
        self._oldest = self.version
        self._history.clear()

    async def expire_watches(self) -> None:
        """Send 410 Gone to every open watch, as a server under memory pressure does."""
        self._expiring = set(self._watches)
        await self._notify()

    def drop_watches(self) -> None:
        """Cut the connections of all watches."""
        for sending in self._watches.values():
            if sending is not None:
                sending.cancel()

    async def _handle(self, request: Request) -> HandlerResult:
        received = ReceivedRequest(
            request.method,
            request.path,
            {name: values[0] for name, values in request.query.items()},
            {name.decode().title(): value.decode() for name, value in request.raw_headers},
            await request.body(_LARGEST_BODY),
            asyncio.get_running_loop().time(),
        )
        self.requests.append(received)
        for fault in self.faults:
            if fault.times > 0 and fault.match(received):
                fault.times -= 1
                return _status(fault.status, fault.reason, fault.message, fault.headers)
        if self.tokens is not None:
            token = request.header(b"authorization").removeprefix("Bearer ")
            if token not in self.tokens:
                return _status(401, "Unauthorized", "Unauthorized")
        target = _parse(request.path)
        if target.subresource == "exec" and self.exec_handler is not None:
            return await self.exec_handler(request)
        if target.subresource == "log":
            return self._log(request)
        if request.method == "GET" and request.parameter("watch") == "true":
            return self._watch(request, target)
        method = getattr(self, f"_{request.method.lower()}")
        answer: Response = await method(request, target, received.body)
        return answer

    async def _get(self, request: Request, target: _Target, _body: bytes) -> Response:
        if target.name:
            existing = self._find(target)
            return _json(existing) if existing else _not_found(target)
        items = self._selected(request, target)
        start = int(request.parameter("continue", "0"))
        limit = int(request.parameter("limit", "0")) or len(items)
        meta: Json = {"resourceVersion": str(self.version)}
        if start + limit < len(items):
            meta["continue"] = str(start + limit)
        return _json({"kind": "List", "metadata": meta, "items": items[start : start + limit]})

    async def _post(self, _request: Request, target: _Target, body: bytes) -> Response:
        obj: Json = msgspec.json.decode(body)
        meta = _meta(obj)
        key = (target.namespace, str(meta["name"]))
        if target.namespace:
            meta["namespace"] = target.namespace
        if key in self._objects.get(target.collection, {}):
            return _status(409, "AlreadyExists", f'{target.collection} "{key[1]}" already exists')
        return _json(await self._write(target.collection, key, obj, "ADDED", None), 201)

    async def _put(self, _request: Request, target: _Target, body: bytes) -> Response:
        return await self._update(target, msgspec.json.decode(body))

    async def _patch(self, request: Request, target: _Target, body: bytes) -> Response:
        old = self._find(target)
        if old is None:
            return _not_found(target)
        if request.header(b"content-type") != "application/merge-patch+json":
            return _status(415, "UnsupportedMediaType", "only merge patches here")
        merged = _merge(copy.deepcopy(old), msgspec.json.decode(body))
        assert isinstance(merged, dict)
        return await self._update(target, merged)

    async def _update(self, target: _Target, obj: Json) -> Response:
        old = self._find(target)
        if old is None:
            return _not_found(target)
        expected_version = _meta(obj).get("resourceVersion")
        if expected_version and expected_version != _meta(old)["resourceVersion"]:
            return _status(409, "Conflict", "the object has been modified")
        return _json(
            await self._write(target.collection, (target.namespace, target.name), obj, "MODIFIED", old)
        )

    async def _delete(self, _request: Request, target: _Target, body: bytes) -> Response:
        old = self._find(target)
        if old is None:
            return _not_found(target)
        options = msgspec.json.decode(body) if body else {}
        uid = (options.get("preconditions") or {}).get("uid")
        if uid and uid != _meta(old)["uid"]:
            return _status(409, "Conflict", "the uid in the precondition does not match")
        await self.remove(target.collection, target.namespace, target.name)
        return _json({"kind": "Status", "status": "Success"})

    def _log(self, request: Request) -> Response:
        chunks: list[bytes] | None = self.log_chunks
        _, _, uid = request.path.partition("/log/")
        if uid and self.logs_by_uid is None:
            return _status(404, "NotFound", "the server could not find the requested resource")
        if uid and self.logs_by_uid is not None:
            chunks = self.logs_by_uid.get((uid, request.parameter("run")))
        if chunks is None:
            return _status(410, "Expired", "no such log any more")
        return Response(_each(chunks), content_type=b"text/plain")

    def _watch(self, request: Request, target: _Target) -> Response:
        initial = request.parameter("sendInitialEvents") == "true"
        if initial and not self.watch_list:
            return _status(422, "Invalid", "sendInitialEvents is forbidden for watch")
        version = int(request.parameter("resourceVersion") or self.version)
        return Response(self._events(request, target, version, initial=initial))

    async def _events(
        self, request: Request, target: _Target, version: int, *, initial: bool
    ) -> AsyncIterator[bytes]:
        if self.end_watches:
            return
        self._watches[request] = asyncio.current_task()
        try:
            if not initial and version < self._oldest:
                yield _line("ERROR", _status_body(410, "Expired", "too old resource version"))
                return
            if initial:
                version = self.version
                items = self._selected(request, target)
                yield b"".join(_line("ADDED", item) for item in items)
                if not self.ignore_watch_list:
                    yield _bookmark(version, end=True)
            async for lines in self._follow(request, target, version):
                yield lines
        finally:
            self._watches.pop(request, None)
            self._expiring.discard(request)

    async def _follow(self, request: Request, target: _Target, version: int) -> AsyncIterator[bytes]:
        while True:
            if request in self._expiring:
                yield _line("ERROR", _status_body(410, "Expired", "too old resource version"))
                return
            fresh = [change for change in self._history if change.version > version]
            version = self.version
            lines = [
                _line(change.type, change.object)
                for change in fresh
                if change.collection == target.collection and _selected(request, target, change.object)
            ]
            if lines and self.garble_next:
                self.garble_next = False
                yield lines[0][: len(lines[0]) // 2] + b"\n"
                return
            if lines:
                yield b"".join(lines)
            async with self._changed:
                if self.version > version or request in self._expiring:
                    continue
                try:
                    async with asyncio.timeout(self.bookmark_every):
                        await self._changed.wait()
                        continue
                except TimeoutError:
                    pass
            yield _bookmark(self.version)

    def _find(self, target: _Target) -> Json | None:
        return self._objects.get(target.collection, {}).get((target.namespace, target.name))

    def _selected(self, request: Request, target: _Target) -> list[Json]:
        return [obj for obj in self.objects(target.collection) if _selected(request, target, obj)]

    async def _write(
        self, collection: str, key: tuple[str, str], obj: Json, type: str, old: Json | None
    ) -> Json:
        meta = _meta(obj)
        meta["uid"] = _meta(old)["uid"] if old else str(uuid.uuid4())
        meta["resourceVersion"] = str(self.version + 1)
        self._objects.setdefault(collection, {})[key] = obj
        await self._record(collection, type, copy.deepcopy(obj))
        return obj

    async def _record(self, collection: str, type: str, obj: Json) -> None:
        self.version += 1
        _meta(obj)["resourceVersion"] = str(self.version)
        self._history.append(_Change(self.version, collection, type, obj))
        await self._notify()

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


async def _each(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def _parse(path: str) -> _Target:
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    return _Target(rest[0], namespace, name, rest[2] if len(rest) > 2 else "")


def _selected(request: Request, target: _Target, obj: Json) -> bool:
    meta = _meta(obj)
    if target.namespace and meta.get("namespace") != target.namespace:
        return False
    labels = meta.get("labels") or {}
    assert isinstance(labels, dict)
    selector = request.parameter("labelSelector")
    wanted = dict(part.split("=", 1) for part in selector.split(",") if part)
    fields = dict(part.split("=", 1) for part in request.parameter("fieldSelector").split(",") if part)
    return all(labels.get(name) == value for name, value in wanted.items()) and all(
        _field(obj, path) == value for path, value in fields.items()
    )


def _field(obj: Json, path: str) -> object:
    """Return the value at a path with dots; "" if there is none."""
    value: object = obj
    for name in path.split("."):
        value = value.get(name, "") if isinstance(value, dict) else ""
    return value


def _meta(obj: Json) -> Json:
    meta = obj.setdefault("metadata", {})
    assert isinstance(meta, dict)
    return meta


def _merge(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _line(type: str, obj: Json) -> bytes:
    return msgspec.json.encode({"type": type, "object": obj}) + b"\n"


def _bookmark(version: int, *, end: bool = False) -> bytes:
    meta: Json = {"resourceVersion": str(version)}
    if end:
        meta["annotations"] = {"k8s.io/initial-events-end": "true"}
    # A real server sends an empty object of the kind, including its null fields.
    return _line("BOOKMARK", {"metadata": meta, "spec": {"containers": None}})


def _json(obj: Json, status: int = 200) -> Response:
    return Response(msgspec.json.encode(obj), status)


def _status_body(code: int, reason: str, message: str) -> Json:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


def _status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> Response:
    response = _json(_status_body(code, reason, message), code)
    response.headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    return response


def _not_found(target: _Target) -> Response:
    return _status(404, "NotFound", f'{target.collection} "{target.name}" not found')
