"""Tests for how soon a job is reconciled after one of its pods changed."""

from collections.abc import Callable
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import Key
from argosy.kinds import labels
from argosy.kinds.kubernetes import ConfigMapMetadata, Node, NodeSpec, Pod, PodSpec, PodStatus, Service, Taint
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.trainingrun import TrainingRun, TrainingRunSpec
from argosy.operator.triggers import (
    FOLLOW_DEBOUNCE_SECONDS,
    POD_DEBOUNCE_SECONDS,
    START_DEBOUNCE_SECONDS,
    Triggers,
)
from argosy.reconcile.background import BackgroundCalls
from argosy.reconcile.background_pool import BackgroundPool
from argosy.reconcile.caches import Caches
from argosy.reconcile.reconciler import Reconciler
from tests.support.fake_exec import FakeExec

KEY = Key("default", "mnist")
JOB = TrainingRun(
    metadata=ObjectMeta(name="mnist", namespace="default", uid="job", resource_version="1"),
    spec=TrainingRunSpec(framework="custom", roles={}),
)


class RecordingQueue:
    """Records the keys that are enqueued or discarded."""

    def __init__(self) -> None:
        self.enqueued: list[tuple[Key, float]] = []
        self.discarded: list[Key] = []

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        self.enqueued.append((key, after))

    def discard(self, key: Key) -> None:
        self.discarded.append(key)


def pod(index: int, phase: str) -> Pod:
    meta = ObjectMeta(
        name=f"mnist-worker-{index}",
        namespace="default",
        uid=f"uid-{index}",
        resource_version="1",
        labels={
            labels.ROLE: "worker",
            labels.INDEX: str(index),
            labels.ATTEMPT: "1",
            labels.REPLACEMENT: "0",
        },
        owner_references=[
            OwnerReference(
                api_version="argosy.dev/v1alpha1",
                kind="TrainingRun",
                name="mnist",
                uid="job",
                controller=True,
            )
        ],
    )
    return Pod(meta, PodSpec(), PodStatus(phase=phase))


def set_phase(caches: Caches, index: int, phase: str) -> None:
    changed = pod(index, phase)
    caches.pods.put(replace(changed, metadata=replace(changed.metadata, resource_version="2")))


def terminate(caches: Caches) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    changed = pod(0, "Running")
    meta = replace(changed.metadata, resource_version="2", deletion_timestamp=now)
    caches.pods.put(replace(changed, metadata=meta))


CASES: dict[str, tuple[Callable[[Caches], None], float]] = {
    "failed pod: soon, as others may fail too": (
        lambda caches: set_phase(caches, 0, "Failed"),
        POD_DEBOUNCE_SECONDS,
    ),
    "succeeded pod while others run: later, as others may succeed too": (
        lambda caches: set_phase(caches, 0, "Succeeded"),
        FOLLOW_DEBOUNCE_SECONDS,
    ),
    "running pod while others start: when the counts are written": (
        lambda caches: set_phase(caches, 1, "Running"),
        START_DEBOUNCE_SECONDS,
    ),
    "terminating pod: at once": (terminate, 0.0),
    "deleted pod: at once": (
        lambda caches: caches.pods._store(Key("default", "mnist-worker-0"), None),
        0.0,
    ),
}


@pytest.mark.parametrize(("change", "want"), CASES.values(), ids=CASES.keys())
def test_changed_pod_enqueues_its_job(change: Callable[[Caches], None], want: float) -> None:
    assert enqueued(change, only_replaced=False) == [(KEY, want)]


def test_terminating_pod_that_is_only_replaced_enqueues_its_job_later() -> None:
    assert enqueued(terminate, only_replaced=True) == [(KEY, FOLLOW_DEBOUNCE_SECONDS)]


def test_deleted_pod_enqueues_its_job_at_once() -> None:
    deleted = Key("default", "mnist-worker-0")
    assert enqueued(lambda caches: caches.pods._store(deleted, None), only_replaced=True) == [(KEY, 0.0)]


@pytest.mark.parametrize(("by_us", "delay"), [(True, FOLLOW_DEBOUNCE_SECONDS), (False, 0.0)])
def test_deleted_service_enqueues_its_job_later_if_it_was_removed_by_us(by_us: bool, delay: float) -> None:
    def removed(caches: Caches) -> None:
        services = caches.children[Service]
        services.put(Service(replace(pod(0, "").metadata, name="mnist-worker-0")))
        services._store(Key("default", "mnist-worker-0"), None)

    assert enqueued(removed, only_replaced=by_us) == [(KEY, delay)]


