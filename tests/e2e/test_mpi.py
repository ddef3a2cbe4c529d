"""Remote start under every implementation of MPI: real ranks, in pods with addresses of their own."""

import json
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from argosy.testing.builders import RunBuilder, run
from argosy.testing.controlplane import ControlPlane
from argosy.testing.mpi import Launcher, launchers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

LAUNCHERS = launchers()
SOMEONE = 65532

RANKS = """
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print("rank", world.rank, "of", world.size, "on", MPI.Get_processor_name(), "total", total, flush=True)
"""

ONE_FAILS = """
import os, sys, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1 and os.environ["ARGOSY_ATTEMPT"] <= sys.argv[1]:
    MPI.COMM_WORLD.Abort(7)
MPI.COMM_WORLD.Barrier()
"""

SLOW = """
import time
from mpi4py import MPI
print("started", flush=True)
time.sleep(6)
print("sum", MPI.COMM_WORLD.allreduce(1), flush=True)
"""

WHAT_IS_LEFT = r"""
for worker in 0 1; do
    /opt/argosy/remote-start $ARGOSY_JOB-worker-$worker ps axo args
done | grep -e orted -e prted -e hydra -e python | grep -v -e argosy.local -e grep | sed 's/^/left: /'
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "2")
    yield running
    running.down()


@pytest.fixture(params=LAUNCHERS.values(), ids=list(LAUNCHERS))
def launcher(request: pytest.FixtureRequest) -> Launcher:
    found = request.param
    assert isinstance(found, Launcher)
    if found.missing:
        required = os.environ.get("ARGOSY_REQUIRE_ALL") == "1"
        pytest.fail(found.missing) if required else pytest.skip(found.missing)
    return found


def job(launcher: Launcher, name: str, script: str, user: int = 0, **options: object) -> RunBuilder:
    options = {"implementation": launcher.implementation, **options}
    built = run(name, framework="mpi").having(options=options)
    workers = {"template": template(launcher, None, user)}
    return built.role("launcher", 1, template=template(launcher, script, user)).role("worker", 2, **workers)


def template(launcher: Launcher, script: str | None, user: int) -> dict[str, object]:
    folders = {f"code-{n}": str(path) for n, path in enumerate(launcher.folders)}
    container: dict[str, object] = {
        "name": "main",
        "image": "host",
        "volumeMounts": [{"name": name, "mountPath": path} for name, path in folders.items()],
    }
    if script is not None:
        container["command"] = ["/bin/sh", "-c", script]
    return {
        "spec": {
            "securityContext": {"runAsUser": user, "runAsGroup": user},
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in folders.items()],
            "containers": [container],
        }
    }


def mpirun(launcher: Launcher, ranks: int, program: str, *words: str) -> str:
    arguments = " ".join(words)
    return f"{launcher.mpirun} -n {ranks} {launcher.python} -c '{program}' {arguments}\n"


def finish(plane: ControlPlane, made: RunBuilder) -> dict[str, object]:
    """The run's status at its end."""
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(made.build()))
    return at_end(plane, made.name)


def at_end(plane: ControlPlane, name: str) -> dict[str, object]:
    deadline = time.monotonic() + 90
    while True:
        status = plane.get("tr", name).get("status")
        if isinstance(status, dict) and status.get("phase") in ("Succeeded", "Failed"):
            return status
        assert time.monotonic() < deadline, plane.kubectl("describe", "tr", name).stdout
        time.sleep(0.2)


def said_by(plane: ControlPlane, name: str) -> list[str]:
    return plane.kubectl("logs", f"{name}-launcher-0", "-c", "main").stdout.splitlines()


def ranks_in(lines: list[str]) -> list[str]:
    return sorted(line for line in lines if line.startswith("rank "))


