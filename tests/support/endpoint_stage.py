"""An endpoint with jobs and pods that a test sets, and the real helper as its client."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import argosy.helper
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.errors import ApiError
from argosy.engine.kubeconfig import Connection
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod, PodSpec, PodStatus
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.trainingrun_status import TrainingRunStatus
from argosy.operator.checkpoint_acks import CheckpointAcks
from argosy.operator.endpoint import Endpoint, RouteContext, server_tls
from argosy.operator.endpoint_credentials import EndpointCredentials
from argosy.operator.host_acks import HostAcks
from argosy.operator.job_views import JobView, JobViews
from argosy.reconcile.caches import Caches
from argosy.wire.messages import Request
from argosy.wire.server import Server
from argosy.workload.checkpoint_policy import CheckpointPolicy
from argosy.workload.checkpoint_record import SavedCheckpoint, SaveOrder
from argosy.workload.host_files import render_host_files
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, Role
from argosy.workload.record import Record, RoleRecord
from tests.support import builders
from tests.support.scale_simulator import elastic_job

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

    def set_checkpoints(
        self, name: str, order: SaveOrder | None = None, saved: SavedCheckpoint | None = None
    ) -> None:
        """Set a job that keeps checkpoints, with an order and with the last good one."""
        record = Record(phase=Phase.RUNNING, order=order, saved=saved)
        status = TrainingRunStatus(phase=Phase.RUNNING)
        policy = CheckpointPolicy(f"file:///store/default/{name}-uid")
        wanted = builders.workload(Role("worker", 2, {}), name=name)
        view = JobView(f"uid-of-{name}", "default", status, record, frozenset({"worker"}))
        self.views["default", name] = replace(view, workload=replace(wanted, checkpoint=policy))

    def set_hosts(self, name: str, *listed: int, slots: int = 1) -> str:
        """Record this host list, newer than the last one, and return its etag."""
        job = replace(elastic_job(), namespace="default", name=name, uid=f"uid-of-{name}")
        roles = {**job.roles, "worker": replace(job.roles["worker"], slots=slots)}
        job = replace(job, roles=roles)
        before = self.views.get(("default", name))
        last = before.record.role("worker") if before else RoleRecord()
        last = last.with_listed(IndexSet.of(listed), datetime.now(UTC))
        record = Record(phase=Phase.RUNNING, roles={"worker": last})
        files = render_host_files(job, record)
        digest = files.digest if files else ""
        record = record.with_role("worker", replace(last, listed_digest=digest))
        status = TrainingRunStatus(phase=Phase.RUNNING)
        uid, names = f"uid-of-{name}", frozenset(job.roles)
        self.views["default", name] = JobView(uid, "default", status, record, names, workload=job)
        return record.role("worker").listed_etag


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
        self.host_acks: HostAcks | None = None
        self.checkpoint_acks: CheckpointAcks | None = None

    @property
    def context(self) -> RouteContext:
        return RouteContext(
            self.readings,
            self.trust,
            self.missing,
            host_acks=self.host_acks,
            checkpoint_acks=self.checkpoint_acks,
        )

    def change_hosts(self, name: str, *listed: int, slots: int = 1) -> str:
        """Record another host list, as the watch reports it to this replica; return its etag."""
        etag = self.jobs.set_hosts(name, *listed, slots=slots)
        self.readings._notify("default", name, record_changed=True)
        return etag

    def order(self, name: str, order: SaveOrder | None) -> None:
        """Record an order, as the watch reports it to this replica."""
        self.jobs.set_checkpoints(name, order)
        self.readings._notify("default", name, record_changed=True)

    def missing(self) -> str:
        self.ready_checks += 1
        return self.not_ready

    def pod(self, role: str, index: int, phase: str = "Running", job: str = "mnist", **metadata: Any) -> Pod:
        """Add or change a pod of a job; `metadata` has other fields than it usually has."""
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
        status = PodStatus(phase=phase, pod_ip=f"10.0.0.{index}")
        pod = Pod(replace(meta, **metadata), spec, status)
        self.caches.pods.put(pod)
        return pod

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


class PatchedPods:
    """The part of a client that acknowledgements use; a test can hold its answers back."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.error: ApiError | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.patches: list[tuple[str, str, Mapping[str, Any]]] = []

    async def patch(self, kind: type[Pod], name: str, patch: Mapping[str, Any], namespace: str) -> Pod:
        assert kind is Pod
        self.patches.append((namespace, name, patch))
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        pod = self._stage.caches.pods.get(namespace, name)
        assert pod is not None
        version = str(int(pod.metadata.resource_version) + 1000)
        annotations = {**pod.metadata.annotations, **patch["metadata"]["annotations"]}
        return replace(pod, metadata=replace(pod.metadata, resource_version=version, annotations=annotations))


class Ended:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@asynccontextmanager
async def serving(stage: Stage) -> AsyncIterator[None]:
    server = Server(Endpoint(stage.context).handle)
    stage.port = await server.listen_tcp("127.0.0.1", 0, server_tls(stage.trust))
    try:
        yield
    finally:
        await server.close(0.1)


async def ask(
    stage: Stage, path: str, query: str = "", token: str | None = None, post: bytes | None = None
) -> tuple[int, bytes]:
    """Return the response to a GET, or a POST, with the token of the job `mnist` or with another one."""
    bearer = stage.trust.token("uid-of-mnist") if token is None else token
    method = "GET" if post is None else "POST"
    request = Request(method, path, query, [(b"authorization", f"Bearer {bearer}".encode())])
    request.feed(post or b"")
    request.finish()
    response = await Endpoint(stage.context).handle(request)
    assert isinstance(response.body, bytes)
    return response.status, response.body
