"""Tests which order the pods of SpotInstanceJobs read, and whose acknowledgements count."""

import msgspec
import pytest

from argosy.dialects.spot import pods as spot_pods
from argosy.dialects.spot.names import label_value
from argosy.dialects.spot.record import Incarnation, Replica, SpotJobRecord, encode
from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.kinds.spot import JOB_LABEL, SpotInstanceJob
from argosy.operator.apis.spot_views import JOBS_BY_LABEL, SpotJobSource, add_job_views, jobs_by_label
from argosy.operator.job_views import JobViews
from argosy.reconcile.caches import Caches
from argosy.workload.checkpoint_record import SaveOrder
from argosy.workload.saves import last_epoch
from tests.support.fake_apiserver import FakeServer
from tests.support.workloads import NOW

ORDER = SaveOrder(8, "recovery/0/1", "Preempted", NOW, NOW, {"replica-0": "0"})
REPLICAS = (
    Replica(0, Incarnation(1, 7, job="a-0-7", uid="new"), old=(Incarnation(0, 5, job="a-0-5", uid="old"),)),
)


def job(record: SpotJobRecord, name: str = "a") -> SpotInstanceJob:
    metadata = {"name": name, "namespace": "default", "uid": "u", "resourceVersion": "1"}
    return msgspec.convert({"metadata": metadata, "status": {"argosy": encode(record)}}, SpotInstanceJob)


def pod(name: str, owner: str, label: str = "a") -> spot_pods.ClusterPod:
    owners = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}]
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {JOB_LABEL: label}}
    return msgspec.convert(
        {"metadata": {**metadata, "ownerReferences": owners, "resourceVersion": "1"}}, spot_pods.ClusterPod
    )


@pytest.fixture
async def caches() -> "tuple[Cache[SpotInstanceJob], Cache[spot_pods.ClusterPod]]":
    async with FakeServer() as server, Client(server.connection()) as client:
        indexes = {spot_pods.JOB_INDEX: spot_pods.pods_by_job}
        return Cache(client, SpotInstanceJob), Cache(client, spot_pods.ClusterPod, indexes=indexes)


async def test_pods_of_the_recorded_jobs_read_the_order_in_force(
    caches: "tuple[Cache[SpotInstanceJob], Cache[spot_pods.ClusterPod]]",
) -> None:
    jobs, pods = caches
    jobs.put(job(SpotJobRecord(replicas=REPLICAS, order=ORDER, last_epoch=8)))
    for name, owner in (("current", "new"), ("lost", "old"), ("forged", "somebody")):
        pods.put(pod(name, owner))
    source = SpotJobSource(jobs, pods)
    assert source.uid("default", "a") == "u"
    view = source.find("default", "a")
    assert view is not None
    assert view.record.order_in_force == ORDER
    assert sorted(each.metadata.name for each in view.pods or ()) == ["current", "lost"]


async def test_a_new_pod_of_a_job_whose_name_is_longer_than_a_label_is_found_at_once() -> None:
    name = "a" * 200
    record = SpotJobRecord(replicas=REPLICAS, order=ORDER, last_epoch=8)
    async with FakeServer() as server, Client(server.connection()) as client:
        jobs = Cache(client, SpotInstanceJob, indexes={JOBS_BY_LABEL: jobs_by_label})
        indexes = {spot_pods.JOB_INDEX: spot_pods.pods_by_job}
        pods = Cache(client, spot_pods.ClusterPod, indexes=indexes)
        views = JobViews(Caches(client, SystemClock()), SystemClock())
        add_job_views(views, jobs, pods)
        jobs.put(job(record, name))
        [before] = views.find("default", name, lambda uid: uid == "u")
        assert views.all_pods(before) == []
        pods.put(pod("current", "new", label_value(name)))
        [after] = views.find("default", name, lambda uid: uid == "u")
        assert [each.metadata.name for each in views.all_pods(after)] == ["current"]


async def test_an_order_that_was_answered_or_belongs_to_an_ended_job_is_not_in_force(
    caches: "tuple[Cache[SpotInstanceJob], Cache[spot_pods.ClusterPod]]",
) -> None:
    jobs, pods = caches
    jobs.put(job(SpotJobRecord(replicas=REPLICAS, last_epoch=8)))
    view = SpotJobSource(jobs, pods).find("default", "a")
    assert view is not None
    assert (view.record.order_in_force, last_epoch(view.record)) == (None, 8)
    assert SpotJobSource(jobs, pods).find("default", "b") is None
