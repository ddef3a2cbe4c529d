"""Builds TrainingJobs and scalers of conformance tests, and waits for them, as a user with kubectl does."""

from typing import cast

from tests.support.targets import IMAGE
from tests.support.user import Json, User
from tests.support.waiting import wait_for

POLLING = "while :; do echo $(/etc/edl/discover_hosts.sh); sleep 0.5; done"
"""A driver that reads the host list again and again, and is no Horovod."""

ENDED = {"Failed", "ScaleFailed", "Succeeded", "ScaleSucceeded"}
"""The phases in which jobs and scalers have ended."""


def training_job(
    name: str,
    launcher: str = POLLING,
    worker: str = "",
    *,
    launcher_fields: Json | None = None,
    worker_fields: Json | None = None,
    **spec: object,
) -> Json:
    """A TrainingJob with two of one to nine workers; without a script they only wait to be used."""
    command: Json = {"command": ["/bin/sh", "-c", worker]} if worker else {}
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "launcherAttachMode": "kubexec",
            "etReplicaSpecs": {
                "launcher": {
                    "template": _template("launcher", {"command": ["/bin/sh", "-c", launcher]}),
                    **(launcher_fields or {}),
                },
                "worker": {
                    "replicas": 2,
                    "minReplicas": 1,
                    "maxReplicas": 9,
                    "template": _template("worker", command),
                    **(worker_fields or {}),
                },
            },
            **spec,
        },
    }


def _template(container: str, fields: Json) -> Json:
    # A folder of its own for each pod: on the local control plane pods share the machine's.
    mounts = [{"name": "own", "mountPath": "/own"}]
    return {
        "spec": {
            "containers": [{"name": container, "image": IMAGE, "volumeMounts": mounts, **fields}],
            "volumes": [{"name": "own", "emptyDir": {}}],
            "terminationGracePeriodSeconds": 5,
        }
    }


def scaler(kind: str, name: str, job: str, **spec: object) -> Json:
    return {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"name": job}, "timeout": 120, **spec},
    }


class ElasticUser:
    """What a user sees of TrainingJobs and scalers."""

    def __init__(self, user: User) -> None:
        self.user = user

    def apply(self, *objects: Json) -> None:
        self.user.apply(*objects)

    def status(self, kind: str, name: str) -> Json:
        return cast("Json", self.user.get(kind, name).get("status", {}))

    def wait_for_phase(self, kind: str, name: str, wanted: str, seconds: float = 120) -> Json:
        """Wait for the phase of a job or scaler; fails at once if it ends in another way."""
        status = self.user.wait_for_phase(name, wanted, *ENDED, kind=kind, seconds=seconds)
        assert status["phase"] == wanted, (
            self.user.kubectl("describe", kind, name).stdout + self.user.kubectl("get", "pods").stdout
        )
        return status

    def scale(self, kind: str, name: str, job: str, wanted: str = "ScaleSucceeded", **spec: object) -> Json:
        """Create a scaler, and return its status when it has ended as wanted."""
        self.apply(scaler(kind, name, job, **spec))
        return self.wait_for_phase(kind.lower(), name, wanted)

    def message(self, status: Json, condition: str) -> str:
        """The message of a condition that is True."""
        conditions = cast("list[dict[str, str]]", status["conditions"])
        found = [item for item in conditions if item["type"] == condition]
        assert [item["status"] for item in found] == ["True"], status
        return found[0]["message"]

    def workers(self, job: str) -> list[str]:
        """The worker pods of a job, without those that are being deleted."""
        words = ("get", "pods", "-l", f"training-job-name={job},training-job-role=worker")
        pods = cast("list[dict[str, Json]]", self.user.get(*words[1:])["items"])
        return sorted(
            str(pod["metadata"]["name"]) for pod in pods if "deletionTimestamp" not in pod["metadata"]
        )

    def uid(self, kind: str, name: str) -> str:
        return cast("dict[str, str]", self.user.get(kind, name)["metadata"])["uid"]

    def run_in(self, pod: str, script: str) -> str:
        """Run a shell script in the first container of a pod."""
        return self.user.kubectl("exec", pod, "--", "/bin/sh", "-c", script).stdout

    def hosts(self, job: str) -> list[str]:
        """The host list that the launcher reads."""
        words = self.run_in(f"{job}-launcher", "/etc/edl/discover_hosts.sh").split()
        return [word.partition(":")[0] for word in words]

    def wait_for_hosts(self, job: str, *workers: str) -> None:
        wanted = [f"{job}-{worker}" for worker in workers]
        wait_for(lambda: self.hosts(job) == wanted, lambda: f"{self.hosts(job)}, not {wanted}")

    def wait_for_workers(self, job: str, *workers: str) -> None:
        wanted = [f"{job}-{worker}" for worker in workers]
        wait_for(lambda: self.workers(job) == wanted, lambda: f"{self.workers(job)}, not {wanted}")

    def has_event(self, name: str, reason: str) -> bool:
        selector = f"involvedObject.name={name},reason={reason}"
        return bool(self.user.kubectl("get", "events", "--field-selector", selector, "-o", "name").stdout)

    def wait_for_event(self, name: str, reason: str) -> None:
        wait_for(lambda: self.has_event(name, reason), lambda: self.user.kubectl("get", "events").stdout)

    def wait_until_gone(self, *selector: str) -> None:
        """Wait until `kubectl get` with these words names nothing."""

        def names() -> str:
            return self.user.kubectl("get", *selector, "-o", "name", "--ignore-not-found").stdout

        wait_for(lambda: not names(), names)
