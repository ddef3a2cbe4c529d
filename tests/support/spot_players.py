"""Plays what surrounds SpotInstanceJobs where there is only an API server and a cloud.

Nodes appear with VMs and go with them, Jobs get pods that run, pods go with their Jobs and nodes, and an
agent completes CheckpointBackups. Each pod that is created is checked against those that run.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import ClassVar, TypeVar, cast

from msgspec import Struct, field

from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, ApiError, NotFound
from argosy.engine.objects import ApiObject
from argosy.kinds.kubernetes import Job, Node, Pod
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.migration import CheckpointBackup
from argosy.kinds.resource import Resource
from argosy.kinds.spot import JOB_LABEL, REPLICA_LABEL
from argosy.local.gce.cloud import Cloud
from tests.support.registry import push_image
from tests.support.spot_jobs import Json

T = TypeVar("T", bound=ApiObject)
STEP_SECONDS = 0.2
NODE_FIELD = "metadata.name"


class WholeJob(Struct):
    """A batch/v1 Job with its template."""

    resource: ClassVar[Resource] = Job.resource

    metadata: ObjectMeta
    spec: Json = field(default_factory=dict)


class BoundPod(Struct):
    """A pod, and where it is."""

    resource: ClassVar[Resource] = Pod.resource

    metadata: ObjectMeta
    spec: Json = field(default_factory=dict)


class SpotPlayer:
    """Plays for one namespace, and for the VMs whose names have a prefix."""

    def __init__(self, client: Client, namespace: str, cloud: Cloud, prefix: str, registry: str) -> None:
        self._client = client
        self._namespace = namespace
        self._cloud = cloud
        self._prefix = prefix
        self._registry = registry
        self.violations: list[str] = []
        """What may never happen, and did."""
        self.jobs: dict[str, str] = {}
        """The uids of all Jobs there have been, by name."""
        self.backups = 0
        """Checkpoints that were completed."""

    async def run(self) -> None:
        """Play until cancelled."""
        while True:
            with suppress(ApiError):
                await self._step()
            await asyncio.sleep(STEP_SECONDS)

    async def _step(self) -> None:
        await self._play_nodes()
        await self._play_pods()
        for backup in await self._list(CheckpointBackup):
            if not backup.status.phase and backup.metadata.deletion_timestamp is None:
                await self._complete(backup)

    async def _play_nodes(self) -> None:
        vms = self._machines()
        nodes = {node.metadata.name for node in (await self._client.list(Node)).items}
        for name in sorted(vms - nodes):
            if name.startswith(self._prefix):
                await self._client.create(Node, {"metadata": {"name": name}})
                ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
                room = {"nvidia.com/gpu": "1", "cpu": "4", "memory": "8Gi", "pods": "110"}
                status = {"conditions": [ready], "allocatable": room}
                await self._client.patch(Node, name, {"status": status}, subresource="status")
        for name in sorted(nodes - vms):
            if name.startswith(self._prefix):
                await self._client.delete(Node, name)

    def _machines(self) -> set[str]:
        """Return the VMs on which something can run."""
        self._cloud.advance()
        return {vm.name for vm in self._cloud.instances.values() if vm.status in ("RUNNING", "STOPPING")}

    async def _play_pods(self) -> None:
        jobs = {job.metadata.name: job for job in await self._list(WholeJob)}
        pods = await self._list(BoundPod)
        nodes = {node.metadata.name for node in (await self._client.list(Node)).items} & self._machines()
        running: dict[str, BoundPod] = {}
        for pod in pods:
            name = pod.metadata.labels.get("job-name", "")
            if name not in jobs or pod.metadata.deletion_timestamp or pod.spec["nodeName"] not in nodes:
                await self._delete(pod)
            else:
                running[name] = pod
        for name, job in jobs.items():
            if self.jobs.setdefault(name, job.metadata.uid) != job.metadata.uid:
                self.violations.append(f"Job {name} was created twice")
            if name not in running and job.metadata.deletion_timestamp is None:
                self._check(job, running)
                if (node := _node_of(job)) in nodes:
                    await self._start(job, node)

    def _check(self, job: WholeJob, running: Mapping[str, BoundPod]) -> None:
        """Note if another incarnation of the replica runs, or if the VM belongs to another one."""
        labels, node = job.metadata.labels, _node_of(job)
        for name, other in running.items():
            same = all(other.metadata.labels.get(key) == labels[key] for key in (JOB_LABEL, REPLICA_LABEL))
            if same or other.spec["nodeName"] == node:
                self.violations.append(f"Job {job.metadata.name} was created while {name} runs")

    async def _start(self, job: WholeJob, node: str) -> None:
        template = cast("Json", job.spec["template"])
        meta, name = cast("Json", template["metadata"]), job.metadata.name
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": name,
            "uid": job.metadata.uid,
            "controller": True,
        }
        labels = {**cast("Json", meta["labels"]), "job-name": name}
        metadata = {"name": f"{name}-pod", "labels": labels, "ownerReferences": [owner]}
        spec = {**cast("Json", template["spec"]), "nodeName": node}
        with suppress(AlreadyExists):
            await self._client.create(Pod, {"metadata": metadata, "spec": spec}, self._namespace)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        container = {
            "name": "training",
            "image": "x",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        status = {"phase": "Running", "startTime": now, "containerStatuses": [container]}
        body = {"status": status}
        await self._client.patch(Pod, f"{name}-pod", body, self._namespace, subresource="status")

    async def _complete(self, backup: CheckpointBackup) -> None:
        """Push the images of a backup, and say so."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        built = []
        for container in backup.spec.containers:
            await push_image(self._registry, container.image)
            built.append(
                {
                    "containerName": container.name,
                    "imageName": container.image,
                    "buildTime": now,
                    "pushed": True,
                }
            )
        status = {"phase": "Completed", "builtImages": built, "lastCheckpointTime": now}
        with suppress(NotFound):
            await self._client.patch(
                CheckpointBackup,
                backup.metadata.name,
                {"status": status},
                self._namespace,
                subresource="status",
            )
            self.backups += 1

    async def _delete(self, pod: BoundPod) -> None:
        with suppress(NotFound):
            await self._client.delete(Pod, pod.metadata.name, self._namespace, grace_seconds=0)

    async def _list(self, kind: type[T]) -> list[T]:
        return list((await self._client.list(kind, self._namespace)).items)


def _node_of(job: WholeJob) -> str:
    """Return the node that a Job of a replica is bound to."""
    spec = cast("Json", cast("Json", job.spec["template"])["spec"])
    affinity = cast("Json", cast("Json", spec["affinity"])["nodeAffinity"])
    required = cast("Json", affinity["requiredDuringSchedulingIgnoredDuringExecution"])
    for term in cast("list[Json]", required["nodeSelectorTerms"]):
        for wanted in cast("list[Json]", term["matchFields"]):
            if wanted["key"] == NODE_FIELD:
                return str(cast("list[str]", wanted["values"])[0])
    raise AssertionError(spec)
