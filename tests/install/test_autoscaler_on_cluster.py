"""A real HorizontalPodAutoscaler on a real cluster drives jobs by an external metric that the test serves."""

import json
from collections.abc import Iterator
from typing import cast

import pytest
from msgspec.structs import replace

from tests.support import trainingjobs
from tests.support.builders import pod_template, run
from tests.support.cluster import images
from tests.support.cluster.release import Release
from tests.support.cluster.running import RunningCluster
from tests.support.external_metrics import ExternalMetrics, autoscaler, served_metrics
from tests.support.targets import ET_VALUES
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.sequential,
    pytest.mark.root,
    pytest.mark.timeout(600),
]

Json = dict[str, object]
HOME = "autoscaled"
SLEEP = "trap 'exit 0' TERM; while :; do sleep 0.2; done"
POLLING = "while :; do echo $(/etc/edl/discover_hosts.sh); sleep 0.5; done"


@pytest.fixture(scope="module")
def metrics(cluster: RunningCluster) -> Iterator[ExternalMetrics]:
    """Yield the metrics of a cluster on which the operator is installed."""
    release = Release(cluster)
    release.install(*(word for value in ("gang.backend=none", *ET_VALUES) for word in ("--set", value)))
    cluster.kubectl("create", "namespace", HOME)
    with served_metrics(cluster) as served:
        yield served
    cluster.kubectl("delete", "namespace", HOME, "--timeout=120s", code=None, timeout=150)
    release.uninstall()


def apply(cluster: RunningCluster, *manifests: Json) -> None:
    for manifest in manifests:
        cluster.kubectl("apply", "-n", HOME, "-f", "-", stdin=json.dumps(manifest))


def describe(cluster: RunningCluster) -> str:
    return cluster.kubectl("describe", "hpa,tr,trainingjob", "-n", HOME).stdout


def running_workers(cluster: RunningCluster, selector: str) -> list[str]:
    """Return the names of the workers whose main containers run."""
    listed = cluster.get("pods", "-n", HOME, "-l", selector)["items"]
    return sorted(
        str(pod["metadata"]["name"])
        for pod in cast("list[dict[str, Json]]", listed)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    )


def hpa_condition(cluster: RunningCluster, name: str, kind: str) -> tuple[str, str]:
    status = cast("Json", cluster.get("hpa", "-n", HOME, name).get("status", {}))
    conditions = cast("list[dict[str, str]]", status.get("conditions", []))
    return next(((item["status"], item["reason"]) for item in conditions if item["type"] == kind), ("", ""))


def test_run_grows_and_shrinks_with_a_metric_within_its_allowed_sizes(
    cluster: RunningCluster, metrics: ExternalMetrics
) -> None:
    template = pod_template(images.PYTHON, command=["sh", "-c", SLEEP])
    cast("Json", template["spec"])["terminationGracePeriodSeconds"] = 1
    elastic = {"min": 2, "max": 6, "multipleOf": 2, "stabilizationWindow": "2s"}
    job = replace(run("even").role("worker", 2, elastic=elastic, template=template), namespace=HOME)
    target: Json = {"apiVersion": "argosy.dev/v1alpha1", "kind": "TrainingRun", "name": "even"}
    metrics.values["even"] = 2
    apply(cluster, job.build(), autoscaler("even", HOME, target, 1, 9))
    sizes: list[int] = []

    def has_size(size: int) -> bool:
        status = cast("Json", cluster.get("tr", "-n", HOME, "even").get("status", {}))
        roles = cast("dict[str, dict[str, int]]", status.get("roles", {}))
        role = roles.get("worker", {})
        sizes.append(role.get("currentReplicas") or role.get("replicas", 2))
        return len(running_workers(cluster, "argosy.dev/job=even")) == size == sizes[-1]

    for wanted, size in ((2, 2), (4, 4), (6, 6), (2, 2)):
        metrics.values["even"] = wanted
        wait_for(lambda size=size: has_size(size), lambda: describe(cluster), 150)  # type: ignore[misc]
    metrics.values["even"] = 3
    wait_for(
        lambda: hpa_condition(cluster, "even", "AbleToScale") == ("False", "FailedUpdateScale"),
        lambda: describe(cluster),
        150,
    )
    assert has_size(2), "a size that is not allowed is rejected"
    assert set(sizes) <= {2, 4, 6}
    status = cast("Json", cluster.get("tr", "-n", HOME, "even")["status"])
    assert (status["attempt"], status.get("restarts", 0)) == (1, 0)


def test_training_job_grows_and_shrinks_with_a_metric(
    cluster: RunningCluster, metrics: ExternalMetrics
) -> None:
    changes: Json = {"launcherAttachMode": "kubexec", "worker.maxReplicas": 4}
    for role, script in (("launcher", POLLING), ("worker", SLEEP)):
        program: Json = {"name": role, "image": images.PYTHON, "command": ["sh", "-c", script]}
        changes[f"{role}.template.spec.containers"] = [program]
    job = trainingjobs.job("elastic", changes)
    target: Json = {"apiVersion": job["apiVersion"], "kind": "TrainingJob", "name": "elastic"}
    metrics.values["elastic"] = 2
    apply(cluster, job, autoscaler("elastic", HOME, target, 1, 4))
    selector = "training-job-name=elastic,training-job-role=worker"
    launcher = ("pod", "elastic-launcher", "-n", HOME, "-o", "jsonpath={.metadata.uid}")
    uids: set[str] = set()
    for wanted in (2, 4, 1, 3):
        metrics.values["elastic"] = wanted
        names = [f"elastic-worker-{index}" for index in range(wanted)]

        def reached(names: list[str] = names) -> bool:
            hosts = cluster.kubectl(
                *("exec", "-n", HOME, "elastic-launcher", "-c", "launcher", "--", "cat", "/etc/edl/hostfile"),
                code=None,
            ).stdout
            listed = sorted(line.partition(":")[0] for line in hosts.split())
            return running_workers(cluster, selector) == names == listed

        wait_for(reached, lambda: describe(cluster), 150)
        uids.add(cluster.kubectl("get", *launcher).stdout)
    assert len(uids) == 1, "the launcher was not touched"
    assert metrics.requests > 0
