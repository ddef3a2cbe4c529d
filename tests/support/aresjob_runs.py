"""Runs AresJobs with kubectl and waits until they finish."""

from collections.abc import Mapping
from typing import cast

from tests.support.user import Json, User

FINISH_SECONDS = 120.0


def run_to_success(user: User, job: Mapping[str, object]) -> str:
    """Apply the job and wait until it has succeeded; returns its name."""
    user.apply(job)
    name = str(cast("Json", job["metadata"])["name"])
    status = wait_until_finished(user, name)
    assert status["phase"] == "Succeeded", user.kubectl("describe", "aj", name).stdout
    return name


def wait_until_finished(user: User, name: str) -> Json:
    """Wait until the job has succeeded or failed; returns its status."""
    return user.wait_for_phase(name, "Succeeded", "Failed", kind="aj", seconds=FINISH_SECONDS)


def pod_of(user: User, job: str, replica: str) -> str:
    """The name of the pod of a replica such as `worker-1`, which may have a generated suffix."""
    names = user.kubectl("get", "pods", "-o", "name").stdout.split()
    return next(name for name in names if f"{name}-".startswith(f"pod/{job}-{replica}-"))
