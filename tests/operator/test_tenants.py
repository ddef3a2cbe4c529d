"""Tests that forged objects in one namespace do not affect the jobs of another."""

from collections.abc import AsyncIterator
from secrets import token_hex
from typing import cast

import pytest

from argosy.engine.dynamic import dynamic_kind
from argosy.kinds import labels
from argosy.kinds.kubernetes import Namespace, Pod, Role, RoleBinding, Service, ServiceAccount
from argosy.kinds.pod_groups import VolcanoPodGroup
from argosy.kinds.trainingrun import TrainingRun
from tests.support.builders import pod_template, run
from tests.support.operator_harness import Scene

Json = dict[str, object]
Rule = dict[str, list[str]]
PODS = ("mpi-launcher-0", "mpi-worker-0", "mpi-worker-1")


@pytest.fixture
async def victim(scene: Scene) -> AsyncIterator[Scene]:
    """Yield a namespace with a running MPI run, under an operator of all namespaces."""
    async with scene.operator(namespace=None):
        command = pod_template(command=["mpirun", "true"])
        job = run("mpi", "mpi").role("launcher", 1, template=command).role("worker", 2)
        await scene.apply(job)
        await scene.until_pods(*PODS)
        await scene.report_all("Running")
        await scene.until_phase("Running", "mpi")
        yield scene


@pytest.fixture
async def hostile(victim: Scene) -> str:
    """Yield another namespace, in which its user may create any object."""
    name = f"hostile-{token_hex(4)}"
    await victim.client.create(Namespace, {"metadata": {"name": name}})
    await victim.client.apply(ServiceAccount, {"metadata": {"name": "default"}}, name, force=True)
    return name


async def forge(victim: Scene, namespace: str) -> None:
    """Create an object of every kind that a job owns, with the names, labels and owner uid of the job."""
    job = await victim.run("mpi")
    owner: Json = {"apiVersion": job.resource.api_version, "kind": "TrainingRun", "name": "mpi"}
    owner |= {"uid": job.metadata.uid, "controller": True}

    def metadata(name: str, **more: str) -> Json:
        ours = {labels.MANAGED_BY: labels.MANAGER, labels.JOB: "mpi", **more}
        return {"name": name, "labels": ours, "ownerReferences": [owner]}

    container = {"name": "main", "image": "x"}
    for name, index, phase in (("payments-db-0", "0", "Running"), ("mpi-worker-1", "1", "Failed")):
        place = {labels.ROLE: "worker", labels.INDEX: index, labels.ATTEMPT: "7", labels.REPLACEMENT: "3"}
        body: Json = {"metadata": metadata(name, **place), "spec": {"containers": [container]}}
        await victim.client.create(Pod, body, namespace)
        status = {"status": {"phase": phase, "podIP": "10.6.6.6"}}
        await victim.client.patch(Pod, name, status, namespace, subresource="status")
    spec: Json = {"clusterIP": "None", "ports": [{"port": 22}]}
    await victim.client.create(Service, {"metadata": metadata("mpi-worker"), "spec": spec}, namespace)
    await victim.client.create(ServiceAccount, {"metadata": metadata("mpi-launcher")}, namespace)
    await victim.client.create(Role, {"metadata": metadata("mpi-launcher"), "rules": []}, namespace)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "mpi-launcher"}
    binding: Json = {"metadata": metadata("mpi-launcher"), "roleRef": reference, "subjects": []}
    await victim.client.create(RoleBinding, binding, namespace)
    group: Json = {"metadata": metadata("mpi"), "spec": {"minMember": 1}}
    await victim.client.create(VolcanoPodGroup, group, namespace)


async def pods_to_exec_into(victim: Scene) -> set[str]:
    """Return the names of pods to which roles in the namespace grant exec."""
    listed = await victim.client.list(dynamic_kind(Role.resource), victim.namespace)
    rules = [rule for role in listed.items for rule in cast("list[Rule]", role.raw.get("rules") or ())]
    return {name for rule in rules if "pods/exec" in rule["resources"] for name in rule["resourceNames"]}


async def test_objects_forged_in_another_namespace_do_not_affect_a_job(victim: Scene, hostile: str) -> None:
    before = {name: pod.metadata.uid for name, pod in (await victim.pods()).items()}
    await forge(victim, hostile)
    change = {"metadata": {"annotations": {"example.com/note": "reconcile again"}}}
    await victim.client.patch(TrainingRun, "mpi", change, victim.namespace)
    await victim.apply(run("later").role("worker", 1))
    await victim.until_pods(*PODS, "later-worker-0")
    job = await victim.run("mpi")
    assert (job.status.phase, job.status.restarts) == ("Running", 0)
    after = {name: pod.metadata.uid for name, pod in (await victim.pods()).items()}
    assert before.items() <= after.items()


async def test_failure_is_counted_once_despite_forged_objects_in_another_namespace(
    victim: Scene, hostile: str
) -> None:
    await forge(victim, hostile)
    await victim.report("mpi-worker-1", "Failed", 137)

    async def replaced() -> bool:
        metadata = [pod.metadata for pod in (await victim.pods()).values()]
        attempts = [meta.labels[labels.ATTEMPT] for meta in metadata if not meta.deletion_timestamp]
        return attempts == ["2", "2", "2"]

    await victim.until("all pods are of the second attempt", replaced)
    await victim.report_all("Running")
    job = await victim.until_phase("Running", "mpi")
    assert job.status.restarts == 1
    assert await pods_to_exec_into(victim) <= set(PODS)
    assert len((await victim.client.list(Pod, hostile)).items) == 2, "what is not the job's is left alone"
