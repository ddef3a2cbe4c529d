"""Tests for what a reconcile observes: own pods, unresponsive nodes, and deletions not watched yet."""

import pytest

from argosy.engine.client import Client
from argosy.engine.clock import SystemClock
from argosy.engine.kubeconfig import Connection
from argosy.engine.objects import Key
from argosy.kinds import labels
from argosy.kinds.kubernetes import (
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    Role,
    RoleBinding,
    Service,
    ServiceAccount,
)
from argosy.kinds.meta import Condition, ObjectMeta, OwnerReference
from argosy.kinds.pod_groups import VolcanoPodGroup
from argosy.kinds.trainingrun_status import TrainingRunStatus
from argosy.operator.job_views import JobView, JobViews
from argosy.reconcile.caches import Caches
from argosy.reconcile.job_state import PodHints
from argosy.reconcile.nodes import SHOW_AFTER_SECONDS
from argosy.workload.observed import RecentLoss
from argosy.workload.record import Record
from tests.support.manual_clock import ManualClock

JOB = ObjectMeta(name="mnist", namespace="default", uid="job")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def caches(clock: ManualClock) -> Caches:
    return Caches(Client(Connection(server="https://127.0.0.1:1")), clock)


def meta(name: str, owner: str = "job", version: int = 1, namespace: str = "default") -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-of-{name}",
        resource_version=str(version),
        labels={labels.ROLE: "worker", labels.INDEX: "0", labels.ATTEMPT: "1", labels.REPLACEMENT: "0"},
        owner_references=[OwnerReference(uid=owner, controller=True)],
    )


def pod(name: str = "a", owner: str = "job", version: int = 1, node: str = "", phase: str = "Running") -> Pod:
    return Pod(meta(name, owner, version), PodSpec(node_name=node), PodStatus(phase=phase))


def node(ready: str) -> Node:
    return Node(
        ObjectMeta(name="n1", resource_version="1"), status=NodeStatus(conditions=[Condition("Ready", ready)])
    )


@pytest.mark.parametrize(("ready", "want"), [("True", set()), ("False", set()), ("Unknown", {"n1"})])
def test_a_node_is_down_if_ready_is_unknown(caches: Caches, ready: str, want: set[str]) -> None:
    caches.pods.put(pod(node="n1"))
    caches.nodes.put(node(ready))
    assert caches.observe(JOB).observed.nodes_down == want


def test_a_node_with_any_unknown_condition_is_partly_unknown(caches: Caches) -> None:
    caches.pods.put(pod(node="n1"))
    conditions = [Condition("Ready", "True"), Condition("MemoryPressure", "Unknown")]
    caches.nodes.put(
        Node(ObjectMeta(name="n1", resource_version="1"), status=NodeStatus(conditions=conditions))
    )
    observed = caches.observe(JOB).observed
    assert observed.nodes_down == frozenset()
    assert observed.nodes_partly_unknown == {"n1"}


def test_a_node_missing_from_the_cache_stays_unconfirmed(caches: Caches, clock: ManualClock) -> None:
    caches.pods.put(pod(node="n1"))
    observed = caches.observe(JOB).observed
    assert (observed.nodes_down, observed.nodes_unconfirmed) == (frozenset(), {"n1": ""})
    assert caches.node_health.confirm(observed.nodes_unconfirmed) == clock.seconds + SHOW_AFTER_SECONDS
    clock.advance(3600)
    observed = caches.observe(JOB).observed
    assert (observed.nodes_down, observed.nodes_unconfirmed) == (frozenset(), {"n1": "no answer yet"})
    caches.nodes.put(node("True"))
    assert not caches.observe(JOB).observed.nodes_unconfirmed


def starting(caches: Caches, *phases: str) -> list[Pod]:
    pods = [pod(f"p{number}", phase=phase) for number, phase in enumerate(phases)]
    for starting_pod in pods:
        caches.pods.put(starting_pod)
    return pods


STARTS: dict[str, tuple[tuple[str, ...], bool]] = {
    "runs, the other pending: more will start": (("Running", "Pending"), True),
    "all run: no more will start": (("Running", "Running"), False),
    "pending itself: no more will start": (("Pending", "Pending"), False),
    "failed, the other pending: no more will start": (("Failed", "Pending"), False),
}


