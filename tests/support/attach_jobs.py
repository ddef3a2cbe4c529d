"""TrainingJobs for tests of how a launcher reaches its workers."""

from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for


def attach_job(name: str, mode: str, script: str, **spec: object) -> Json:
    """A job of two workers whose launcher runs a script."""
    launcher = {"name": "launcher", "image": IMAGE, "command": ["/bin/sh", "-c", script]}
    worker = {"name": "worker", "image": IMAGE}
    worker_template = {"spec": {"containers": [worker], "terminationGracePeriodSeconds": 5}}
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "launcherAttachMode": mode,
            "etReplicaSpecs": {
                "launcher": {"template": {"spec": {"containers": [launcher]}}},
                "worker": {"replicas": 2, "template": worker_template},
            },
            **spec,
        },
    }


def launcher_lines(user: User, job: str) -> list[str]:
    """What the launcher has printed so far; empty before it has started."""
    return user.kubectl("logs", f"{job}-launcher", "-c", "launcher", code=None).stdout.splitlines()


def wait_for_end(user: User, job: str, seconds: float = 120) -> str:
    """The phase in which the job ends."""

    def phase() -> str:
        return user.kubectl("get", "trainingjob", job, "-o", "jsonpath={.status.phase}").stdout

    def described() -> str:
        words = user.kubectl("describe", "trainingjob", job).stdout
        return "\n".join((words, *launcher_lines(user, job)))

    wait_for(lambda: phase() in ("Succeeded", "Failed"), described, seconds)
    return phase()
