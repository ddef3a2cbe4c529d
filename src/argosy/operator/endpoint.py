"""The endpoint that helpers in pods talk to: HTTPS, read-only, one job a token; and webhooks.

A question may wait (`wait=30s`): it is answered at once when the phase is reached or, with `seen`, soon after
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
from argosy.operator.bounds import OnRefused
from argosy.operator.endpoint_credentials import TokenVerifier, Trust
from argosy.operator.job_views import (
    NEWS,
    ROLE_PHASES,
    Host,
    JobReading,
    Readings,
    RoleReading,
    TooManyWaitsError,
)
from argosy.operator.observer import Observer
from argosy.wire.messages import HttpError, Request, Response, text_response
from argosy.workload.model import Phase

LONGEST_WAIT = 60.0
UNKNOWN_GRACE = 5.0
"""Seconds that a replica whose caches lag gives a job to appear before it says there is none."""


class Endpoint:
    def __init__(
        self,
        readings: Readings,
        trust: TokenVerifier,
        not_ready: Callable[[], str],
        *,
        tokens: bool = True,
        reviews: Mapping[str, webhooks.Answer] | None = None,
        on_refused: OnRefused = lambda _reason: None,
    ) -> None:
        self._on_refused = on_refused
        self.reviewer = webhooks.Reviewer(reviews or {}, on_refused)
        self.observer = Observer(readings, trust, not_ready, tokens=tokens, on_refused=on_refused)
        self.readings = readings
        self.trust = trust
        self.not_ready = not_ready

    async def answer(self, request: Request) -> Response:
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
                    return await self.observer.answer(request, path)
            raise HttpError(404, f"{request.method} {request.path} is not served here")
        except HttpError as refusal:
            return _refusal(refusal.status, str(refusal))
        except TooManyWaitsError as busy:
            self._on_refused("unknown-job")
            return _refusal(503, str(busy))

    async def _role_answer(self, request: Request, namespace: str, name: str, role: str) -> Response:
        wanted = _phase(request)
        seen = request.parameter("seen")
        deadline = _now() + _wait(request)
        await self._job(request, namespace, name)
        with self.readings.changes(namespace, name) as changes:
            while True:
                reading = self._role(self._allowed(request, namespace, name), role, wanted)
                if reading.reached or reading.hopeless:
                    break
                if not seen and "seen" in request.query:
                    break  # the first question: tell at once where things stand
                if seen and reading.state != seen:
                    deadline = min(deadline, _now() + NEWS)
                if self.readings.closing or not await changes.happen(deadline):
                    break
        return _json(reading)

    async def _hosts_answer(self, request: Request, namespace: str, name: str) -> Response:
        job = await self._job(request, namespace, name)
        role, form = request.parameter("role"), request.parameter("format", "plain")
        if role and role not in job.slots:
            raise HttpError(404, f"the job has no role {role}")
        hosts = self.readings.hosts(job, role)
        if form == "json":
            return _json(hosts)
        if form not in HOST_FORMATS:
            raise HttpError(400, f"format {form}: write one of {', '.join(HOST_FORMATS)}, json")
        return text_response(200, host_list(hosts, form))

    def _role(self, job: JobReading | None, role: str, wanted: Phase) -> RoleReading:
        if job is None:
            raise HttpError(404, "the job is gone")
        if not job.has_role(role):
            raise HttpError(404, f"the job has no role {role}")
        return self.readings.role(job, role, wanted)

    async def _job(self, request: Request, namespace: str, name: str) -> JobReading:
        if missing := self.not_ready():
            raise HttpError(503, missing)
        if not request.header(b"authorization"):
            raise HttpError(401, "there is no token")
        deadline = _now() + UNKNOWN_GRACE
        with self.readings.changes(namespace, name) as changes:
            while (job := self._allowed(request, namespace, name)) is None:
                if not await self.readings.may_appear(changes, deadline):
                    # Whether there is such a job is nobody's business but its own.
                    raise HttpError(401, f"the token is not that of a job {namespace}/{name}")
        return job

    def _allowed(self, request: Request, namespace: str, name: str) -> JobReading | None:
        token = request.header(b"authorization").removeprefix("Bearer ")
        found = self.readings.find(namespace, name, lambda uid: self.trust.admits(token, uid))
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


def server_tls(trust: Trust) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # helpers open a new connection each time and would not use them
    load_certificate(context, trust)
    return context


def load_certificate(context: ssl.SSLContext, trust: Trust) -> None:
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
        return min(parse_duration(text), LONGEST_WAIT)
    except ValueError as error:
        raise HttpError(400, f"wait={text}: {error}") from None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _json(value: object) -> Response:
    return Response(msgspec.json.encode(value))
