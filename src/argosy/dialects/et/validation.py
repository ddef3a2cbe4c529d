"""Finds what is wrong with a TrainingJob or a scaler, with the path of each field.

The CRDs reject most of it; what is found here was stored under an older CRD, or cannot be expressed in one.
"""

import re
from collections.abc import Iterator, Sequence

from argosy.dialects.checkpoints import spec_problems
from argosy.dialects.et.names import worker_name
from argosy.dialects.et.spec import MAX_WORKERS, read_job_spec
from argosy.dialects.templates import containers
from argosy.kinds.dns_names import service_name_error
from argosy.kinds.quantity import parse_quantity
from argosy.kinds.scalers import ScaleInSpec, ScaleOutSpec
from argosy.kinds.template import template_errors
from argosy.kinds.text import quote_value, truncate
from argosy.kinds.trainingjob import (
    ATTACH_MODES,
    CLEAN_POD_POLICIES,
    MAX_PATH_CHARS,
    MOUNT_PATH_PATTERN,
    REPLACEMENT_POLICIES,
    RESTART_POLICIES,
    LauncherSpec,
    TrainingJob,
    TrainingJobSpec,
    WorkerSpec,
)
from argosy.workload.model import Json, Problem, Problems

_LAUNCHER, _WORKER = "spec.etReplicaSpecs.launcher", "spec.etReplicaSpecs.worker"
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def load_job(job: TrainingJob, *, started: bool) -> TrainingJobSpec | Problems:
    """Return the spec of a job with its defaults, or everything that is wrong with it (reason InvalidSpec).

    The number of workers is checked before the job has `started` only. Later a number outside of its range is
    ignored and reported (`replicas_problem`), because the job already has workers.
    """
    spec = read_job_spec(job.spec)
    if isinstance(spec, Problem):
        return Problems((spec,))
    found = [
        *_launcher_problems(spec.et_replica_specs.launcher),
        *_worker_problems(spec.et_replica_specs.worker),
        *_job_problems(spec),
        *_scheduling_problems(spec),
        *spec_problems(spec.checkpoint),
    ]
    if not started:
        found += _start_problems(job.metadata.name, spec)
    return Problems(tuple(found)) if found else spec


def replicas_problem(spec: TrainingJobSpec) -> Problem | None:
    """Return what is wrong with the number of workers; None if it is within its range."""
    worker, path = spec.et_replica_specs.worker, f"{_WORKER}.replicas"
    value = f"invalid value {worker.replicas}"
    if not 1 <= worker.replicas <= MAX_WORKERS:
        return Problem(path, f"{value}: must be between 1 and {MAX_WORKERS}")
    if worker.min_replicas is not None and worker.replicas < worker.min_replicas:
        return Problem(path, f"{value}: must be at least minReplicas {worker.min_replicas}")
    if worker.max_replicas is not None and worker.replicas > worker.max_replicas:
        return Problem(path, f"{value}: must be at most maxReplicas {worker.max_replicas}")
    return None


def scaler_error(spec: ScaleInSpec | ScaleOutSpec) -> str:
    """Return what makes a scaler fail whatever job it is for; empty if nothing does."""
    if not spec.selector.name:
        return ".spec.selector.name is required"
    for index, variable in enumerate(spec.env):
        if not _ENV_NAME.fullmatch(variable.name):
            name = quote_value(variable.name)
            return f".spec.env[{index}].name: invalid value {name}: must match {_ENV_NAME.pattern}"
    if spec.timeout is not None and spec.timeout < 1:
        return f".spec.timeout: invalid value {spec.timeout}: must be at least 1"
    if spec.backoff_limit < 0:
        return f".spec.backoffLimit: invalid value {spec.backoff_limit}: must be at least 0"
    return ""


