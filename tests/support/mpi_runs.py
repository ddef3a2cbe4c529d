"""TrainingRuns for tests that use one of the MPI implementations of the machine."""

from msgspec.structs import replace

from tests.support.builders import RunBuilder, run
from tests.support.mpi_venvs import SYSTEM, Launcher
from tests.support.targets import IMAGE
from tests.support.user import User
from tests.support.waiting import wait_for

RANKS = """
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print("rank", world.rank, "of", world.size, "on", MPI.Get_processor_name(), "total", total, flush=True)
"""
"""Every rank prints its number and its host."""

SLOW = """
import time
from mpi4py import MPI
print("started", flush=True)
time.sleep(6)
print("sum", MPI.COMM_WORLD.allreduce(1), flush=True)
"""
"""Every rank prints `started`, and six seconds later the number of ranks."""


def job(launcher: Launcher, name: str, script: str, uid: int = 0, **options: object) -> RunBuilder:
    """A run of `script` in the launcher; with the option `sshKeys` the pods also mount ssh and sshd."""
    options = {"implementation": launcher.implementation, **options}
    if options.get("sshKeys"):
        launcher = with_ssh(launcher)
    built = run(f"{name}-{launcher.name}", framework="mpi").having(options=options)
    workers = {"template": template(launcher, None, uid)}
    return built.role("launcher", 1, template=template(launcher, script, uid)).role("worker", 2, **workers)


def template(launcher: Launcher, script: str | None, uid: int) -> dict[str, object]:
    folders = {f"code-{n}": str(path) for n, path in enumerate(launcher.folders)}
    container: dict[str, object] = {
        "name": "main",
        "image": IMAGE,
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in folders.items()],
    }
    if script is not None:
        container["command"] = ["/bin/sh", "-c", script]
    return {
        "spec": {
            "securityContext": {"runAsUser": uid, "runAsGroup": uid},
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
            "containers": [container],
        }
    }


def with_ssh(launcher: Launcher) -> Launcher:
    """The same launcher, with which pods also mount the software of the machine."""
    return replace(launcher, folders=tuple(dict.fromkeys((*launcher.folders, *SYSTEM))))


def mpirun(launcher: Launcher, ranks: int, program: str, *words: str) -> str:
    arguments = " ".join(words)
    return f"{launcher.mpirun} -n {ranks} {launcher.python} -c '{program}' {arguments}\n"


def start(user: User, job: RunBuilder) -> None:
    """Create the run and wait until a rank has started."""
    user.apply(job)
    pod = f"{job.name}-launcher-0"
    wait_for(
        lambda: "started" in user.kubectl("logs", pod, "-c", "main", code=None).stdout,
        lambda: user.kubectl("describe", "tr", job.name).stdout,
        90,
    )
