"""Acceptance case 51: the commands of AresOperator's README, from `deploy/ares`, without Volcano."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml

from argosy.testing.cluster import images
from argosy.testing.cluster.running import RunningCluster, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.timeout(300)]

FOLDER = Path(__file__).parents[2] / "deploy" / "ares"
APPLIED = ("build/crd/.", "build/observer.yaml", "build/operator.yaml")
HOME = "ares-jobs"


@pytest.fixture(scope="module")
def applied(cluster: RunningCluster) -> Iterator[RunningCluster]:
    cluster.kubectl("create", "namespace", HOME)
    for path in APPLIED:
        cluster.kubectl("apply", "-f", str(FOLDER / path))
    yield cluster
    cluster.kubectl("delete", "aj", "-n", HOME, "--all", "--timeout=60s", code=None)
    for path in reversed(APPLIED):
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", str(FOLDER / path))
    cluster.kubectl("delete", "namespace", HOME, "--wait=false")


def ready(cluster: RunningCluster) -> dict[str, int]:
    """How many pods of each Deployment in namespace `ares` are ready."""
    counts: dict[str, int] = {}
    for line in cluster.kubectl("get", "pods", "-n", "ares", "--no-headers").stdout.splitlines():
        name, state, *_ = line.split()
        deployment = "-".join(name.split("-")[:2])
        counts[deployment] = counts.get(deployment, 0) + (state == "1/1")
    return counts


def test_51_operator_and_observers_become_ready(applied: RunningCluster) -> None:
    """one `ares-operator-…` and two `ares-observer-…`, all ready."""
    eventually(lambda: ready(applied) == {"ares-operator": 1, "ares-observer": 2}, 120)


def test_51_a_second_pass_changes_nothing(applied: RunningCluster) -> None:
    for path in APPLIED:
        said = applied.kubectl("apply", "-f", str(FOLDER / path)).stdout
        assert {line.rpartition(" ")[2] for line in said.splitlines()} == {"unchanged"}, said


def test_a_job_waits_by_the_observers_and_runs(applied: RunningCluster) -> None:
    sample = (FOLDER / "config/samples/custom-sample.yaml").read_text().replace("${IMAGE}", images.PYTHON)
    job = yaml.safe_load(sample)
    roles = job["spec"]["roleSpecs"]
    roles["launcher"]["dependence"] = {"roleNames": ["worker"]}
    for role in roles.values():
        role["template"]["spec"]["containers"][0]["command"] = ["sh", "-c", "sleep 3"]
    applied.kubectl("apply", "-n", HOME, "-f", "-", stdin=json.dumps(job))

    def succeeded() -> bool:
        found = cast("dict[str, object]", applied.get("aj", "-n", HOME, "custom-sample").get("status", {}))
        assert found.get("phase") == "Succeeded", found
        return True

    eventually(succeeded, 120)
    pods = cast("list[dict[str, dict[str, object]]]", applied.get("pods", "-n", HOME)["items"])
    (launcher,) = (pod for pod in pods if str(pod["metadata"]["name"]).startswith("custom-sample-launcher-0"))
    (initializer,) = cast("list[dict[str, list[dict[str, str]]]]", launcher["spec"]["initContainers"])
    urls = [one["value"] for one in initializer["env"] if one["name"] == "ARGOSY_URL"]
    assert urls == ["https://ares-observer.ares.svc"]
