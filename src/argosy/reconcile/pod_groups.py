"""Caches the pod groups of gangs, and determines which gang schedulers are available.

A gang scheduler is available when its pod groups can be listed or, if it has none, when the CRD that it needs
is installed. That may change at any time.
"""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.objects import Key
from argosy.kinds.pod_groups import PodGroup
from argosy.reconcile.owners import OWNER, owner_keys
from argosy.workload.gang_schedulers.base import GangScheduler
from argosy.workload.gang_schedulers.registry import candidates
from argosy.workload.observed import ObservedGroup, select_metadata

WaitingJob = tuple[str, str, Key]
"""API group and kind of a job, and its key."""


class PodGroups:
    def __init__(self, client: Client, choice: str, namespace: str | None, selector: str) -> None:
        self.configured = choice
        self.schedulers = candidates(choice)
        self.is_crd_installed: Callable[[str], bool] = lambda _: False
        """Returns True if the CRD of this name, `plural.group`, is installed."""
        self.propagated_keys: tuple[str, ...] = ()
        """Keys of labels and annotations that are propagated from jobs."""
        self.waiting: set[WaitingJob] = set()
        """Jobs that wait for capacity, or for a gang scheduler to become available."""
        self._read = {
            scheduler.group.child_kind: scheduler.group.parse_status
            for scheduler in self.schedulers
            if scheduler.group
        }
        self.caches: dict[str, Cache[PodGroup]] = {
            scheduler.group.child_kind: Cache(
                client,
                scheduler.group.kind,
                namespace=namespace,
                labels=selector,
                indexes={OWNER: owner_keys},
                name=scheduler.group.child_kind,
            )
            for scheduler in self.schedulers
            if scheduler.group
        }

    @property
    def served(self) -> frozenset[str]:
        return frozenset(scheduler.name for scheduler in self.schedulers if self._serves(scheduler))

    @property
    def choices(self) -> tuple[str, frozenset[str]]:
        """What the administrator configured, and which gang schedulers are available."""
        return self.configured, self.served

    def group(self, owner: str) -> ObservedGroup | None:
        """Return the pod group of the job with this owner key."""
        groups = [self._observe(child, group) for child, group in self._groups_of(owner)]
        return groups[0] if groups else None

    def of(self, owner: str) -> list[PodGroup]:
        """Return the pod groups of this job that are not being deleted."""
        return [group for _, group in self._groups_of(owner)]

    def put(self, group: PodGroup) -> None:
        """Store a pod group that the API server returned."""
        for cache in self.caches.values():
            if cache.kind is type(group):
                cache.put(group)

    def on_change(self, listener: Callable[[PodGroup], None]) -> None:
        """Call the listener for a pod group that changed in what is observed of it, or is gone."""
        for child, cache in self.caches.items():
            cache.subscribe(self._notify_if_changed(child, listener))

    def _notify_if_changed(
        self, child: str, listener: Callable[[PodGroup], None]
    ) -> Callable[[Change[PodGroup]], None]:
        def changed(change: Change[PodGroup]) -> None:
            old = self._observe(child, change.old) if change.old else None
            new = self._observe(child, change.new) if change.new else None
            if (group := change.new or change.old) and old != new:
                listener(group)

        return changed

    def _observe(self, child: str, group: PodGroup) -> ObservedGroup:
        meta = group.metadata
        marks = select_metadata(meta.labels, meta.annotations, self.propagated_keys)
        return replace(self._read[child](group.status), uid=meta.uid, metadata=marks)

    def _groups_of(self, owner: str) -> Iterable[tuple[str, PodGroup]]:
        for child, cache in self.caches.items():
            for group in cache.by(OWNER, owner):
                if group.metadata.deletion_timestamp is None:
                    yield child, group

    def _serves(self, backend: GangScheduler) -> bool:
        if backend.group:
            return self.caches[backend.group.child_kind].synced
        return not backend.required_crd or self.is_crd_installed(backend.required_crd)
