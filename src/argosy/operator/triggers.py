"""Which job needs a pass when something changed: the owner of the changed object, if the change can matter.

A pod event that leaves everything policies look at as it was (a heartbeat, somebody's annotation) wakes
nobody.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from argosy.dialects.base import T
from argosy.engine.cache import Change
from argosy.engine.codec import Undecodable
from argosy.engine.objects import ApiObject, Key, key_of
from argosy.kinds import labels
from argosy.kinds.kubernetes import Node, Pod
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.reconcile.caches import NODE, Caches
from argosy.reconcile.nodes import has_unknown_condition, is_down, is_out_of_service
from argosy.reconcile.reconciler import Reconciler
from argosy.reconcile.status_changes import COUNTS_SECONDS

C = TypeVar("C", bound=ApiObject)

POD_DEBOUNCE_SECONDS = 0.1
"""Pods of a job come and go in groups: a pass waits this long for the others of its group."""

START_DEBOUNCE_SECONDS = COUNTS_SECONDS
"""The same for a pod that runs while others of its role do not yet: there is hardly more to tell than their
number."""

FOLLOW_DEBOUNCE_SECONDS = 0.5
"""The same for a pod that has succeeded while others of its role go on (their number again, unless the role
succeeds with any one of them, and then it may wait so long), and for one on its way out that is merely
replaced, for which nothing can be done until it is gone."""


class Queue(Protocol):
    """The face of a controller that this room needs."""

    def enqueue(self, key: Key, after: float = 0.0) -> None: ...
    def discard(self, key: Key) -> None: ...


class Triggers:
    """Routes changes to the queues of the kinds that are served."""

    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self._served: dict[tuple[str, str], _Served] = {}
        caches.on_pod_change(self._pod)
        caches.pod_groups.on_change(self._enqueue_owner)
        caches.capacity.on_freed(self.enqueue_waiting_gangs)
        caches.nodes.subscribe(self._node)
        caches.node_health.on_answer(self._enqueue_owners_on_node)
        for children in caches.children.values():
            children.subscribe(self._child)

    def add(self, reconciler: Reconciler[T], queue: Queue) -> None:
        resource, jobs = reconciler.api.resource, reconciler.jobs
        known = lambda key: jobs.get(*key) is not None  # noqa: E731
        self._served[resource.group, resource.kind] = _Served(queue, known, reconciler.on_pod_terminating)

        def job(change: Change[T]) -> None:
            if change.new is not None:
                if not change.own:
                    queue.enqueue(key_of(change.new))
            elif change.old is not None:
                reconciler.on_job_deleted(change.old)
                queue.discard(key_of(change.old))

        def undecodable(bad: Undecodable) -> None:
            queue.enqueue(Key(bad.metadata.namespace, bad.metadata.name))

        jobs.subscribe(job)
        jobs.on_undecodable(undecodable)

    def _pod(self, pod: Pod) -> None:
        self._enqueue_owner(pod, self._debounce_seconds(pod))

    def _debounce_seconds(self, pod: Pod) -> float:
        known = self.caches.pods.get(pod.metadata.namespace, pod.metadata.name)
        if known is None or known.metadata.uid != pod.metadata.uid:
            return 0.0  # what the others make of its loss must not be seen first
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
        return served is not None and served.on_pod_terminating(key, meta.labels.get(labels.ROLE, ""))

    def enqueue_waiting_gangs(self) -> None:
        """Something that gangs wait for has come: room, or who places them."""
        for group, kind, key in tuple(self.caches.pod_groups.waiting):
            self._served[group, kind].queue.enqueue(key, POD_DEBOUNCE_SECONDS)

    def _child(self, change: Change[C]) -> None:
        if change.new is None:
            self._enqueue_owner(change.old)

    def _node(self, change: Change[Node]) -> None:
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


def _health(node: Node | None) -> tuple[bool, bool, bool] | None:
    """What policies look at in a node."""
    return None if node is None else (is_down(node), has_unknown_condition(node), is_out_of_service(node))


class _Served(NamedTuple):
    queue: Queue
    job_exists: Callable[[Key], bool]
    """Whether there is such a job. What happens to the children of one that is gone, or has not come yet,
    is no reason to remember its name: on a replica that stands by nobody would ever forget it."""
    on_pod_terminating: Callable[[Key, str], bool]
