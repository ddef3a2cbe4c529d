"""Tests for the endpoint with the real helper, in a separate process, over TLS."""

import asyncio
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import argosy.helper
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.kubeconfig import Connection
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod, PodSpec, PodStatus
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.trainingrun_status import TrainingRunStatus
from argosy.operator import endpoint
from argosy.operator.endpoint import Endpoint, RouteContext, server_tls
from argosy.operator.endpoint_credentials import EndpointCredentials, make_credentials
from argosy.operator.job_views import (
    DEBOUNCE_SECONDS,
    MAX_UNKNOWN_WAITS,
    ChangeSignal,
    JobView,
    JobViews,
)
from argosy.reconcile.caches import Caches
from argosy.wire.client import Client as HttpClient
from argosy.wire.messages import Request
from argosy.wire.origin import Origin
from argosy.wire.server import Server
from argosy.workload.dependencies import ROLE_PHASES
from argosy.workload.model import Phase
from argosy.workload.record import Record, RoleRecord
from tests.support.waiting import eventually

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")


class Jobs:
    """Jobs as a dialect finds them."""

    def __init__(self) -> None:
        self.views: dict[tuple[str, str], JobView] = {}
        self.read: list[str] = []

    def uid(self, namespace: str, name: str) -> str:
        job = self.views.get((namespace, name))
        return job.uid if job else ""

    def find(self, namespace: str, name: str) -> JobView | None:
        self.read.append(name)
        job = self.views.get((namespace, name))
        return replace(job, cached={}) if job else None

    def set(self, name: str, phase: Phase, *, since: datetime | None = None, **roles: Phase) -> None:
        states = {role: RoleRecord(phase=at, phase_since=since) for role, at in roles.items()}
        record = Record(phase=phase, roles=states)
        status = TrainingRunStatus(phase=phase)
        self.views["default", name] = JobView(f"uid-of-{name}", "default", status, record, frozenset(roles))