@pytest.mark.parametrize(("phases", "want"), STARTS.values(), ids=STARTS.keys())
def test_whether_more_pods_of_a_role_will_start(caches: Caches, phases: tuple[str, ...], want: bool) -> None:
    assert caches.role_still_starting(starting(caches, *phases)[0]) is want


def test_running_and_deleted_pods_are_no_longer_counted_as_starting(caches: Caches) -> None:
    first, *_ = starting(caches, "Running", "Pending", "Pending")
    caches.pods.put(pod("p1", version=2))
    assert caches.role_still_starting(first)
    caches.pods._store(Key("default", "p2"), None)
    assert not caches.role_still_starting(first)
    caches.pods.put(pod("p3", owner="other", phase="Pending"))
    assert not caches.role_still_starting(first), "another job's pod"


def test_a_deleted_pod_delays_no_reconcile(caches: Caches) -> None:
    first, *_ = starting(caches, "Running", "Pending")
    caches.pods._store(Key("default", "p0"), None)
    assert not caches.role_still_starting(first)


def test_a_job_sees_its_own_pods_and_children_only(caches: Caches) -> None:
    caches.pods.put(pod("a"))
    caches.pods.put(pod("b", owner="other"))
    caches.put(Service(meta("s")))
    observed = caches.observe(JOB).observed
    assert [observed_pod.name for observed_pod in observed.pods] == ["a"]
    assert [child.metadata.name for child in observed.children] == ["s"]


def test_objects_of_another_namespace_that_name_the_job_as_their_owner_are_not_seen(caches: Caches) -> None:
    caches.pods.put(pod("a", phase="Pending"))
    caches.pod_groups.put(VolcanoPodGroup(meta("group")))
    before = caches.observe(JOB).observed
    forged = meta("forged", namespace="other")
    caches.pods.put(Pod(meta("b", namespace="other"), PodSpec(), PodStatus(phase="Running")))
    for kind in (Service, ServiceAccount, Role, RoleBinding, VolcanoPodGroup):
        caches.put(kind(forged))
    assert caches.observe(JOB).observed == before
    (other,) = (candidate for candidate in caches.pods if candidate.metadata.name == "b")
    assert not caches.role_still_starting(other), "the job's own pods are not counted for it"
    caches.pods._store(Key("other", "b"), None)
    assert caches.observe(JOB).observed.recently_deleted == ()


def test_pods_of_a_job_view_are_those_in_the_namespace_of_the_job(caches: Caches) -> None:
    job = JobView("job", "default", TrainingRunStatus(), Record(), frozenset({"worker"}))
    caches.pods.put(pod("a"))
    caches.pods.put(Pod(meta("b", namespace="other"), PodSpec(), PodStatus(phase="Running")))
    assert [pod.metadata.name for pod in JobViews(caches, SystemClock()).pods(job, "worker")] == ["a"]


def test_a_deleted_pod_counts_as_terminating_before_the_watch_shows_it(caches: Caches) -> None:
    hints = PodHints(deleted_uids={"uid-of-a", "uid-of-gone"})
    caches.pods.put(pod("a"))
    pods = caches.observe(JOB, deleted_uids=hints.deleted_uids).observed.pods
    assert [pod.terminating for pod in pods] == [True]
    hints.keep_deleted(pods)
    assert hints.deleted_uids == {"uid-of-a"}


def test_listeners_are_called_for_relevant_changes_only(caches: Caches) -> None:
    versions: list[str] = []
    caches.on_pod_change(lambda pod: versions.append(pod.metadata.resource_version))
    caches.pods.put(pod(version=1, phase="Pending"))
    caches.pods.put(pod(version=2, phase="Pending", node="n1"))
    caches.pods.put(pod(version=3, phase="Pending", node="n1"))
    caches.pods.put(pod(version=4, phase="Running", node="n1"))
    assert versions == ["1", "4"]
    assert caches.observe(JOB).observed.pods[0].node == "n1"


def test_pods_that_a_replica_lost_in_a_row_are_counted(caches: Caches) -> None:
    for version in (1, 3, 5):
        caches.pods.put(pod("a", version=version))
        caches.pods._store(Key("default", "a"), None)
    assert caches.observe(JOB).observed.recent_losses == {("worker", 0): RecentLoss(3, 0.0)}
