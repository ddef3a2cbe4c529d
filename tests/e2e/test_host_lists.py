"""Host lists on the local control plane: real pods with a sidecar that writes the files of a launcher.

The operator serves the test-only API of `tests.support.listed_runs`.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.builders import pod_template
from tests.support.listed_runs import listed_run
from tests.support.local_control_plane import REPOSITORY, ControlPlane
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

OPERATOR = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from argosy.operator.main import run
from argosy.operator.settings import local_settings
from tests.support.listed_runs import listed_runs_api
asyncio.run(run(replace(local_settings(Path(sys.argv[1])), apis=(listed_runs_api(),))))
"""
LAUNCHER = "mnist-launcher-0"
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]
READ_LISTS = """
trap 'exit 0' TERM
last=
while [ ! -e /tmp/stop ]; do
    list=$(sh /etc/edl/discover.sh)
    if [ "$list" != "$last" ]; then echo list: $list; last=$list; fi
    sleep 0.05
done
"""


KILL_HELPER = """
for process in /proc/[0-9]*; do
    if tr '\\0' ' ' < $process/cmdline | grep -q '__main__.py hosts $'; then kill -9 ${process#/proc/}; fi
done
"""


class Operator:
    """An operator process that a test can kill and start again."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-c", OPERATOR, str(self._plane.state.folder)]
        self._process = subprocess.Popen(command, cwd=REPOSITORY, env=self._plane.environment)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    plane = ControlPlane.up("--nodes", "1", "--no-operator")
    yield plane
    plane.down()


@pytest.fixture
def operator(plane: ControlPlane) -> Iterator[Operator]:
    operator = Operator(plane)
    yield operator
    plane.kubectl("delete", "tr,pods", "--all", "--wait=false")
    wait_for(lambda: not plane.get("pods")["items"], "all pods are gone")
    operator.kill()


def apply(plane: ControlPlane, command: list[str], **template: object) -> None:
    spec = pod_template(command=command)
    spec["spec"] = {**spec["spec"], **template}  # type: ignore[dict-item]
    job = listed_run(template=pod_template(command=SLEEP)).role("launcher", 1, template=spec)
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(job.build()))


def output(plane: ControlPlane) -> list[str]:
    """Return the lists that the launcher has read, in order."""
    lines = plane.kubectl("logs", LAUNCHER, "-c", "main", code=None).stdout.splitlines()
    return [line.removeprefix("list: ") for line in lines]


def wait_for_list(plane: ControlPlane, *workers: int) -> None:
    want = " ".join(f"mnist-worker-{index}:1" for index in workers)
    wait_for(lambda: output(plane)[-1:] == [want], lambda: f"{output(plane)}, not {want}")


def is_acknowledged(plane: ControlPlane) -> bool:
    record = plane.get("tr", "mnist")["status"]["argosy"]["roles"]["worker"]  # type: ignore[index]
    annotations = plane.get("pod", LAUNCHER)["metadata"].get("annotations", {})  # type: ignore[attr-defined]
    etag = f"{record['listedVersion']}-{record['listedDigest']}"
    return bool(annotations.get("argosy.dev/hosts-ack") == etag)


def sidecar_restarts(plane: ControlPlane) -> int:
    statuses = plane.get("pod", LAUNCHER)["status"]["initContainerStatuses"]  # type: ignore[index]
    return next(int(status["restartCount"]) for status in statuses if status["name"] == "argosy-hosts")


def test_launcher_reads_each_list_and_ends_with_its_sidecar(plane: ControlPlane, operator: Operator) -> None:
    apply(plane, ["sh", "-c", READ_LISTS])
    wait_for_list(plane, 0, 1)
    wait_for(lambda: is_acknowledged(plane))
    plane.kubectl("delete", "pod", "mnist-worker-1")
    wait_for_list(plane, 0, 2)
    wait_for(lambda: is_acknowledged(plane))
    config = plane.get("configmap", "mnist-config")["data"]
    assert config["hostfile"] == "mnist-worker-0:1\nmnist-worker-2:1\n"  # type: ignore[index]
    mode = plane.kubectl("exec", LAUNCHER, "-c", "main", "--", "stat", "-c", "%a", "/etc/edl/hostfile").stdout
    assert mode == "600\n"
    assert "" not in output(plane), "the file exists before the launcher starts, and always"
    assert set(output(plane)) <= {
        "mnist-worker-0:1 mnist-worker-1:1",
        "mnist-worker-0:1",
        "mnist-worker-0:1 mnist-worker-2:1",
    }
    plane.kubectl("exec", LAUNCHER, "-c", "main", "--", "touch", "/tmp/stop")
    wait_for(lambda: plane.get("tr", "mnist")["status"]["phase"] == "Succeeded")  # type: ignore[index]

    def shown() -> list[str]:
        return plane.kubectl("get", "pod", LAUNCHER, "--no-headers").stdout.split()[1:3]

    wait_for(lambda: shown() == ["0/2", "Completed"], lambda: str(shown()))


@pytest.mark.long
def test_sidecar_survives_kills_of_itself_and_of_the_operator(
    plane: ControlPlane, operator: Operator
) -> None:
    apply(plane, ["sh", "-c", READ_LISTS])
    wait_for_list(plane, 0, 1)
    plane.kubectl("exec", LAUNCHER, "-c", "argosy-hosts", "--", "sh", "-c", KILL_HELPER, code=None)
    wait_for(lambda: sidecar_restarts(plane) == 1)
    operator.kill()
    plane.kubectl("delete", "pod", "mnist-worker-0")
    operator.start()
    wait_for_list(plane, 1, 2)
    wait_for(lambda: is_acknowledged(plane))


@pytest.mark.long
@pytest.mark.root
def test_launcher_that_is_not_root_can_read_its_list(plane: ControlPlane, operator: Operator) -> None:
    apply(plane, ["sh", "-c", f"id -u; {READ_LISTS}"], securityContext={"runAsUser": 1000})
    wait_for_list(plane, 0, 1)
    assert output(plane)[0] == "1000"
