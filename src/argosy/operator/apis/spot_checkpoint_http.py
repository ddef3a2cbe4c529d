"""Serves CheckpointBackups as plain HTTP with JSON, for clients that do not speak the API of Kubernetes.

Every request reaches the API server with the token of its client, and with nothing else of it: who may do
what is decided there, and the operator's own rights are never used.

| request under `/api/v1/checkpoints` | |
|---|---|
| `GET`, also `?namespace=NAME` | list CheckpointBackups |
| `POST` | create one |
| `GET`, `PUT`, `DELETE /NAMESPACE/NAME` | read, replace or delete one |
| `POST /NAMESPACE/NAME/restore` | create a pod from it, by a CheckpointRestore |
"""

import asyncio
import re
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from argosy.engine.credentials import Identity
from argosy.engine.errors import Unavailable
from argosy.engine.transport import Request as ApiRequest
from argosy.engine.transport import Response as ApiResponse
from argosy.engine.transport import Transport
from argosy.engine.urls import path_of
from argosy.kinds.migration import GROUP, VERSION, CheckpointBackup, CheckpointRestore
from argosy.kinds.resource import Resource
from argosy.wire.messages import HttpError, Request, Response, TooLargeError

SEGMENT: Final = "api"
"""The first segment of the path, under which the endpoint registers this API."""
MAX_BODY_BYTES = 256 * 1024
MAX_REQUESTS = 32
"""Requests that are answered at a time; others wait."""
TIMEOUT_SECONDS = 30.0

RESTORE_REQUESTED = f"{GROUP}/restore-requested"
RESTORE_NAMESPACE = f"{GROUP}/restore-target-namespace"
RESTORE_POD = f"{GROUP}/restore-target-pod"
"""Annotations that show on a CheckpointBackup which restore was requested last."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_MAX_NAME_CHARS = 253
_MERGE_PATCH = "application/merge-patch+json"
T = TypeVar("T")


class _Metadata(Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Body(Struct, frozen=True):
    """What is read of the CheckpointBackup that a client sends; the API server checks the rest."""

    metadata: _Metadata = _Metadata()


class _RestoreRequest(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    target_pod: str
    target_namespace: str = ""


class CheckpointApi:
    """Answers the requests of this API."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._slots = asyncio.Semaphore(MAX_REQUESTS)

    async def handle(self, request: Request, path: list[str]) -> Response:
        """Answer a request; `path` follows `/api`."""
        identity = Identity(token=_token(request))
        async with self._slots:
            match request.method, path:
                case "GET", ["v1", "checkpoints"]:
                    return await self._list(identity, request.parameter("namespace"))
                case "POST", ["v1", "checkpoints"]:
                    return await self._create(identity, await _body(request))
                case "GET" | "DELETE" as method, ["v1", "checkpoints", namespace, name]:
                    return _passed_on(await self._send(identity, method, _path(namespace, name)))
                case "PUT", ["v1", "checkpoints", namespace, name]:
                    return await self._replace(identity, namespace, name, await _body(request))
                case "POST", ["v1", "checkpoints", namespace, name, "restore"]:
                    return await self._restore(identity, namespace, name, await _body(request))
        raise HttpError(404, f"{request.method} {request.path}: not found")

    async def _list(self, identity: Identity, namespace: str) -> Response:
        path = path_of(CheckpointBackup, None, _valid("namespace", namespace) if namespace else None)
        return _passed_on(await self._send(identity, "GET", path))

    async def _create(self, identity: Identity, body: bytes) -> Response:
        namespace = _decode(body, _Body).metadata.namespace
        path = path_of(CheckpointBackup, None, _valid("metadata.namespace", namespace))
        return _passed_on(await self._write(identity, "POST", path, _with_kind(body)))

    async def _replace(self, identity: Identity, namespace: str, name: str, body: bytes) -> Response:
        path = _path(namespace, name)
        return _passed_on(await self._write(identity, "PUT", path, _with_kind(body)))

    async def _restore(self, identity: Identity, namespace: str, name: str, body: bytes) -> Response:
        """Create the CheckpointRestore, and then show on the CheckpointBackup that it was requested."""
        path, wanted = _path(namespace, name), _decode(body, _RestoreRequest)
        pod = _valid("targetPod", wanted.target_pod)
        if wanted.target_namespace not in ("", namespace):
            raise HttpError(422, f'targetNamespace: must be "{namespace}", the namespace of the checkpoint')
        found = await self._send(identity, "GET", path)
        if found.status != 200:
            return _passed_on(found)
        restore = {
            **_type(CheckpointRestore.resource),
            "metadata": {"name": pod, "namespace": namespace},
            "spec": {"backupRef": {"name": name}, "podName": pod},
        }
        restores = path_of(CheckpointRestore, None, namespace)
        created = await self._write(identity, "POST", restores, msgspec.json.encode(restore))
        if created.status == 201:
            shown = {RESTORE_REQUESTED: "true", RESTORE_NAMESPACE: namespace, RESTORE_POD: pod}
            patch = msgspec.json.encode({"metadata": {"annotations": shown}})
            # Only shown: a client that may not change the CheckpointBackup has its restore all the same.
            await self._write(identity, "PATCH", path, patch, _MERGE_PATCH)
        return _passed_on(created)

    async def _write(
        self, identity: Identity, method: str, path: str, body: bytes, content_type: str = "application/json"
    ) -> ApiResponse:
        strict = urlencode({"fieldManager": "argosy-checkpoint-api", "fieldValidation": "Strict"})
        return await self._send(identity, method, f"{path}?{strict}", body, content_type)

    async def _send(
        self,
        identity: Identity,
        method: str,
        target: str,
        body: bytes | None = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        headers = {"Accept": "application/json", "User-Agent": "argosy-checkpoint-api"}
        if body is not None:
            headers["Content-Type"] = content_type
        request = ApiRequest(method, target, headers, identity, body, TIMEOUT_SECONDS)
        try:
            return await self._transport.send(request)
        except Unavailable as error:
            raise HttpError(503, f"the API server cannot be reached: {error}") from None


def _token(request: Request) -> str:
    scheme, _, token = request.header(b"authorization").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise HttpError(401, "a bearer token of the cluster is required")
    return token.strip()


async def _body(request: Request) -> bytes:
    try:
        return await request.body(MAX_BODY_BYTES)
    except TooLargeError as error:
        raise HttpError(413, str(error)) from None


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HttpError(400, f"invalid body: {error}") from None


def _with_kind(body: bytes) -> bytes:
    """Return a CheckpointBackup with its kind, which clients may leave out."""
    return msgspec.json.encode({**_type(CheckpointBackup.resource), **_decode(body, dict[str, msgspec.Raw])})


def _type(resource: Resource) -> dict[str, str]:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": resource.kind}


def _path(namespace: str, name: str) -> str:
    return path_of(CheckpointBackup, _valid("name", name), _valid("namespace", namespace))


def _valid(field: str, name: str) -> str:
    """Return a name that has no other meaning in a path."""
    if len(name) > _MAX_NAME_CHARS or not _NAME.fullmatch(name):
        raise HttpError(422, f'{field}: invalid value "{name[:64]}": must be a name of Kubernetes')
    return name


def _passed_on(response: ApiResponse) -> Response:
    """Return the answer of the API server, whose Status says what was refused."""
    return Response(response.body, response.status)