def test_ranks_are_where_the_host_file_says_and_nothing_is_left(
    plane: ControlPlane, launcher: Launcher
) -> None:
    script = mpirun(launcher, 4, RANKS) + WHAT_IS_LEFT
    status = finish(plane, job(launcher, "ranks", script, slotsPerWorker=2))
    said = said_by(plane, "ranks")
    plane.kubectl("delete", "tr", "ranks")
    assert status["phase"] == "Succeeded", said
    assert ranks_in(said) == [f"rank {rank} of 4 on ranks-worker-{rank // 2} total 10" for rank in range(4)]
    assert not [line for line in said if line.startswith("left: ")]


@pytest.mark.long
def test_the_launcher_takes_the_first_ranks_if_asked(plane: ControlPlane, launcher: Launcher) -> None:
    script = mpirun(launcher, 3, RANKS)
    status = finish(plane, job(launcher, "first", script, user=SOMEONE, launcherAsWorker=True))
    said = said_by(plane, "first")
    plane.kubectl("delete", "tr", "first")
    assert status["phase"] == "Succeeded", said
    hosts = ["first-launcher-0", "first-worker-0", "first-worker-1"]
    assert ranks_in(said) == [f"rank {rank} of 3 on {host} total 6" for rank, host in enumerate(hosts)]


@pytest.mark.long
def test_a_rank_that_fails_starts_the_run_anew(plane: ControlPlane, launcher: Launcher) -> None:
    script = "exec " + mpirun(launcher, 2, ONE_FAILS, "1")
    status = finish(plane, job(launcher, "anew", script, user=SOMEONE).limits(restarts=2))
    said = said_by(plane, "anew")
    plane.kubectl("delete", "tr", "anew")
    assert status["phase"] == "Succeeded", said
    assert status["attempt"] == 2


def test_a_rank_that_fails_for_good_fails_the_run_with_its_exit_code(
    plane: ControlPlane, launcher: Launcher
) -> None:
    script = "exec " + mpirun(launcher, 2, ONE_FAILS, "9")
    status = finish(plane, job(launcher, "failed", script, user=SOMEONE).limits(restarts=0))
    plane.kubectl("delete", "tr", "failed")
    assert status["phase"] == "Failed"
    assert re.match(r"launcher-0 failed \(exit 7\)", str(status["message"]))


@pytest.mark.long
def test_a_worker_lost_in_the_middle_starts_the_run_anew(plane: ControlPlane, launcher: Launcher) -> None:
    started(plane, job(launcher, "lost", "exec " + mpirun(launcher, 2, SLOW)).limits(restarts=2))
    plane.kubectl("delete", "pod", "lost-worker-1", "--grace-period=0", "--force")
    status = at_end(plane, "lost")
    said = said_by(plane, "lost")
    plane.kubectl("delete", "tr", "lost")
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2), said
    assert said.count("sum 2") == 2


def test_a_run_goes_on_when_the_api_server_is_killed(plane: ControlPlane, launcher: Launcher) -> None:
    started(plane, job(launcher, "cut", "exec " + mpirun(launcher, 2, SLOW)).limits(restarts=0))
    components = json.loads(plane.state.run.read_text())["components"]
    os.kill(int(components["apiserver"]["pid"]), signal.SIGKILL)
    deadline = time.monotonic() + 60
    while plane.kubectl("get", "--raw", "/readyz", code=None).returncode != 0:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    status = at_end(plane, "cut")
    said = said_by(plane, "cut")
    plane.kubectl("delete", "tr", "cut")
    assert status["phase"] == "Succeeded", said
    assert said.count("sum 2") == 2


def started(plane: ControlPlane, made: RunBuilder) -> None:
    """Begin the run and wait until a rank of it says so."""
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(made.build()))
    deadline = time.monotonic() + 60
    pod = f"{made.name}-launcher-0"
    while "started" not in plane.kubectl("logs", pod, "-c", "main", code=None).stdout:
        assert time.monotonic() < deadline, plane.kubectl("describe", "tr", made.name).stdout
        time.sleep(0.2)