class Stage:
    """An endpoint over TLS, with jobs and pods that the test sets."""

    def __init__(self, trust: EndpointCredentials) -> None:
        self.trust = trust
        self.jobs = Jobs()
        self.caches = Caches(Client(Connection(server="https://127.0.0.1:1")), SystemClock())
        self.readings = JobViews(self.caches, SystemClock())
        self.readings.sources.append(self.jobs)
        self.not_ready = ""
        self.ready_checks = 0
        self.port = 0
        self._versions = 0

    def missing(self) -> str:
        self.ready_checks += 1
        return self.not_ready

    def pod(self, role: str, index: int, phase: str = "Running", job: str = "mnist") -> None:
        self._versions += 1
        meta = ObjectMeta(
            name=f"{job}-{role}-{index}",
            namespace="default",
            uid=f"{job}-{role}-{index}",
            resource_version=str(self._versions),
            labels={labels.ROLE: role, labels.INDEX: str(index)},
            owner_references=[
                OwnerReference(kind="TrainingRun", name=job, uid=f"uid-of-{job}", controller=True)
            ],
        )
        spec = PodSpec(hostname=meta.name, subdomain=f"{job}-{role}")
        self.caches.pods.put(Pod(meta, spec, PodStatus(phase=phase, pod_ip=f"10.0.0.{index}")))

    async def helper(self, *arguments: str, job: str = "mnist", token: str | None = None) -> "Ended":
        environment = {
            "PATH": os.environ["PATH"],
            "ARGOSY_URL": f"https://localhost:{self.port}",
            "ARGOSY_CA": self.trust.ca,
            "ARGOSY_TOKEN": self.trust.token(f"uid-of-{job}") if token is None else token,
            "ARGOSY_NAMESPACE": "default",
            "ARGOSY_JOB": job,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            str(SCRIPT),
            *arguments,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        return Ended(process.returncode or 0, out.decode(), err.decode())


class Ended:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@asynccontextmanager
async def serving(stage: Stage) -> AsyncIterator[None]:
    server = Server(Endpoint(RouteContext(stage.readings, stage.trust, stage.missing)).handle)
    stage.port = await server.listen_tcp("127.0.0.1", 0, server_tls(stage.trust))
    try:
        yield
    finally:
        await server.close(0.1)


async def ask(stage: Stage, path: str, query: str = "", token: str | None = None) -> tuple[int, bytes]:
    """Return the endpoint's response to a GET with the token of the job `mnist`, or with another token."""
    bearer = stage.trust.token("uid-of-mnist") if token is None else token
    request = Request("GET", path, query, [(b"authorization", f"Bearer {bearer}".encode())])
    response = await Endpoint(RouteContext(stage.readings, stage.trust, stage.missing)).handle(request)
    assert isinstance(response.body, bytes)
    return response.status, response.body


def entries(readings: JobViews) -> int:
    """Return how many responses and jobs the endpoint caches."""
    return sum(1 + len(job.cached) for jobs in readings._views.values() for job in jobs.values())


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(make_credentials(["localhost"], datetime.now(UTC)))
    async with serving(stage):
        yield stage


async def test_helper_waits_until_the_role_is_running(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.STARTING, worker=Phase.STARTING)
    stage.pod("worker", 0)
    stage.pod("worker", 1, "Pending")
    waiting = asyncio.create_task(stage.helper("wait", "worker=Running", "--deadline", "20"))
    await eventually(lambda: stage.readings._waiting)
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    stage.pod("worker", 1)
    ended = await waiting
    assert ended.code == 0, ended.err
    assert "1 of 2 pods running" in ended.out
    assert "role worker is Running" in ended.out


async def test_changes_of_pods_alone_do_not_end_the_wait_of_helpers(stage: Stage) -> None:
    """A thousand may wait: each answer that does not let them go is a thousand new questions."""
    stage.jobs.set("mnist", Phase.STARTING, worker=Phase.STARTING)
    stage.pod("worker", 0, "Pending")
    waiting = asyncio.create_task(stage.helper("wait", "worker=Running", "--deadline", "20"))
    await eventually(lambda: stage.ready_checks == 2)
    await eventually(lambda: stage.readings._waiting)
    stage.pod("worker", 0)
    (waiter,) = stage.readings._waiting["default", "mnist"]
    await eventually(lambda: not waiter._any.is_set())  # the change was processed, and not reported
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    stage.readings._notify("default", "mnist", record_changed=True)
    assert (await waiting).code == 0
    assert stage.ready_checks == 2


async def test_change_of_the_job_ends_a_wait_at_once() -> None:
    changes = ChangeSignal()
    loop = asyncio.get_running_loop()
    changes.notify(record_changed=False)
    began = loop.time()
    assert await changes.wait(began + 60)
    assert loop.time() - began >= DEBOUNCE_SECONDS, "pods come in groups"
    changes.notify(record_changed=False)
    changes.notify(record_changed=True)
    heard = asyncio.create_task(changes.wait(loop.time() + 60))
    for _ in range(10):
        await asyncio.sleep(0)
    assert heard.done(), "what the job itself tells waits for no timer"
    assert not await changes.wait(loop.time() + 0.01), "nothing else happened"


async def test_helper_fails_when_the_job_has_failed(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.FAILED, worker=Phase.FAILED)
    ended = await stage.helper("wait", "worker=Running")
    assert ended.code == 1
    assert "role worker will not become Running: the job is Failed" in ended.err


@pytest.mark.parametrize(("seconds", "unreachable"), [(0, False), (61, True)])
async def test_failed_role_is_waited_for_during_a_grace_period(
    stage: Stage, seconds: int, unreachable: bool
) -> None:
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    stage.jobs.set("mnist", Phase.RUNNING, since=since, worker=Phase.FAILED)
    status, body = await ask(stage, "/v1/jobs/default/mnist/roles/worker", "phase=Running")
    assert (status, b"role worker has been Failed for 60 s" in body) == (200, unreachable)


async def test_succeeded_role_counts_as_having_been_running(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, data=Phase.SUCCEEDED)
    assert (await stage.helper("wait", "data=Running")).code == 0


async def test_token_is_accepted_for_its_own_job_only(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    stage.jobs.set("other", Phase.RUNNING, worker=Phase.RUNNING)
    ended = await stage.helper("wait", "worker=Running", job="other", token=stage.trust.token("uid-of-mnist"))
    assert ended.code == 1
    assert "401 invalid token for job default/other" in ended.err


@pytest.mark.parametrize("job", ["mnist", "other"], ids=["a job", "none"])
async def test_request_without_a_token_does_not_reveal_whether_a_job_exists(stage: Stage, job: str) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    context = ssl.create_default_context(cadata=stage.trust.ca)
    client = HttpClient(Origin.from_url(f"https://localhost:{stage.port}"))
    try:
        answer = await client.send(
            "GET", f"/v1/jobs/default/{job}/roles/worker", {}, context=context, timeout=4
        )
    finally:
        await client.close()
    assert (answer.status, answer.body) == (401, b'{"message":"missing token"}')


async def test_requests_for_unknown_phases_and_roles_are_not_cached(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    for number in range(2000):
        status, body = await ask(stage, "/v1/jobs/default/mnist/roles/worker", f"phase={number}{'x' * 999}")
        assert status == 400
        assert b"must be one of Pending, Starting, Running, Succeeded, Failed" in body
        assert len(body) < 200
        assert (await ask(stage, f"/v1/jobs/default/mnist/roles/boss-{number}"))[0] == 404
        assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker", f"x={number}"))[0] == 200
    for phase in ROLE_PHASES:
        assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker", f"phase={phase}"))[0] == 200
    assert entries(stage.readings) == 1 + len(ROLE_PHASES)


async def test_job_is_translated_only_for_requests_with_its_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translating a job may take long; a stranger must not be able to cause it."""
    monkeypatch.setattr(endpoint, "UNKNOWN_JOB_GRACE_SECONDS", 0.01)
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    status, _ = await ask(stage, "/v1/jobs/default/mnist/roles/worker", token="wrong")
    assert (status, stage.jobs.read, entries(stage.readings)) == (401, [], 0)
    assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker"))[0] == 200
    assert stage.jobs.read == ["mnist"]


async def test_requests_with_invalid_tokens_over_the_limit_do_not_wait(stage: Stage) -> None:
    held = [
        asyncio.create_task(ask(stage, f"/v1/jobs/default/job-{number}/roles/worker", token="wrong"))
        for number in range(MAX_UNKNOWN_WAITS)
    ]
    await eventually(lambda: len(stage.readings._waiting) == MAX_UNKNOWN_WAITS)
    for number in range(500):
        status, body = await ask(stage, f"/v1/jobs/default/one-more-{number}/roles/worker", token="wrong")
        assert (status, b"try again" in body) == (503, True)
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker"))[0] == 200
    assert len(stage.readings._waiting) == MAX_UNKNOWN_WAITS
    assert {status for status, _ in await asyncio.gather(*held)} == {401}
    assert not stage.readings._waiting


async def test_unknown_role_is_reported(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    ended = await stage.helper("wait", "boss=Running")
    assert (ended.code, '404 unknown role "boss"' in ended.err) == (1, True)


async def test_helper_retries_a_replica_that_is_not_ready(stage: Stage) -> None:
    stage.not_ready = "not synced: Pod"
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    waiting = asyncio.create_task(stage.helper("wait", "worker=Running", "--deadline", "20"))
    await eventually(lambda: stage.ready_checks)
    stage.not_ready = ""
    ended = await waiting
    assert ended.code == 0, ended.err
    assert "503 not synced: Pod" in ended.err
