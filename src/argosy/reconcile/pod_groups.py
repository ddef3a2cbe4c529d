"""The groups of gangs, of every back end that may place them here, and which of those the cluster serves.

A back end is served when its groups can be listed, or, if it has none, when what it needs is defined. That
may change at any time: what is installed later is noticed.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.objects import Key
from argosy.kinds import labels
from argosy.kinds.pod_groups import PodGroup
from argosy.reconcile.owners import OWNER, owner_keys
from argosy.workload.gang_schedulers.base import Backend
from argosy.workload.gang_schedulers.registry import candidates
from argosy.workload.observed import ObservedGroup, marks_of

WaitingJob = tuple[str, str, Key]
"""API group and kind of a job, and its key."""


class PodGroups:
    def __init__(self, client: Client, choice: str, namespace: str | None, selector: str) -> None:
        self.choice = choice
        self.backends = candidates(choice)
        self.defined: Callable[[str], bool] = lambda _: False
        """Whether the cluster has the definition of this name, `plural.group`."""
        self.handed_on: tuple[str, ...] = ()
        """Keys of labels and annotations that the dialects look at."""
        self.waiting: set[WaitingJob] = set()
        """The jobs that wait for room, or for a back end to be served."""
        self._read = {one.group.child: one.group.read for one in self.backends if one.group}
        self.caches: dict[str, Cache[PodGroup]] = {
            one.group.child: Cache(
                client,
                one.group.kind,
                namespace=namespace,
                labels=selector,
                indexes={OWNER: owner_keys},
                name=one.group.child,
            )
            for one in self.backends
            if one.group
        }

    @property
    def served(self) -> frozenset[str]:
        return frozenset(one.name for one in self.backends if self._serves(one))

    @property
    def choices(self) -> tuple[str, frozenset[str]]:
        """What the administrator chose, and what is there of it."""
        return self.choice, self.served

    def group(self, owner: str) -> ObservedGroup | None:
        """What is told of the group of the job with this owner key."""
        told = [self._observed(child, one) for child, one in self._of(owner)]
        return told[0] if told else None

    def children(self, owner: str) -> Mapping[tuple[str, str], str]:
        """The digests of the groups of this job, by the name of their kind and their own."""
        return {
            (child, one.metadata.name): one.metadata.annotations.get(labels.DIGEST, "")
            for child, one in self._of(owner)
        }

    def put(self, group: PodGroup) -> None:
        """Take in a group that the API returned."""
        for cache in self.caches.values():
            if cache.kind is type(group):
                cache.put(group)

    def on_change(self, listener: Callable[[PodGroup], None]) -> None:
        """Call for a group of which something else is told now, or that is gone."""
        for child, cache in self.caches.items():
            cache.subscribe(self._notify_if_changed(child, listener))

    def _notify_if_changed(
        self, child: str, listener: Callable[[PodGroup], None]
    ) -> Callable[[Change[PodGroup]], None]:
        def changed(change: Change[PodGroup]) -> None:
            old, new = (self._observed(child, one) if one else None for one in (change.old, change.new))
            if (one := change.new or change.old) and old != new:
                listener(one)

        return changed

    def _observed(self, child: str, group: PodGroup) -> ObservedGroup:
        meta = group.metadata
        marks = marks_of(meta.labels, meta.annotations, self.handed_on)
        return replace(self._read[child](group.status), uid=meta.uid, marks=marks)

    def _of(self, owner: str) -> Iterable[tuple[str, PodGroup]]:
        for child, cache in self.caches.items():
            for one in cache.by(OWNER, owner):
                if one.metadata.deletion_timestamp is None:
                    yield child, one

    def _serves(self, backend: Backend) -> bool:
        if backend.group:
            return self.caches[backend.group.child].synced
        return not backend.needs or self.defined(backend.needs)
