"""The endpoint that helpers in pods talk to: HTTPS, read-only, one job a token; and webhooks.

A question may wait (`wait=30s`): it is answered at once when the phase is reached or, with `etag`, soon after
anything changed. Every replica answers from its caches, so a pod need not know who leads.
"""

import asyncio
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.kinds.quantity import parse_duration
from argosy.operator import webhooks
from argosy.operator.apis.ares.observer import Observer
from argosy.operator.bounds import OnRefused
from argosy.operator.endpoint_credentials import EndpointCredentials, TokenVerifier
from argosy.operator.job_views import (
    COUNT_UPDATE_SECONDS,
    ROLE_PHASES,
    Host,
    JobView,
    JobViews,
    RoleView,
    TooManyWaitsError,
)
from argosy.wire.messages import HttpError, Request, Response, text_response
from argosy.workload.model import Phase

MAX_WAIT_SECONDS = 60.0
UNKNOWN_JOB_GRACE_SECONDS = 5.0
"""Seconds that a replica whose caches lag gives a job to appear before it says there is none."""


class Endpoint:
    def __init__(
        self,
        readings: JobViews,
        trust: TokenVerifier,
        not_ready: Callable[[], str],
        *,
        tokens: bool = True,
        reviews: Mapping[str, webhooks.Review] | None = None,
        on_refused: OnRefused = lambda _reason: None,
    ) -> None:
        self._on_refused = on_refused
        self.reviewer = webhooks.Reviewer(reviews or {}, on_refused)
        self.observer = Observer(readings, trust, not_ready, tokens=tokens, on_refused=on_refused)
        self.job_views = readings
        self.tokens = trust
        self.not_ready = not_ready

    async def handle(self, request: Request) -> Response:
        """Answer a request. A refusal ends the connection, so that nobody keeps one without a token."""
        try:
            if self.reviewer.answers(request):
                return await self.reviewer.answer(request)
            match request.method, request.path.strip("/").split("/"):
                case "GET", ["v1", "jobs", namespace, name, "roles", role]:
                    return await self._role_answer(request, namespace, name, role)
                case "GET", ["v1", "jobs", namespace, name, "hosts"]:
                    return await self._hosts_answer(request, namespace, name)
                case _, ["cache", *path]:
                    return await self.observer.handle(request, path)
            raise HttpError(404, f"{request.method} {request.path} is not served here")
        except HttpError as refusal:
            return _refusal(refusal.status, str(refusal))
        except TooManyWaitsError as busy:
            self._on_refused("unknown-job")
            return _refusal(503, str(busy))

    async def _role_answer(self, request: Request, namespace: str, name: str, role: str) -> Response:
        wanted = _phase(request)
        etag = request.parameter("etag")
        deadline = _now() + _wait(request)
        await self._wait_for_job(request, namespace, name)
        with self.job_views.subscribe(namespace, name) as changes:
            while True:
                reading = self._role(self._find_job(request, namespace, name), role, wanted)
                if reading.reached or reading.unreachable:
                    break
                if not etag and "etag" in request.query:
                    break  # the first question: tell at once where things stand
                if etag and reading.etag != etag:
                    deadline = min(deadline, _now() + COUNT_UPDATE_SECONDS)
                if self.job_views.closing or not await changes.wait(deadline):
                    break
        return _json(reading)

    async def _hosts_answer(self, request: Request, namespace: str, name: str) -> Response:
        job = await self._wait_for_job(request, namespace, name)
        role, form = request.parameter("role"), request.parameter("format", "plain")
        if role and role not in job.slots:
            raise HttpError(404, f"the job has no role {role}")
        hosts = self.job_views.hosts(job, role)
        if form == "json":
            return _json(hosts)
        if form not in HOST_FORMATS:
            raise HttpError(400, f"format {form}: write one of {', '.join(HOST_FORMATS)}, json")
        return text_response(200, host_list(hosts, form))

    def _role(self, job: JobView | None, role: str, wanted: Phase) -> RoleView:
        if job is None:
            raise HttpError(404, "the job is gone")
        if not job.has_role(role):
            raise HttpError(404, f"the job has no role {role}")
        return self.job_views.role(job, role, wanted)

    async def _wait_for_job(self, request: Request, namespace: str, name: str) -> JobView:
        if missing := self.not_ready():
            raise HttpError(503, missing)
        if not request.header(b"authorization"):
            raise HttpError(401, "there is no token")
        deadline = _now() + UNKNOWN_JOB_GRACE_SECONDS
        with self.job_views.subscribe(namespace, name) as changes:
            while (job := self._find_job(request, namespace, name)) is None:
                if not await self.job_views.wait_for_unknown_job(changes, deadline):
                    # Whether there is such a job is nobody's business but its own.
                    raise HttpError(401, f"the token is not that of a job {namespace}/{name}")
        return job

    def _find_job(self, request: Request, namespace: str, name: str) -> JobView | None:
        token = request.header(b"authorization").removeprefix("Bearer ")
        found = self.job_views.find(namespace, name, lambda uid: self.tokens.verify(token, uid))
        return next(iter(found), None)


HOST_FORMATS: dict[str, Callable[[Host], str]] = {
    "plain": lambda host: host.address,
    "ompi": lambda host: f"{host.address} slots={host.slots}",
    "mpich": lambda host: f"{host.address}:{host.slots}",
    "intel": lambda host: f"{host.address}:{host.slots}",
}


def host_list(hosts: Sequence[Host], form: str) -> str:
    line = HOST_FORMATS[form]
    return "".join(f"{line(host)}\n" for host in hosts)


def server_tls(trust: EndpointCredentials) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # helpers open a new connection each time and would not use them
    load_certificate(context, trust)
    return context


def load_certificate(context: ssl.SSLContext, trust: EndpointCredentials) -> None:
    """Present this certificate on connections made from now on.

    Python loads certificates from files only: they exist for that moment, readable by us alone.
    """
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as file:
            file.write(trust.certificate_key + trust.certificate)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()


def _refusal(status: int, message: str) -> Response:
    return Response(msgspec.json.encode({"message": message}), status, close=True)


def _phase(request: Request) -> Phase:
    text = request.parameter("phase", Phase.RUNNING)
    if text not in ROLE_PHASES:
        raise HttpError(400, f"phase: unknown value {text[:32]!r}; must be one of {', '.join(ROLE_PHASES)}")
    return Phase(text)


def _wait(request: Request) -> float:
    text = request.parameter("wait", "0s")
    try:
        return min(parse_duration(text), MAX_WAIT_SECONDS)
    except ValueError as error:
        raise HttpError(400, f"wait={text}: {error}") from None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value))
