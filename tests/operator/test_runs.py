"""TrainingRuns through their lives, against both API servers; a pod's fate is what the test says it is."""

from argosy.engine.client import PatchType
from argosy.kinds.kubernetes import Pod, PodGroup, Service
from argosy.kinds.trainingrun import TrainingRun
from argosy.testing.builders import run
from argosy.testing.world import World

WORKERS = ("mnist-worker-0", "mnist-worker-1")


async def test_a_run_succeeds_when_its_pods_do(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2))
        pods = await world.until_pods(*WORKERS)
        owner = pods["mnist-worker-0"].metadata.controller
        assert owner is not None
        assert (owner.kind, owner.name) == ("TrainingRun", "mnist")
        await world.report_all("Running")
        running = await world.until_phase("Running")
        assert running.status.workers == "2/2"
        assert running.status.observed_generation == 1
        await world.report_all("Succeeded")
        done = await world.until_phase("Succeeded")
        assert done.status.completion_time is not None
        assert {one.reason for one in await world.events()} >= {"Running", "Succeeded"}


async def test_a_failed_pod_is_replaced_and_the_restart_counted(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2, restart="OnFailure"))
        before = await world.until_pods(*WORKERS)
        await world.report_all("Running")
        await world.until_phase("Running")
        await world.report("mnist-worker-1", "Failed", code=1)

        async def replaced() -> bool:
            pod = (await world.pods()).get("mnist-worker-1")
            return pod is not None and pod.metadata.uid != before["mnist-worker-1"].metadata.uid

        await world.until("mnist-worker-1 is another pod", replaced)
        assert (await world.run()).status.restarts == 1
        await world.report("mnist-worker-1", "Running")
        await world.until_phase("Running")


async def test_a_run_without_restarts_left_fails_with_its_cause(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2).limits(restarts=0))
        await world.until_pods(*WORKERS)
        await world.report_all("Running")
        await world.report("mnist-worker-0", "Failed", code=3)
        failed = await world.until_phase("Failed")
        assert "3" in failed.status.message


async def test_a_suspended_run_has_no_pods_and_comes_back(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2))
        await world.until_pods(*WORKERS)
        await world.report_all("Running")
        await world.until_phase("Running")
        await world.client.patch(TrainingRun, "mnist", {"spec": {"suspend": True}}, world.namespace)
        await world.until_phase("Suspended")
        await world.until_pods()
        await world.client.patch(TrainingRun, "mnist", {"spec": {"suspend": False}}, world.namespace)
        await world.until_pods(*WORKERS)
        await world.report_all("Running")
        assert (await world.until_phase("Running")).status.attempt == 2


async def test_an_elastic_run_is_scaled_while_it_runs(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2, elastic={"min": 1, "max": 4}))
        await world.until_pods(*WORKERS)
        await world.report_all("Running")
        await world.until_phase("Running")
        await world.client.patch_scale(TrainingRun, "mnist", 3, world.namespace)
        await world.until_pods(*WORKERS, "mnist-worker-2")
        await world.client.patch_scale(TrainingRun, "mnist", 1, world.namespace)
        await world.until_pods("mnist-worker-0")


async def test_a_gang_gets_its_group_before_its_pods(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2).gang())
        pods = await world.until_pods(*WORKERS)
        group = await world.client.get(PodGroup, "mnist", world.namespace)
        assert group.spec.min_member == 2
        assert pods["mnist-worker-0"].metadata.annotations["scheduling.k8s.io/group-name"] == "mnist"


async def test_a_finished_run_goes_when_its_time_is_over(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 1).limits(ttlAfterSucceeded="1s"))
        await world.until_pods("mnist-worker-0")
        await world.report_all("Succeeded")

        async def gone() -> bool:
            return not (await world.client.list(TrainingRun, world.namespace)).items

        await world.until("the run is deleted", gone)


async def test_a_definition_that_cannot_be_honoured_is_told_and_cured_by_editing(world: World) -> None:
    async with world.operator():
        await world.apply(run(framework="nonsuch").role("worker", 1))

        async def told() -> bool:
            return "spec.framework" in (await world.run()).status.message

        await world.until("status tells the path", told)
        assert not await world.pods()
        await world.apply(run(framework="custom").role("worker", 1))
        await world.until_pods("mnist-worker-0")
        problems = [one for one in await world.events() if one.reason == "InvalidSpec"]
        assert [one.count for one in problems] == [1]


async def test_a_pod_that_the_api_refuses_is_told_and_cured_by_editing(world: World) -> None:
    bad = {"spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"cpu": "-1"}}}]}}
    async with world.operator():
        await world.apply(run().role("worker", 1, template=bad))

        async def told() -> bool:
            return "limits" in (await world.run()).status.message

        await world.until("status tells what is refused", told)


async def test_a_taken_name_is_reported_and_left_alone(world: World) -> None:
    spec = {"containers": [{"name": "main", "image": "x"}]}
    mine = await world.client.create(
        Pod, {"metadata": {"name": "mnist-worker-0"}, "spec": spec}, world.namespace
    )
    async with world.operator():
        await world.apply(run().role("worker", 2))

        async def told() -> bool:
            return "mnist-worker-0" in (await world.run()).status.message

        await world.until("status tells which name is taken", told)
        assert (await world.pods())["mnist-worker-0"].metadata.uid == mine.metadata.uid
        await world.client.delete(Pod, "mnist-worker-0", world.namespace, grace_seconds=0)

        async def ours() -> bool:
            pod = (await world.pods()).get("mnist-worker-0")
            return pod is not None and pod.metadata.controller is not None

        await world.until("the name is ours once it is free", ours)


async def test_a_deleted_service_is_made_again(world: World) -> None:
    async with world.operator():
        await world.apply(run(framework="pytorch").role("worker", 2))
        await world.until_pods(*WORKERS)
        await world.client.delete(Service, "mnist-worker", world.namespace)

        async def back() -> bool:
            return any(
                one.metadata.name == "mnist-worker"
                for one in (await world.client.list(Service, world.namespace)).items
            )

        await world.until("the service is back", back)


async def test_a_wiped_status_is_rebuilt_from_the_pods(world: World) -> None:
    async with world.operator():
        await world.apply(run().role("worker", 2))
        before = await world.until_pods(*WORKERS)
        await world.report_all("Running")
        await world.until_phase("Running")
        wipe = [{"op": "replace", "path": "/status", "value": {}}]
        await world.client.patch(
            TrainingRun, "mnist", wipe, world.namespace, type=PatchType.JSON, subresource="status"
        )
        await world.until_phase("Running")
        after = await world.pods()
        assert {one.metadata.uid for one in before.values()} == {one.metadata.uid for one in after.values()}
