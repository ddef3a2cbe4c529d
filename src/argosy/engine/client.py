"""A typed client of the Kubernetes API: `await client.get(Pod, "a", "default")` gives a `Pod`.

Every method raises the typed errors of `errors`. `sender` explains how requests are sent, limited and
retried, and why nothing is written after the deadline.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from enum import Enum
from types import TracebackType
from typing import Generic, Self, cast
from urllib.parse import urlencode

from msgspec import Struct

from argosy.engine import streams
from argosy.engine.clock import Clock, SystemClock
from argosy.engine.codec import Body, Bookmark, Codec, Undecodable, WatchEvent, encode_body
from argosy.engine.dynamic import Json
from argosy.engine.errors import Gone
from argosy.engine.kubeconfig import Connection
from argosy.engine.limiter import WriteLimits
from argosy.engine.metrics import Metrics
from argosy.engine.objects import ApiObject, T, version_number
from argosy.engine.sender import Sender
from argosy.engine.transport import HttpTransport, Transport
from argosy.engine.urls import Query, accept_header, metadata_only_header, path_of, selector_query, with_query
from argosy.kinds.kubernetes import Scale


class PatchType(Enum):
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"
    APPLY = "application/apply-patch+yaml"


class ObjectList(Struct, Generic[T]):
    """A whole collection at one version; `undecodable` has the objects that could not be decoded."""

    items: "Sequence[T]"
    resource_version: str
    undecodable: Sequence[Undecodable] = ()


METADATA_ONLY_HEADERS = {"Accept": metadata_only_header()}
_STRICT = {"fieldValidation": "Strict"}


class Client:
    """A client for one API server and one identity. Any number of tasks of one event loop may use it.

    The server rejects writes of a strict client that have unknown fields, as it does for kubectl.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str = "argosy",
        field_manager: str = "argosy",
        strict: bool = False,
        limits: WriteLimits = WriteLimits(),
        deadline: Callable[[], float] | None = None,
        timeout: float = 30.0,
        clock: Clock = SystemClock(),
        metrics: Metrics | None = None,
        transport: Transport | None = None,
    ) -> None:
        self.connection = connection
        self.field_manager = field_manager
        self.metrics = metrics or Metrics()
        self._transport = transport or HttpTransport(connection, clock)
        self._sender = Sender(
            connection,
            self._transport,
            limits=limits,
            deadline=deadline,
            timeout=timeout,
            clock=clock,
            metrics=self.metrics,
        )
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._with_body = {**self._headers, "Content-Type": "application/json"}
        self._strict = strict
        validation = _STRICT if strict else {}
        self._write_query = urlencode({"fieldManager": field_manager, **validation})
        self._codecs: dict[type, object] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._transport.close()

    def check_lease(self) -> None:
        """Raise `LeaseExpired` if this process may not write any more, nor change anything elsewhere."""
        self._sender.check_lease()

    async def get(self, kind: type[T], name: str, namespace: str | None = None) -> T:
        headers = {"Accept": accept_header(kind)}
        return self._codec(kind).object(
            await self.request("GET", path_of(kind, name, namespace), headers=headers)
        )

    async def list(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 500,
        resource_version: str | None = None,
    ) -> ObjectList[T]:
        """Fetch all objects, page by page; version "0" reads the server's cache, None the latest state."""
        query = selector_query(labels, fields)
        if resource_version is not None:
            query["resourceVersion"] = resource_version
        try:
            return await self._pages(kind, namespace, query | {"limit": str(limit)})
        except Gone:
            # The continue token expired before the last page: fetch all objects in one request.
            return await self._pages(kind, namespace, query)

    async def latest_version(self, kind: type[T], namespace: str | None = None) -> int:
        """Return a resourceVersion at or above that of every write so far to objects of this kind.

        It lists at most one object. Without a resourceVersion the API server does not answer from a cache
        that may lag.
        """
        path, headers = path_of(kind, None, namespace), {"Accept": accept_header(kind, "List")}
        body = await self.request("GET", path, query={"limit": "1"}, headers=headers)
        return version_number(self._codec(kind).page(body).metadata.resource_version)

    async def _pages(self, kind: type[T], namespace: str | None, query: dict[str, str]) -> ObjectList[T]:
        codec, path = self._codec(kind), path_of(kind, None, namespace)
        headers = {"Accept": accept_header(kind, "List")}
        page = codec.page(await self.request("GET", path, query=query, headers=headers))
        items, undecodable = page.items, page.undecodable
        # The first page fixes the version. A request with both token and version is rejected.
        query.pop("resourceVersion", None)
        while page.metadata.continue_:
            query["continue"] = page.metadata.continue_
            page = codec.page(await self.request("GET", path, query=query, headers=headers))
            items += page.items
            undecodable += page.undecodable
        return ObjectList(items, page.metadata.resource_version, undecodable)

    async def create(
        self,
        kind: type[T],
        body: Body,
        namespace: str | None = None,
        *,
        dry_run: bool = False,
        strict: bool = False,
        metadata_only: bool = False,
    ) -> T:
        """Create an object with POST. If the call or the client is strict, unknown fields are rejected.

        With `metadata_only` the server returns only the metadata, and the other fields have their defaults.
        For the API server, encoding the whole pod costs a tenth of creating it.
        """
        query = f"{self._write_query}&dryRun=All" if dry_run else self._write_query
        if strict and not self._strict:
            query += f"&{urlencode(_STRICT)}"
        path = path_of(kind, None, namespace, creating=True)
        return self._codec(kind).object(
            await self.request(
                "POST",
                path,
                query=query,
                body=encode_body(body, kind),
                headers=METADATA_ONLY_HEADERS if metadata_only else None,
            )
        )

    async def replace(
        self, kind: type[T], body: Body, namespace: str | None = None, *, subresource: str | None = None
    ) -> T:
        """Replace a whole object with PUT; `Conflict` if its resourceVersion is not the latest."""
        encoded = encode_body(body, kind)
        path = path_of(kind, _name_of(body), namespace, subresource)
        return self._codec(kind).object(
            await self.request("PUT", path, query=self._write_query, body=encoded)
        )

    async def patch(
        self,
        kind: type[T],
        name: str,
        patch: Body | Sequence[Mapping[str, object]],
        namespace: str | None = None,
        *,
        type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        force: bool = False,
    ) -> T:
        """Patch an object; `Conflict` if the patch has a resourceVersion that is not the latest."""
        body = encode_body(patch, kind if type is PatchType.APPLY else None)
        response = await self._patch(path_of(kind, name, namespace, subresource), body, type, force)
        return self._codec(kind).object(response)

    async def apply(
        self,
        kind: type[T],
        body: Body,
        namespace: str | None = None,
        *,
        force: bool = False,
        subresource: str | None = None,
    ) -> T:
        """Server-side apply with the client's field manager; `Conflict` if another manager owns a field."""
        return await self.patch(
            kind,
            _name_of(body),
            body,
            namespace,
            type=PatchType.APPLY,
            subresource=subresource,
            force=force,
        )

    async def delete(
        self,
        kind: type[ApiObject],
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Delete an object; `Conflict` if its uid or version is another, `NotFound` if it does not exist."""
        options: Json = {"apiVersion": "v1", "kind": "DeleteOptions"}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if required := {field: value for field, value in preconditions.items() if value is not None}:
            options["preconditions"] = required
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        await self.request("DELETE", path_of(kind, name, namespace), body=encode_body(options))

    async def get_scale(self, kind: type[ApiObject], name: str, namespace: str | None = None) -> Scale:
        return self._codec(Scale).object(await self.request("GET", path_of(kind, name, namespace, "scale")))

    async def watch(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        timeout_seconds: int | None = None,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """Yield changes after a version until the server ends the watch. `Watcher` adds error recovery."""
        batches = self.watch_batches(
            kind,
            namespace,
            labels=labels,
            fields=fields,
            resource_version=resource_version,
            timeout_seconds=timeout_seconds,
        )
        async with aclosing(batches):
            async for batch in batches:
                for event in batch:
                    if isinstance(event, WatchEvent):
                        yield event

    def watch_batches(
        self,
        kind: type[T],
        namespace: str | None = None,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        send_initial_events: bool = False,
        timeout_seconds: int | None = None,
        idle_seconds: Callable[[], float] | None = None,
    ) -> AsyncGenerator[Sequence[WatchEvent[T] | Bookmark | Undecodable], None]:
        """Watch with bookmarks, and yield the events of each read from the socket as a batch.

        Without a complete event for `idle_seconds` the watch raises `Unavailable`.
        """
        query = selector_query(labels, fields) | {"watch": "true", "allowWatchBookmarks": "true"}
        if resource_version:
            query["resourceVersion"] = resource_version
        if send_initial_events:
            query |= {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        if timeout_seconds is not None:
            query["timeoutSeconds"] = str(timeout_seconds)
        target = with_query(path_of(kind, None, namespace), query)
        opener = self._sender.stream(target, {**self._headers, "Accept": accept_header(kind)})
        return streams.watch(self._codec(kind), opener, idle_seconds)

    def logs(
        self,
        pod: str,
        namespace: str,
        *,
        container: str | None = None,
        follow: bool = False,
        tail: int | None = None,
        previous: bool = False,
        timestamps: bool = False,
        since_seconds: int | None = None,
        uid: str = "",
        run: int | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield a container's output in chunks.

        With `uid` the output of that pod is returned even if it was deleted, and `run` selects one run of the
        container, counted from 0. Only Argosy's local API server supports these two; others return 404.
        """
        options = {
            "container": container,
            "follow": follow,
            "tailLines": tail,
            "previous": previous,
            "timestamps": timestamps,
            "sinceSeconds": since_seconds,
            "run": run,
        }
        part = f"log/{uid}" if uid else "log"
        target = with_query(streams.pod_path(pod, namespace, part), streams.log_query(options))
        return streams.chunks(self._sender.stream(target, {**self._headers, "Accept": "*/*"}))

    async def exec(
        self,
        pod: str,
        namespace: str,
        command: Sequence[str],
        *,
        container: str | None = None,
        stdin: bytes | AsyncIterator[bytes] | None = None,
        tty: bool = False,
        on_stdout: Callable[[bytes], None] = streams.ignore,
        on_stderr: Callable[[bytes], None] = streams.ignore,
        pace: Callable[[int], Awaitable[None]] | None = None,
    ) -> int:
        """Run a command in a container and return its exit code.

        `pace` is awaited with the size of each piece of output; the command has to wait while it does not
        return.
        """
        query = streams.exec_query(command, container, stdin=stdin is not None, tty=tty)
        target = streams.pod_path(pod, namespace, "exec") + "?" + urlencode(query)
        # kube-apiserver rejects JSON here, because the response is not an object.
        headers = {**self._headers, "Accept": "*/*"}
        async with self._sender.websocket(target, headers, streams.EXEC_PROTOCOLS) as socket:
            return await streams.run_exec(socket, stdin, on_stdout, on_stderr, pace)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | str | None = None,
        body: bytes | Body | Sequence[Mapping[str, object]] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send any request and return the response's body, for paths that the typed methods do not cover.

        A query given as a string must be quoted already.
        """
        encoded = body if body is None or isinstance(body, bytes) else encode_body(body)
        all_headers = self._headers if encoded is None else self._with_body
        if headers:
            all_headers = {**all_headers, **headers}
        return await self._sender.send(method, with_query(path, query), all_headers, encoded)

    async def _patch(self, path: str, body: bytes, type: PatchType, force: bool) -> bytes:
        query = f"{self._write_query}&force=true" if force else self._write_query
        return await self.request("PATCH", path, query=query, body=body, headers={"Content-Type": type.value})

    def _codec(self, kind: type[T]) -> Codec[T]:
        codec = self._codecs.get(kind)
        if codec is None:
            codec = self._codecs[kind] = Codec(kind)
        return cast("Codec[T]", codec)


def _name_of(body: Body) -> str:
    metadata = body.get("metadata") if isinstance(body, Mapping) else getattr(body, "metadata", None)
    name = metadata.get("name") if isinstance(metadata, Mapping) else getattr(metadata, "name", None)
    if not isinstance(name, str) or not name:
        raise ValueError("the body has no metadata.name")
    return name
