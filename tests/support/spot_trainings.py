"""SpotInstanceJobs on a local control plane, and a training whose output proves whose process goes on.

Each step of the training hashes the state before it, so a line cannot be printed by a process that does not
have the progress of all steps before. It also names the replica that it was started as: a process that was
restored in the place of another one goes on with its own number.
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, cast

from tests.support.local_control_plane import ControlPlane
from tests.support.spot_jobs import Json

END = "/tmp/training-is-done"
"""The training ends once this file exists in its container."""
_TRAINING = f"""
import hashlib, os, time
replica, state, step = os.environ["ARGOSY_REPLICA_INDEX"], b"start", 0
while not os.path.exists({END!r}):
    state, step = hashlib.sha256(state).digest(), step + 1
    print(replica, step, state.hex(), flush=True)
    time.sleep(0.02)
"""
TRAINING: Json = {
    "name": "training",
    "image": "local",
    "command": ["python3", "-c", _TRAINING],
    "resources": {"requests": {"nvidia.com/gpu": 1}},
}
"""The container of the README's job, with a program that runs until it is told to end."""
CONTAINERS = "jobTemplate.spec.template.spec.containers"
"""Where a SpotInstanceJob has its containers."""


class Step(NamedTuple):
    """A step that was computed as in an undisturbed training."""

    replica: int
    """The replica as which the process was started."""
    number: int


@dataclass(frozen=True)
class RunningJob:
    """A SpotInstanceJob, as its user sees it."""

    plane: ControlPlane
    name: str

    @property
    def status(self) -> Json:
        return cast("Json", self.plane.get(f"spotinstancejob/{self.name}").get("status", {}))

    @property
    def recoveries(self) -> list[Json]:
        return cast("list[Json]", self.status.get("recoveries", []))

    def replica(self, index: int) -> Json:
        """Return the status of a replica; empty before there is one."""
        replicas = cast("list[Json]", self.status.get("jobStatuses", []))
        return replicas[index] if index < len(replicas) else {}

    def is_running(self, index: int, incarnation: int) -> bool:
        replica = self.replica(index)
        return (replica.get("incarnation"), replica.get("phase")) == (incarnation, "Running")

    def pod(self, index: int) -> Json:
        """Return the pod of the current incarnation of a replica."""
        selector = f"job-name={self.replica(index)['name']}"
        [pod] = cast("list[Json]", self.plane.get("pods", "-l", selector)["items"])
        return pod

    def steps(self, index: int) -> list[Step]:
        """Return the steps in the log of a replica; fails if one was lost or computed differently."""
        log = self.plane.kubectl("logs", f"job/{self.replica(index)['name']}", code=None).stdout
        return check_steps(log)

    def end(self, index: int) -> None:
        """Let the training of a replica end, so that the job succeeds."""
        self.plane.kubectl("exec", f"job/{self.replica(index)['name']}", "--", "touch", END)

    def show(self) -> str:
        """Describe everything that the job has, for messages of failed tests."""
        return self.plane.kubectl("describe", "spotinstancejobs,checkpointbackups,pods", code=None).stdout


def check_steps(log: str) -> list[Step]:
    """Return the steps in the output of the training; fails if they are not those of an undisturbed one."""
    lines = [line.split() for line in log.splitlines()]
    steps = [Step(int(replica), int(number)) for replica, number, _ in lines]
    if not steps:
        return []
    first, last = steps[0].number, steps[-1].number
    assert [step.number for step in steps] == list(range(first, last + 1))
    undisturbed, state = [], b"start"
    for _ in range(last):
        state = hashlib.sha256(state).digest()
        undisturbed.append(state.hex())
    assert [state for *_, state in lines] == undisturbed[first - 1 :]
    return steps
