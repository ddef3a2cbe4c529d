"""Which job needs a pass when something changed: the owner of the changed object, if the change can matter.

A pod event that leaves everything policies look at as it was (a heartbeat, somebody's annotation) wakes
nobody.
"""

from typing import Protocol, TypeVar

from argosy.engine.cache import Change
from argosy.engine.codec import Undecodable
from argosy.engine.objects import Fetchable, Key
from argosy.kinds.kubernetes import Node, Pod, PodGroup
from argosy.kinds.meta import ObjectMeta, OwnerReference
from argosy.reconcile.caches import NODE, Caches, is_down
from argosy.reconcile.run import Reconciler, T
from argosy.reconcile.status import COUNTS_EVERY
from argosy.workload.observed import observe_group

C = TypeVar("C", bound=Fetchable)

POD_PAUSE = 0.1
"""Pods of a job come and go in groups: a pass waits this long for the others of its group."""

START_PAUSE = COUNTS_EVERY
"""The same for a pod that runs while others of its role do not yet: there is hardly more to tell than their
number."""


class Enqueue(Protocol):
    def __call__(self, key: Key, after: float = 0.0) -> None: ...


class Triggers:
    """Routes changes to the queues of the kinds that are served."""

    def __init__(self, caches: Caches) -> None:
        self.caches = caches
        self._queues: dict[tuple[str, str], Enqueue] = {}
        caches.when_pod_matters(self._pod)
        caches.groups.subscribe(self._group)
        caches.nodes.subscribe(self._node)
        for children in (
            caches.services,
            caches.accounts,
            caches.rbac_roles,
            caches.bindings,
            caches.configs,
        ):
            children.subscribe(self._child)

    def add(self, reconciler: Reconciler[T], enqueue: Enqueue) -> None:
        resource = reconciler.dialect.resource
        self._queues[resource.group, resource.kind] = enqueue

        def job(change: Change[T]) -> None:
            changed = change.new or change.old
            if changed is not None and not reconciler.writing:
                enqueue(Key(changed.metadata.namespace, changed.metadata.name))

        def undecodable(bad: Undecodable) -> None:
            enqueue(Key(bad.metadata.namespace, bad.metadata.name))

        reconciler.jobs.subscribe(job)
        reconciler.jobs.when_undecodable(undecodable)

    def _pod(self, pod: Pod) -> None:
        if self._leaves(pod):
            self._owner_of(pod)  # at once: what the others make of its loss must not be seen first
        else:
            self._owner_of(pod, START_PAUSE if self.caches.more_will_start(pod) else POD_PAUSE)

    def _leaves(self, pod: Pod) -> bool:
        known = self.caches.pods.get(pod.metadata.namespace, pod.metadata.name)
        gone = known is None or known.metadata.uid != pod.metadata.uid
        return gone or pod.metadata.deletion_timestamp is not None

    def _group(self, change: Change[PodGroup]) -> None:
        old, new = change.old, change.new
        if old is not None and new is not None and observe_group(old) == observe_group(new):
            return
        self._owner_of(new or old)

    def _child(self, change: Change[C]) -> None:
        if change.new is None:
            self._owner_of(change.old)

    def _node(self, change: Change[Node]) -> None:
        was_down = change.old is None or is_down(change.old)
        down = change.new is None or is_down(change.new)
        node = change.new or change.old
        if was_down != down and node is not None:
            for pod in self.caches.pods.by(NODE, node.metadata.name):
                self._owner_of(pod)

    def _owner_of(self, obj: Fetchable | None, after: float = 0.0) -> None:
        metadata = obj.metadata if obj is not None else None
        if isinstance(metadata, ObjectMeta) and metadata.controller is not None:
            self._enqueue(metadata.namespace, metadata.controller, after)

    def _enqueue(self, namespace: str, owner: OwnerReference, after: float) -> None:
        group = owner.api_version.partition("/")[0] if "/" in owner.api_version else ""
        queue = self._queues.get((group, owner.kind))
        if queue is not None:
            queue(Key(namespace, owner.name), after)
