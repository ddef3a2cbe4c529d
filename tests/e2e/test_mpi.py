"""On the local control plane remote exec of MPI survives a restart of the API server.

On a real cluster a command in a pod ends with the connection to the API server, and the run is restarted.
"""

import pytest

from tests.support.local_control_plane import ControlPlane
from tests.support.mpi_runs import SLOW, job, mpirun, start
from tests.support.mpi_venvs import Launcher
from tests.support.targets import LocalTarget
from tests.support.user import User

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


def test_mpi_run_succeeds_when_the_api_server_is_killed(plane: ControlPlane, launcher: Launcher) -> None:
    user = User(LocalTarget(plane), "default")
    cut = job(launcher, "cut", "exec " + mpirun(launcher, 2, SLOW)).limits(restarts=0)
    start(user, cut)
    user.target.kill_apiserver()
    status = user.wait_for_phase(cut.name, "Succeeded", "Failed")
    output = user.logs(f"{cut.name}-launcher-0", "-c", "main").splitlines()
    user.kubectl("delete", "tr", cut.name)
    assert status["phase"] == "Succeeded", output
    assert output.count("sum 2") == 2
