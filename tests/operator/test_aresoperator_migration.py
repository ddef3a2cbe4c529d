"""Tests that an operator started in place of AresOperator adopts its jobs and creates no pod twice."""

from typing import cast

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds.aresjob import FINALIZER, AresJob
from argosy.kinds.kubernetes import Pod, Service
from tests.support.aresjobs import job
from tests.support.operator_harness import Scene

AT = "2026-01-01T12:00:00Z"
KIND = dynamic_kind(AresJob.resource)


async def left(scene: Scene, name: str, phase: str, **status: object) -> str:
    """Create a job of AresOperator with this status; return its uid."""
    spec = job(roles={"worker": {"replicas": 2, "restartPolicy": "OnFailure"}}).spec
    body = {
        "apiVersion": "ares.io/v1",
        "kind": "AresJob",
        "metadata": {"name": name, "finalizers": [FINALIZER]},
        "spec": spec,
    }
    created = await scene.client.create(KIND, body, scene.namespace)
    written = {"phase": phase, "roleStatuses": {"worker": {"phase": phase}}, **status}
    await scene.client.patch(KIND, name, {"status": written}, scene.namespace, subresource="status")
    return str(cast("dict[str, object]", created.raw["metadata"])["uid"])


async def create_children(scene: Scene, name: str, uid: str) -> None:
    """Create pods and a Service as AresOperator does."""
    owner = {"apiVersion": "ares.io/v1", "kind": "AresJob", "name": name, "uid": uid, "controller": True}
    labels = {"ares.io/group-name": "ares.io", "ares.io/job-name": name, "ares.io/replica-type": "worker"}
    spec = {"containers": [{"name": "main", "image": "image"}]}
    for index, own in enumerate((labels, {"replica-type": "worker"})):
        key = "ares.io/replica-index" if own is labels else "replica-index"
        meta = {
            "name": f"{name}-worker-{index}-x",
            "labels": {**own, key: str(index)},
            "ownerReferences": [owner],
        }
        await scene.client.create(Pod, {"metadata": meta, "spec": spec}, scene.namespace)
        await scene.report(f"{name}-worker-{index}-x", "Running")
    meta = {"name": f"{name}-worker", "labels": labels, "ownerReferences": [owner]}
    ports = [{"name": "port-80", "port": 80}]
    service = {"metadata": meta, "spec": {"clusterIP": "None", "selector": labels, "ports": ports}}
    await scene.client.create(Service, service, scene.namespace)


async def test_jobs_of_aresoperator_are_adopted(scene: Scene) -> None:
    await create_children(scene, "runs", await left(scene, "runs", "Running", runningTime=AT))
    await left(scene, "ended", "Succeeded", completionTime=AT)
    names = {"runs-worker-0-x", "runs-worker-1-x"}
    before = {name: pod.metadata.uid for name, pod in (await scene.pods()).items()}
    assert set(before) == names

    async def phase(name: str) -> str:
        return (await scene.client.get(AresJob, name, scene.namespace)).status.phase

    async with scene.operator(gang_backend="none", remote_exec=False):

        async def remembered() -> bool:
            jobs = (await scene.client.list(AresJob, scene.namespace)).items
            return all(job.status.argosy for job in jobs)

        await scene.until("both jobs are known", remembered)
        pods = await scene.pods()
        assert {name: pod.metadata.uid for name, pod in pods.items()} == before, "nothing is made twice"
        assert {pod.metadata.labels["argosy.dev/index"] for pod in pods.values()} == {"0", "1"}
        assert {pod.metadata.labels["ares.io/job-name"] for pod in pods.values()} == {"runs"}
        assert (await phase("runs"), await phase("ended")) == ("Running", "Succeeded")
        jobs = (await scene.client.list(AresJob, scene.namespace)).items
        assert not any(job.metadata.finalizers for job in jobs)
        await scene.report_all("Succeeded")

        async def done() -> bool:
            return await phase("runs") == "Succeeded"

        await scene.until("the job has succeeded", done)
        assert set(await scene.pods()) == names
