"""The observer of AresJobs: `/cache/ping` and `/cache/keys/NAMESPACE.JOB`, as clients of the original ask it.

An answer tells every role's phase and addresses, and what it tells is named by an ETag: whoever hands that
back with `wait` is answered when it is no longer so. With tokens, whether a job exists is nobody's business
but its own.
"""

import asyncio
import hashlib
from collections.abc import Callable

import msgspec
from msgspec import Struct

from argosy.engine.logs import Logger
from argosy.kinds.aresjob import AresJob
from argosy.operator.bounds import OnRefused
from argosy.operator.endpoint_credentials import TokenVerifier
from argosy.operator.job_views import COUNT_UPDATE_SECONDS, JobView, JobViews, TooManyWaitsError, index_of
from argosy.wire.messages import Request, Response
from argosy.workload.invalid import INVALID_SPEC, SPEC_REJECTED
from argosy.workload.model import Phase
from argosy.workload.record import Record

log = Logger(__name__)

MAX_WAIT_SECONDS = 60.0
UNKNOWN_JOB_GRACE_SECONDS = 2.0
"""Seconds that a replica whose caches lag gives a job to appear."""

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
    body: bytes
    phases: str
    """Of the roles and the job: what people wait for."""
    phase: str
    etag: str

    @classmethod
    def create(cls, roles: dict[str, RoleEntry], phase: str) -> "CachedResponse":
        body = msgspec.json.encode(roles)
        tag = f'"{hashlib.sha256(body + phase.encode()).hexdigest()[:16]}"'
        phases = ",".join([phase, *(f"{name}={role.phase}" for name, role in roles.items())])
        return cls(body, phases, phase, tag)

    def to_response(self) -> Response:
        return Response(self.body, headers=self._headers)

    def not_modified(self) -> Response:
        return Response(b"", 304, headers=self._headers)

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"etag", self.etag.encode()), (b"ares-job-phase", self.phase.encode())]


class Observer:
    def __init__(
        self,
        readings: JobViews,
        trust: TokenVerifier,
        not_ready: Callable[[], str],
        *,
        tokens: bool = True,
        on_refused: OnRefused = lambda _reason: None,
    ) -> None:
        self._on_refused = on_refused
        self.job_views = readings
        self.tokens = trust
        self.not_ready = not_ready
        self.require_tokens = tokens

    async def handle(self, request: Request, path: list[str]) -> Response:
        """`path` is what follows `/cache`."""
        try:
            match request.method, path:
                case "GET", ["ping"]:
                    missing = self.not_ready()
                    return _error(500, missing) if missing else Response(b'"pong"')
                case "GET", ["keys", key]:
                    return await self._job_answer(request, key)
        except TooManyWaitsError as busy:
            self._on_refused("unknown-job")
            return _error(500, str(busy))
        except Exception:  # told in the words of this API; who asks will ask again
            log.exception("a question was not answered", path=request.path)
            return _error(500, "the observer made a mistake")
        return _error(404, f"{request.method} {request.path} is not served here")

    async def _job_answer(self, request: Request, key: str) -> Response:
        namespace, dot, name = key.partition(".")
        if not dot or not namespace or not name:
            return _error(400, f"{key!r} is not NAMESPACE.JOB")
        if missing := self.not_ready():
            return _error(500, missing)
        known, seconds = request.header(b"if-none-match"), _seconds(request)
        deadline = _now() + seconds
        grace = _now() + UNKNOWN_JOB_GRACE_SECONDS
        phases = ""
        with self.job_views.subscribe(namespace, name) as changes:
            while True:
                job = self._find_job(request, namespace, name)
                if job is None:
                    if self.require_tokens and not request.header(b"authorization"):
                        return _error(401, "there is no token")
                    if await self.job_views.wait_for_unknown_job(changes, grace):
                        continue
                    return (
                        _error(401, "the token is not of such a job")
                        if self.require_tokens
                        else _error(404, key)
                    )
                told = self._cached_response(job)
                if told.etag != known:
                    if told.phases != phases:
                        return told.to_response()
                    deadline = min(deadline, _now() + COUNT_UPDATE_SECONDS)
                phases = told.phases
                if self.job_views.closing or not await changes.wait(deadline):
                    return told.not_modified() if told.etag == known and seconds else told.to_response()

    def _cached_response(self, job: JobView) -> "CachedResponse":
        """What all who ask are told until something about the job changes."""
        return self.job_views.memoize(
            job, "all roles", lambda: CachedResponse.create(self._roles(job), shown(job.record))
        )

    def _find_job(self, request: Request, namespace: str, name: str) -> JobView | None:
        token = request.header(b"authorization").removeprefix("Bearer ")
        found = self.job_views.find(
            namespace, name, lambda uid: not self.require_tokens or self.tokens.verify(token, uid)
        )
        return next((job for job in found if job.kind == AresJob.resource.kind), None)

    def _roles(self, job: JobView) -> dict[str, RoleEntry]:
        answers: dict[str, RoleEntry] = {}
        for name, role in sorted(job.record.roles.items()):
            pods = sorted(self.job_views.pods(job, name), key=index_of)
            ips = [pod.status.host_ip if pod.spec.host_network else pod.status.pod_ip for pod in pods]
            there = [ip for ip in ips if ip]
            answers[name] = RoleEntry(
                role.phase.value, role.phase is Phase.RUNNING, role.size, there or msgspec.UNSET
            )
        return answers


def shown(record: Record) -> str:
    """The job's phase in the words of this API."""
    if record.waiting is not None and record.waiting.reason in (INVALID_SPEC, SPEC_REJECTED):
        return Phase.FAILED.value
    if record.phase is Phase.RESTARTING:
        return Phase.RUNNING.value if record.first_running_at else Phase.STARTING.value
    return Phase.PENDING.value if record.phase is Phase.SUSPENDED else record.phase.value


def _error(status: int, message: str) -> Response:
    code, word = _ERRORS[status]
    return Response(
        msgspec.json.encode({"code": code, "message": word, "error": message}), status, close=True
    )


def _seconds(request: Request) -> float:
    text = request.parameter("wait", "0")
    return min(float(text), MAX_WAIT_SECONDS) if text.isascii() and text.isdigit() else 0.0


def _now() -> float:
    return asyncio.get_running_loop().time()
