"""Reports jobs whose stored object cannot be decoded, because it was stored under a weaker CRD.

Such an object is treated like one with an invalid spec: reported in its status and by one event, its pods
left as they are, and cured by an edit. A status that cannot be decoded is replaced, since it can be rebuilt.
"""

from typing import Generic

import msgspec
from msgspec import Struct

from argosy.dialects.base import JobApi, StatusInput, T, read_record
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.codec import UNDECODABLE, Undecodable
from argosy.engine.controller import Requeue
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import ApiError, Conflict, Invalid, NotFound
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.engine.objects import Key
from argosy.plan.record import UnsupportedVersionError
from argosy.reconcile.status_changes import status_body
from argosy.workload.decide import plan_invalid
from argosy.workload.model import Problem, Problems
from argosy.workload.observed import Observed

log = Logger(__name__)


class UndecodableJobs(Generic[T]):
    def __init__(self, api: JobApi[T], client: Client, clock: Clock, recorder: Recorder) -> None:
        self._api = api
        self._kind = dynamic_kind(api.resource)
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._entries: dict[Key, _Entry] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def add(self, bad: Undecodable) -> None:
        key = Key(bad.metadata.namespace, bad.metadata.name)
        if bad.deleted:
            self._entries.pop(key, None)
            self._recorder.forget(bad.metadata.uid)
            return
        last = self._entries.get(key)
        self._entries[key] = _Entry(bad, reported=last is not None and last.reported and _same(last.bad, bad))

    def clear(self, key: Key) -> None:
        self._entries.pop(key, None)

    async def report(self, key: Key) -> Requeue | None:
        """Write into the object's status what is wrong with it, unless that was written already."""
        entry = self._entries[key]
        bad, meta = entry.bad, entry.bad.metadata
        job = self._api.placeholder(meta, msgspec.json.decode(bad.raw, type=_OnlyStatus).status)
        try:
            before = read_record(job)
        except UnsupportedVersionError:
            return None  # a later version of the operator reports it
        problems = Problems((Problem(bad.path, bad.problem),))
        plan = plan_invalid(before, problems, meta.generation, self._clock.now())
        status = self._api.dialect.to_status(job, StatusInput(None, plan.record, Observed()))
        if entry.reported or plan.record == before:
            return None
        try:
            await self._client.replace(
                self._kind, status_body(meta, status), meta.namespace, subresource="status"
            )
        except (Conflict, NotFound):
            return Requeue(1.0)  # the watch brings what was written in between, or the deletion
        except Invalid as error:  # some servers validate the whole object
            log.warning("status cannot be written", object=f"{key.namespace}/{key.name}", error=str(error))
        except ApiError as error:
            if error.reason != UNDECODABLE:
                raise  # otherwise it was written, and the response cannot be decoded either
        entry.reported = True  # also if the CRD drops the Record: it would be reported for ever
        for event in plan.events:
            self._recorder.event(job, event.type, event.reason, event.message)
        return None


class _Entry(Struct):
    bad: Undecodable
    reported: bool = False


class _OnlyStatus(Struct):
    status: object = None


def _same(first: Undecodable, second: Undecodable) -> bool:
    """Return True if both are the same problem in the same generation of the same object."""
    return (first.metadata.uid, first.metadata.generation, first.path, first.problem) == (
        second.metadata.uid,
        second.metadata.generation,
        second.path,
        second.problem,
    )
