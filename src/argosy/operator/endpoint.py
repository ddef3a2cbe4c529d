"""The HTTPS endpoint for pods: role phases, host files and orders of a job, routes of each API, webhooks.

A request for a role's phase may wait (`wait=30s`): it is answered as soon as the phase is reached or, with
`etag`, soon after anything changed. With `member` it is answered when that replica is a member of the role. A
request for host files with the `etag` that the client has is answered as soon as there are newer ones, and
one for orders to save a checkpoint as soon as there is a newer one than it has `seen`. A token reads one job.
Every replica answers from its own caches, so pods need not know the leader.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from argosy.kinds.quantity import parse_duration
from argosy.operator.bounds import OnRejected
from argosy.operator.checkpoint_acks import MAX_ACK_BYTES as MAX_CHECKPOINT_ACK_BYTES
from argosy.operator.checkpoint_acks import CheckpointAcks
from argosy.operator.endpoint_credentials import EndpointCredentials, TokenVerifier
from argosy.operator.host_acks import MAX_ACK_BYTES, HostAcks, etag_version
from argosy.operator.job_views import (
    COUNT_UPDATE_SECONDS,
    ChangeSignal,
    HostsView,
    JobView,
    JobViews,
    RoleView,
    TooManyWaitsError,
)
from argosy.operator.webhooks import Review, Reviewer
from argosy.wire.messages import HttpError, Request, Response, TooLargeError
from argosy.workload.dependencies import ROLE_PHASES
from argosy.workload.index_set import MAX_INDEX
from argosy.workload.model import Phase
from argosy.workload.save_acks import MAX_NUMBER

MAX_WAIT_SECONDS = 60.0
UNKNOWN_JOB_GRACE_SECONDS = 5.0
"""How long a replica whose caches lag waits for a job to appear before it answers that there is none."""

Recorder = Callable[[bytes, Callable[[], JobView], ChangeSignal], Awaitable[None]]
"""Records the body of an acknowledgement; raises `HttpError` if it is not valid."""

Route = Callable[[Request, list[str]], Awaitable[Response]]
"""Answers a request; the second argument is its path after the segment under which it is registered."""


@dataclass(frozen=True)
class RouteContext:
    """What a route answers from."""

    job_views: JobViews
    tokens: TokenVerifier
    not_ready: Callable[[], str]
    """Returns why this replica cannot answer yet; empty if it can."""
    on_rejected: OnRejected = lambda _reason: None
    host_acks: HostAcks | None = None
    """None if this process must not write."""
    checkpoint_acks: CheckpointAcks | None = None
    """The same."""


class Endpoint:
    def __init__(
        self,
        context: RouteContext,
        *,
        routes: Mapping[str, Route] | None = None,
        reviews: Mapping[str, Review] | None = None,
    ) -> None:
        self._context = context
        self._routes = routes or {}
        self._reviewer = Reviewer(reviews or {}, context.on_rejected)

    async def handle(self, request: Request) -> Response:
        """Answer a request. A rejection closes the connection, so that none stays open without a token."""
        try:
            if self._reviewer.serves(request):
                return await self._reviewer.handle(request)
            segment, *path = request.path.strip("/").split("/")
            if segment in self._routes:
                return await self._routes[segment](request, path)
            match request.method, [segment, *path]:
                case "GET", ["v1", "jobs", namespace, name, "roles", role]:
                    return await self._role_response(request, namespace, name, role)
                case "GET", ["v1", "jobs", namespace, name, "hosts"]:
                    return await self._hosts_response(request, namespace, name)
                case "POST", ["v1", "jobs", namespace, name, "hosts", "ack"] if self._context.host_acks:
                    hosts = self._context.host_acks.record
                    return await self._acknowledge(request, namespace, name, hosts, MAX_ACK_BYTES)
                case "GET", ["v1", "jobs", namespace, name, "orders"]:
                    return await self._order_response(request, namespace, name)
                case "POST", ["v1", "jobs", namespace, name, "checkpoints", event]:
                    record = self._checkpoint_recorder(event)
                    return await self._acknowledge(request, namespace, name, record, MAX_CHECKPOINT_ACK_BYTES)
            raise HttpError(404, f"{request.method} {request.path}: not found")
        except HttpError as error:
            return _error_response(error.status, str(error))
        except TooManyWaitsError as busy:
            self._context.on_rejected("unknown-job")
            return _error_response(503, str(busy))

    async def _role_response(self, request: Request, namespace: str, name: str, role: str) -> Response:
        wanted, member = _phase(request), _member(request)
        etag = request.parameter("etag")
        deadline = _now() + _wait_seconds(request)
        await self._wait_for_job(request, namespace, name)
        with self._context.job_views.subscribe(namespace, name) as changes:
            while True:
                job = _existing(self._find_job(request, namespace, name))
                view = self._role_view(job, role, wanted, member)
                if view.reached or view.unreachable:
                    break
                if not etag and "etag" in request.query:
                    break  # the first request: report the current state at once
                if etag and view.etag != etag:
                    deadline = min(deadline, _now() + COUNT_UPDATE_SECONDS)
                if self._context.job_views.closing or not await changes.wait(deadline):
                    break
        return Response(msgspec.json.encode(view))

    def _role_view(self, job: JobView, role: str, wanted: Phase, member: int | None) -> RoleView:
        if not job.has_role(role):
            raise HttpError(404, f'unknown role "{role}"')
        views = self._context.job_views
        return views.role(job, role, wanted) if member is None else views.member(job, role, member)

    async def _hosts_response(self, request: Request, namespace: str, name: str) -> Response:
        etag = request.parameter("etag")
        version = etag_version(etag) if etag else -1
        deadline = _now() + _wait_seconds(request)
        await self._wait_for_job(request, namespace, name)
        with self._context.job_views.subscribe(namespace, name) as changes:
            while True:
                view = self._hosts_view(_existing(self._find_job(request, namespace, name)))
                # An older version: this replica's cache lags behind the one that the client asked before.
                if view is not None and view.etag != etag and view.version >= version:
                    return Response(msgspec.json.encode(view))
                if self._context.job_views.closing or not await changes.wait_for_record(deadline):
                    break
        if not etag:
            raise HttpError(503, "no host is listed yet")
        return Response(msgspec.json.encode({"etag": etag}))

    async def _order_response(self, request: Request, namespace: str, name: str) -> Response:
        """Answer as soon as there is an order that the client has not seen, or a newer one is not needed.

        Or as soon as its pod shall stop too, which it did not when the client has seen the order. A client
        that does not say whether it did gets every order once.
        """
        pod = _number(request, "attempt", MAX_NUMBER) or 0, _number(request, "replacement", MAX_NUMBER) or 0
        seen, stop = _number(request, "seen", MAX_NUMBER), request.parameter("stop")
        role, index = request.parameter("role"), _number(request, "index", MAX_INDEX) or 0
        deadline = _now() + _wait_seconds(request)
        await self._wait_for_job(request, namespace, name)
        with self._context.job_views.subscribe(namespace, name) as changes:
            while True:
                job = _existing(self._find_job(request, namespace, name))
                if job.workload is not None and job.workload.checkpoint is None:
                    raise HttpError(404, "the job keeps no checkpoints")
                view = self._context.job_views.order(job, role, index, pod)
                if seen is None or view.epoch > seen or (view.epoch == seen and view.stop and stop == "0"):
                    break
                if self._context.job_views.closing or not await changes.wait_for_record(deadline):
                    break
        return Response(msgspec.json.encode(view))

    def _checkpoint_recorder(self, event: str) -> Recorder:
        acks = self._context.checkpoint_acks
        recorders: Mapping[str, Recorder] = (
            {"ack": acks.record, "resumed": acks.record_resumed, "step": acks.record_step} if acks else {}
        )
        if event not in recorders:
            raise HttpError(404, f"POST checkpoints/{event}: not found")
        return recorders[event]

    async def _acknowledge(
        self, request: Request, namespace: str, name: str, record: Recorder, max_bytes: int
    ) -> Response:
        await self._wait_for_job(request, namespace, name)
        try:
            body = await request.body(max_bytes)
        except TooLargeError as error:
            self._context.on_rejected("too-large")
            raise HttpError(413, str(error)) from None

        def find_job() -> JobView:
            return _existing(self._find_job(request, namespace, name))

        with self._context.job_views.subscribe(namespace, name) as changes:
            await record(body, find_job, changes)
        return Response(b"{}")

    def _hosts_view(self, job: JobView) -> HostsView | None:
        if job.workload is not None and job.workload.rules.host_list is None:
            raise HttpError(404, "the job has no host list")
        return self._context.job_views.hosts(job)

    async def _wait_for_job(self, request: Request, namespace: str, name: str) -> JobView:
        if missing := self._context.not_ready():
            raise HttpError(503, missing)
        if not request.header(b"authorization"):
            raise HttpError(401, "missing token")
        deadline = _now() + UNKNOWN_JOB_GRACE_SECONDS
        views = self._context.job_views
        with views.subscribe(namespace, name) as changes:
            while (job := self._find_job(request, namespace, name)) is None:
                if not await views.wait_for_unknown_job(changes, deadline):
                    # The same answer whether or not there is such a job: its existence is not public.
                    raise HttpError(401, f"invalid token for job {namespace}/{name}")
        return job

    def _find_job(self, request: Request, namespace: str, name: str) -> JobView | None:
        token = request.header(b"authorization").removeprefix("Bearer ")
        jobs = self._context.job_views.find(
            namespace, name, lambda uid: self._context.tokens.verify(token, uid)
        )
        return next(iter(jobs), None)


def server_tls(credentials: EndpointCredentials) -> ssl.SSLContext:
    """Return a TLS context that presents the endpoint's certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # helpers open a new connection for each request and would not resume a session
    load_certificate(context, credentials)
    return context


