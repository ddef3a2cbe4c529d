"""How soon a job is looked at after one of its pods changed."""

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
from argosy.kinds.kubernetes import Pod, PodSpec, PodStatus
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.kinds.trainingrun import TrainingRun, TrainingRunSpec
from argosy.operator.triggers import (
    FOLLOW_DEBOUNCE_SECONDS,
    POD_DEBOUNCE_SECONDS,
    START_DEBOUNCE_SECONDS,
    Triggers,
)
from argosy.reconcile.caches import Caches
from argosy.reconcile.reconciler import Reconciler

KEY = Key("default", "mnist")
JOB = TrainingRun(
    metadata=ObjectMeta(name="mnist", namespace="default", uid="job", resource_version="1"),
    spec=TrainingRunSpec(framework="custom", roles={}),
)


class Woken:
    """Notes what a queue is told."""

    def __init__(self) -> None:
        self.woken: list[tuple[Key, float]] = []
        self.discarded: list[Key] = []

    def enqueue(self, key: Key, after: float = 0.0) -> None:
        self.woken.append((key, after))

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


def becomes(caches: Caches, index: int, phase: str) -> None:
    changed = pod(index, phase)
    caches.pods.put(replace(changed, metadata=replace(changed.metadata, resource_version="2")))


def going(caches: Caches) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    changed = pod(0, "Running")
    meta = replace(changed.metadata, resource_version="2", deletion_timestamp=now)
    caches.pods.put(replace(changed, metadata=meta))


CASES: dict[str, tuple[Callable[[Caches], None], float]] = {
    "one that ends: soon, its fellows may end too": (
        lambda caches: becomes(caches, 0, "Failed"),
        POD_DEBOUNCE_SECONDS,
    ),
    "one that succeeds while others go on: when they have had time to follow": (
        lambda caches: becomes(caches, 0, "Succeeded"),
        FOLLOW_DEBOUNCE_SECONDS,
    ),
    "one that runs while others start: when there is more to tell": (
        lambda caches: becomes(caches, 1, "Running"),
        START_DEBOUNCE_SECONDS,
    ),
    "one on its way out: before its fellows give up because of it": (going, 0.0),
    "one that is gone: likewise": (
        lambda caches: caches.pods._store(Key("default", "mnist-worker-0"), None),
        0.0,
    ),
}


@pytest.mark.parametrize(("happens", "want"), CASES.values(), ids=CASES.keys())
def test_a_pod_wakes_its_job(happens: Callable[[Caches], None], want: float) -> None:
    assert woken(happens, alone=False) == [(KEY, want)]


def test_a_pod_on_its_way_out_that_is_merely_replaced_wakes_its_job_when_it_may_be_gone() -> None:
    assert woken(going, alone=True) == [(KEY, FOLLOW_DEBOUNCE_SECONDS)]


def test_a_pod_that_is_gone_wakes_its_job_at_once_in_any_case() -> None:
    assert woken(lambda caches: caches.pods._store(Key("default", "mnist-worker-0"), None), alone=True) == [
        (KEY, 0.0)
    ]


def woken(happens: Callable[[Caches], None], *, alone: bool) -> list[tuple[Key, float]]:
    """What a job whose lost pods are replaced alone, or with others, is woken to by what happens."""
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches = Caches(nowhere, SystemClock())
    queue, jobs = Woken(), Cache(nowhere, TrainingRun)
    reconciler = SimpleNamespace(
        api=SimpleNamespace(resource=TrainingRun.resource), jobs=jobs, on_pod_terminating=lambda *_: alone
    )
    jobs.put(JOB)
    for index, phase in enumerate(("Running", "Pending", "Pending")):
        caches.pods.put(pod(index, phase))
    Triggers(caches).add(cast("Reconciler[TrainingRun]", reconciler), queue)
    happens(caches)
    return queue.woken


def test_the_last_of_a_role_to_succeed_wakes_its_job_soon() -> None:
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches = Caches(nowhere, SystemClock())
    for index in range(2):
        caches.pods.put(pod(index, "Running"))
    becomes(caches, 0, "Succeeded")
    becomes(caches, 1, "Succeeded")
    last = caches.pods.get("default", "mnist-worker-1")
    assert last is not None
    assert not caches.role_still_running(last)


def test_nothing_is_kept_of_a_job_that_is_gone() -> None:
    """Its pods go later than it does; a replica that stands by would keep its name for ever."""
    nowhere = Client(Connection(server="https://127.0.0.1:1"))
    caches, queue, jobs = Caches(nowhere, SystemClock()), Woken(), Cache(nowhere, TrainingRun)
    deleted: list[TrainingRun] = []
    reconciler = SimpleNamespace(
        api=SimpleNamespace(resource=TrainingRun.resource),
        jobs=jobs,
        on_job_deleted=deleted.append,
        on_pod_terminating=lambda *_: False,
    )
    caches.pods.put(pod(0, "Running"))
    Triggers(caches).add(cast("Reconciler[TrainingRun]", reconciler), queue)
    jobs.put(JOB)
    jobs._store(KEY, None)
    going(caches)
    caches.pods._store(Key("default", "mnist-worker-0"), None)
    assert queue.woken == [(KEY, 0.0)]
    assert queue.discarded == [KEY]
    assert deleted == [JOB]
