"""An MPI run whose number of workers is changed: refused, or restarted from its checkpoint if it is elastic.

The ranks add up the numbers of all steps. So the total shows whether a step was lost or counted twice.
"""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support.mpi_runs import job
from tests.support.mpi_venvs import Launcher
from tests.support.user import Json, User
from tests.support.waiting import wait_for

PROGRAM = """
import json, pathlib, sys, time
from mpi4py import MPI
world, folder = MPI.COMM_WORLD, pathlib.Path(sys.argv[1])
checkpoint = folder / "checkpoint.json"
saved = world.rank == 0 and checkpoint.exists()
step, total = world.bcast(json.loads(checkpoint.read_text()) if saved else [0, 0])
if world.rank == 0:
    print(world.size, "ranks from step", step, flush=True)
stop = False
while not stop:
    step += 1
    total += world.allreduce(step if step % world.size == world.rank else 0)
    stop = world.bcast((folder / "stop").exists())
    if world.rank == 0 and (step % 10 == 0 or stop):
        (folder / "new").write_text(json.dumps([step, total]))
        (folder / "new").replace(checkpoint)
    time.sleep(0.02)
if world.rank == 0:
    print("step", step, "total", total, flush=True)
"""


def output(user: User, name: str) -> str:
    return user.kubectl("logs", f"{name}-launcher-0", "-c", "main", code=None).stdout


def wait_until_checkpoint_after(user: User, name: str, folder: Path, before: str) -> str:
    """Wait for a checkpoint other than `before`; returns it."""
    checkpoint = folder / "checkpoint.json"

    def text() -> str:
        return checkpoint.read_text() if checkpoint.exists() else ""

    wait_for(
        lambda: text() not in ("", before),
        lambda: user.argosy("describe", name).stdout + output(user, name),
        120,
    )
    return text()


def identities(user: User) -> set[str]:
    return set(user.kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.uid}").stdout.split())


@pytest.mark.long
def test_mpi_run_is_resized_only_if_its_spec_says_so_and_continues_from_its_checkpoint(
    user: User, launcher: Launcher, tmp_path: Path
) -> None:
    folder = user.target.shared_folder(tmp_path)
    with_folder = replace(launcher, folders=(*launcher.folders, folder))
    mpirun = f"exec {launcher.mpirun} -n `wc -l < /etc/argosy/hostfile` {launcher.python}"
    run = job(with_folder, "resized", f"{mpirun} -c '{PROGRAM}' {folder}")
    user.apply(run)
    saved = wait_until_checkpoint_after(user, run.name, folder, "")
    pods = identities(user)

    refused = user.kubectl("scale", f"tr/{run.name}", "--replicas=3", code=1).stderr
    assert "replicas cannot be changed while the run has pods" in refused
    assert "set elastic to restart the run with the new number, or suspend it first" in refused
    saved = wait_until_checkpoint_after(user, run.name, folder, saved)
    assert identities(user) == pods, "nothing is lost"

    bounds: Json = {"spec": {"roles": {"worker": {"elastic": {"min": 1, "max": 4}}}}}
    user.kubectl("patch", "tr", run.name, "--type=merge", "-p", str(bounds).replace("'", '"'))
    user.kubectl("scale", f"tr/{run.name}", "--replicas=3")
    wait_for(lambda: "3 ranks from step" in output(user, run.name), lambda: output(user, run.name), 120)
    first = re.search(r"3 ranks from step (\d+)", output(user, run.name))
    assert first and int(first[1]) > 0, "it continues from its checkpoint"
    wait_until_checkpoint_after(user, run.name, folder, (folder / "checkpoint.json").read_text())

    (folder / "stop").touch()
    status = user.wait_for_phase(run.name, "Succeeded", "Failed")
    assert (status["phase"], status["attempt"], status.get("restarts", 0)) == ("Succeeded", 2, 0)
    found = re.search(r"step (\d+) total (\d+)", output(user, run.name))
    assert found
    assert int(found[2]) == sum(range(int(found[1]) + 1)), "no step is lost or counted twice"