def _start_problems(job: str, spec: TrainingJobSpec) -> Iterator[Problem]:
    """Yield what is wrong with the number of workers that the job starts with."""
    if problem := replicas_problem(spec):
        yield problem
        return
    replicas = spec.et_replica_specs.worker.replicas
    if error := service_name_error(worker_name(job, replicas - 1)):
        yield Problem("metadata.name", f"the name of its last worker, {error}")
    least = spec.scheduling_policy.min_available if spec.scheduling_policy else None
    if least is not None and least > replicas + 1:
        error = f"invalid value {least}: must be at most {replicas + 1}, the number of all pods"
        yield Problem("spec.schedulingPolicy.minAvailable", error)


def _launcher_problems(launcher: LauncherSpec) -> Iterator[Problem]:
    if launcher.replicas != 1:
        yield Problem(f"{_LAUNCHER}.replicas", f"invalid value {launcher.replicas}: must be 1")
    if launcher.restart_policy is not None:
        yield from _one_of(launcher.restart_policy, REPLACEMENT_POLICIES, f"{_LAUNCHER}.restartPolicy")
    yield from _template_problems(launcher.template, f"{_LAUNCHER}.template")


def _worker_problems(worker: WorkerSpec) -> Iterator[Problem]:
    low, high = worker.min_replicas, worker.max_replicas
    yield from _at_least(low, 1, f"{_WORKER}.minReplicas")
    yield from _at_least(high, 1, f"{_WORKER}.maxReplicas")
    if low is not None and high is not None and 1 <= high < low:
        error = f"invalid value {high}: must be at least minReplicas {low}"
        yield Problem(f"{_WORKER}.maxReplicas", error)
    yield from _one_of(worker.restart_policy, REPLACEMENT_POLICIES, f"{_WORKER}.restartPolicy")
    yield from _template_problems(worker.template, f"{_WORKER}.template")


def _template_problems(template: Json, path: str) -> Iterator[Problem]:
    if not containers(template):
        yield Problem(f"{path}.spec.containers", "must have at least one container")
    yield from (Problem(*error) for error in template_errors(template, path))


def _job_problems(spec: TrainingJobSpec) -> Iterator[Problem]:
    yield from _one_of(spec.clean_pod_policy, CLEAN_POD_POLICIES, "spec.cleanPodPolicy")
    yield from _one_of(spec.launcher_attach_mode, ATTACH_MODES, "spec.launcherAttachMode")
    yield from _one_of(spec.restart_policy, RESTART_POLICIES, "spec.restartPolicy")
    yield from _at_least(spec.slots_per_worker, 1, "spec.slotsPerWorker")
    yield from _at_least(spec.backoff_limit, 0, "spec.backoffLimit")
    yield from _at_least(spec.ttl_seconds_after_finished, 0, "spec.ttlSecondsAfterFinished")
    yield from _at_least(spec.active_deadline_seconds, 1, "spec.activeDeadlineSeconds")
    path = spec.ssh_auth_mount_path
    if not re.fullmatch(MOUNT_PATH_PATTERN, path) or len(path) > MAX_PATH_CHARS or ".." in path.split("/"):
        error = "must be an absolute path without ':' and '..'"
        yield Problem("spec.sshAuthMountPath", f"invalid value {quote_value(path)}: {error}")


def _scheduling_problems(spec: TrainingJobSpec) -> Iterator[Problem]:
    policy, path = spec.scheduling_policy, "spec.schedulingPolicy"
    if policy is None:
        return
    yield from _at_least(policy.min_available, 0, f"{path}.minAvailable")
    yield from _at_least(policy.schedule_timeout_seconds, 0, f"{path}.scheduleTimeoutSeconds")
    for name, quantity in (policy.min_resources or {}).items():
        try:
            parse_quantity(quantity)
        except ValueError as error:
            yield Problem(f"{path}.minResources[{truncate(name)}]", str(error))


def _one_of(value: str, choice: Sequence[str], path: str) -> Iterator[Problem]:
    if value not in choice:
        allowed = " or ".join(name for name in choice if name)
        yield Problem(path, f"invalid value {quote_value(value)}: must be {allowed}")


def _at_least(value: int | None, minimum: int, path: str) -> Iterator[Problem]:
    if value is not None and value < minimum:
        yield Problem(path, f"invalid value {value}: must be at least {minimum}")
