"""Names and labels of the objects of a TrainingJob, as et-operator makes them."""

import re

from argosy.kinds.trainingjob import JOB_LABEL, ROLE_LABEL, WORKER

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


def worker_name(job: str, index: int) -> str:
    """Return the name of a worker's Pod and of its Service."""
    return f"{job}-worker-{index}"


def worker_index(job: str, name: str) -> int | None:
    """Return the index of the worker with this name; None if no worker of the job can have it."""
    prefix, index = f"{job}-worker-", name.rpartition("-")[2]
    if name != prefix + index or not _INDEX.fullmatch(index):
        return None
    return int(index)


def launcher_name(job: str) -> str:
    """Return the name of the launcher's Pod, ServiceAccount, Role and RoleBinding."""
    return f"{job}-launcher"


def config_map_name(job: str) -> str:
    return f"{job}-config"


def ssh_secret_name(job: str) -> str:
    """Return the name of the Secret with ssh keys that is generated for the job."""
    return job


def worker_selector(job: str) -> str:
    """Return the label selector of the worker pods."""
    return f"{JOB_LABEL}={job},{ROLE_LABEL}={WORKER}"


def scaler_reference(kind: str, namespace: str, name: str) -> str:
    """Return what `status.currentScaler` and messages call a scaler: `ScaleIn:default/name`."""
    return f"{kind}:{namespace}/{name}"
