"""Caches everything that is decided on: pods and other children of all jobs, nodes and pod groups.

There is one cache per kind, shared by all APIs and indexed by the owning job (see `owners`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.watch import WatchTimings
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node, Pod, Role, RoleBinding, Service, ServiceAccount
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.pod_groups import CoschedulingPodGroup, KubernetesPodGroup, VolcanoPodGroup
from argosy.plan.actions import ActionResult, ExecResult
from argosy.plan.children import KubernetesObject
from argosy.reconcile.capacity import CapacityTracker
from argosy.reconcile.losses import RecentLosses
from argosy.reconcile.nodes import AnnouncedEnds, NodeHealth, NodePrices, QuarantinedNodes
from argosy.reconcile.owners import OWNER, owner_key, owner_keys
from argosy.reconcile.pod_groups import PodGroups
from argosy.reconcile.recently_deleted import RecentlyDeleted
from argosy.reconcile.restoring_nodes import RestoringNodes
from argosy.workload.announcements import NoticeRules
from argosy.workload.capacity import Capacity
from argosy.workload.gang_schedulers.volcano import VOLCANO
from argosy.workload.notice_response import find_notices
from argosy.workload.observed import Observed, ObservedPod, is_equivalent_pod, observe_pod
from argosy.workload.scale_request import ScaleRequest

NODE = "node"

LAUNCHER_KINDS = (ServiceAccount, Role, RoleBinding)
"""Children of roles whose pods start processes in other pods."""

MANAGED_SELECTOR = f"{labels.MANAGED_BY}={labels.MANAGER}"

POD_BATCH_SECONDS = 0.02
"""Pod events within this time are processed together; reconciles wait longer than this for the pods of a job
anyway."""

UNKNOWN_CAPACITY_SECONDS = 0.5
"""When a job asks again what is free, while that is not known."""

NO_RESULTS: Mapping[str, ExecResult] = {}


class Observation(Struct, frozen=True):
    """What is decided on, and when to look again because some of it is not known yet."""

    observed: Observed
    recheck_at: float | None = None
    """On the monotonic clock."""


class Caches:
    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str | None = None,
        gang_backend: str = VOLCANO.name,
        notices: NoticeRules = NoticeRules(),
    ) -> None:
        self._clock = clock
        self.propagated_keys: tuple[str, ...] = ()
        """Keys of labels and annotations that are propagated from jobs to pods and pod groups."""
        self.pods = Cache(
            client,
            Pod,
            namespace=namespace,
            labels=MANAGED_SELECTOR,
            indexes={OWNER: owner_keys, NODE: _nodes},
            timings=WatchTimings(batch_window=POD_BATCH_SECONDS),
        )
        self.nodes = Cache(client, Node)
        self.node_health = NodeHealth(client, clock, self.nodes, lambda name: bool(self.pods.by(NODE, name)))
        self.announced = AnnouncedEnds(self.nodes, notices)
        self.quarantined = QuarantinedNodes(self.nodes, clock)
        self.restoring = RestoringNodes(self.nodes, self.announced)
        self._prices = NodePrices(self.nodes)
        self.pod_groups = PodGroups(client, gang_backend, namespace, MANAGED_SELECTOR)
        self.capacity = CapacityTracker(client, clock, self.nodes)
        self.children: dict[type[KubernetesObject], Cache[KubernetesObject]] = {}
        for kind in (Service, *LAUNCHER_KINDS):
            self.add_children(client, kind, namespace)
        self._observed_pods: dict[str, ObservedPod] = {}
        self._starting: Counter[tuple[str, str]] = Counter()
        """Pods that do not run yet, by owner and role."""
        self._unfinished: Counter[tuple[str, str]] = Counter()
        """Pods that have not ended, by owner and role."""
        self._recently_deleted = RecentlyDeleted(clock)
        self._losses = RecentLosses(clock)
        self._pod_listeners: list[Callable[[Pod], None]] = []
        self.pods.subscribe(self._pod_changed)

    def add_children(
        self, client: Client, kind: type[KubernetesObject], namespace: str | None
    ) -> Cache[KubernetesObject] | None:
        """Watch children of one more kind; return None if that kind is watched already."""
        if kind in self.children:
            return None
        self.children[kind] = Cache(
            client, kind, namespace=namespace, labels=MANAGED_SELECTOR, indexes={OWNER: owner_keys}
        )
        return self.children[kind]

    def on_pod_change(self, listener: Callable[[Pod], None]) -> None:
        """Call for a pod that was created, deleted, or changed in something that decisions depend on."""
        self._pod_listeners.append(listener)

    def role_still_starting(self, pod: Pod) -> bool:
        """Return True if the pod runs, and others of its role do not yet."""
        view = self._observed_pods.get(pod.metadata.uid)
        if view is None or view.terminating or view.phase != "Running":
            return False
        return any((owner, view.role) in self._starting for owner in owner_keys(pod))

    def role_still_running(self, pod: Pod) -> bool:
        """Return True if the pod has succeeded, and others of its role have not ended yet."""
        view = self._observed_pods.get(pod.metadata.uid)
        if view is None or view.terminating or view.phase != "Succeeded":
            return False
        return any((owner, view.role) in self._unfinished for owner in owner_keys(pod))

    def put(self, obj: KubernetesObject, *, metadata_only: bool = False) -> None:
        """Store an object that the API server returned, without waiting for the watch.

        Of a pod that was returned with its metadata only, the watch brings the rest. Listeners are not
        called: the reconcile that made the request knows of the change.
        """
        match obj:
            case Pod():
                self.pods.put(obj, metadata_only=metadata_only, own=True)
            case VolcanoPodGroup() | KubernetesPodGroup() | CoschedulingPodGroup():
                self.pod_groups.put(obj)
            case _ if (children := self.children.get(type(obj))) is not None:
                children.put(obj)

    def observe(
        self,
        job: ObjectMeta,
        *,
        failures: tuple[ActionResult, ...] = (),
        confirmed_absent: frozenset[tuple[str, int]] = frozenset(),
        deleted_uids: Collection[str] = (),
        exec_results: Mapping[str, ExecResult] = NO_RESULTS,
        noticed_nodes: Collection[str] = (),
        cordons: bool = False,
        restores: bool = False,
        capacity: bool = False,
        scale_requests: tuple[ScaleRequest, ...] = (),
        in_burst: bool = False,
    ) -> Observation:
        """Return everything that is decided on. Changes nothing.

        `failures`, `confirmed_absent` and `deleted_uids` are what the API server has answered and the caches
        may not show yet. `noticed_nodes` are nodes of notices that the job has answered; with `cordons` a
        cordoned node is one that ends. `restores` and `capacity` ask for what is not always needed.
        """
        owner = owner_key(job.namespace, job.uid)
        pods = self._pods(owner, deleted_uids)
        names = {pod.node for pod in pods if pod.node}
        nodes = self.node_health.states(names)
        free = self._free(job) if capacity else None
        observed = Observed(
            pods=pods,
            nodes_down=nodes.down,
            nodes_partly_unknown=nodes.partly_unknown,
            nodes_released=nodes.released,
            nodes_unconfirmed=nodes.unconfirmed,
            children=self._children(owner),
            group=self.pod_groups.group(owner),
            gang_scheduler_setting=self.pod_groups.configured,
            available_gang_schedulers=self.pod_groups.served,
            priced_nodes=self._prices.of(self.pods.by(OWNER, owner)),
            capacity=free,
            confirmed_absent=confirmed_absent,
            recently_deleted=self._recently_deleted.for_job(owner),
            recent_losses=self._losses.for_job(owner),
            scale_requests=scale_requests,
            in_burst=in_burst,
            dump_nodes=self.restoring.dump_nodes(names) if restores else {},
            can_restore=restores and self.restoring.can_restore(),
            notices=find_notices(pods, self.announced.of({*names, *noticed_nodes}, cordons=cordons)),
            failed_actions=failures,
            exec_results=exec_results,
        )
        return Observation(observed, self._recheck_at(free) if capacity else None)

    def _free(self, job: ObjectMeta) -> Capacity | None:
        return self.capacity.snapshot(job.uid, self.quarantined.for_namespace(job.namespace))

    def _recheck_at(self, free: Capacity | None) -> float | None:
        """Return when a job asks again what is free."""
        unknown_until = self._clock.monotonic() + UNKNOWN_CAPACITY_SECONDS if free is None else None
        return unknown_until or self.capacity.reserved_until()

    def _pods(self, owner: str, deleted_uids: Collection[str]) -> tuple[ObservedPod, ...]:
        cached = (self._observed_pods.get(pod.metadata.uid) for pod in self.pods.by(OWNER, owner))
        pods = tuple(pod for pod in cached if pod is not None)
        if not deleted_uids:
            return pods
        return tuple(replace(pod, terminating=True) if pod.uid in deleted_uids else pod for pod in pods)

    def _pod_changed(self, change: Change[Pod]) -> None:
        """Interpret each version of a pod once, for reconciles and triggers alike."""
        old, new = change.old, change.new
        before = self._observed_pods.pop(old.metadata.uid, None) if old is not None else None
        noticed = (before.preempted_at if before else None) or self._clock.now()
        after = observe_pod(new, self.propagated_keys, noticed) if new is not None else None
        if after is not None:
            self._observed_pods[after.uid] = after
            if before is not None and is_equivalent_pod(before, after):
                return
        pod = new or old
        if pod is None:
            return
        if new is None:
            self.node_health.forget_unused(pod.spec.node_name)
        for owner in owner_keys(pod):
            self._losses.pod_changed(owner, before, after)
            if after is not None:
                self._recently_deleted.discard(owner, after)
            elif before is not None:
                self._recently_deleted.add(owner, before)
        self._count(pod, before, after)
        if not change.own:
            for listener in self._pod_listeners:
                listener(pod)

    def _count(self, pod: Pod, before: ObservedPod | None, after: ObservedPod | None) -> None:
        for owner in owner_keys(pod):
            for view, by in ((before, -1), (after, 1)):
                if view is not None and not view.ended:
                    _add_to(self._unfinished, (owner, view.role), by)
                    if view.phase == "Pending":
                        _add_to(self._starting, (owner, view.role), by)

    def _children(self, owner: str) -> tuple[KubernetesObject, ...]:
        children = [child for cache in self.children.values() for child in cache.by(OWNER, owner)]
        children += self.pod_groups.of(owner)
        return tuple(child for child in children if child.metadata.deletion_timestamp is None)


def _add_to(counter: Counter[tuple[str, str]], key: tuple[str, str], number: int) -> None:
    counter[key] += number
    if not counter[key]:
        del counter[key]


def _nodes(pod: Pod) -> Iterable[str]:
    return (pod.spec.node_name,) if pod.spec.node_name else ()
