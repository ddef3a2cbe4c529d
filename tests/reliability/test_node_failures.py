"""Tests for real nodes that lose power or their connection to the API server while a job runs.

No rank ever runs twice, and the job continues as soon as that is certain.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, Pod, Service, ServiceAccount
from argosy.kinds.trainingrun import TrainingRun
from argosy.workload.announcements import OUT_OF_SERVICE
from tests.support.builders import run
from tests.support.cluster import images
from tests.support.cluster.running import RunningCluster
from tests.support.faults import wait_until_running, wait_until_served
from tests.support.operator_harness import Scene
from tests.support.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.root, pytest.mark.long, pytest.mark.timeout(600)]


HELD_SECONDS = 50.0
"""How long a node that is cut off is watched: much longer than the grace period of its pods."""

TAINT = f"{OUT_OF_SERVICE}=nodeshutdown:NoExecute"


@pytest.fixture
def repaired_cluster(cluster: RunningCluster) -> Iterator[RunningCluster]:
    """Yield the shared cluster, and repair it after the test."""
    try:
        yield cluster
    finally:
        cluster.reconnect("node-2")
        cluster.mend()
        cluster.kubectl("wait", "node/node-2", "--for=condition=Ready=True", "--timeout=90s", timeout=100)
        cluster.kubectl("taint", "nodes", "node-2", f"{TAINT}-", code=None)


def template() -> dict[str, object]:
    """Return a worker that runs until a file exists, preferably on its own node."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"spread": "yes"}},
    }
    script = "trap 'exit 0' TERM; until [ -e /tmp/done ]; do sleep 0.2; done"
    container = {
        "name": "main",
        "image": images.PYTHON,
        "command": ["sh", "-c", script, "rank-of-$(POD_NAMESPACE)/$(POD_NAME)"],
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (("POD_NAMESPACE", "metadata.namespace"), ("POD_NAME", "metadata.name"))
        ],
    }
    spec = {
        "containers": [container],
        "topologySpreadConstraints": [spread],
        "terminationGracePeriodSeconds": 5,
    }
    return {"metadata": {"labels": {"spread": "yes"}}, "spec": spec}


@asynccontextmanager
async def started(cluster: RunningCluster, namespace: str) -> AsyncIterator[tuple[Scene, str]]:
    """Yield a job of two running workers, one on each node, and the name of the one on node-2."""
    async with Client(Connection.from_kubeconfig(cluster.server.kubeconfig)) as client:
        await client.apply(CustomResourceDefinition, crd_for(TrainingRun), force=True)
        await wait_until_served(client, TrainingRun.resource.version)
        await client.create(Namespace, {"metadata": {"name": namespace}})
        scene = Scene(client, cluster.server, namespace)

        async def account() -> bool:
            accounts = (await client.list(ServiceAccount, namespace)).items
            return any(account.metadata.name == "default" for account in accounts)

        await until(account, "the namespace has its default service account")
        async with scene.operator():
            job = run("job").role(
                "worker", 2, restart="OnFailure", template=template(), policy={"nodeDownAsFailed": True}
            )
            await scene.apply(job)
            await wait_until_running(scene, "job")
            pods = await scene.pods()
            assert {pod.spec.node_name for pod in pods.values()} == {"node-1", "node-2"}
            yield scene, next(name for name, pod in pods.items() if pod.spec.node_name == "node-2")


async def until_unreachable(scene: Scene, pod: str) -> None:
    """Wait until the job waits for a pod on an unreachable node, and check that its message has a remedy."""

    async def waits() -> bool:
        return (await scene.run("job")).status.reason == "NodeUnreachable"

    await until(waits, "the job waits for the node", 120)
    status = (await scene.run("job")).status
    assert status.waiting_since is not None
    assert status.message.startswith(f"waiting for {pod} to terminate on node-2, which is unreachable")
    assert any("node-2, which is unreachable" in event.message for event in await scene.events())


async def finish(scene: Scene, cluster: RunningCluster) -> None:
    """Let the workers end, delete the job, and check that nothing of it remains."""
    for name in await scene.pods():
        cluster.kubectl("exec", "-n", scene.namespace, name, "--", "touch", "/tmp/done")
    await scene.until_phase("Succeeded", "job")
    await scene.client.delete(TrainingRun, "job", scene.namespace, propagation="Background")

    async def bare() -> bool:
        return not any([(await scene.client.list(kind, scene.namespace)).items for kind in (Pod, Service)])

    await until(bare, "the garbage collector has taken everything", 120)


def containers_by_rank(namespace: str) -> Counter[str]:
    """Return how many containers of each worker run on any node, by their processes on this host.

    A container is identified by its pid namespace, as a shell and its child have the same command line.
    """
    containers: set[tuple[str, str]] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            rank = words[3].decode(errors="replace") if len(words) > 3 else ""
            if rank.startswith(f"rank-of-{namespace}/"):
                containers.add((rank.partition("/")[2], str((process / "ns/pid").readlink())))
    return Counter(name for name, _ in containers)


async def test_powered_off_node_replaces_its_worker_without_a_restart(
    repaired_cluster: RunningCluster,
) -> None:
    """The worker is replaced on another node when an administrator adds the out-of-service taint."""
    async with started(repaired_cluster, "power") as (scene, lost):
        kept = {name: pod.metadata.uid for name, pod in (await scene.pods()).items() if name != lost}
        repaired_cluster.power_off("node-2")
        await until_unreachable(scene, lost)
        repaired_cluster.kubectl("taint", "nodes", "node-2", TAINT)

        async def elsewhere() -> bool:
            pod = (await scene.pods()).get(lost)
            return pod is not None and pod.spec.node_name == "node-1" and pod.status.phase == "Running"

        await until(elsewhere, "the worker runs on the other node", 120)
        await scene.until_phase("Running", "job")
        after = await scene.run("job")
        assert after.status.restarts == 0
        pods = await scene.pods()
        assert {name: pods[name].metadata.uid for name in kept} == kept, after.status.restart_history
        await finish(scene, repaired_cluster)


async def test_disconnected_node_that_returns_runs_no_rank_twice(repaired_cluster: RunningCluster) -> None:
    async with started(repaired_cluster, "cut") as (scene, lost):
        before = {name: pod.metadata.uid for name, pod in (await scene.pods()).items()}
        assert containers_by_rank("cut") == Counter(before.keys())
        most: Counter[str] = Counter()

        async def sample() -> None:
            while True:
                nonlocal most
                most |= containers_by_rank("cut")
                await asyncio.sleep(0.1)

        sampling = asyncio.create_task(sample())
        repaired_cluster.cut_off("node-2")
        await until_unreachable(scene, lost)
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_SECONDS):
                while True:
                    assert {name: pod.metadata.uid for name, pod in (await scene.pods()).items()} == before
                    assert containers_by_rank("cut")[lost] == 1, "it goes on where nobody can reach it"
                    await asyncio.sleep(0.5)
        repaired_cluster.reconnect("node-2")

        async def replaced() -> bool:
            pod = (await scene.pods()).get(lost)
            return pod is not None and pod.metadata.uid != before[lost] and pod.status.phase == "Running"

        await until(replaced, "the worker was ended by its node, and replaced", 120)
        await scene.until_phase("Running", "job")
        after = await scene.run("job")
        assert after.status.restarts == 0
        sampling.cancel()
        assert set(most.values()) == {1}, f"a rank ran twice: {most}"
        await finish(scene, repaired_cluster)
