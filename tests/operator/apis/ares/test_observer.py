"""Acceptance case 47, and responses that the initializer relies on: the observer of AresJobs, over TLS."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

import argosy.helper
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.kubeconfig import Connection
from argosy.kinds import labels
from argosy.kinds.aresjob import AresJobStatus
from argosy.kinds.kubernetes import Pod, PodSpec, PodStatus
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.trainingrun_status import TrainingRunStatus
from argosy.operator import endpoint
from argosy.operator.apis.ares import observer
from argosy.operator.apis.ares.observer import Observer
from argosy.operator.endpoint import Endpoint, RouteContext, server_tls
from argosy.operator.endpoint_credentials import make_credentials
from argosy.operator.job_views import MAX_UNKNOWN_WAITS, JobView, JobViews
from argosy.reconcile.caches import Caches
from argosy.wire.client import Client as HttpClient
from argosy.wire.client import Response
from argosy.wire.origin import Origin
from argosy.wire.server import Server
from argosy.workload.model import Phase
from argosy.workload.record import Record
from tests.support.waiting import eventually
from tests.support.workloads import role_record

SCRIPT = Path(argosy.helper.__file__).with_name("__main__.py")


class Scene:
    """The AresJob `ns/job` in the caches, and observers with and without tokens."""

    def __init__(self) -> None:
        self.trust = make_credentials(["localhost"], datetime.now(UTC))
        self.caches = Caches(Client(Connection(server="https://127.0.0.1:1")), SystemClock())
        self.readings = JobViews(self.caches, SystemClock())
        self.readings.sources.append(self)
        self.jobs: dict[str, JobView] = {}
        self.ports: dict[str, int] = {}
        self._versions = 0

    def uid(self, namespace: str, name: str) -> str:
        job = self.find(namespace, name)
        return job.uid if job else ""

    def find(self, namespace: str, name: str) -> JobView | None:
        job = self.jobs.get(name) if namespace == "ns" else None
        return replace(job, cached={}) if job else None

    def set(self, phase: Phase = Phase.STARTING, **roles: Phase) -> None:
        self.put("job", "uid", phase, **roles)

    def put(self, name: str, uid: str, phase: Phase = Phase.STARTING, **roles: Phase) -> None:
        record = Record(phase=phase, roles={name: role_record(at, size=2) for name, at in roles.items()})
        status = AresJobStatus(phase=phase)
        self.jobs[name] = JobView(uid, "ns", status, record, frozenset(roles))
        self.readings._notify("ns", name, record_changed=True)

    def pod(self, role: str, index: int, *, host: bool = False, label: str | None = None) -> None:
        self._versions += 1
        meta = ObjectMeta(
            name=f"job-{role}-{index}",
            namespace="ns",
            uid=f"{role}-{index}",
            resource_version=str(self._versions),
            labels={labels.ROLE: role, labels.INDEX: label or str(index)},
            owner_references=[OwnerReference(kind="AresJob", name="job", uid="uid", controller=True)],
        )
        status = PodStatus(phase="Running", pod_ip=f"10.0.0.{index}", host_ip="10.9.9.9")
        self.caches.pods.put(Pod(meta, PodSpec(host_network=host), status))

    async def get(self, path: str, *, auth: str = "none", **headers: str) -> Response:
        client = HttpClient(Origin.from_url(f"https://localhost:{self.ports[auth]}"))
        context = ssl.create_default_context(cadata=self.trust.ca)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            return await client.send("GET", path, named, context=context, timeout=20)
        finally:
            await client.close()

    @property
    def token(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.trust.token('uid')}"}


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    for part in (observer, endpoint):
        monkeypatch.setattr(part, "UNKNOWN_JOB_GRACE_SECONDS", 0.05)
    scene, servers = Scene(), []
    for auth in ("none", "token"):
        context = RouteContext(scene.readings, scene.trust, lambda: "")
        observed = Observer(context, require_tokens=auth == "token")
        server = Server(Endpoint(context, routes={"cache": observed.handle}).handle)
        scene.ports[auth] = await server.listen_tcp("127.0.0.1", 0, server_tls(scene.trust))
        servers.append(server)
    yield scene
    for server in servers:
        await server.close(0.1)


ERRORS = {
    "47. auth none, unknown job: 404 230404": ("none", "/cache/keys/ns.other", 404, 230404),
    "47. auth none, key without a dot: 400 230400": ("none", "/cache/keys/job", 400, 230400),
    "47. auth token, no token: 401 230401": ("token", "/cache/keys/ns.job", 401, 230401),
    "auth token, unknown job: 401 as for a known one": ("token", "/cache/keys/ns.other", 401, 230401),
    "auth token, key without a dot: 400 230400": ("token", "/cache/keys/job", 400, 230400),
}


@pytest.mark.parametrize("case", ERRORS.values(), ids=ERRORS.keys())
async def test_errors(scene: Scene, case: tuple[str, str, int, int]) -> None:
    scene.set(worker=Phase.RUNNING)
    auth, path, status, code = case
    answer = await scene.get(path, auth=auth)
    assert (answer.status, json.loads(answer.body)["code"]) == (status, code)


async def test_47_ping(scene: Scene) -> None:
    answer = await scene.get("/cache/ping")
    assert (answer.status, answer.body) == (200, b'"pong"')


async def test_response_has_the_roles_with_their_addresses(scene: Scene) -> None:
    scene.set(worker=Phase.RUNNING, launcher=Phase.STARTING, hosts=Phase.RUNNING)
    for index in (10, 2):
        scene.pod("worker", index)
    scene.pod("hosts", 0, host=True)
    answer = await scene.get("/cache/keys/ns.job", auth="token", **scene.token)
    assert answer.status == 200
    assert json.loads(answer.body) == {
        "hosts": {"phase": "Running", "running": True, "replicas": 2, "ips": ["10.9.9.9"]},
        "launcher": {"phase": "Starting", "running": False, "replicas": 2},
        "worker": {"phase": "Running", "running": True, "replicas": 2, "ips": ["10.0.0.2", "10.0.0.10"]},
    }
    assert answer.headers["ares-job-phase"] == "Starting"


async def test_token_gives_access_to_its_own_job_only(scene: Scene) -> None:
    """The response does not reveal whether other jobs exist."""
    scene.set(worker=Phase.RUNNING)
    scene.put("rival", "other-uid", worker=Phase.RUNNING)
    stolen = [
        await scene.get(path, auth="token", **scene.token)
        for path in ("/cache/keys/ns.rival", "/cache/keys/ns.nobody", "/cache/keys/elsewhere.job")
    ]
    assert {(answer.status, answer.body) for answer in stolen} == {(401, stolen[0].body)}
    assert (await scene.get("/v1/jobs/ns/rival/roles/worker", auth="token", **scene.token)).status == 401
    assert (await scene.get("/cache/keys/ns.job", auth="token", **scene.token)).status == 200


async def test_training_run_is_not_found(scene: Scene) -> None:
    """A TrainingRun may have the name of an AresJob; the observer serves only AresJobs."""
    scene.set(worker=Phase.RUNNING)
    scene.jobs["run"] = replace(scene.jobs["job"], status=TrainingRunStatus())
    assert (await scene.get("/cache/keys/ns.run")).status == 404
    scene.readings.sources.insert(0, Namesake(scene.jobs["run"]))
    answer = await scene.get("/cache/keys/ns.job")
    assert json.loads(answer.body)["worker"]["phase"] == "Running"


class Namesake:
    def __init__(self, view: JobView) -> None:
        self.view = replace(view, uid="run-uid", record=Record())

    def uid(self, namespace: str, name: str) -> str:
        return self.find(namespace, name).uid

    def find(self, namespace: str, name: str) -> JobView:
        del namespace, name
        return self.view


async def test_invalid_labels_and_parameters_are_ignored(scene: Scene) -> None:
    scene.set(worker=Phase.RUNNING)
    scene.pod("worker", 0)
    scene.pod("worker", 1, label="first")
    answer = await scene.get("/cache/keys/ns.job")
    assert json.loads(answer.body)["worker"]["ips"] == ["10.0.0.0"]
    tag = answer.headers["etag"]
    for wait in ("%C2%B2", "-1", "1e9", "", "9" * 400 + "x"):
        assert (await scene.get(f"/cache/keys/ns.job?wait={wait}", If_None_Match=tag)).status == 200


async def test_response_is_built_once_for_many_requests(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of pods send requests at once after each change."""
    scene.set(worker=Phase.STARTING)
    built_roles: list[str] = []
    pods = scene.readings.pods

    def noted(job: JobView, role: str) -> list[Pod]:
        built_roles.append(role)
        return pods(job, role)

    monkeypatch.setattr(scene.readings, "pods", noted)
    answers = await asyncio.gather(*(scene.get("/cache/keys/ns.job") for _ in range(20)))
    assert ({answer.status for answer in answers}, built_roles) == ({200}, ["worker"])
    scene.pod("worker", 0)
    answer = await scene.get("/cache/keys/ns.job")
    assert (json.loads(answer.body)["worker"]["ips"], built_roles) == (["10.0.0.0"], ["worker", "worker"])


