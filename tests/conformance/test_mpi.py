"""MPI jobs with every implementation, with and without ssh: real ranks in pods on their own addresses."""

import re

import pytest

from tests.support.builders import RunBuilder
from tests.support.mpi_runs import RANKS, SLOW, job, mpirun, start
from tests.support.mpi_venvs import Launcher
from tests.support.user import User

UNPRIVILEGED_UID = 65532

RANK_1_FAILS = """
import os, sys, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1 and os.environ["ARGOSY_ATTEMPT"] <= sys.argv[1]:
    MPI.COMM_WORLD.Abort(7)
MPI.COMM_WORLD.Barrier()
"""

LIST_LEFTOVERS = r"""
for worker in 0 1; do
    /opt/argosy/remote-exec $ARGOSY_JOB-worker-$worker ps axo args
done | grep -e orted -e prted -e hydra -e python | grep -v -e argosy.local -e grep | sed 's/^/left: /'
"""


def finish(user: User, built_run: RunBuilder) -> dict[str, object]:
    """Create the run and wait until it has finished; returns its status."""
    user.apply(built_run)
    return user.wait_for_phase(built_run.name, "Succeeded", "Failed")


def launcher_output(user: User, built_run: RunBuilder) -> list[str]:
    return user.logs(f"{built_run.name}-launcher-0", "-c", "main").splitlines()


def ranks_in(lines: list[str]) -> list[str]:
    return sorted(line for line in lines if line.startswith("rank "))


def test_ranks_run_on_the_hosts_of_the_host_file_and_leave_no_processes(
    user: User, launcher: Launcher
) -> None:
    script = mpirun(launcher, 4, RANKS) + LIST_LEFTOVERS
    built_run = job(launcher, "ranks", script, slotsPerWorker=2)
    status = finish(user, built_run)
    output = launcher_output(user, built_run)
    assert status["phase"] == "Succeeded", output
    worker = f"{built_run.name}-worker"
    assert ranks_in(output) == [f"rank {rank} of 4 on {worker}-{rank // 2} total 10" for rank in range(4)]
    assert not [line for line in output if line.startswith("left: ")]


@pytest.mark.long_on_cluster
@pytest.mark.usefixtures("sshd")
def test_ranks_are_started_by_ssh_with_option_ssh_keys(user: User, launcher: Launcher) -> None:
    built_run = job(launcher, "ssh", mpirun(launcher, 4, RANKS), slotsPerWorker=2, sshKeys=True)
    status = finish(user, built_run)
    output = launcher_output(user, built_run)
    assert status["phase"] == "Succeeded", output
    worker = f"{built_run.name}-worker"
    assert ranks_in(output) == [f"rank {rank} of 4 on {worker}-{rank // 2} total 10" for rank in range(4)]
    assert f"{built_run.name}-launcher" not in user.kubectl("get", "sa", "-o", "name").stdout, (
        "no rights needed"
    )


@pytest.mark.long
def test_launcher_runs_the_first_rank_with_option_launcher_as_host(user: User, launcher: Launcher) -> None:
    script = mpirun(launcher, 3, RANKS)
    built_run = job(launcher, "first", script, uid=UNPRIVILEGED_UID, launcherAsHost=True)
    status = finish(user, built_run)
    output = launcher_output(user, built_run)
    assert status["phase"] == "Succeeded", output
    hosts = [f"{built_run.name}-{place}" for place in ("launcher-0", "worker-0", "worker-1")]
    assert ranks_in(output) == [f"rank {rank} of 3 on {host} total 6" for rank, host in enumerate(hosts)]


@pytest.mark.long
def test_failed_rank_restarts_the_run(user: User, launcher: Launcher) -> None:
    script = "exec " + mpirun(launcher, 2, RANK_1_FAILS, "1")
    built_run = job(launcher, "again", script, uid=UNPRIVILEGED_UID).limits(restarts=2)
    status = finish(user, built_run)
    output = launcher_output(user, built_run)
    assert status["phase"] == "Succeeded", output
    assert status["attempt"] == 2


@pytest.mark.long_on_cluster
def test_failed_rank_without_restarts_left_fails_the_run_with_its_exit_code(
    user: User, launcher: Launcher
) -> None:
    script = "exec " + mpirun(launcher, 2, RANK_1_FAILS, "9")
    built_run = job(launcher, "failed", script, uid=UNPRIVILEGED_UID).limits(restarts=0)
    status = finish(user, built_run)
    assert status["phase"] == "Failed"
    assert re.match(r"launcher-0 failed \(exit 7\)", str(status["message"]))


@pytest.mark.long
def test_lost_worker_restarts_the_run(user: User, launcher: Launcher) -> None:
    built_run = job(launcher, "lost", "exec " + mpirun(launcher, 2, SLOW)).limits(restarts=2)
    start(user, built_run)
    user.kubectl("delete", "pod", f"{built_run.name}-worker-1", "--grace-period=0", "--force")
    status = user.wait_for_phase(built_run.name, "Succeeded", "Failed")
    output = launcher_output(user, built_run)
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2), output
    assert output.count("sum 2") == 2