def load_certificate(context: ssl.SSLContext, credentials: EndpointCredentials) -> None:
    """Present this certificate on connections that are made from now on.

    Python loads certificates from files only, so they are written to a file that only this process's user can
    read, and deleted at once.
    """
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as file:
            file.write(credentials.certificate_key + credentials.certificate)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _existing(job: JobView | None) -> JobView:
    if job is None:
        raise HttpError(404, "the job was deleted")
    return job


def _error_response(status: int, message: str) -> Response:
    return Response(msgspec.json.encode({"message": message}), status, close=True)


def _phase(request: Request) -> Phase:
    text = request.parameter("phase", Phase.RUNNING)
    if text not in ROLE_PHASES:
        raise HttpError(400, f'phase: invalid value "{text[:32]}": must be one of {", ".join(ROLE_PHASES)}')
    return Phase(text)


def _member(request: Request) -> int | None:
    """Return the index of the replica that waits to be a member of its role; None if none does."""
    return _number(request, "member", MAX_INDEX)


def _number(request: Request, parameter: str, maximum: int) -> int | None:
    """Return the value of a parameter; None if it is missing or empty."""
    text = request.parameter(parameter)
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(maximum)) and int(text) <= maximum):
        raise HttpError(400, f'{parameter}: invalid value "{text[:32]}": must be between 0 and {maximum}')
    return int(text)


def _wait_seconds(request: Request) -> float:
    text = request.parameter("wait", "0s")
    try:
        return min(parse_duration(text), MAX_WAIT_SECONDS)
    except ValueError as error:
        raise HttpError(400, f"wait: {error}") from None


def _now() -> float:
    return asyncio.get_running_loop().time()
