"""Tests that an operator started in place of et-operator adopts its jobs and creates no pod twice."""

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds.kubernetes import Pod, Service
from argosy.kinds.meta import Json
from argosy.kinds.scalers import ScaleIn
from argosy.kinds.trainingjob import TrainingJob
from argosy.operator.apis.et import ET
from tests.support.operator_harness import Scene, until_served
from tests.support.trainingjobs import job, scale_in

AT = "2026-01-01T12:00:00Z"
WORKERS = (0, 2)
"""Worker 1 was replaced."""
STARTED = ("Created", "WorkersCreated", "WorkersReady", "LauncherCreated", "Running")


async def left(scene: Scene, name: str, phase: str, *conditions: str) -> str:
    """Create a job of et-operator with this status; return its uid."""
    kind = dynamic_kind(TrainingJob.resource)
    created = await scene.client.create(kind, job(name), scene.namespace)
    workers = [f"{name}-worker-{index}" for index in WORKERS]
    status = {
        "phase": phase,
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": AT} for kind in conditions],
        "replicaStatuses": {"Launcher": {"active": 1}, "Worker": {"active": 2}},
        "restartCount": 1,
        "startTime": AT,
        "targetWorkers": workers,
        "currentWorkers": workers,
    }
    await scene.client.patch(kind, name, {"status": status}, scene.namespace, subresource="status")
    return created.metadata.uid


async def create_children(scene: Scene, name: str, uid: str) -> None:
    """Create pods and Services as et-operator does."""
    owner = {
        "apiVersion": "kai.alibabacloud.com/v1alpha1",
        "kind": "TrainingJob",
        "name": name,
        "uid": uid,
        "controller": True,
    }
    labels = {"group-name": "kai.alibabacloud.com", "training-job-name": name}
    pods: dict[str, dict[str, str]] = {f"{name}-launcher": {**labels, "training-job-role": "launcher"}}
    for index in WORKERS:
        own = {**labels, "training-job-role": "worker", "replica-index": str(index)}
        pods[f"{name}-worker-{index}"] = own
        meta: Json = {"name": f"{name}-worker-{index}", "labels": own, "ownerReferences": [owner]}
        spec = {"clusterIP": "None", "selector": own, "ports": [{"name": "ssh-port", "port": 22}]}
        await scene.client.create(Service, {"metadata": meta, "spec": spec}, scene.namespace)
    for pod, own in pods.items():
        meta = {"name": pod, "labels": own, "ownerReferences": [owner]}
        containers = {"containers": [{"name": "main", "image": "image"}]}
        await scene.client.create(Pod, {"metadata": meta, "spec": containers}, scene.namespace)
        await scene.report(pod, "Running")


async def test_jobs_of_et_operator_are_adopted(scene: Scene) -> None:
    await until_served(scene.client, TrainingJob, scene.namespace)
    await create_children(scene, "runs", await left(scene, "runs", "Running", *STARTED))
    await left(scene, "ended", "Succeeded", *STARTED[:4], "Succeeded")
    ended = await left_scaler(scene)
    before = {name: pod.metadata.uid for name, pod in (await scene.pods()).items()}
    assert set(before) == {"runs-launcher", "runs-worker-0", "runs-worker-2"}

    async def stored(name: str) -> TrainingJob:
        return await scene.client.get(TrainingJob, name, scene.namespace)

    async with scene.operator(apis=(ET,), gang_backend="none"):

        async def remembered() -> bool:
            jobs = (await scene.client.list(TrainingJob, scene.namespace)).items
            return all(job.status.argosy for job in jobs)

        await scene.until("both jobs are known", remembered)

        async def services_are_ours() -> bool:
            services = (await scene.client.list(Service, scene.namespace)).items
            return all("argosy.dev/index" in service.metadata.labels for service in services)

        await scene.until("Services are adopted", services_are_ours)
        pods = await scene.pods()
        assert {name: pod.metadata.uid for name, pod in pods.items()} == before, "nothing is made twice"
        indexes = {name: pod.metadata.labels["argosy.dev/index"] for name, pod in pods.items()}
        assert indexes == {"runs-launcher": "0", "runs-worker-0": "0", "runs-worker-2": "2"}
        running, finished = await stored("runs"), await stored("ended")
        assert (running.status.phase, finished.status.phase) == ("Running", "Succeeded")
        assert running.status.target_workers == ["runs-worker-0", "runs-worker-2"]
        assert running.status.restart_count == 1
        await scene.report("runs-launcher", "Succeeded")

        async def done() -> bool:
            return (await stored("runs")).status.phase == "Succeeded"

        await scene.until("the job has succeeded", done)

        async def cleaned_up() -> bool:
            left_pods = await scene.pods()
            return {name for name, pod in left_pods.items() if not pod.metadata.deletion_timestamp} == {
                "runs-launcher"
            }

        await scene.until("workers are deleted", cleaned_up)
        scaler = await scene.client.get(ScaleIn, "old", scene.namespace)
        assert scaler.metadata.resource_version == ended, "a finished scaler is not written"


async def left_scaler(scene: Scene) -> str:
    """Create a finished ScaleIn of et-operator; return its resourceVersion."""
    await until_served(scene.client, ScaleIn, scene.namespace)
    kind = dynamic_kind(ScaleIn.resource)
    body = scale_in("old", selector={"name": "runs"}, toDelete={"count": 1})
    await scene.client.create(kind, body, scene.namespace)
    status = {
        "phase": "ScaleSucceeded",
        "conditions": [{"type": "ScaleSucceeded", "status": "True", "lastTransitionTime": AT}],
        "replicaStatuses": {},
        "restartCount": 0,
        "toDeletePods": ["runs-worker-3"],
    }
    written = await scene.client.patch(kind, "old", {"status": status}, scene.namespace, subresource="status")
    return written.metadata.resource_version
