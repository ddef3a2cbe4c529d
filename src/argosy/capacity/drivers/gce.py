"""Sends the requests of `providers.gce` to the REST API of Google Compute Engine.

Only `instances` and `zoneOperations` are called. The Lease is checked right before a creation or deletion is
sent: after connecting, during which the process may have been suspended. What Google refuses is a `Refusal`
with a code of `capacity.provider` or of Google; 429, 5xx and answers that are not JSON mean that it did not
answer.
"""

import hashlib
import os
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from argosy.capacity.drivers.gce_auth import Tokens
from argosy.capacity.join import join_data, startup_script
from argosy.capacity.provider import (
    ALREADY_EXISTS,
    INVALID_CREDENTIALS,
    INVALID_REQUEST,
    JOIN_DATA_MISSING,
    NOT_FOUND,
    PERMISSION_DENIED,
    ObservedMachine,
    ObservedOperation,
    OperationKind,
    ZoneState,
)
from argosy.capacity.providers.gce import (
    DeleteInstance,
    FindInstance,
    InsertInstance,
    observed_machine,
    observed_operation,
)
from argosy.capacity.providers.gce_account import CREDENTIALS_KEY, check_account
from argosy.engine.proxies import environment_proxy
from argosy.plan.drivers import Credentials, Refusal
from argosy.wire.client import Client, Response
from argosy.wire.origin import Origin

MAX_ANSWER_BYTES: Final = 64 << 20
REQUEST_SECONDS: Final = 30.0
PAGE: Final = 500

OPERATION_HISTORY: Final = timedelta(hours=1)
"""How long operations are remembered."""

MAX_HISTORIES: Final = 512
"""Zones, times credentials, whose operations are remembered."""

INSTANCE_FIELDS: Final = (
    "nextPageToken,items(id,name,status,zone,creationTimestamp,labels,"
    "networkInterfaces(networkIP,accessConfigs/natIP))"
)
OPERATION_FIELDS: Final = (
    "nextPageToken,items(name,operationType,targetLink,clientOperationId,status,error,insertTime)"
)


class GceDriver:
    """The driver `gce`."""

    def __init__(self, endpoint: str, check_lease: Callable[[], None], page: int = PAGE) -> None:
        """`check_lease` raises if this process may not change anything any more."""
        self._endpoint = endpoint
        self._check_lease = check_lease
        self._page = page
        self._tokens = Tokens() if endpoint.startswith("https:") else None
        self._client: Client | None = None
        self._context: ssl.SSLContext | None = None
        self._history: dict[tuple[str, str], _History] = {}

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def call(self, request: Struct, credentials: Credentials) -> Struct | None:
        match request:
            case FindInstance():
                path = _instances(request.project, request.zone, request.name)
                return observed_machine(await self._send("GET", path, credentials))
            case InsertInstance():
                return await self._insert(request, credentials)
            case DeleteInstance():
                path = _instances(request.project, request.zone, request.name)
                query = {"requestId": request.request_id}
                return observed_operation(await self._send("DELETE", path, credentials, query))
        raise Refusal("NotSupported", f"gce does not know {type(request).__name__}")

    async def _insert(self, request: InsertInstance, credentials: Credentials) -> ObservedOperation:
        join = join_data(request.join, credentials)
        if join is None:
            name = request.join.secret
            raise Refusal(JOIN_DATA_MISSING, f"secret {name}: token, ca-cert-hash or endpoint is missing")
        item = {"key": "startup-script", "value": startup_script(request.script, join)}
        body = {**request.body, "metadata": {"items": [item]}}
        path = _instances(request.project, request.zone)
        query = {"requestId": request.request_id}
        return observed_operation(await self._send("POST", path, credentials, query, body))

    async def fetch(self, scope: str, credentials: Credentials) -> Struct:
        """Return the machines and operations of `PROJECT/ZONE`.

        Operations are fetched first: one that is done then has its effect in the list of machines.
        """
        project, _, zone = scope.partition("/")
        identity = hashlib.sha256(credentials.get(CREDENTIALS_KEY, b"")).hexdigest()
        history = self._history.pop((scope, identity), None) or _History()
        self._history[scope, identity] = history  # the newest last
        while len(self._history) > MAX_HISTORIES:
            del self._history[next(iter(self._history))]
        await self._read_operations(project, zone, credentials, history)
        machines: dict[str, ObservedMachine] = {}
        query = {"maxResults": str(self._page), "fields": INSTANCE_FIELDS}
        while True:
            answer = await self._send("GET", _instances(project, zone), credentials, query)
            for item in _items(answer):
                machine = observed_machine(item)
                machines[machine.name] = machine
            token = answer.get("nextPageToken")
            if not isinstance(token, str) or not token:
                return ZoneState(machines, history.by_machine())
            query["pageToken"] = token

    async def _read_operations(
        self, project: str, zone: str, credentials: Credentials, history: "_History"
    ) -> None:
        """Read the operations that are new or were not done, the newest first."""
        path = f"{_zone(project, zone)}/operations"
        query = {
            "maxResults": str(self._page),
            "orderBy": "creationTimestamp desc",
            "fields": OPERATION_FIELDS,
        }
        cursor = history.cursor()
        while True:
            answer = await self._send("GET", path, credentials, query)
            operations = [observed_operation(item) for item in _items(answer)]
            for operation in operations:
                history.add(operation)
            token = answer.get("nextPageToken")
            reached = any(item.at and cursor and item.at < cursor for item in operations)
            if reached or not isinstance(token, str) or not token:
                history.forget_old()
                return
            query["pageToken"] = token

    async def _send(
        self,
        method: str,
        path: str,
        credentials: Credentials,
        query: Mapping[str, str] = {},
        body: Mapping[str, object] | None = None,
    ) -> Mapping[str, object]:
        """Return the JSON of the answer; raises `Refusal`, or `OSError` if there is none that can be used."""
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        if self._tokens is not None:
            headers["Authorization"] = f"Bearer {await self._tokens.token(credentials)}"
        elif CREDENTIALS_KEY in credentials:
            check_account(credentials[CREDENTIALS_KEY])
        else:
            raise Refusal(INVALID_CREDENTIALS, f'the Secret has no key "{CREDENTIALS_KEY}"')
        target = f"{path}?{urlencode(query, quote_via=quote)}" if query else path
        content = msgspec.json.encode(body) if body is not None else None
        response = await self._connect().send(
            method,
            target,
            headers,
            content,
            context=self._context,
            timeout=REQUEST_SECONDS,
            limit=MAX_ANSWER_BYTES,
            check=self._check_lease if method != "GET" else None,
        )
        return _answer(response)

    def _connect(self) -> Client:
        if self._client is None:
            proxy = environment_proxy(self._endpoint, os.environ)
            origin = Origin.from_url(self._endpoint, proxy=proxy)
            self._context = ssl.create_default_context() if origin.tls else None
            self._client = Client(origin, [("User-Agent", "argosy")])
        return self._client


