"""Tests for adopting pods of another operator, which belong to a job by their owner uid."""

from typing import cast

import pytest

from argosy.dialects.ares.adoption import adopted_replica
from argosy.engine.client import Client
from argosy.engine.errors import Conflict
from argosy.engine.objects import ApiObject
from argosy.kinds import labels
from argosy.kinds.kubernetes import Pod
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.reconcile.adoption import LIST_VALID_SECONDS, PodAdopter
from tests.support.aresjobs import job, workload_of
from tests.support.manual_clock import ManualClock

JOB = workload_of(job())


def pod(
    name: str, owner: str = JOB.uid, *, controller: bool = True, role: str = "worker", index: str = "0"
) -> Pod:
    pod_labels = {"ares.io/replica-type": role, "ares.io/replica-index": index}
    owners = [OwnerReference(uid=owner, controller=controller)]
    return Pod(ObjectMeta(name=name, uid=f"uid of {name}", labels=pod_labels, owner_references=owners))


class Listed:
    def __init__(self, items: list[Pod]) -> None:
        self.items = items


class Api:
    def __init__(self, *pods: Pod, answer: Exception | None = None) -> None:
        self.pods = list(pods)
        self.answer = answer
        self.lists = 0
        self.patches: dict[str, dict[str, object]] = {}
        self.cached: list[str] = []

    async def list(self, kind: type[ApiObject], namespace: str, *, labels: str) -> Listed:
        assert (kind, namespace, labels) == (Pod, "ns", "app.kubernetes.io/managed-by!=argosy")
        self.lists += 1
        return Listed(self.pods)

    async def patch(self, kind: type[ApiObject], name: str, body: dict[str, object], namespace: str) -> Pod:
        assert (kind, namespace) == (Pod, "ns")
        if self.answer is not None:
            raise self.answer
        self.patches[name] = cast("dict[str, object]", body["metadata"])
        return next(pod for pod in self.pods if pod.metadata.name == name)

    def put(self, obj: ApiObject, *, metadata_only: bool = False) -> None:
        self.cached.append(obj.metadata.name)


async def taken(api: Api) -> PodAdopter:
    takeover = PodAdopter(cast("Client", api), ManualClock(), api)
    await takeover.adopt(JOB, adopted_replica)
    return takeover


async def test_an_adopted_pod_gets_our_labels() -> None:
    api = Api(pod("job-worker-0"))
    await taken(api)
    assert api.patches == {
        "job-worker-0": {
            "uid": "uid of job-worker-0",
            "labels": {
                labels.MANAGED_BY: labels.MANAGER,
                labels.JOB: "job",
                labels.ROLE: "worker",
                labels.INDEX: "0",
                labels.ATTEMPT: "1",
                labels.REPLACEMENT: "0",
                "ares.io/group-name": "ares.io",
                "ares.io/job-name": "job",
                "ares.io/replica-type": "worker",
                "ares.io/replica-index": "0",
            },
        }
    }
    assert api.cached == ["job-worker-0"]


OTHERS = {
    "pod of an earlier job of the name": pod("job-worker-0", "another uid"),
    "pod with the job as owner but not as controller": pod("job-worker-0", controller=False),
    "pod of an unknown role": pod("job-ps-0", role="ps"),
    "pod without a valid index": pod("job-worker-0", index="first"),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS.keys())
async def test_pods_that_are_not_adopted(other: Pod) -> None:
    api = Api(other)
    await taken(api)
    assert not api.patches


async def test_a_pod_that_is_deleted_meanwhile_is_ignored() -> None:
    api = Api(pod("job-worker-0"), answer=Conflict(409, "Conflict", "another uid"))
    await taken(api)
    assert not api.cached


async def test_many_jobs_share_one_list_request() -> None:
    api = Api()
    takeover = await taken(api)
    await takeover.adopt(JOB, adopted_replica)
    assert api.lists == 1
    clock = takeover._clock
    assert isinstance(clock, ManualClock)
    clock.seconds += LIST_VALID_SECONDS + 1
    await takeover.adopt(JOB, adopted_replica)
    assert api.lists == 2
