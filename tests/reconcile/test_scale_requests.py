"""Tests that requests to scale are found by the namespace and the name of their job, and wake it."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from argosy.dialects.et.api import training_job_api
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import Key
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.scalers import ScaleIn, ScaleOut
from argosy.kinds.trainingjob import JobCondition, TrainingJob
from argosy.reconcile.scale_requests import ScaleRequests
from argosy.reconcile.sources import Sources
from argosy.workload.model import Workload
from tests.support import trainingjobs
from tests.support.workloads import NOW

API = training_job_api()


class FakeQueue:
    def __init__(self) -> None:
        self.keys: list[Key] = []

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        del after
        self.keys.append(key)

    def discard(self, key: Key) -> None:
        raise AssertionError(key)


def job(namespace: str, name: str = "j") -> Workload:
    spec = trainingjobs.job(name)["spec"]
    assert isinstance(spec, dict)
    meta = ObjectMeta(name=name, namespace=namespace, uid=f"uid-{namespace}-{name}", generation=1)
    workload = API.dialect.to_workload(TrainingJob(meta, spec))
    assert isinstance(workload, Workload)
    return workload


def scaler(
    kind: type[ScaleIn | ScaleOut], namespace: str, name: str, job: str = "j", owner: str | None = None
) -> ScaleIn | ScaleOut:
    uid = f"uid-{namespace}-{job}" if owner is None else owner
    meta = ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{namespace}-{name}",
        resource_version="1",
        creation_timestamp=NOW,
        owner_references=[OwnerReference(kind="TrainingJob", name=job, uid=uid)] if uid else [],
    )
    return kind(meta, {"selector": {"name": job}})


@pytest.fixture
def sources() -> Sources:
    return Sources(Client(Connection(server="https://127.0.0.1:1")))


def names(requests: ScaleRequests, workload: Workload) -> Sequence[str]:
    return sorted(request.name for request in requests.for_job(workload))


def test_jobs_of_one_name_in_two_namespaces_get_their_own_requests_only(sources: Sources) -> None:
    requests = ScaleRequests(API.requests, sources)
    for obj in (
        scaler(ScaleIn, "a", "in"),
        scaler(ScaleOut, "a", "out"),
        scaler(ScaleOut, "b", "other"),
        scaler(ScaleOut, "a", "of-another-job", job="j-2"),
    ):
        sources.put(obj)
    assert names(requests, job("a")) == ["in", "out"]
    assert names(requests, job("b")) == ["other"]
    assert names(requests, job("c")) == []


def test_an_owner_reference_into_another_namespace_makes_no_request(sources: Sources) -> None:
    """Anybody may write the uid of a job of another namespace into an object of their own."""
    requests = ScaleRequests(API.requests, sources)
    sources.put(scaler(ScaleIn, "attacker", "in", owner="uid-victim-j"))
    assert names(requests, job("victim")) == []
    assert names(requests, job("attacker")) == [], "it is bound to another job"


def test_a_request_that_is_not_bound_yet_is_none(sources: Sources) -> None:
    requests = ScaleRequests(API.requests, sources)
    sources.put(scaler(ScaleIn, "a", "in", owner=""))
    assert names(requests, job("a")) == []


def test_a_changed_request_wakes_its_job(sources: Sources) -> None:
    requests, queue = ScaleRequests(API.requests, sources), FakeQueue()
    requests.subscribe(queue)
    sources.put(scaler(ScaleIn, "a", "in"))
    sources.put(scaler(ScaleOut, "b", "out", job="k"))
    assert queue.keys == [Key("a", "j"), Key("b", "k")]


CHANGES: dict[str, tuple[dict[str, object], dict[str, object], bool]] = {
    "the chosen workers are shown: woken": ({}, {"to_delete_pods": ["j-worker-1"]}, True),
    "the spec is edited: woken": ({"generation": 2}, {}, True),
    "it is deleted, but not gone yet: woken": ({"deletion_timestamp": NOW}, {}, True),
    "it is bound to another job: woken": ({"owner_references": []}, {}, True),
    "a condition is shown: not woken": ({}, {"conditions": [JobCondition("Created", "True")]}, False),
    "its result is shown: not woken": ({}, {"phase": "ScaleSucceeded"}, False),
}


@pytest.mark.parametrize(("metadata", "status", "woken"), CHANGES.values(), ids=CHANGES)
def test_a_job_is_woken_if_a_request_asks_for_something_else(
    sources: Sources, metadata: dict[str, object], status: dict[str, object], woken: bool
) -> None:
    requests, queue = ScaleRequests(API.requests, sources), FakeQueue()
    before = scaler(ScaleIn, "a", "in")
    sources.put(before)
    requests.subscribe(queue)
    meta = replace(before.metadata, resource_version="2", **metadata)
    sources.put(replace(before, metadata=meta, status=replace(before.status, **status)))
    assert bool(queue.keys) is woken


def test_a_request_that_is_not_bound_yet_wakes_no_job(sources: Sources) -> None:
    requests, queue = ScaleRequests(API.requests, sources), FakeQueue()
    requests.subscribe(queue)
    sources.put(scaler(ScaleIn, "a", "in", owner=""))
    assert queue.keys == []
