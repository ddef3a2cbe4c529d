"""The cluster of a simulated SpotInstanceJob: the Job controller, machines, agents and the registry."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import cast

import msgspec
from msgspec.structs import replace

from argosy.checkpoint.image_names import Image, checkpoint_tag, complete_stamps, parse_image
from argosy.checkpoint.image_requests import DeleteImages, FindNewest, FoundImages, VerifyImages
from argosy.dialects.spot.pods import ClusterPod
from argosy.dialects.spot.record import SpotJobRecord
from argosy.kinds.kubernetes import Job, JobStatus, Node, PodStatus, SecretMetadata, Taint
from argosy.kinds.meta import Condition, ObjectMeta
from argosy.kinds.migration import BuiltImage, CheckpointBackup
from argosy.kinds.spot import INSTANCE_LABEL, SpotInstanceJob
from argosy.kinds.spot_machines import InstanceTemplate, ProvisionedInstance, SpotInstanceVM
from argosy.kinds.status_condition import StatusCondition
from argosy.plan.actions import (
    Call,
    CallResult,
    CallStatus,
)
from argosy.plan.children import KubernetesObject
from argosy.plan.record import decode_record
from argosy.workload.announcements import NoticeRules, find_announcement
from tests.support.spot_jobs import Json, instance_template, spot_vm

START = datetime(2026, 1, 1, tzinfo=UTC)
NAME = "my-training-job"
GPU = "nvidia.com/gpu"
Store = dict[str, KubernetesObject]


class SpotCluster:
    """What there is, and what others than the operator do with it."""

    def __init__(self, job: SpotInstanceJob) -> None:
        self.now = START
        self.job = job
        self.kinds: dict[type[KubernetesObject], Store] = {
            kind: {}
            for kind in (
                Job,
                ClusterPod,
                Node,
                CheckpointBackup,
                ProvisionedInstance,
                SecretMetadata,
                SpotInstanceVM,
                InstanceTemplate,
            )
        }
        self.bodies: dict[str, Json] = {}
        """Whole bodies of Jobs by name."""
        self.registry: dict[str, str] = {}
        """Digests of images by their whole names."""
        self.owners: dict[str, str] = {}
        """Owners of images, where these say it."""
        self.registry_down = False
        self.secret: Mapping[str, bytes] | None = None
        """The content of the Secret for the registry."""
        self.keep_pods = False
        """Whether pods go on although their Job is deleted."""
        self.agents = self.machines = self.controllers = True
        """Whether these react at once."""
        self.events: list[tuple[datetime, str, str]] = []
        self.numbers = 0

    @property
    def status(self) -> Mapping[str, object]:
        return cast("Json", msgspec.to_builtins(self.job.status))

    @property
    def record(self) -> SpotJobRecord:
        record = decode_record(self.job.status.argosy, SpotJobRecord)
        assert record is not None
        return record

    @property
    def jobs(self) -> dict[str, Job]:
        return cast("dict[str, Job]", self.kinds[Job])

    @property
    def pods(self) -> dict[str, ClusterPod]:
        return cast("dict[str, ClusterPod]", self.kinds[ClusterPod])

    @property
    def nodes(self) -> dict[str, Node]:
        return cast("dict[str, Node]", self.kinds[Node])

    @property
    def backups(self) -> dict[str, CheckpointBackup]:
        return cast("dict[str, CheckpointBackup]", self.kinds[CheckpointBackup])

    @property
    def instances(self) -> dict[str, ProvisionedInstance]:
        return cast("dict[str, ProvisionedInstance]", self.kinds[ProvisionedInstance])

    def condition(self, kind: str) -> tuple[str, str]:
        found = next((c for c in self.job.status.conditions if c.type == kind), None)
        return (found.status, found.reason) if found else ("", "")

    def condition_message(self, kind: str) -> str:
        return next((c.message for c in self.job.status.conditions if c.type == kind), "")

    def event_reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]

    def replica(self, index: int) -> Json:
        """Return the status of a replica; numbers that are 0 are not stored."""
        return {"restarts": 0, "preemptions": 0, **cast("list[Json]", self.status["jobStatuses"])[index]}

    @property
    def recoveries(self) -> list[Json]:
        return cast("list[Json]", self.status.get("recoveries", []))

    def pod_of(self, index: int) -> ClusterPod:
        name = self.replica(index)["name"]
        return next(pod for pod in self.pods.values() if pod.metadata.labels.get("job-name") == name)

    def job_body(self, index: int) -> Json:
        return self.bodies[str(self.replica(index)["name"])]

    def add_template(self, *, later_shape: bool = False, changes: Json | None = None) -> None:
        body = instance_template(changes=changes) if later_shape else spot_vm(changes=changes)
        body["metadata"] = {"name": "my-training-vm", "namespace": "default", "uid": "template-uid"}
        if later_shape:
            self.kinds[InstanceTemplate]["my-training-vm"] = msgspec.convert(body, InstanceTemplate)
        else:
            self.kinds[SpotInstanceVM]["my-training-vm"] = msgspec.convert(body, SpotInstanceVM)

    def add_node(self, name: str, gpus: int = 1, labels: Mapping[str, str] = {}, cpu: str = "8") -> None:
        allocatable = {"cpu": cpu, "memory": "16Gi", "pods": "110", **({GPU: str(gpus)} if gpus else {})}
        self.nodes[name] = Node(ObjectMeta(name=name, uid=f"node-{name}", labels=dict(labels)))
        self.nodes[name].status.allocatable.update(allocatable)
        self.set_ready(name, "True")

    def set_ready(self, name: str, status: str, message: str = "") -> None:
        condition = Condition("Ready", status, message=message, last_transition_time=self.now)
        node = self.nodes[name]
        node_status = replace(node.status, conditions=[condition])
        self.nodes[name] = replace(node, status=node_status)

    def annotate_node(self, name: str, annotations: Mapping[str, str]) -> None:
        node = self.nodes[name]
        self.nodes[name] = replace(
            node, metadata=replace(node.metadata, annotations={**node.metadata.annotations, **annotations})
        )

    def taint(self, name: str, key: str) -> None:
        node = self.nodes[name]
        taints = [*node.spec.taints, Taint(key, "NoSchedule")]
        self.nodes[name] = replace(node, spec=replace(node.spec, taints=taints))

    def occupy(self, node: str, gpus: int = 1) -> None:
        """Add a pod of somebody else to a node."""
        raw = {
            "metadata": {"name": f"other-{node}", "namespace": "other", "uid": f"other-{node}"},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}],
            },
            "status": {"phase": "Running"},
        }
        self.pods[f"other-{node}"] = msgspec.convert(raw, ClusterPod)

    def change_instance(self, name: str, **status: object) -> None:
        instance = self.instances[name]
        self.instances[name] = replace(instance, status=replace(instance.status, **status))

    def change_backup(self, name: str, **status: object) -> None:
        backup = self.backups[name]
        self.backups[name] = replace(backup, status=replace(backup.status, **status))

    def lose_node(self, name: str) -> None:
        """The node goes with everything on it: the VM stops, its pods end."""
        self.nodes.pop(name, None)
        for pod in list(self.pods.values()):
            if pod.spec.node_name == name:
                del self.pods[pod.metadata.name]
        if name in self.instances:
            self.change_instance(name, state="TERMINATED", preemption_notice=True, cause="Preempted")

    def end_pod(self, index: int, exit_code: int, *, disrupted: str = "") -> None:
        """The container of a replica's pod ends; with an exit code other than 0 its Job fails."""
        pod = self.pod_of(index)
        ended = {"exitCode": exit_code, "finishedAt": self.now, "startedAt": pod.status.start_time}
        conditions = [Condition("DisruptionTarget", "True", disrupted)] if disrupted else []
        raw = msgspec.to_builtins(pod.status) | {
            "phase": "Failed" if exit_code else "Succeeded",
            "containerStatuses": [{"name": "training", "state": {"terminated": ended}}],
            "conditions": msgspec.to_builtins(conditions),
        }
        self.pods[pod.metadata.name] = replace(pod, status=msgspec.convert(raw, PodStatus))
        name = str(self.replica(index)["name"])
        condition = Condition("Failed" if exit_code else "Complete", "True", last_transition_time=self.now)
        counts = JobStatus(failed=1) if exit_code else JobStatus(succeeded=1)
        self.jobs[name] = replace(self.jobs[name], status=replace(counts, conditions=[condition]))

    def complete_backup(self, name: str, *, pushed: bool = True, phase: str = "Completed") -> None:
        """An agent has made the images of a backup."""
        backup = self.backups[name]
        images = []
        for container in backup.spec.containers:
            images.append(BuiltImage(container.name, container.image, self.now, pushed))
            whole = f"{backup.spec.registry.url}/{container.image}" if backup.spec.registry else ""
            if pushed:
                self.push(whole)
        self.change_backup(name, phase=phase, built_images=images, last_checkpoint_time=self.now)

    def push(self, image: str, owner: str = "") -> None:
        self.registry[image] = f"sha256:{hashlib.sha256(image.encode()).hexdigest()}"
        if owner:
            self.owners[image] = owner

    def delete_job(self) -> None:
        meta = replace(self.job.metadata, deletion_timestamp=self.now)
        self.job = replace(self.job, metadata=meta)

    def edit(self, **spec: object) -> None:
        meta = replace(self.job.metadata, generation=self.job.metadata.generation + 1)
        self.job = replace(self.job, metadata=meta, spec=replace(self.job.spec, **spec))

    def react(self) -> None:
        """Let controllers, machines and agents do what they do at once."""
        if self.machines:
            self.provision()
        if self.controllers:
            self._run_jobs()
        if self.agents:
            for name, backup in list(self.backups.items()):
                if backup.status.phase == "" and self._runs(backup.spec.pod_ref.name):
                    self.complete_backup(name)

    def _runs(self, pod: str) -> bool:
        return pod in self.pods and self.pods[pod].status.phase == "Running"

    def provision(self) -> None:
        for name, instance in list(self.instances.items()):
            if instance.status.state:
                continue
            gpus = 0
            for kind in (SpotInstanceVM, InstanceTemplate):
                template = self.kinds[kind].get(instance.spec.instance_template_name)
                if isinstance(template, SpotInstanceVM | InstanceTemplate) and template.spec.gpu:
                    gpus = template.spec.gpu.count
            self.add_node(name, gpus, {INSTANCE_LABEL: name})
            conditions = [
                StatusCondition(kind, "True", "Found") for kind in ("CredentialsReady", "JoinConfigReady")
            ]
            self.change_instance(
                name,
                state="RUNNING",
                node_name=name,
                joined_cluster=True,
                zone="us-central1-a",
                price_per_hour="0.15",
                on_demand_price_per_hour="0.50",
                conditions=conditions,
            )

    def _run_jobs(self) -> None:
        for name, job in list(self.jobs.items()):
            ended = any(c.status == "True" for c in job.status.conditions)
            if ended or any(pod.metadata.labels.get("job-name") == name for pod in self.pods.values()):
                continue
            node = bound_node(self.bodies[name])
            if node not in self.nodes:
                continue
            self._start_pod(name, job, node)
            self.jobs[name] = replace(job, status=JobStatus(active=1))

    def _start_pod(self, name: str, job: Job, node: str) -> None:
        template = cast("Json", cast("Json", self.bodies[name]["spec"])["template"])
        meta = cast("Json", template["metadata"])
        self.numbers += 1
        pod = f"{name}-p{self.numbers}"
        running = {"running": {"startedAt": self.now}}
        raw = {
            "metadata": {
                "name": pod,
                "namespace": "default",
                "uid": f"pod-{self.numbers}",
                "labels": {**cast("Json", meta["labels"]), "job-name": name},
                "ownerReferences": [
                    {"kind": "Job", "name": name, "uid": job.metadata.uid, "controller": True}
                ],
            },
            "spec": {**cast("Json", template["spec"]), "nodeName": node},
            "status": {
                "phase": "Running",
                "startTime": self.now,
                "containerStatuses": [{"name": "training", "state": running}],
            },
        }
        self.pods[pod] = msgspec.convert(raw, ClusterPod)

    def answer(self, call: Call) -> CallResult:
        if self.registry_down:
            return CallResult(call.key, CallStatus.UNAVAILABLE, message="connection refused")
        match call.request:
            case VerifyImages(images, digests):
                for container, image in images.items():
                    recorded = digests.get(container, self.registry.get(image))
                    if image not in self.registry or recorded != self.registry[image]:
                        message = f"image {image} does not exist"
                        return CallResult(call.key, CallStatus.REFUSED, code="ImageNotFound", message=message)
                found = {container: self.registry[image] for container, image in images.items()}
                return CallResult(call.key, value=FoundImages(images, found))
            case FindNewest():
                return CallResult(call.key, value=self._newest(call.request))
            case DeleteImages(images):
                for image in images:
                    self.registry.pop(image, None)
                return CallResult(call.key)
        raise AssertionError(call.request)

    def _newest(self, request: FindNewest) -> FoundImages:
        stored = [parse_image(name) for name in self.registry]
        mine = [image for image in stored if self._belongs(image, request)]
        for stamp in complete_stamps([image.tag for image in mine], request.containers):
            images = {c: f"{request.repository}:{checkpoint_tag(c, stamp)}" for c in request.containers}
            return FoundImages(images, {c: self.registry[image] for c, image in images.items()}, stamp)
        return FoundImages()

    def _belongs(self, image: Image, request: FindNewest) -> bool:
        owner = self.owners.get(str(image), request.owner)
        return str(image.repository) == request.repository and owner == request.owner

    def is_announced(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and find_announcement(node, NoticeRules()) is not None

    def is_silent(self, name: str) -> bool:
        node = self.nodes.get(name)
        return node is not None and any(c.status == "Unknown" for c in node.status.conditions)


def bound_node(body: Json) -> str:
    """Return the node that a Job's pods are bound to by their affinity."""
    affinity = cast(
        "Json", cast("Json", cast("Json", cast("Json", body["spec"])["template"])["spec"])["affinity"]
    )
    required = cast("Json", affinity["nodeAffinity"])["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = cast("list[Json]", cast("Json", required)["nodeSelectorTerms"])
    fields = cast("list[Json]", terms[0]["matchFields"])
    return str(cast("list[str]", fields[-1]["values"])[0])