async def test_requests_about_unknown_jobs_over_the_limit_are_refused_at_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "UNKNOWN_JOB_GRACE_SECONDS", 60.0)
    names = [f"unknown-{number}" for number in range(MAX_UNKNOWN_WAITS)]
    waiting = [asyncio.create_task(scene.get(f"/cache/keys/ns.{name}")) for name in names]
    await eventually(lambda: len(scene.readings._waiting) == MAX_UNKNOWN_WAITS)
    refused = await scene.get("/cache/keys/ns.one-too-many")
    assert (refused.status, any(task.done() for task in waiting)) == (500, False)
    for name in names:
        scene.put(name, name)
    assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}
    assert not scene.readings._waiting


async def test_internal_error_has_the_format_of_this_api(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.readings, "find", lambda namespace, name, admits: 1 / 0)
    answer = await scene.get("/cache/keys/ns.job")
    assert (answer.status, json.loads(answer.body)["code"]) == (500, 230500)


async def test_long_poll_ends_when_the_response_changes(scene: Scene) -> None:
    scene.set(worker=Phase.STARTING)
    tag = (await scene.get("/cache/keys/ns.job")).headers["etag"]
    held = asyncio.create_task(scene.get("/cache/keys/ns.job?wait=20", If_None_Match=tag))
    await eventually(lambda: scene.readings._waiting)
    scene.set(worker=Phase.RUNNING)
    answer = await held
    assert json.loads(answer.body)["worker"]["running"] is True
    tag = answer.headers["etag"]
    assert (await scene.get("/cache/keys/ns.job?wait=1", If_None_Match=tag)).status == 304


async def test_stopping_observer_answers_long_polls(scene: Scene) -> None:
    """drains on SIGTERM"""
    scene.set(worker=Phase.STARTING)
    tag = (await scene.get("/cache/keys/ns.job")).headers["etag"]
    held = asyncio.create_task(scene.get("/cache/keys/ns.job?wait=20", If_None_Match=tag))
    await eventually(lambda: scene.readings._waiting)
    scene.readings.release_waiters()
    async with asyncio.timeout(60):
        assert (await held).status == 304


async def test_observer_releases_the_initializer(scene: Scene) -> None:
    """End to end: the real initializer with its token, TLS and a long poll."""
    scene.set(worker=Phase.STARTING)
    environ = {
        "PATH": os.environ["PATH"],
        "ARES_TOKEN": scene.trust.token("uid"),
        "ARGOSY_CA": scene.trust.ca,
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", str(SCRIPT), "cache", "--key", "ns.job", "--roles", "worker"),
        *("--cacheURI", f"https://localhost:{scene.ports['token']}"),
        env=environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    await eventually(lambda: scene.readings._waiting)
    scene.set(worker=Phase.RUNNING)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert "waiting for role worker to be Running; it is Starting" in out.decode()
