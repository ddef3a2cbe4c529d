"""MPI under every implementation, without ssh and with it: real ranks in pods with own addresses."""

import re

import pytest

from tests.support.builders import RunBuilder
from tests.support.mpi_runs import RANKS, SLOW, job, mpirun, start
from tests.support.mpi_venvs import Launcher
from tests.support.user import User

SOMEONE = 65532

ONE_FAILS = """
import os, sys, time
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1 and os.environ["ARGOSY_ATTEMPT"] <= sys.argv[1]:
    MPI.COMM_WORLD.Abort(7)
MPI.COMM_WORLD.Barrier()
"""

WHAT_IS_LEFT = r"""
for worker in 0 1; do
    /opt/argosy/remote-exec $ARGOSY_JOB-worker-$worker ps axo args
done | grep -e orted -e prted -e hydra -e python | grep -v -e argosy.local -e grep | sed 's/^/left: /'
"""


def finish(user: User, made: RunBuilder) -> dict[str, object]:
    """The run's status at its end."""
    user.apply(made)
    return user.wait_for_phase(made.name, "Succeeded", "Failed")


def said_by(user: User, made: RunBuilder) -> list[str]:
    return user.logs(f"{made.name}-launcher-0", "-c", "main").splitlines()


def ranks_in(lines: list[str]) -> list[str]:
    return sorted(line for line in lines if line.startswith("rank "))


def test_ranks_are_where_the_host_file_says_and_nothing_is_left(user: User, launcher: Launcher) -> None:
    script = mpirun(launcher, 4, RANKS) + WHAT_IS_LEFT
    made = job(launcher, "ranks", script, slotsPerWorker=2)
    status = finish(user, made)
    said = said_by(user, made)
    assert status["phase"] == "Succeeded", said
    worker = f"{made.name}-worker"
    assert ranks_in(said) == [f"rank {rank} of 4 on {worker}-{rank // 2} total 10" for rank in range(4)]
    assert not [line for line in said if line.startswith("left: ")]


@pytest.mark.usefixtures("sshd")
def test_ranks_are_started_by_ssh_if_there_are_keys(user: User, launcher: Launcher) -> None:
    made = job(launcher, "ssh", mpirun(launcher, 4, RANKS), slotsPerWorker=2, sshKeys=True)
    status = finish(user, made)
    said = said_by(user, made)
    assert status["phase"] == "Succeeded", said
    worker = f"{made.name}-worker"
    assert ranks_in(said) == [f"rank {rank} of 4 on {worker}-{rank // 2} total 10" for rank in range(4)]
    assert f"{made.name}-launcher" not in user.kubectl("get", "sa", "-o", "name").stdout, "no rights needed"


@pytest.mark.long
def test_the_launcher_takes_the_first_ranks_if_asked(user: User, launcher: Launcher) -> None:
    script = mpirun(launcher, 3, RANKS)
    made = job(launcher, "first", script, uid=SOMEONE, launcherAsHost=True)
    status = finish(user, made)
    said = said_by(user, made)
    assert status["phase"] == "Succeeded", said
    hosts = [f"{made.name}-{place}" for place in ("launcher-0", "worker-0", "worker-1")]
    assert ranks_in(said) == [f"rank {rank} of 3 on {host} total 6" for rank, host in enumerate(hosts)]


@pytest.mark.long
def test_a_rank_that_fails_starts_the_run_anew(user: User, launcher: Launcher) -> None:
    script = "exec " + mpirun(launcher, 2, ONE_FAILS, "1")
    made = job(launcher, "anew", script, uid=SOMEONE).limits(restarts=2)
    status = finish(user, made)
    said = said_by(user, made)
    assert status["phase"] == "Succeeded", said
    assert status["attempt"] == 2


def test_a_rank_that_fails_for_good_fails_the_run_with_its_exit_code(user: User, launcher: Launcher) -> None:
    script = "exec " + mpirun(launcher, 2, ONE_FAILS, "9")
    made = job(launcher, "failed", script, uid=SOMEONE).limits(restarts=0)
    status = finish(user, made)
    assert status["phase"] == "Failed"
    assert re.match(r"launcher-0 failed \(exit 7\)", str(status["message"]))


@pytest.mark.long
def test_a_worker_lost_in_the_middle_starts_the_run_anew(user: User, launcher: Launcher) -> None:
    made = job(launcher, "lost", "exec " + mpirun(launcher, 2, SLOW)).limits(restarts=2)
    start(user, made)
    user.kubectl("delete", "pod", f"{made.name}-worker-1", "--grace-period=0", "--force")
    status = user.wait_for_phase(made.name, "Succeeded", "Failed")
    said = said_by(user, made)
    assert (status["phase"], status["attempt"]) == ("Succeeded", 2), said
    assert said.count("sum 2") == 2
