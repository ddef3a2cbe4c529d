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
from argosy.operator.job_views import NEWS, JobReading, Readings, TooManyWaitsError, index_of
from argosy.wire.messages import Request, Response
from argosy.workload.invalid import INVALID_SPEC, REFUSED_SPEC
from argosy.workload.model import Phase
from argosy.workload.record import Record

log = Logger(__name__)

LONGEST_WAIT = 60.0
UNKNOWN_GRACE = 2.0
"""Seconds that a replica whose caches lag gives a job to appear."""

_ERRORS = {
    400: (230400, "InvalidParam"),
    401: (230401, "Unauthorized"),
    404: (230404, "NotFound"),
    500: (230500, "UnknownError"),
}


class RoleAnswer(Struct, frozen=True):
    phase: str
    running: bool
    replicas: int
    ips: list[str] | msgspec.UnsetType = msgspec.UNSET


class _Told(Struct, frozen=True):
    body: bytes
    phases: str
    """Of the roles and the job: what people wait for."""
    phase: str
    tag: str

    @classmethod
    def of(cls, roles: dict[str, RoleAnswer], phase: str) -> "_Told":
        body = msgspec.json.encode(roles)
        tag = f'"{hashlib.sha256(body + phase.encode()).hexdigest()[:16]}"'
        phases = ",".join([phase, *(f"{name}={role.phase}" for name, role in roles.items())])
        return cls(body, phases, phase, tag)

    def answer(self) -> Response:
        return Response(self.body, headers=self._headers)

    def unchanged(self) -> Response:
        return Response(b"", 304, headers=self._headers)

    @property
    def _headers(self) -> list[tuple[bytes, bytes]]:
        return [(b"etag", self.tag.encode()), (b"ares-job-phase", self.phase.encode())]


class Observer:
    def __init__(
        self,
        readings: Readings,
        trust: TokenVerifier,
        not_ready: Callable[[], str],
        *,
        tokens: bool = True,
        on_refused: OnRefused = lambda _reason: None,
    ) -> None:
        self._on_refused = on_refused
        self.readings = readings
        self.trust = trust
        self.not_ready = not_ready
        self.tokens = tokens

    async def answer(self, request: Request, path: list[str]) -> Response:
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
        grace = _now() + UNKNOWN_GRACE
        phases = ""
        with self.readings.changes(namespace, name) as changes:
            while True:
                job = self._allowed(request, namespace, name)
                if job is None:
                    if self.tokens and not request.header(b"authorization"):
                        return _error(401, "there is no token")
                    if await self.readings.may_appear(changes, grace):
                        continue
                    return _error(401, "the token is not of such a job") if self.tokens else _error(404, key)
                told = self._told(job)
                if told.tag != known:
                    if told.phases != phases:
                        return told.answer()
                    deadline = min(deadline, _now() + NEWS)
                phases = told.phases
                if self.readings.closing or not await changes.happen(deadline):
                    return told.unchanged() if told.tag == known and seconds else told.answer()

    def _told(self, job: JobReading) -> "_Told":
        """What all who ask are told until something about the job changes."""
        return self.readings.once(job, "all roles", lambda: _Told.of(self._roles(job), shown(job.record)))

    def _allowed(self, request: Request, namespace: str, name: str) -> JobReading | None:
        token = request.header(b"authorization").removeprefix("Bearer ")
        found = self.readings.find(
            namespace, name, lambda uid: not self.tokens or self.trust.admits(token, uid)
        )
        return next((job for job in found if job.kind == AresJob.resource.kind), None)

    def _roles(self, job: JobReading) -> dict[str, RoleAnswer]:
        answers: dict[str, RoleAnswer] = {}
        for name, role in sorted(job.record.roles.items()):
            pods = sorted(self.readings.pods(job, name), key=index_of)
            ips = [pod.status.host_ip if pod.spec.host_network else pod.status.pod_ip for pod in pods]
            there = [ip for ip in ips if ip]
            answers[name] = RoleAnswer(
                role.phase.value, role.phase is Phase.RUNNING, role.size, there or msgspec.UNSET
            )
        return answers


def shown(record: Record) -> str:
    """The job's phase in the words of this API."""
    if record.waiting is not None and record.waiting.reason in (INVALID_SPEC, REFUSED_SPEC):
        return Phase.FAILED.value
    if record.phase is Phase.RESTARTING:
        return Phase.RUNNING.value if record.ran else Phase.STARTING.value
    return Phase.PENDING.value if record.phase is Phase.SUSPENDED else record.phase.value


def _error(status: int, message: str) -> Response:
    code, word = _ERRORS[status]
    return Response(
        msgspec.json.encode({"code": code, "message": word, "error": message}), status, close=True
    )


def _seconds(request: Request) -> float:
    text = request.parameter("wait", "0")
    return min(float(text), LONGEST_WAIT) if text.isascii() and text.isdigit() else 0.0


def _now() -> float:
    return asyncio.get_running_loop().time()
