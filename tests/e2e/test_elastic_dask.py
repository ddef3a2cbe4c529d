"""Dask workers that are scaled in, by a user or by Dask: they are retired first, and no result is lost.

The client holds results in the memory of the workers, and data that it has sent there: Dask could compute the
first again, but not the second. Every task appends a line to a file, so a task that runs twice would show.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

from argosy.kinds import labels
from tests.support import examples
from tests.support.local_control_plane import REPOSITORY, ControlPlane
from tests.support.user import Json
from tests.support.waiting import wait_for

NAME = "retired"
TASKS = 40
PROGRAM = f"""
import pathlib, sys, time
from distributed import Client, wait

folder = pathlib.Path(sys.argv[1])

def square(number):
    with (folder / "computed").open("a") as file:
        file.write(str(number) + "\\n")
    return number * number

with Client() as client:
    client.wait_for_workers(4, timeout=120)
    sent = client.scatter([f"text {{number}}" for number in range({TASKS})], hash=False)
    results = client.map(square, range({TASKS}), pure=False)
    wait([*sent, *results])
    holders = client.has_what()
    print("workers with results:", sum(bool(keys) for keys in holders.values()), flush=True)
    (folder / "held").touch()
    while not (folder / "continue").exists():
        time.sleep(0.1)
    print("workers left:", len(client.has_what()), flush=True)
    assert client.gather(results, errors="raise") == [number * number for number in range({TASKS})]
    assert client.gather(sent, errors="raise") == [f"text {{number}}" for number in range({TASKS})]
    assert len((folder / "computed").read_text().split()) == {TASKS}, "a task was computed again"
    print("no result was lost", flush=True)
"""

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(590)]


def manifest(folder: Path) -> Json:
    """A scheduler, four elastic workers and the client, with a folder that they share with the test."""
    (folder / "client.py").write_text(PROGRAM)
    launcher = {
        "name": "main",
        "image": "local",
        "command": ["python", str(folder / "client.py"), str(folder)],
    }
    plain: Json = {"name": "main", "image": "local"}
    roles: dict[str, Json] = {
        "scheduler": {"template": {"spec": {"containers": [plain]}}},
        "worker": {
            "replicas": 4,
            "elastic": {"min": 1, "max": 4},
            "template": {"spec": {"containers": [{**plain}]}},
        },
        "launcher": {"template": {"spec": {"containers": [launcher]}}},
    }
    for role in roles.values():
        pod = cast("Json", cast("Json", role["template"])["spec"])
        pod["volumes"] = [{"name": "shared", "hostPath": {"path": str(folder)}}]
        for container in cast("list[Json]", pod["containers"]):
            container["volumeMounts"] = [{"name": "shared", "mountPath": str(folder)}]
    run: Json = {
        "apiVersion": "argosy.dev/v1alpha1",
        "kind": "TrainingRun",
        "metadata": {"name": NAME},
        "spec": {"framework": "dask", "options": {"threadsPerWorker": 1}, "roles": roles},
    }
    return examples.with_mounts(run, "dask")


@pytest.fixture
def shared(plane: ControlPlane, tmp_path: Path) -> Iterator[Path]:
    """The folder of a job that is deleted after the test."""
    examples.require("examples/dask/run.yaml")
    yield tmp_path
    plane.kubectl("delete", "tr", NAME, "--ignore-not-found")
    plane.kubectl("wait", "--for=delete", "pod", "-l", f"{labels.JOB}={NAME}", "--timeout=60s", code=None)


def workers(plane: ControlPlane) -> list[str]:
    selector = f"{labels.JOB}={NAME},{labels.ROLE}=worker"
    return plane.kubectl("get", "pods", "-l", selector, "-o", "name").stdout.split()


def test_removed_workers_are_retired_and_no_result_is_lost(plane: ControlPlane, shared: Path) -> None:
    def explain() -> str:
        output = plane.argosy("logs", NAME, code=None).stdout[-6000:]
        return plane.argosy("describe", NAME, code=None).stdout + output

    plane.kubectl("apply", "-f", "-", stdin=json.dumps(manifest(shared)))
    wait_for((shared / "held").exists, explain, 180)
    plane.kubectl("scale", f"tr/{NAME}", "--replicas=1")
    wait_for(lambda: len(workers(plane)) == 1, explain, 120)
    (shared / "continue").touch()
    plane.kubectl(
        "wait", f"tr/{NAME}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=55s", code=None
    )
    output = plane.kubectl("logs", f"{NAME}-launcher-0", "-c", "main").stdout
    assert output.splitlines() == ["workers with results: 4", "workers left: 1", "no result was lost"], (
        explain()
    )


def test_adaptive_adds_workers_for_waiting_tasks_and_retires_them_after_that(plane: ControlPlane) -> None:
    examples.require(examples.ADAPTIVE_DASK)
    *access, run = yaml.safe_load_all((REPOSITORY / examples.ADAPTIVE_DASK).read_text())
    name = run["metadata"]["name"]
    for document in (*access, examples.with_mounts(run, "dask")):
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(document))

    def explain() -> str:
        output = plane.argosy("logs", name, code=None).stdout[-6000:]
        return plane.argosy("describe", name, code=None).stdout + output

    def phase() -> str:
        return plane.kubectl("get", "tr", name, "-o", "jsonpath={.status.phase}").stdout

    wait_for(lambda: phase() in ("Succeeded", "Failed"), explain, 240)
    assert phase() == "Succeeded", explain()
    output = plane.kubectl("logs", f"{name}-launcher-0", "-c", "main").stdout.splitlines()
    computed, kept = [line for line in output if " - distributed" not in line]
    assert computed in [f"computed by {count} workers, of which 1 is left" for count in (2, 3, 4)]
    assert kept == "no result was lost"
    plane.kubectl("delete", "tr", name)
