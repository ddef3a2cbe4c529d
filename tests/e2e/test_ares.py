"""Every AresJob sample runs on the local control plane, also those with gang scheduling.

By default only that of MPI: tests/install/test_ares_on_cluster.py runs all of them.
"""

from pathlib import Path

import pytest
import yaml

from tests.support.local_control_plane import REPOSITORY, ControlPlane
from tests.support.parameters import marked
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

SAMPLES = {path.stem: path for path in sorted((REPOSITORY / "deploy/ares/config/samples").glob("*.yaml"))}


def phase(plane: ControlPlane, name: str) -> str:
    return plane.kubectl("get", "aj", name, "-o", "jsonpath={.status.phase}").stdout


def wait_for_phase(plane: ControlPlane, name: str, wanted: str) -> None:
    objects = lambda: plane.kubectl("get", "aj,pods", "-o", "wide").stdout  # noqa: E731
    wait_for(lambda: phase(plane, name) == wanted, objects, 120)


@pytest.mark.parametrize("sample", marked(SAMPLES, ["mpi-sample"], pytest.mark.long))
def test_54_every_sample_runs_with_an_image(plane: ControlPlane, tmp_path: Path, sample: Path) -> None:
    """`${IMAGE}` replaced -> applied without a validation error, not InvalidDefinition, reaches Running."""
    file = tmp_path / sample.name
    file.write_text(sample.read_text().replace("${IMAGE}", "local"))
    plane.kubectl("apply", "-f", str(file))
    name = yaml.safe_load(sample.read_text())["metadata"]["name"]
    wait_for_phase(plane, name, "Running")
    if name == "mpi-sample":
        _check_mpi_sample(plane)
    plane.kubectl("delete", "aj", name)
    wait_for(lambda: f"{name}-" not in plane.kubectl("get", "pods").stdout, lambda: name, 60)


def _check_mpi_sample(plane: ControlPlane) -> None:
    """32. launcher exit 0 -> Succeeded though worker runs; the PodGroup and the host file before that."""
    group = plane.kubectl("get", "podgroup", "mpi-sample", "-o", "jsonpath={.spec.minMember}").stdout
    assert group == "2"
    ip = "jsonpath={.status.podIP}"
    hosts = [
        plane.kubectl("get", "pod", f"mpi-sample-{role}-0", "-o", ip).stdout
        for role in ("launcher", "worker")
    ]
    read = plane.kubectl("exec", "mpi-sample-launcher-0", "--", "cat", "/etc/mpi/hostfile").stdout
    assert read.splitlines() == [f"{host} slots=1" for host in hosts]
    plane.kubectl("exec", "mpi-sample-launcher-0", "--", "sh", "-c", "echo 0 > /etc/code")
    wait_for_phase(plane, "mpi-sample", "Succeeded")
    worker = plane.kubectl("get", "pod", "mpi-sample-worker-0", "-o", "jsonpath={.status.phase}").stdout
    assert worker == "Running"
