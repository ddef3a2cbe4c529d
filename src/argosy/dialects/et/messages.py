"""The texts of conditions and events of TrainingJobs and scalers.

Tools read parts of et-operator's texts, so those keep its wording. A scaler is named as in
`status.currentScaler`, such as ScaleIn:default/name.
"""

from collections.abc import Sequence
from datetime import datetime

from argosy.kinds.text import join_names, quote_value

MAX_NAMES = 10
"""Names of workers in one message."""

JOB_FINISHED = "job finished"
"""A scaler failed because its job has ended."""
JOB_RESTARTED = "job restarted"
"""A scaler failed because its job was restarted meanwhile."""
JOB_SUSPENDED = "job suspended"
"""A scaler failed because its job was suspended meanwhile."""
DRAIN_TIMEOUT = "drain timeout"
"""A ScaleIn has removed workers in which training processes still ran."""

# Conditions of a job.


def created(name: str) -> str:
    """Return the text of condition Created of a job."""
    return f"TrainingJob {name} is created."


def workers_created(namespace: str, name: str) -> str:
    """Return the text of condition WorkersCreated."""
    return f"create {_training_job(namespace, name)} workers"


def workers_ready(namespace: str, name: str, count: int) -> str:
    """Return the text of condition WorkersReady."""
    return f"{_training_job(namespace, name)} all workers ({count}) are running"


def launcher_created(namespace: str, name: str) -> str:
    """Return the text of condition LauncherCreated."""
    return f"create {_training_job(namespace, name)} launcher"


def running(namespace: str, name: str) -> str:
    """Return the text of condition Running."""
    return f"job({namespace}/{name}) is running."


def succeeded(namespace: str, name: str) -> str:
    """Return the text of condition Succeeded."""
    return f"job({namespace}/{name}) successfully completed."


def failed(namespace: str, name: str, exit_code: int | None = None) -> str:
    """Return the text about a job whose launcher failed, with the exit code of the launcher container."""
    text = f"job({namespace}/{name}) has failed"
    return text if exit_code is None else f"{text}: the launcher exited with code {exit_code}"


def launcher_missing(pod: str) -> str:
    """Return the text of condition Failed if the launcher was deleted and is not created again."""
    return f"launcher pod {pod} is missing"


def suspended_by_annotation(name: str) -> str:
    """Return the text of condition Suspended if an annotation suspends the job."""
    return f"TrainingJob {name} is waiting resource timeout."


def suspended(name: str) -> str:
    """Return the text of condition Suspended if the spec suspends the job."""
    return f"TrainingJob {name} is suspended."


def resumed(name: str) -> str:
    """Return the text of condition Suspended, which is False, of a job that starts again."""
    return f"TrainingJob {name} is resumed."


def restarting(name: str) -> str:
    """Return the text of condition Restarting if nothing else is known about the cause."""
    return f"TrainingJob {name} is restarting."


# Workers of a job: events.


def worker_lost(namespace: str, name: str, pod: str, phase: str) -> str:
    """Return the text about a lost worker, by the phase of its pod; Deleted if there is none."""
    return f"{_training_job(namespace, name)}: worker {pod} phase is {phase}."


def worker_evicted(namespace: str, name: str, pod: str) -> str:
    """Return the text about a worker that was evicted."""
    return f"{_training_job(namespace, name)}: worker {pod} are evicted."


def node_releasing(node: str, source: str, deadline: datetime, pods: Sequence[str]) -> str:
    """Return the text about a node that is about to end, and the workers that are removed from it."""
    shown = join_names(pods, MAX_NAMES)
    return f"node {node} is released by {deadline:%Y-%m-%dT%H:%M:%SZ} ({source}): removing {shown}"


def workers_replaced(namespace: str, name: str, pods: Sequence[str]) -> str:
    """Return the text about workers that take the place of lost ones."""
    shown = " ".join(pods[:MAX_NAMES]) + (f" and {len(pods) - MAX_NAMES} more" if pods[MAX_NAMES:] else "")
    return f"{_training_job(namespace, name)}: recreate workers [{shown}] for failed workers"


def not_managed_by(kind: str, name: str, job: str) -> str:
    """Return the text about an object that has the name of one that the job needs."""
    return f"{kind} {name} exists and is not managed by TrainingJob {job}; delete it, or rename the job"


def unknown_phase(phase: str) -> str:
    """Return the text about a phase that somebody else wrote."""
    return f"unknown phase {quote_value(phase)}: the phase follows from the pods and must not be written"


def single_worker(name: str) -> str:
    """Return the text about a Horovod job that starts with one worker."""
    return (
        f"TrainingJob {name} starts with one worker, and horovodrun needs two to find network interfaces;"
        " add --network-interfaces to its command, or start with two workers"
    )


def replicas_ignored(problem: str, workers: int) -> str:
    """Return the text about a number of workers that is out of range."""
    return f"{problem}; ignored, the job keeps {workers}"


def create_failed(names: Sequence[str], error: str) -> str:
    """Return the text about objects that the API server rejects; the job tries again."""
    return f"{join_names(names, MAX_NAMES)}: {error}"


# Scalers: conditions of the scaler and of its job.


def scaler_bound(namespace: str, name: str, job: str) -> str:
    """Return the text of condition Created of a scaler."""
    return f"Scaling job {namespace}/{name} created, match the training job {job}"


def job_not_found(namespace: str, job: str) -> str:
    """Return the text of condition WaitingForJob of a scaler."""
    return f"there is no TrainingJob {job} in namespace {namespace}"


def scaling_started(scaler: str) -> str:
    """Return the text of condition Scaling."""
    return f"{scaler} is being executed"


def scaling_succeeded(scaler: str, *, drain_timed_out: bool = False) -> str:
    """Return the text of condition ScaleSucceeded."""
    return f"{scaler} has Succeeded" + (f" ({DRAIN_TIMEOUT})" if drain_timed_out else "")


def script_executed(namespace: str, name: str, scaler: str) -> str:
    """Return the text of condition ScriptExecuted: the host list was changed, or the script was run."""
    return f"{_training_job(namespace, name)}: execute script on launcher for {scaler}"


def drain_timed_out(pods: Sequence[str]) -> str:
    """Return the text about workers that were removed although training processes still ran in them."""
    return f"{join_names(pods, MAX_NAMES)} removed before the launcher has left them: {DRAIN_TIMEOUT}"


def selection_failed(scaler: str, error: str) -> str:
    """Return the text about a ScaleIn whose workers cannot be selected."""
    return f"{scaler} get to delete workers name failed, error: {error}"


def scaling_failed(kind: str, namespace: str, name: str, error: str) -> str:
    """Return the text about a ScaleIn or ScaleOut that failed after its workers were selected."""
    scaler = f"{namespace}/{name}"
    return f"scaleout job {scaler} {error}" if kind == "ScaleOut" else f"{kind}:{scaler}: {error}"


def workers_deleted(pods: Sequence[str], scaler: str) -> str:
    """Return the text about workers that a scaler has removed."""
    return f"{join_names(pods, MAX_NAMES)} removed by {scaler}"


def _training_job(namespace: str, name: str) -> str:
    return f"trainingjob({namespace}/{name})"
