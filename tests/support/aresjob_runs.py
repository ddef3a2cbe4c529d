"""AresJobs as real runs, for tests: applied by kubectl, followed to their end."""

from collections.abc import Mapping
from typing import cast

from tests.support.user import Json, User
from tests.support.waiting import wait_for

PATIENCE = 120.0


def run_to_success(user: User, job: Mapping[str, object]) -> str:
    """Apply the job and wait until it has succeeded; its name."""
    user.apply(job)
    name = str(cast("Json", job["metadata"])["name"])
    found = wait_until_finished(user, name)
    assert found["phase"] == "Succeeded", user.kubectl("describe", "aj", name).stdout
    return name


def wait_until_finished(user: User, name: str) -> Json:
    """The status of the job once it has ended."""
    found: Json = {}

    def over() -> bool:
        found.update(cast("Json", user.get("aj", name).get("status", {})))
        return found.get("phase") in ("Succeeded", "Failed")

    wait_for(over, lambda: user.kubectl("describe", "aj", name).stdout, PATIENCE)
    return found


def pod_of(user: User, job: str, place: str) -> str:
    """The pod in a place such as `worker-1`: of roles whose pods are replaced its name goes on after that."""
    names = user.kubectl("get", "pods", "-o", "name").stdout.split()
    return next(name for name in names if f"{name}-".startswith(f"pod/{job}-{place}-"))
