"""Acceptance case 46 of et-operator's specification: any workload that torchrun runs, as a TrainingRun."""

from typing import cast

import msgspec

from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import Json
from argosy.kinds.trainingrun import TrainingRun
from tests.support.builders import run
from tests.support.operator_harness import Scene

MERGE_PATCH = "application/merge-patch+json"
WORKERS = tuple(f"mnist-worker-{index}" for index in range(3))


async def variables(scene: Scene, pod: str) -> dict[str, str]:
    """Return the variables of a pod that torchrun reads."""
    raw = msgspec.json.decode(await scene.client.request("GET", Pod.resource.path(pod, scene.namespace)))
    [container] = cast("list[Json]", cast("Json", raw["spec"])["containers"])
    listed = cast("list[dict[str, str]]", container["env"])
    return {item["name"]: item.get("value", "") for item in listed if item["name"].startswith("PET_")}


async def scale(scene: Scene, replicas: int) -> None:
    """Scale as `kubectl scale` does."""
    patch = {"spec": {"replicas": replicas}}
    path = f"{TrainingRun.resource.path('mnist', scene.namespace)}/scale"
    await scene.client.request("PATCH", path, body=patch, headers={"Content-Type": MERGE_PATCH})


async def uids(scene: Scene) -> dict[str, str]:
    return {name: pod.metadata.uid for name, pod in (await scene.pods()).items()}


async def test_case_46_torchrun_finds_its_peers_and_a_new_size_touches_no_other_pod(scene: Scene) -> None:
    elastic = {"min": 1, "max": 4}
    async with scene.operator():
        await scene.apply(run(framework="pytorch").role("worker", 2, elastic=elastic, restart="OnFailure"))
        await scene.until_pods(*WORKERS[:2])
        found = [await variables(scene, pod) for pod in WORKERS[:2]]
        assert found[0] == found[1]
        assert found[0]["PET_NNODES"] == "1:4"
        assert found[0]["PET_RDZV_ID"]
        assert found[0]["PET_RDZV_ENDPOINT"].startswith("mnist-worker-0.")
        await scene.report_all("Running")
        await scene.until_phase("Running")
        before = await uids(scene)
        await scale(scene, 3)
        await scene.until_pods(*WORKERS)
        await scene.report(WORKERS[2], "Running")
        after = await uids(scene)
        assert {pod: after[pod] for pod in before} == before
        assert await variables(scene, WORKERS[2]) == found[0]
        await scale(scene, 2)
        await scene.until_pods(*WORKERS[:2])
        assert await uids(scene) == before, "the highest index is removed, never the host of the store"


async def test_case_46_loss_of_the_store_host_is_one_restart_of_the_group(scene: Scene) -> None:
    async with scene.operator():
        job = run(framework="pytorch").role("worker", 2, elastic={"min": 1, "max": 4}, restart="OnFailure")
        await scene.apply(job.limits(restarts=3))
        await scene.until_pods(*WORKERS[:2])
        await scene.report_all("Running")
        await scene.until_phase("Running")
        before = await uids(scene)
        await scene.report(WORKERS[0], "Failed", 1)

        async def replaced() -> bool:
            found = await scene.pods()
            alive = {name: pod for name, pod in found.items() if not pod.metadata.deletion_timestamp}
            return set(alive) == set(WORKERS[:2]) and all(
                pod.metadata.uid != before[name] for name, pod in alive.items()
            )

        await scene.until("all pods of the group are replaced", replaced)
        assert (await scene.run()).status.restarts == 1
