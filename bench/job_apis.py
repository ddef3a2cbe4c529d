"""The job APIs that are benchmarked: how each writes a job of one role, and its target in W2."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from argosy.dialects.ares.api import ares_job_api
from argosy.dialects.base import Job, JobApi
from argosy.dialects.trainingrun.dialect import training_run_api
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.trainingjob import TrainingJob
from argosy.reconcile.pod_renderer import PodRenderer
from argosy.reconcile.render_context import Helper, RenderContext
from argosy.workload.model import Problems
from argosy.workload.plan import CreatePod
from bench.baseline_client import BaselinePod
from tests.support.simulator import UNTIL_RELEASED

ROLE = "worker"
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
    burst_ratio: float
    """Target of W2: speed relative to the baseline client."""

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
            for index in range(workload.roles[ROLE].replicas):
                name = self.api.pod_name(workload, ROLE, index, 1, 0)
                body = msgspec.json.encode(bodies.render(CreatePod(ROLE, index, 1, 0), name))
                pods.append(BaselinePod(name, namespace, msgspec.Raw(body)))
        return pods


def _in_namespace(job: Job, namespace: str) -> Job:
    meta = ObjectMeta(job.metadata.name, namespace, f"baseline-{namespace}-{job.metadata.name}")
    return msgspec.structs.replace(job, metadata=meta)  # type: ignore[type-var]  # every job is a Struct


def _training_run_spec(workers: int, template: Json) -> Json:
    role = {"replicas": workers, "restart": "OnFailure", "template": template}
    return {"framework": "custom", "roles": {ROLE: role}}


def _ares_job_spec(workers: int, template: Json) -> Json:
    role = {"replicas": workers, "restartPolicy": "OnFailure", "template": template}
    return {"frameworkType": "custom", "roleSpecs": {ROLE: role}, "runPolicy": {"backoffLimit": 3}}


JOB_APIS = (
    BenchApi(name="trainingrun", api=training_run_api(), spec=_training_run_spec, burst_ratio=0.8),
    BenchApi(name="aresjob", api=ares_job_api(), spec=_ares_job_spec, burst_ratio=0.7),
)
"""The job APIs that are measured. A test compares them, with NOT_MEASURED, with all that are served."""

NOT_MEASURED = (TrainingJob,)
"""Its launcher is created after a command has run in every worker, which simulated nodes cannot do."""
