"""The observer of AresJobs: serves `/cache/ping` and `/cache/keys/NAMESPACE.JOB` as AresOperator does.

A response has the phase and addresses of every role, and an ETag. A client that sends the ETag back with
`wait` is answered when the response has changed. With tokens, a client learns nothing about jobs other than
its own, not even whether they exist.
"""

import asyncio
import hashlib

import msgspec
from msgspec import Struct

from argosy.engine.logs import Logger
from argosy.kinds.aresjob import AresJobStatus
from argosy.operator.endpoint import RouteContext
from argosy.operator.job_views import COUNT_UPDATE_SECONDS, JobView, TooManyWaitsError, index_of
from argosy.wire.messages import Request, Response
from argosy.workload.model import Phase

log = Logger(__name__)

MAX_WAIT_SECONDS = 60.0
UNKNOWN_JOB_GRACE_SECONDS = 2.0
"""How long a replica whose caches lag waits for a job to appear."""

_ERRORS = {
    400: (230400, "InvalidParam"),
    401: (230401, "Unauthorized"),
    404: (230404, "NotFound"),
    500: (230500, "UnknownError"),
}


class RoleEntry(Struct, frozen=True):
    phase: str
    running: bool
    replicas: int
    ips: list[str] | msgspec.UnsetType = msgspec.UNSET


class CachedResponse(Struct, frozen=True):
    """The response about one job, which all clients get until the job changes."""

    body: bytes
    phases: str
    """Phases of the job and its roles: what clients wait for."""
    phase: str
    etag: str

    @classmethod
    def create(cls, roles: dict[str, RoleEntry], phase: str) -> "CachedResponse":
        body = msgspec.json.encode(roles)
        etag = f'"{hashlib.sha256(body + phase.encode()).hexdigest()[:16]}"'
        phases = ",".join([phase, *(f"{name}={role.phase}" for name, role in roles.items())])
        return cls(body, phases, phase, etag)

    def to_response(self) -> Response:
        return Response(self.body, headers=self._headers)

    def not_modified(self) -> Response:
        return Response(b"", 304, headers=self._headers)

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"etag", self.etag.encode()), (b"ares-job-phase", self.phase.encode())]


class Observer:
    def __init__(self, context: RouteContext, *, require_tokens: bool = True) -> None:
        self._context = context
        self._job_views = context.job_views
        self._require_tokens = require_tokens

    async def handle(self, request: Request, path: list[str]) -> Response:
        """Answer a request whose path after `/cache` is `path`."""
        try:
            match request.method, path:
                case "GET", ["ping"]:
                    missing = self._context.not_ready()
                    return _error(500, missing) if missing else Response(b'"pong"')
                case "GET", ["keys", key]:
                    return await self._job_response(request, key)
        except TooManyWaitsError as busy:
            self._context.on_rejected("unknown-job")
            return _error(500, str(busy))
        except Exception:  # reported in this API's format; clients try again
            log.exception("request failed", path=request.path)
            return _error(500, "internal error")
        return _error(404, f"{request.method} {request.path}: not found")

    async def _job_response(self, request: Request, key: str) -> Response:
        namespace, dot, name = key.partition(".")
        if not dot or not namespace or not name:
            return _error(400, f'key: invalid value "{key}": must be NAMESPACE.JOB')
        if missing := self._context.not_ready():
            return _error(500, missing)
        etag, wait_seconds = request.header(b"if-none-match"), _wait_seconds(request)
        deadline = _now() + wait_seconds
        grace = _now() + UNKNOWN_JOB_GRACE_SECONDS
        phases = ""
        with self._job_views.subscribe(namespace, name) as changes:
            while True:
                job = self._find_job(request, namespace, name)
                if job is None:
                    if self._require_tokens and not request.header(b"authorization"):
                        return _error(401, "missing token")
                    if await self._job_views.wait_for_unknown_job(changes, grace):
                        continue
                    return self._unknown_job(key)
                response = self._cached_response(job)
                if response.etag != etag:
                    if response.phases != phases:
                        return response.to_response()
                    # Only addresses changed: batched, as every response makes all waiting pods ask again.
                    deadline = min(deadline, _now() + COUNT_UPDATE_SECONDS)
                phases = response.phases
                if self._job_views.closing or not await changes.wait(deadline):
                    unchanged = response.etag == etag and wait_seconds
                    return response.not_modified() if unchanged else response.to_response()

    def _unknown_job(self, key: str) -> Response:
        return _error(401, "invalid token for this job") if self._require_tokens else _error(404, key)

    def _cached_response(self, job: JobView) -> CachedResponse:
        return self._job_views.memoize(
            job, "all roles", lambda: CachedResponse.create(self._roles(job), _phase(job))
        )

    def _find_job(self, request: Request, namespace: str, name: str) -> JobView | None:
        token = request.header(b"authorization").removeprefix("Bearer ")
        jobs = self._job_views.find(
            namespace, name, lambda uid: not self._require_tokens or self._context.tokens.verify(token, uid)
        )
        return next((job for job in jobs if isinstance(job.status, AresJobStatus)), None)

    def _roles(self, job: JobView) -> dict[str, RoleEntry]:
        entries: dict[str, RoleEntry] = {}
        for name, role in sorted(job.record.roles.items()):
            pods = sorted(self._job_views.pods(job, name), key=index_of)
            ips = [pod.status.host_ip if pod.spec.host_network else pod.status.pod_ip for pod in pods]
            assigned = [ip for ip in ips if ip]
            entries[name] = RoleEntry(
                role.phase.value, role.phase is Phase.RUNNING, role.size, assigned or msgspec.UNSET
            )
        return entries


def _phase(job: JobView) -> str:
    """Return the phase in the job's status; Pending before the first one is written."""
    phase = job.status.phase if isinstance(job.status, AresJobStatus) else ""
    return phase or Phase.PENDING.value


def _error(status: int, message: str) -> Response:
    code, reason = _ERRORS[status]
    return Response(
        msgspec.json.encode({"code": code, "message": reason, "error": message}), status, close=True
    )


def _wait_seconds(request: Request) -> float:
    text = request.parameter("wait", "0")
    return min(float(text), MAX_WAIT_SECONDS) if text.isascii() and text.isdigit() else 0.0


def _now() -> float:
    return asyncio.get_running_loop().time()
