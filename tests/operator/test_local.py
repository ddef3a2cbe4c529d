"""The helper in real pods of a local control plane: waiting for roles, and remote start under mpiexec."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from argosy.testing.builders import RunBuilder, run
from argosy.testing.controlplane import ControlPlane

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

INSTALLATION = sorted({sys.prefix, sys.base_prefix})
MPIEXEC = Path(sys.executable).with_name("mpiexec")

REMOTE = r"""
start=/opt/argosy/remote-start
$start mpi-worker-0 'exit 37'; echo "code $?"
printf 'one\ntwo\n' | $start mpi-worker-1 'wc -l; hostname'
$start mpi-worker-0.mpi-worker printf "'%s|'" "'a  b'" '"it'"'"'s"'; echo
$start other-worker-0 true; echo "foreign $?"
"""

MPI = f"""
exec {MPIEXEC} -n 2 {sys.executable} -c '
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print("rank", world.rank, "of", world.size, "on", MPI.Get_processor_name(), "total", total)
'
"""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    running = ControlPlane.up("--nodes", "2")
    yield running
    running.down()


def template(script: str | None = None) -> dict[str, object]:
    volumes = [{"name": f"code-{n}", "hostPath": {"path": path}} for n, path in enumerate(INSTALLATION)]
    mounts = [{"name": f"code-{n}", "mountPath": path} for n, path in enumerate(INSTALLATION)]
    container: dict[str, object] = {"name": "main", "image": "host", "volumeMounts": mounts}
    if script is not None:
        container["command"] = ["/bin/sh", "-c", script]
    return {"spec": {"volumes": volumes, "containers": [container]}}


def mpi(name: str, script: str) -> RunBuilder:
    job = run(name, framework="mpi").having(options={"implementation": "mpich"})
    return job.role("launcher", 1, template=template(script)).role("worker", 2, template=template())


def finish(plane: ControlPlane, *jobs: RunBuilder) -> None:
    plane.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(job.build()) for job in jobs))
    deadline = time.monotonic() + 90
    for job in jobs:
        while (phase := phase_of(plane, job.name)) not in ("Succeeded", "Failed"):
            assert time.monotonic() < deadline, plane.kubectl("describe", "tr", job.name).stdout
            time.sleep(0.2)
        assert phase == "Succeeded", plane.kubectl("describe", "tr", job.name).stdout


def phase_of(plane: ControlPlane, name: str) -> str:
    return plane.kubectl("get", "tr", name, "-o", "jsonpath={.status.phase}").stdout


def test_mpiexec_starts_its_ranks_in_other_pods(plane: ControlPlane) -> None:
    finish(plane, mpi("ranks", MPI))
    said = set(plane.kubectl("logs", "ranks-launcher-0").stdout.splitlines())
    assert said == {
        "rank 0 of 2 on ranks-worker-0 total 3",
        "rank 1 of 2 on ranks-worker-1 total 3",
    }


def test_remote_start_behaves_as_ssh_does_and_reaches_its_own_job_only(plane: ControlPlane) -> None:
    other = run("other").role("worker", 1, template=template("sleep 1000"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(other.build()))
    finish(plane, mpi("mpi", REMOTE))
    said = plane.kubectl("logs", "mpi-launcher-0").stdout.splitlines()
    said.remove("command terminated with exit code 37")  # kubectl's own word, on standard error
    assert said[0] == "code 37"
    assert [line.strip() for line in said[1:3]] == ["2", "mpi-worker-1"]
    assert said[3] == "a  b|it's|"
    assert said[4].startswith("Error from server (Forbidden)")
    assert said[-1] == "foreign 1"
    plane.kubectl("delete", "tr", "other")


def test_a_role_waits_for_another_in_an_init_container(plane: ControlPlane) -> None:
    job = run("stages").role("data", 2, template=template("sleep 1; echo made"))
    after = {"dependsOn": [{"role": "data", "phase": "Succeeded"}], "template": template("echo used")}
    finish(plane, job.role("train", 1, **after))
    waited = plane.kubectl("logs", "stages-train-0", "-c", "argosy").stdout
    assert "argosy: role data is Succeeded" in waited
    assert plane.kubectl("logs", "stages-train-0").stdout == "used\n"


def test_an_operator_that_is_killed_comes_back_and_goes_on(plane: ControlPlane) -> None:
    job = run("survivor").role("worker", 2, restart="OnFailure", template=template("sleep 4"))
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job.build()))
    components = json.loads(plane.state.run.read_text())["components"]
    os.kill(int(components["operator"]["pid"]), signal.SIGKILL)
    finish(plane, job)
