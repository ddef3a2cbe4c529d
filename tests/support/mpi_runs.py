"""Runs of MPI for tests: with any of the implementations, mounted from the machine."""

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
"""Every rank says who and where it is."""

SLOW = """
import time
from mpi4py import MPI
print("started", flush=True)
time.sleep(6)
print("sum", MPI.COMM_WORLD.allreduce(1), flush=True)
"""
"""A program that says when it has begun, and later the number of its ranks."""


def job(launcher: Launcher, name: str, script: str, uid: int = 0, **options: object) -> RunBuilder:
    """With `sshKeys` the pods see the machine's ssh and sshd too."""
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
    """The same, of which pods mount the machine's own software too."""
    return replace(launcher, folders=tuple(dict.fromkeys((*launcher.folders, *SYSTEM))))


def mpirun(launcher: Launcher, ranks: int, program: str, *words: str) -> str:
    arguments = " ".join(words)
    return f"{launcher.mpirun} -n {ranks} {launcher.python} -c '{program}' {arguments}\n"


def start(user: User, made: RunBuilder) -> None:
    """Begin the run and wait until a rank of it says so."""
    user.apply(made)
    pod = f"{made.name}-launcher-0"
    wait_for(
        lambda: "started" in user.kubectl("logs", pod, "-c", "main", code=None).stdout,
        lambda: user.kubectl("describe", "tr", made.name).stdout,
        90,
    )
