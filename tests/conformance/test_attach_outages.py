"""Commands that a launcher runs in its workers go on when the API server is killed, with all their output."""

import shlex

import pytest

from tests.support.attach_jobs import attach_job, launcher_lines, wait_for_end
from tests.support.mpi_runs import SLOW, job, mpirun, start
from tests.support.mpi_venvs import Launcher
from tests.support.targets import ForeignCluster
from tests.support.user import User
from tests.support.waiting import wait_for

pytestmark = pytest.mark.exclusive

COUNT = """
number=0
until [ -e /tmp/end ]; do
    number=$((number + 1))
    echo line $number
    echo error $number >&2
    sleep 0.1
done
echo last $number
exit 5
"""


def kill_apiserver(user: User) -> None:
    try:
        user.target.kill_apiserver()
    except ForeignCluster as error:
        pytest.skip(str(error))


@pytest.mark.long_on_cluster
def test_command_of_kubexec_and_its_output_are_complete_when_the_api_server_is_killed(user: User) -> None:
    script = f"/etc/mpi/kubexec.sh counted-worker-1 {shlex.quote(COUNT)}; [ $? = 5 ]"
    user.apply(attach_job("counted", "kubexec", script))

    def count() -> int:
        return sum(line.startswith("line ") for line in launcher_lines(user, "counted"))

    wait_for(lambda: count() > 10, lambda: user.kubectl("describe", "pods").stdout, 120)
    kill_apiserver(user)
    before = count()
    wait_for(lambda: count() > before + 10, lambda: str(launcher_lines(user, "counted")), 120)
    user.kubectl("exec", "counted-worker-1", "--", "touch", "/tmp/end")
    assert wait_for_end(user, "counted") == "Succeeded"
    lines = launcher_lines(user, "counted")
    [last] = [int(line.removeprefix("last ")) for line in lines if line.startswith("last ")]
    for word in ("line", "error"):
        got = [line for line in lines if line.startswith(word)]
        assert got == [f"{word} {number}" for number in range(1, last + 1)]


@pytest.mark.long_on_cluster
def test_mpi_run_succeeds_when_the_api_server_is_killed(user: User, launcher: Launcher) -> None:
    cut = job(launcher, "cut", "exec " + mpirun(launcher, 2, SLOW)).limits(restarts=0)
    start(user, cut)
    kill_apiserver(user)
    status = user.wait_for_phase(cut.name, "Succeeded", "Failed")
    output = user.logs(f"{cut.name}-launcher-0", "-c", "main").splitlines()
    user.kubectl("delete", "tr", cut.name)
    assert status["phase"] == "Succeeded", output
    assert output.count("sum 2") == 2