def test_deleted_child_of_a_kind_that_was_added_later_enqueues_its_job_at_once() -> None:
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches, queue, jobs = Caches(nowhere, SystemClock()), RecordingQueue(), Cache(nowhere, TrainingRun)
    jobs.put(JOB)
    triggers = Triggers(caches)
    reconciler = SimpleNamespace(
        api=SimpleNamespace(resource=TrainingRun.resource),
        jobs=jobs,
        background=BackgroundCalls(BackgroundPool(FakeExec().run)),
        on_pod_terminating=lambda *_: False,
        on_removal=lambda *_: False,
    )
    triggers.add(cast("Reconciler[TrainingRun]", reconciler), queue)
    config_maps = caches.add_children(nowhere, ConfigMapMetadata, None)
    assert config_maps is not None
    triggers.watch_children(config_maps)
    config_maps.put(ConfigMapMetadata(replace(pod(0, "").metadata, name="mnist-config")))
    assert queue.enqueued == []
    config_maps._store(Key("default", "mnist-config"), None)
    assert queue.enqueued == [(KEY, 0.0)]


TAINTED = [Taint("aws-node-termination-handler/spot-itn", "NoSchedule")]
ENDS: dict[str, tuple[str, list[Taint], int]] = {
    "end of a node with pods of the job is announced: at once": ("n1", TAINTED, 1),
    "end of another node is announced: not at all": ("n2", TAINTED, 0),
    "other taint on a node with pods of the job: not at all": ("n1", [Taint("a", "NoSchedule")], 0),
}


@pytest.mark.parametrize(("name", "taints", "want"), ENDS.values(), ids=ENDS.keys())
def test_announced_end_of_a_node_enqueues_jobs_with_pods_there(
    name: str, taints: list[Taint], want: int
) -> None:
    def known(caches: Caches) -> None:
        placed = pod(0, "Running")
        meta = replace(placed.metadata, resource_version="2")
        caches.pods.put(replace(placed, metadata=meta, spec=PodSpec(node_name="n1")), own=True)
        for node in ("n1", "n2"):
            caches.nodes.put(Node(ObjectMeta(name=node, resource_version="1")))

    def announced(caches: Caches) -> None:
        known(caches)
        caches.nodes.put(Node(ObjectMeta(name=name, resource_version="2"), NodeSpec(taints=taints)))

    before, after = enqueued(known, only_replaced=False), enqueued(announced, only_replaced=False)
    assert after == before + [(KEY, 0.0)] * want


def enqueued(change: Callable[[Caches], None], *, only_replaced: bool) -> list[tuple[Key, float]]:
    """Return the keys and delays after a change; `only_replaced`: the job replaces single lost pods."""
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches = Caches(nowhere, SystemClock())
    queue, jobs = RecordingQueue(), Cache(nowhere, TrainingRun)
    reconciler = SimpleNamespace(
        api=SimpleNamespace(resource=TrainingRun.resource),
        jobs=jobs,
        background=BackgroundCalls(BackgroundPool(FakeExec().run)),
        on_pod_terminating=lambda *_: only_replaced,
        on_removal=lambda *_: only_replaced,
    )
    jobs.put(JOB)
    for index, phase in enumerate(("Running", "Pending", "Pending")):
        caches.pods.put(pod(index, phase))
    Triggers(caches).add(cast("Reconciler[TrainingRun]", reconciler), queue)
    change(caches)
    return queue.enqueued


def test_last_pod_of_a_role_that_succeeds_enqueues_its_job_soon() -> None:
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches = Caches(nowhere, SystemClock())
    for index in range(2):
        caches.pods.put(pod(index, "Running"))
    set_phase(caches, 0, "Succeeded")
    set_phase(caches, 1, "Succeeded")
    last = caches.pods.get("default", "mnist-worker-1")
    assert last is not None
    assert not caches.role_still_running(last)


def test_pods_of_a_deleted_job_enqueue_nothing() -> None:
    """Pods are deleted after their job; a standby replica would keep its key in the queue."""
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches, queue, jobs = Caches(nowhere, SystemClock()), RecordingQueue(), Cache(nowhere, TrainingRun)
    deleted: list[TrainingRun] = []
    reconciler = SimpleNamespace(
        api=SimpleNamespace(resource=TrainingRun.resource),
        jobs=jobs,
        background=BackgroundCalls(BackgroundPool(FakeExec().run)),
        on_job_deleted=deleted.append,
        on_pod_terminating=lambda *_: False,
        on_removal=lambda *_: False,
    )
    caches.pods.put(pod(0, "Running"))
    Triggers(caches).add(cast("Reconciler[TrainingRun]", reconciler), queue)
    jobs.put(JOB)
    jobs._store(KEY, None)
    terminate(caches)
    caches.pods._store(Key("default", "mnist-worker-0"), None)
    assert queue.enqueued == [(KEY, 0.0)]
    assert queue.discarded == [KEY]
    assert deleted == [JOB]
