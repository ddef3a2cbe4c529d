"""Tests for the lifecycle of TrainingRuns against both API servers; tests write the statuses of pods."""

import msgspec
import pytest

from argosy.engine.client import PatchType
from argosy.kinds.kubernetes import Namespace, Pod, Service
from argosy.kinds.pod_groups import VolcanoPodGroup
from argosy.kinds.trainingrun import TrainingRun
from tests.support.builders import pod_template, run
from tests.support.operator_harness import Scene
from tests.support.servers import Server

WORKERS = ("mnist-worker-0", "mnist-worker-1")


async def test_run_succeeds_when_its_pods_succeed(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2))
        pods = await scene.until_pods(*WORKERS)
        owner = pods["mnist-worker-0"].metadata.controller
        assert owner is not None
        assert (owner.kind, owner.name) == ("TrainingRun", "mnist")
        await scene.report_all("Running")
        running = await scene.until_phase("Running")
        assert running.status.workers == "2/2"
        assert running.status.observed_generation == 1
        await scene.report_all("Succeeded")
        done = await scene.until_phase("Succeeded")
        assert done.status.completion_time is not None

        async def is_reported() -> bool:
            return {event.reason for event in await scene.events()} >= {"Running", "Succeeded"}

        await scene.until("there are events of both", is_reported)


async def test_failed_pod_is_replaced_and_counted_as_a_restart(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2, restart="OnFailure"))
        before = await scene.until_pods(*WORKERS)
        await scene.report_all("Running")
        await scene.until_phase("Running")
        await scene.report("mnist-worker-1", "Failed", code=1)

        async def replaced() -> bool:
            pod = (await scene.pods()).get("mnist-worker-1")
            return pod is not None and pod.metadata.uid != before["mnist-worker-1"].metadata.uid

        await scene.until("mnist-worker-1 is another pod", replaced)
        assert (await scene.run()).status.restarts == 1
        await scene.report("mnist-worker-1", "Running")
        await scene.until_phase("Running")


async def test_run_without_restarts_left_fails_with_the_cause(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2).limits(restarts=0))
        await scene.until_pods(*WORKERS)
        await scene.report_all("Running")
        await scene.report("mnist-worker-0", "Failed", code=3)
        failed = await scene.until_phase("Failed")
        assert "3" in failed.status.message


async def test_suspended_run_has_no_pods_until_it_is_resumed(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2))
        await scene.until_pods(*WORKERS)
        await scene.report_all("Running")
        await scene.until_phase("Running")
        await scene.client.patch(TrainingRun, "mnist", {"spec": {"suspend": True}}, scene.namespace)
        await scene.until_phase("Suspended")
        await scene.until_pods()
        await scene.client.patch(TrainingRun, "mnist", {"spec": {"suspend": False}}, scene.namespace)
        await scene.until_pods(*WORKERS)
        await scene.report_all("Running")
        assert (await scene.until_phase("Running")).status.attempt == 2


async def _scale_workers(scene: Scene, replicas: int) -> None:
    await scene.client.request(
        "PATCH",
        TrainingRun.resource.path("mnist", scene.namespace, "scale"),
        body={"spec": {"replicas": replicas}},
        headers={"Content-Type": PatchType.MERGE.value},
    )


async def test_elastic_run_is_scaled_while_running(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2, elastic={"min": 1, "max": 4}))
        await scene.until_pods(*WORKERS)
        await scene.report_all("Running")
        await scene.until_phase("Running")
        await _scale_workers(scene, 3)
        await scene.until_pods(*WORKERS, "mnist-worker-2")
        await _scale_workers(scene, 1)
        await scene.until_pods("mnist-worker-0")


async def test_pod_group_of_a_gang_is_created_before_its_pods(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2).gang())

        async def queued() -> bool:
            return (await scene.run()).status.reason == "Queued"

        await scene.until("the run waits in its queue", queued)
        assert not await scene.pods()
        let_in = {"status": {"phase": "Inqueue"}}
        group = await scene.client.patch(
            VolcanoPodGroup, "mnist", let_in, scene.namespace, subresource="status"
        )
        assert group.metadata.controller is not None
        pods = await scene.until_pods(*WORKERS)
        assert pods["mnist-worker-0"].metadata.annotations["scheduling.k8s.io/group-name"] == "mnist"


async def test_finished_run_is_deleted_after_its_ttl(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 1).limits(ttlAfterSucceeded="1s"))
        await scene.until_pods("mnist-worker-0")
        await scene.report_all("Succeeded")

        async def gone() -> bool:
            return not (await scene.client.list(TrainingRun, scene.namespace)).items

        await scene.until("the run is deleted", gone)


async def test_invalid_spec_is_reported_and_cured_by_an_edit(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run(framework="nonsuch").role("worker", 1))

        async def is_reported() -> bool:
            return "spec.framework" in (await scene.run()).status.message

        await scene.until("the status has the path", is_reported)
        assert not await scene.pods()
        await scene.apply(run(framework="custom").role("worker", 1))
        await scene.until_pods("mnist-worker-0")
        problems = [event for event in await scene.events() if event.reason == "InvalidSpec"]
        assert [event.count for event in problems] == [1]


async def test_rejected_pod_is_reported_and_cured_by_an_edit(scene: Scene) -> None:
    bad = {"metadata": {"labels": {"team": "not a value!"}}, **pod_template()}
    async with scene.operator():
        await scene.apply(run().role("worker", 1, template=bad))

        async def is_reported() -> bool:
            return "metadata.labels" in (await scene.run()).status.message

        await scene.until("the status says what is rejected", is_reported)
        await scene.apply(run().role("worker", 1))
        await scene.until_pods("mnist-worker-0")


