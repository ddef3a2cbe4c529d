"""The endpoint that helpers in pods talk to: HTTPS, read-only, one job a token.

A question may wait (`wait=30s`): it is answered when the phase is reached or, with `seen`, when anything
changed. Every replica answers from its caches, so a pod need not know who leads.
"""

import asyncio
import json
import os
import ssl
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from aiohttp import web

from argosy.kinds.quantity import parse_duration
from argosy.operator.readings import Host, JobReading, Readings, RoleReading
from argosy.operator.trust import Trust

LONGEST_WAIT = 60.0
BREATH = 0.2
"""Seconds between a change and the answer that tells of it."""
UNKNOWN_GRACE = 5.0
"""Seconds that a replica whose caches lag gives a job to appear before it says there is none."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def endpoint_application(readings: Readings, trust: Trust, not_ready: Callable[[], str]) -> web.Application:
    endpoint = Endpoint(readings, trust, not_ready)
    application = web.Application(middlewares=[_as_json])
    application.add_routes(
        [
            web.get("/v1/jobs/{namespace}/{name}/roles/{role}", endpoint.role),
            web.get("/v1/jobs/{namespace}/{name}/hosts", endpoint.hosts),
        ]
    )
    return application


class Endpoint:
    def __init__(self, readings: Readings, trust: Trust, not_ready: Callable[[], str]) -> None:
        self.readings = readings
        self.trust = trust
        self.not_ready = not_ready

    async def role(self, request: web.Request) -> web.Response:
        role, wanted = request.match_info["role"], request.query.get("phase", "Running")
        seen = request.query.get("seen", "")
        deadline = _now() + _wait(request)
        job = await self._job(request)
        with self.readings.changes(job.namespace, request.match_info["name"]) as changed:
            while True:
                reading = self._role(request, role, wanted)
                if reading.reached or reading.hopeless or (seen and reading.state != seen):
                    break
                if not seen and "seen" in request.query:
                    break  # the first question: tell at once where things stand
                if not await _happens(changed, deadline):
                    break
                # Pods come in groups, and every pod that waits asks again: let some more happen first.
                await asyncio.sleep(BREATH)
        return _json(reading)

    async def hosts(self, request: web.Request) -> web.Response:
        job = await self._job(request)
        role, form = request.query.get("role", ""), request.query.get("format", "plain")
        if role and role not in job.slots:
            raise web.HTTPNotFound(text=f"the job has no role {role}")
        hosts = self.readings.hosts(job, role)
        if form == "json":
            return _json(hosts)
        if form not in HOST_FORMATS:
            raise web.HTTPBadRequest(text=f"format {form}: write one of {', '.join(HOST_FORMATS)}, json")
        return web.Response(text=host_list(hosts, form))

    def _role(self, request: web.Request, role: str, wanted: str) -> RoleReading:
        job = self._allowed(request)
        if job is None:
            raise web.HTTPNotFound(text="the job is gone")
        reading = self.readings.role(job, role, wanted)
        if reading is None:
            raise web.HTTPNotFound(text=f"the job has no role {role}")
        return reading

    async def _job(self, request: web.Request) -> JobReading:
        if missing := self.not_ready():
            raise web.HTTPServiceUnavailable(text=missing)
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        deadline = _now() + UNKNOWN_GRACE
        with self.readings.changes(namespace, name) as changed:
            while not self.readings.find(namespace, name):
                if not await _happens(changed, deadline):
                    raise web.HTTPNotFound(text=f"there is no job {namespace}/{name}")
        job = self._allowed(request)
        if job is None:
            raise web.HTTPUnauthorized(text="the token is not that of this job")
        return job

    def _allowed(self, request: web.Request) -> JobReading | None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        found = self.readings.find(namespace, name)
        return next((job for job in found if self.trust.admits(token, job.uid)), None)


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
    """Python loads certificates from files only: they exist for that moment, readable by us alone."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    handle, name = tempfile.mkstemp()
    try:
        with os.fdopen(handle, "w") as file:
            file.write(trust.certificate_key + trust.certificate)
        context.load_cert_chain(name)
    finally:
        Path(name).unlink()
    return context


@web.middleware
async def _as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals as the helper reads them."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        body = json.dumps({"message": refusal.text})
        return web.Response(status=refusal.status, text=body, content_type="application/json")


async def _happens(changed: asyncio.Event, deadline: float) -> bool:
    """Whether something changed before the deadline."""
    try:
        async with asyncio.timeout_at(deadline):
            await changed.wait()
    except TimeoutError:
        return False
    changed.clear()
    return True


def _wait(request: web.Request) -> float:
    text = request.query.get("wait", "0s")
    try:
        return min(parse_duration(text), LONGEST_WAIT)
    except ValueError as error:
        raise web.HTTPBadRequest(text=f"wait={text}: {error}") from None


def _now() -> float:
    return asyncio.get_running_loop().time()


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")
