"""The helper in real pods: it waits for roles, and starts ranks by remote exec under mpiexec."""

import sys
from pathlib import Path

import pytest

from tests.support.builders import RunBuilder, run
from tests.support.targets import IMAGE
from tests.support.user import User

INSTALLATION = sorted({sys.prefix, sys.base_prefix})
MPIEXEC = Path(sys.executable).with_name("mpiexec")

REMOTE = r"""
start=/opt/argosy/remote-exec
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


def template(script: str | None = None) -> dict[str, object]:
    volumes = [{"name": f"code-{n}", "hostPath": {"path": path}} for n, path in enumerate(INSTALLATION)]
    mounts = [{"name": f"code-{n}", "mountPath": path} for n, path in enumerate(INSTALLATION)]
    container: dict[str, object] = {"name": "main", "image": IMAGE, "volumeMounts": mounts}
    if script is not None:
        container["command"] = ["/bin/sh", "-c", script]
    return {"spec": {"volumes": volumes, "containers": [container]}}


def mpi(name: str, script: str) -> RunBuilder:
    job = run(name, framework="mpi").having(options={"implementation": "mpich"})
    return job.role("launcher", 1, template=template(script)).role("worker", 2, template=template())


@pytest.mark.long_on_cluster
def test_mpiexec_starts_its_ranks_in_the_worker_pods(user: User) -> None:
    user.run_to_success(mpi("ranks", MPI))
    output = set(user.logs("ranks-launcher-0").splitlines())
    assert output == {
        "rank 0 of 2 on ranks-worker-0 total 3",
        "rank 1 of 2 on ranks-worker-1 total 3",
    }


def test_remote_exec_behaves_like_ssh_and_reaches_only_pods_of_its_job(user: User) -> None:
    other = run("other").role("worker", 1, template=template("trap exit TERM; sleep 1000 & wait"))
    user.apply(other)
    user.run_to_success(mpi("mpi", REMOTE))
    output = user.logs("mpi-launcher-0").splitlines()
    assert output[0] == "code 37"
    assert [line.strip() for line in output[1:3]] == ["2", "mpi-worker-1"]
    assert output[3] == "a  b|it's|"
    assert output[4].startswith("Error from server (Forbidden)")
    assert output[-1] == "foreign 1"
    user.kubectl("delete", "tr", "other")


def test_role_with_a_dependency_waits_in_an_init_container(user: User) -> None:
    job = run("stages").role("data", 2, template=template("sleep 1; echo made"))
    after = {"dependsOn": [{"role": "data", "phase": "Succeeded"}], "template": template("echo used")}
    user.run_to_success(job.role("train", 1, **after))
    waited = user.logs("stages-train-0", "-c", "argosy")
    assert "argosy: role data is Succeeded" in waited
    assert user.logs("stages-train-0") == "used\n"
