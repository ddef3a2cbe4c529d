"""A real node loses its power under a job: its worker goes on elsewhere, and nothing is left of either."""

from collections.abc import Iterator

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, Pod, Service, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.testing.builders import run
from argosy.testing.cluster import images
from argosy.testing.cluster.running import RunningCluster
from argosy.testing.hardships import running, served
from argosy.testing.scene import Scene
from argosy.testing.until import until

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture
def breakable(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """The cluster of all tests, as whole afterwards as before."""
    try:
        yield cluster
    finally:
        cluster.mend()
        cluster.kubectl("wait", "node/node-2", "--for=condition=Ready=True", "--timeout=60s", timeout=70)


def template() -> dict[str, object]:
    """A worker that goes on until a file tells it to end, on a node of its own while there is one."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"spread": "yes"}},
    }
    container = {
        "name": "main",
        "image": images.PYTHON,
        "command": ["sh", "-c", "trap 'exit 0' TERM; until [ -e /tmp/done ]; do sleep 0.2; done"],
    }
    spec = {
        "containers": [container],
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": 5,
    }
    return {"metadata": {"labels": {"spread": "yes"}}, "spec": spec}


async def test_a_node_without_power_costs_its_worker_and_no_restart(breakable: RunningCluster) -> None:
    cluster = breakable
    async with Client(Connection.from_kubeconfig(cluster.server.kubeconfig)) as client:
        await client.apply(CustomResourceDefinition, crd_for(TrainingRun), force=True)
        await served(client, TrainingRun.resource.version)
        await client.create(Namespace, {"metadata": {"name": "power"}})
        scene = Scene(client, cluster.server, "power")

        async def account() -> bool:
            return any(
                one.metadata.name == "default" for one in (await client.list(ServiceAccount, "power")).items
            )

        await until(account, "the namespace is furnished")
        async with scene.operator():
            job = run("job").role(
                "worker", 2, restart="OnFailure", template=template(), policy={"nodeDownAsFailed": True}
            )
            await scene.apply(job)
            before = await running(scene, "job")
            pods = await scene.pods()
            assert {pod.spec.node_name for pod in pods.values()} == {"node-1", "node-2"}
            lost = next(name for name, pod in pods.items() if pod.spec.node_name == "node-2")
            cluster.power_off("node-2")

            async def elsewhere() -> bool:
                pod = (await scene.pods()).get(lost)
                return pod is not None and pod.spec.node_name == "node-1" and pod.status.phase == "Running"

            await until(elsewhere, "the worker runs on the other node", 120)
            await scene.until_phase("Running", "job")
            after = await scene.run("job")
            assert after.status.restarts == 0
            assert any("node-2, which does not answer" in event.message for event in await scene.events())
            kept = {pod.metadata.uid for pod in (await scene.pods()).values()} & before
            assert len(kept) == 1, f"the other worker is not the one it was: {after.status.restart_history}"
            for name in await scene.pods():
                cluster.kubectl("exec", "-n", "power", name, "--", "touch", "/tmp/done")
            await scene.until_phase("Succeeded", "job")
            await client.delete(TrainingRun, "job", "power", propagation="Background")

            async def bare() -> bool:
                kinds = (Pod, Service)
                return not any([(await client.list(kind, "power")).items for kind in kinds])

            await until(bare, "the garbage collector has taken everything", 120)