async def test_name_conflict_is_reported_and_the_other_object_unchanged(scene: Scene) -> None:
    spec = {"containers": [{"name": "main", "image": "x"}]}
    mine = await scene.client.create(
        Pod, {"metadata": {"name": "mnist-worker-0"}, "spec": spec}, scene.namespace
    )
    async with scene.operator():
        await scene.apply(run().role("worker", 2))

        async def is_reported() -> bool:
            return "mnist-worker-0" in (await scene.run()).status.message

        await scene.until("the status names the object with that name", is_reported)
        assert (await scene.pods())["mnist-worker-0"].metadata.uid == mine.metadata.uid
        await scene.client.delete(Pod, "mnist-worker-0", scene.namespace, grace_seconds=0)

        async def ours() -> bool:
            pod = (await scene.pods()).get("mnist-worker-0")
            return pod is not None and pod.metadata.controller is not None

        await scene.until("the name is ours once it is free", ours)


async def test_deleted_service_is_created_again(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run(framework="pytorch").role("worker", 2))
        await scene.until_pods(*WORKERS)
        await scene.client.delete(Service, "mnist-worker", scene.namespace)

        async def back() -> bool:
            return any(
                service.metadata.name == "mnist-worker"
                for service in (await scene.client.list(Service, scene.namespace)).items
            )

        await scene.until("the service is back", back)


async def test_removed_status_is_rebuilt_from_the_pods(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run().role("worker", 2))
        before = await scene.until_pods(*WORKERS)
        await scene.report_all("Running")
        await scene.until_phase("Running")
        wipe = [{"op": "replace", "path": "/status", "value": {}}]
        await scene.client.patch(
            TrainingRun, "mnist", wipe, scene.namespace, type=PatchType.JSON, subresource="status"
        )
        await scene.until_phase("Running")
        after = await scene.pods()
        assert {pod.metadata.uid for pod in before.values()} == {pod.metadata.uid for pod in after.values()}


async def test_pods_of_every_framework_pass_the_restricted_standard(
    real_apiserver: Server, scene: Scene
) -> None:
    if scene.server is not real_apiserver:
        pytest.skip("only a real API server enforces pod security")
    enforce = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    await scene.client.patch(Namespace, scene.namespace, enforce)
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    template = pod_template(securityContext=security)
    async with scene.operator():
        mpi = run("mpi", framework="mpi").role("launcher", 1, template=template)
        await scene.apply(mpi.role("worker", 2, template=template))
        await scene.apply(run("torch", framework="pytorch").role("worker", 1, template=template))
        await scene.until_pods("mpi-launcher-0", "mpi-worker-0", "mpi-worker-1", "torch-worker-0")


async def test_launcher_may_exec_into_pods_of_its_own_job_only(scene: Scene) -> None:
    async with scene.operator():
        await scene.apply(run("mpi", framework="mpi").role("launcher", 1).role("worker", 2))
        await scene.until_pods("mpi-launcher-0", "mpi-worker-0", "mpi-worker-1")
        await scene.until(
            "the rights are there", lambda: _may(scene, "mpi-launcher", "create", "mpi-worker-1", "exec")
        )
        for verb, pod, subresource, want in (
            ("get", "mpi-worker-0", "", True),
            ("create", "another-pod", "exec", False),
            ("delete", "mpi-worker-0", "", False),
            ("get", "mpi-worker-0", "log", False),
        ):
            assert await _may(scene, "mpi-launcher", verb, pod, subresource) is want, (verb, pod, subresource)


async def test_launcher_gets_no_rights_over_foreign_pods_with_names_of_its_job(scene: Scene) -> None:
    container = {"name": "main", "image": "local"}
    stranger = {"metadata": {"name": "mpi-worker-0"}, "spec": {"containers": [container]}}
    await scene.client.create(Pod, stranger, scene.namespace)
    async with scene.operator():
        await scene.apply(run("mpi", framework="mpi").role("launcher", 1).role("worker", 2))
        await scene.until(
            "the rights are there", lambda: _may(scene, "mpi-launcher", "create", "mpi-worker-1", "exec")
        )
        assert not await _may(scene, "mpi-launcher", "create", "mpi-worker-0", "exec")
        assert not await _may(scene, "mpi-launcher", "get", "mpi-worker-0", "")


async def _may(scene: Scene, account: str, verb: str, pod: str, subresource: str) -> bool:
    attributes = {
        "namespace": scene.namespace,
        "verb": verb,
        "resource": "pods",
        "subresource": subresource,
        "name": pod,
    }
    user = f"system:serviceaccount:{scene.namespace}:{account}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    answer = msgspec.json.decode(await scene.client.request("POST", path, body=review))
    return bool(answer["status"]["allowed"])


FEATURES: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "remoteExec": ({"remote_exec": False}, {}),
    "sshKeys": ({"ssh_keys": False}, {"sshKeys": True}),
}


@pytest.mark.parametrize("feature", FEATURES)
async def test_run_that_needs_a_disabled_feature_names_the_chart_value(scene: Scene, feature: str) -> None:
    settings, options = FEATURES[feature]
    builder = run(framework="mpi").role("launcher", 1).role("worker", 1)
    async with scene.operator(**settings):
        await scene.apply(builder.having(options=options))

        async def is_reported() -> bool:
            return f"features.{feature}=true" in (await scene.run()).status.message

        await scene.until("the status names the value", is_reported)
        assert await scene.pods() == {}
