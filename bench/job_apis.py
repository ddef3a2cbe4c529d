"""The job APIs that are benchmarked: how each writes a job of equal workers, and its target in W2."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from argosy.dialects.ares.api import ares_job_api
from argosy.dialects.base import Job, JobApi
from argosy.dialects.et.api import training_job_api
from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.trainingjob import LAUNCHER
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Problems
from argosy.workload.plan import CreatePod
from bench.baseline_client import BaselinePod
from bench.namespace import WORKER
from tests.support.simulator import UNTIL_RELEASED

WORKERS = 8
"""Pods of each job, except in W1."""


@dataclass(frozen=True, kw_only=True)
class BenchApi:
    """One job API."""

    name: str
    """Part of the names of its figures."""
    api: JobApi  # type: ignore[type-arg]  # of any kind
    spec: Callable[[int, Json], Json]
    """Returns the spec of a job of the framework custom, by number of workers and pod template."""
    start_ratio: float | None = 0.8
    """Target of W1: speed relative to the baseline client; None if there is no target."""
    burst_ratio: float | None
    """The same of W2."""
    max_cpu_ms_per_pod: float | None = 2.0
    max_requests_per_pod: float | None = 2.2
    launcher: str = ""
    """Role of one more pod of each job, whose end is that of the job; empty: there is none."""

    def pod_count(self, workers: int) -> int:
        """Return the number of pods of a job."""
        return workers + bool(self.launcher)

    def ending_count(self, workers: int) -> int:
        """Return the number of pods of a job that end when they are released; the others are deleted then."""
        return 1 if self.launcher else workers

    def jobs(self, count: int, workers: int, *, until_released: bool = False) -> list[Json]:
        """Return jobs whose pods run for ever, or until their namespace is released."""
        return [self.job(f"job-{number}", workers, until_released=until_released) for number in range(count)]

    def job(self, name: str, workers: int, *, until_released: bool = False) -> Json:
        container = {"name": "main", "image": "local", "command": ["python", "-m", "train"]}
        template: Json = {"spec": {"containers": [container], "automountServiceAccountToken": False}}
        if until_released:
            template["metadata"] = {"annotations": {UNTIL_RELEASED: ""}}
        return {"metadata": {"name": name}, "spec": self.spec(workers, template)}

    def pods(self, jobs: list[Json], namespace: str) -> list[BaselinePod]:
        """Return the pods that the operator creates for these jobs, for a client that only creates them."""
        renderer = PodRenderer(RenderContext(Helper("helper"), "https://operator"), lambda _: "")
        pods: list[BaselinePod] = []
        for manifest in jobs:
            job = msgspec.convert(manifest, self.api.kind)
            workload = self.api.dialect.to_workload(_in_namespace(job, namespace))
            assert not isinstance(workload, Problems), str(workload)
            bodies = renderer.for_job(workload, self.api.inject)
            for role in workload.roles.values():
                for index in range(role.replicas):
                    name = self.api.pod_name(workload, role.name, index, 1, 0)
                    body = _without_account(bodies.render(CreatePod(role.name, index, 1, 0), name))
                    pods.append(BaselinePod(name, namespace, msgspec.Raw(msgspec.json.encode(body))))
        return pods


def _without_account(pod: Json) -> Json:
    """Return the pod without its ServiceAccount, which the baseline client does not create."""
    spec = pod["spec"]
    assert isinstance(spec, dict)
    return {**pod, "spec": {name: value for name, value in spec.items() if name != "serviceAccountName"}}


def _in_namespace(job: Job, namespace: str) -> Job:
    meta = ObjectMeta(job.metadata.name, namespace, f"baseline-{namespace}-{job.metadata.name}")
    return msgspec.structs.replace(job, metadata=meta)  # type: ignore[type-var]  # every job is a Struct


def _training_run_spec(workers: int, template: Json) -> Json:
    role = {"replicas": workers, "restart": "OnFailure", "template": template}
    return {"framework": "custom", "roles": {WORKER: role}}


def _ares_job_spec(workers: int, template: Json) -> Json:
    role = {"replicas": workers, "restartPolicy": "OnFailure", "template": template}
    return {"frameworkType": "custom", "roleSpecs": {WORKER: role}, "runPolicy": {"backoffLimit": 3}}


def _training_job_spec(workers: int, template: Json) -> Json:
    """Return a spec in which only the launcher ends by itself."""
    worker = {"replicas": workers, "restartPolicy": "Always", "template": {"spec": template["spec"]}}
    return {"etReplicaSpecs": {LAUNCHER: {"template": template}, WORKER: worker}}


JOB_APIS = (
    BenchApi(name="trainingrun", api=training_run_api(), spec=_training_run_spec, burst_ratio=0.8),
    BenchApi(name="aresjob", api=ares_job_api(), spec=_ares_job_spec, burst_ratio=0.7),
    BenchApi(
        name="trainingjob",
        api=training_job_api(),
        spec=_training_job_spec,
        # Each worker has a Service and has to answer a command; the launcher is created after all of that.
        start_ratio=None,
        burst_ratio=None,
        max_cpu_ms_per_pod=None,
        max_requests_per_pod=None,
        launcher=LAUNCHER,
    ),
)
"""The job APIs that are measured. A test compares them with all that are served."""