class _History:
    """The operations of a zone in the last hour."""

    def __init__(self) -> None:
        self._operations: dict[str, ObservedOperation] = {}

    def add(self, operation: ObservedOperation) -> None:
        if operation.at is not None and operation.kind is not OperationKind.OTHER:
            self._operations[operation.id] = operation

    def cursor(self) -> datetime | None:
        """Return since when operations are read again: the oldest that is not done, or a while ago."""
        if not self._operations:
            return None
        newest = max(_time(operation) for operation in self._operations.values())
        open_ = [_time(operation) for operation in self._operations.values() if not operation.done]
        return max(min([newest - timedelta(minutes=2), *open_]), newest - OPERATION_HISTORY)

    def forget_old(self) -> None:
        if self._operations:
            newest = max(_time(operation) for operation in self._operations.values())
            oldest = newest - OPERATION_HISTORY
            self._operations = {key: item for key, item in self._operations.items() if _time(item) > oldest}

    def by_machine(self) -> dict[str, tuple[ObservedOperation, ...]]:
        by_name: dict[str, list[ObservedOperation]] = {}
        for operation in sorted(self._operations.values(), key=lambda item: (_time(item), item.id)):
            by_name.setdefault(operation.machine, []).append(operation)
        return {name: tuple(operations) for name, operations in by_name.items()}


def _time(operation: ObservedOperation) -> datetime:
    assert operation.at is not None
    return operation.at


def _zone(project: str, zone: str) -> str:
    return f"/compute/v1/projects/{quote(project, safe='')}/zones/{quote(zone, safe='')}"


def _instances(project: str, zone: str, name: str = "") -> str:
    path = f"{_zone(project, zone)}/instances"
    return f"{path}/{quote(name, safe='')}" if name else path


def _items(answer: Mapping[str, object]) -> list[Mapping[str, object]]:
    items = answer.get("items")
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


class _ErrorItem(Struct):
    reason: str = ""


class _Error(Struct):
    message: str = ""
    errors: list[_ErrorItem] = []


class _ErrorBody(Struct):
    error: _Error = msgspec.field(default_factory=_Error)


_QUOTA = frozenset({"quotaExceeded", "limitExceeded"})
_RATE = frozenset({"rateLimitExceeded", "userRateLimitExceeded"})


def _answer(response: Response) -> Mapping[str, object]:
    status = response.status
    if status >= 300:
        raise _failure(status, response.body)
    try:
        answer = msgspec.json.decode(response.body)
    except msgspec.DecodeError:
        raise ConnectionError(f"HTTP {status} without JSON") from None
    if not isinstance(answer, dict):
        raise ConnectionError(f"HTTP {status} without a JSON object")
    return answer


def _failure(status: int, body: bytes) -> Exception:
    """Return what an error status is raised as."""
    try:
        error = msgspec.json.decode(body, type=_ErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        error = _Error()
    message = error.message or f"HTTP {status}"
    reasons = {item.reason for item in error.errors}
    if status in (408, 429) or status >= 500 or not reasons.isdisjoint(_RATE):
        return ConnectionError(f"HTTP {status}: {message}")
    if not reasons.isdisjoint(_QUOTA):
        return Refusal("QUOTA_EXCEEDED", message)
    codes = {401: INVALID_CREDENTIALS, 403: PERMISSION_DENIED, 404: NOT_FOUND, 409: ALREADY_EXISTS}
    if status == 409 and not reasons.isdisjoint({"resourceNotReady", "resourceInUseByAnotherResource"}):
        return ConnectionError(f"HTTP {status}: {message}")
    return Refusal(codes.get(status, INVALID_REQUEST), message)
