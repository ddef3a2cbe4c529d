"""Enqueues the job that owns a changed object, if the change can matter to it.

A pod event that changes nothing that decisions depend on, such as a heartbeat or a foreign annotation,
enqueues no job.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from argosy.dialects.base import T
from argosy.engine.cache import Cache, Change
from argosy.engine.codec import Undecodable
from argosy.engine.objects import ApiObject, Key, key_of
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.plan.children import KubernetesObject
from argosy.reconcile.caches import NODE, Caches
from argosy.reconcile.nodes import has_unknown_condition, is_down, is_out_of_service
from argosy.reconcile.reconciler import Reconciler
from argosy.reconcile.status_changes import COUNTS_SECONDS

C = TypeVar("C", bound=ApiObject)

POD_DEBOUNCE_SECONDS = 0.1
"""Delay of a reconcile after a pod changed: the pods of a job start and end in groups."""

START_DEBOUNCE_SECONDS = COUNTS_SECONDS
"""The same for a pod that runs while others of its role do not yet: only the number of running pods
changes."""

FOLLOW_DEBOUNCE_SECONDS = 0.5
"""The same for a pod that has succeeded while others of its role still run, and for a terminating pod that is
only replaced or that the operator has deleted, and for a child that it has removed. Usually a mere count
changes; a role that succeeds with any of its pods may wait this long. A terminating pod is replaced once it
is deleted."""


class Queue(Protocol):
    """The part of a controller by which jobs are enqueued."""

    def enqueue(self, key: Key, after: float = 0.0) -> None: ...
    def discard(self, key: Key) -> None: ...


class Triggers:
    """Routes changes to the queues of the job kinds that are served."""

    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self._served: dict[tuple[str, str], _Served] = {}
        caches.on_pod_change(self._pod_changed)
        caches.pod_groups.on_change(self._enqueue_owner)
        caches.capacity.on_freed(self.enqueue_waiting_gangs)
        caches.nodes.subscribe(self._node_changed)
        caches.node_health.on_answer(self._enqueue_owners_on_node)
        caches.announced.on_change(self._enqueue_owners_on_node)
        for children in caches.children.values():
            self.watch_children(children)

    def watch_children(self, children: Cache[KubernetesObject], *, every_change: bool = False) -> None:
        """Enqueue the owners of children that are deleted, or that others change at all."""
        children.subscribe(self._child_changed)
        if every_change:
            children.subscribe(self._child_written)

    def add(self, reconciler: Reconciler[T], queue: Queue) -> None:
        """Enqueue the jobs of this reconciler from now on."""
        resource, jobs = reconciler.api.resource, reconciler.jobs
        reconciler.background.on_answer(queue.enqueue)

        def job_exists(key: Key) -> bool:
            return jobs.get(*key) is not None

        self._served[resource.group, resource.kind] = _Served(
            queue, job_exists, reconciler.on_pod_terminating, reconciler.on_removal
        )

        def job_changed(change: Change[T]) -> None:
            if change.new is not None:
                if not change.own:
                    queue.enqueue(key_of(change.new))
            elif change.old is not None:
                reconciler.on_job_deleted(change.old)
                queue.discard(key_of(change.old))

        def undecodable_found(bad: Undecodable) -> None:
            queue.enqueue(Key(bad.metadata.namespace, bad.metadata.name))

        jobs.subscribe(job_changed)
        jobs.on_undecodable(undecodable_found)

    def _pod_changed(self, pod: Pod) -> None:
        self._enqueue_owner(pod, self._debounce_seconds(pod))

    def _debounce_seconds(self, pod: Pod) -> float:
        cached = self.caches.pods.get(pod.metadata.namespace, pod.metadata.name)
        if cached is None or cached.metadata.uid != pod.metadata.uid:
            return 0.0  # deleted: recorded before other pods fail because of it
        if pod.metadata.deletion_timestamp is not None:
            return FOLLOW_DEBOUNCE_SECONDS if self._on_pod_terminating(pod) else 0.0
        if self.caches.role_still_starting(pod):
            return START_DEBOUNCE_SECONDS
        return FOLLOW_DEBOUNCE_SECONDS if self.caches.role_still_running(pod) else POD_DEBOUNCE_SECONDS

    def _on_pod_terminating(self, pod: Pod) -> bool:
        meta = pod.metadata
        if meta.controller is None:
            return False
        served = self._served_owner(meta.controller)
        key = Key(meta.namespace, meta.controller.name)
        role = meta.labels.get(labels.ROLE, "")
        return served is not None and served.on_pod_terminating(key, role, meta.uid)

    def enqueue_waiting_gangs(self) -> None:
        """Enqueue all jobs whose gang waits for capacity or for a gang scheduler."""
        for group, kind, key in tuple(self.caches.pod_groups.waiting):
            self._served[group, kind].queue.enqueue(key, POD_DEBOUNCE_SECONDS)

    def _child_changed(self, change: Change[C]) -> None:
        if change.new is None:
            self._enqueue_owner(change.old, self._removal_debounce(change.old))

    def _child_written(self, change: Change[C]) -> None:
        if change.new is not None and not change.own:
            self._enqueue_owner(change.new)

    def _removal_debounce(self, child: ApiObject | None) -> float:
        metadata = child.metadata if child is not None else None
        if not isinstance(metadata, ObjectMeta) or metadata.controller is None:
            return 0.0
        served = self._served_owner(metadata.controller)
        key = Key(metadata.namespace, metadata.controller.name)
        return FOLLOW_DEBOUNCE_SECONDS if served and served.on_removal(key, metadata.uid) else 0.0

    def _node_changed(self, change: Change[Node]) -> None:
        node = change.new or change.old
        if node is not None and _health(change.old) != _health(change.new):
            self._enqueue_owners_on_node(node.metadata.name)

    def _enqueue_owners_on_node(self, node: str) -> None:
        for pod in self.caches.pods.by(NODE, node):
            self._enqueue_owner(pod)

    def _enqueue_owner(self, obj: ApiObject | None, after: float = 0.0) -> None:
        metadata = obj.metadata if obj is not None else None
        if isinstance(metadata, ObjectMeta) and metadata.controller is not None:
            self._enqueue(metadata.namespace, metadata.controller, after)

    def _enqueue(self, namespace: str, owner: OwnerReference, after: float) -> None:
        served = self._served_owner(owner)
        key = Key(namespace, owner.name)
        if served is not None and served.job_exists(key):
            served.queue.enqueue(key, after)

    def _served_owner(self, owner: OwnerReference) -> "_Served | None":
        group = owner.api_version.partition("/")[0] if "/" in owner.api_version else ""
        return self._served.get((group, owner.kind))


def _health(node: Node | None) -> tuple[bool, ...] | None:
    """Return what decisions depend on in a node, besides its announced end."""
    if node is None:
        return None
    return is_down(node), has_unknown_condition(node), is_out_of_service(node), node.spec.unschedulable


class _Served(NamedTuple):
    queue: Queue
    job_exists: Callable[[Key], bool]
    """Returns True if the cache has such a job. Other keys are not enqueued: a replica that does not lead
    never removes them from its queue."""
    on_pod_terminating: Callable[[Key, str, str], bool]
    on_removal: Callable[[Key, str], bool]
