"""A real HorizontalPodAutoscaler drives a MachinePool on a real cluster, with the operator of the chart.

The cloud is the rehearsal cloud, which checks every request, and its VMs become Nodes without a kubelet. Not
shown here: kubeadm, and pods that leave a machine before it is released (`tests/e2e/test_machine_pool.py`).
"""

import json
from collections.abc import Iterator

import pytest

from argosy.kinds.labels import MACHINE_POOL
from argosy.kinds.meta import Json
from tests.support.cluster.release import Release
from tests.support.cluster.rented_machines import RentedMachines, rented_machines
from tests.support.cluster.running import RunningCluster
from tests.support.external_metrics import ExternalMetrics, autoscaler, served_metrics
from tests.support.spot_instances import CREDENTIALS, JOIN
from tests.support.spot_jobs import spot_vm
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.root,
    pytest.mark.sequential,
    pytest.mark.timeout(600),
]

POOL: Json = {
    "apiVersion": "argosy.dev/v1alpha1",
    "kind": "MachinePool",
    "metadata": {"name": "pool"},
    "spec": {
        "replicas": 1,
        "template": {"kind": "SpotInstanceVM", "name": "vm"},
        "gcpCredentialsSecretRef": {"name": "gcp-credentials"},
        "drainGrace": "5m",
    },
}


@pytest.fixture(scope="module")
def machines(cluster: RunningCluster) -> Iterator[RentedMachines]:
    """Yield the cloud in which the installed operator buys machines."""
    release = Release(cluster)
    with rented_machines(cluster) as rented:
        values = (
            *("apis.spot=true", "replicas=1", "agent.enabled=false"),
            *(f"spot.gceEndpoint={rented.endpoint}", "spot.instancePollSeconds=1"),
            "spot.bootstrapTokenNamespaces=default",
        )
        release.install(*(word for value in values for word in ("--set", value)))
        yield rented
        release.uninstall()
    cluster.kubectl("delete", "namespace", release.namespace, "--wait=false")


@pytest.fixture(scope="module")
def metrics(cluster: RunningCluster) -> Iterator[ExternalMetrics]:
    with served_metrics(cluster) as served:
        yield served


def test_pool_follows_a_metric_and_leaves_nothing_in_the_cloud(
    cluster: RunningCluster, metrics: ExternalMetrics, machines: RentedMachines
) -> None:
    """Also if the operator is killed while machines are requested."""
    metrics.values["pool"] = 2
    target: Json = {"apiVersion": POOL["apiVersion"], "kind": "MachinePool", "name": "pool"}
    token = {**JOIN, "token": b"auto"}
    credentials = secret("gcp-credentials", {"credentials.json": CREDENTIALS})
    apply(cluster, credentials, secret("kubeadm-join-token", token), spot_vm("vm"), POOL)
    apply(cluster, autoscaler("pool", "default", target, 1, 5))

    def show() -> str:
        return cluster.kubectl("describe", "hpa,machinepools,provisionedinstances", code=None).stdout

    def has(size: int) -> bool:
        """Return True if so many machines are ready, and there are no others, in the cloud or the cluster."""
        status = cluster.get("machinepool", "pool").get("status", {})
        assert isinstance(status, dict)
        nodes = names(cluster, "nodes", "-l", f"{MACHINE_POOL}=default.pool")
        return status.get("ready", 0) == size and nodes == machines.vms() and len(nodes) == size

    wait_for(lambda: has(2), show, 150)
    first = machines.vms()
    metrics.values["pool"] = 4
    wait_for(lambda: machines.requested() > 2, show, 150)
    for pod in Release(cluster).pods():
        words = ("-n", Release(cluster).namespace, "--force", "--grace-period=0")
        cluster.kubectl("delete", "pod", str(pod["metadata"]["name"]), *words)
    wait_for(lambda: has(4), show, 150)
    assert first < machines.vms(), "the first machines stay"
    metrics.values["pool"] = 1
    wait_for(lambda: has(1), show, 150)
    assert machines.vms() < first, "the newest machines go first"
    assert machines.requested() == 4, "no machine is requested twice"
    cluster.kubectl("delete", "hpa,machinepool", "pool", "--timeout=120s", timeout=150)
    assert machines.vms() == set()
    for kind in (("nodes", "-l", MACHINE_POOL), ("provisionedinstances",)):
        assert names(cluster, *kind) == set()
    tokens = names(cluster, "secrets", "-n", "kube-system")
    assert not [name for name in tokens if name.startswith("bootstrap-token-")]
    assert machines.gate.violations == []


def names(cluster: RunningCluster, *words: str) -> set[str]:
    return set(cluster.kubectl("get", *words, "-o", "jsonpath={.items[*].metadata.name}").stdout.split())


def secret(name: str, data: dict[str, bytes]) -> Json:
    text = {key: value.decode() for key, value in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": text}


def apply(cluster: RunningCluster, *manifests: Json) -> None:
    for manifest in manifests:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
