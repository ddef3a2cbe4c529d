"""Writes the status and the finalizers of reconciled objects, at the resourceVersion that was decided on.

A write that fails, with a conflict or because the CRD does not allow the status, ends the reconcile: what was
decided is not executed if it cannot be recorded.
"""

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.controller import Requeue
from argosy.engine.errors import Conflict, Invalid, NotFound
from argosy.plan.children import KubernetesObject
from argosy.reconcile.compatibility import Compatibility
from argosy.reconcile.object_state import ObjectState
from argosy.reconcile.status_changes import status_body, write_interval

CONFLICT_SECONDS = 1.0
"""Until the next reconcile after a conflict, if the watch does not bring what was written before."""

DEFER_SECONDS = 5.0
"""How long a status is deferred that may wait."""

MAX_STATUS_NOT_FOUND = 3
"""Times in a row that there is no status to write, though the object exists: then its kind has none."""


class ReconciledObject(KubernetesObject, Protocol):
    """An object of a kind that has a status."""

    @property
    def status(self) -> Struct: ...


T = TypeVar("T", bound=ReconciledObject)


class GivenUpError(Exception):
    """The reconcile ends here, and another one begins after a while."""

    def __init__(self, requeue: Requeue) -> None:
        super().__init__()
        self.requeue = requeue


class ObjectWriter(Generic[T]):
    def __init__(self, client: Client, clock: Clock, objects: Cache[T], compatibility: Compatibility) -> None:
        self._client = client
        self._clock = clock
        self._objects = objects
        self._compatibility = compatibility

    async def write_finalizers(self, obj: T, finalizers: Sequence[str]) -> T:
        meta = obj.metadata
        guard = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch = {"metadata": {**guard, "finalizers": list(finalizers)}}
        try:
            written = await self._client.patch(self._objects.kind, meta.name, patch, meta.namespace)
        except (Conflict, NotFound):
            raise GivenUpError(Requeue(CONFLICT_SECONDS)) from None
        self._objects.put(written, own=True)
        return written

    async def write_status(
        self, obj: T, status: Struct, state: ObjectState, *, has_record: bool, may_wait: bool = False
    ) -> T:
        """Return the object with its status up to date; counts and messages are written now and then.

        A status that may wait is written `DEFER_SECONDS` later, if nothing else is written before.
        """
        if status == obj.status:
            state.flush_at = None
            return obj
        now = self._clock.monotonic()
        due = state.written_at + write_interval(obj.status, status)
        if may_wait:
            due = max(due, now + DEFER_SECONDS if state.flush_at is None else state.flush_at)
        if now < due:
            state.flush_at = due
            return obj
        written = await self._replace_status(obj, status, state)
        state.status_not_found = 0
        state.current, state.flush_at = True, None
        state.written_at = self._clock.monotonic()
        self._objects.put(written, own=True)
        if has_record and raw_record(written.status) != raw_record(status):
            raise GivenUpError(self._compatibility.record_is_pruned(written, state.block))
        state.block.count = 0
        return written

    async def _replace_status(self, obj: T, status: Struct, state: ObjectState) -> T:
        meta = obj.metadata
        try:
            return await self._client.replace(
                self._objects.kind, status_body(meta, status), meta.namespace, subresource="status"
            )
        except Conflict:
            raise GivenUpError(Requeue(CONFLICT_SECONDS)) from None
        except NotFound:
            state.status_not_found += 1
            if state.status_not_found < MAX_STATUS_NOT_FOUND:
                raise GivenUpError(Requeue(CONFLICT_SECONDS)) from None
            problem = "has no status subresource"
        except Invalid as error:
            problem = f"rejects the status ({error.message})"
        raise GivenUpError(self._compatibility.status_cannot_be_written(obj, problem, state.block))


def raw_record(status: Struct) -> object:
    """Return `status.argosy` as it is stored."""
    return getattr(status, "argosy", None)
