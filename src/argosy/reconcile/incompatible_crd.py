"""Jobs that cannot be worked on because of how their kind is defined, or of who wrote them last.

Nothing is done for such a job, for it could not be remembered: an event says what is wrong, and it is tried
again after a while, or as soon as its definition changes.
"""

from argosy.engine.clock import Clock
from argosy.engine.controller import Requeue
from argosy.engine.events import Recorder
from argosy.engine.logs import Logger
from argosy.engine.objects import ApiObject
from argosy.kinds.messages import APPLY_CRDS_COMMAND
from argosy.kinds.resource import Resource
from argosy.reconcile.job_state import JobState

log = Logger(__name__)

RETRY_DELAYS_SECONDS = (2.0, 5.0, 20.0, 60.0)
"""Seconds until a job is tried again; a definition that was put right takes a moment to be in force."""


class CrdCompatibility:
    def __init__(self, resource: Resource, clock: Clock, recorder: Recorder) -> None:
        self._resource = resource
        self._clock = clock
        self._recorder = recorder

    def status_is_unwritable(self, job: ApiObject, why: str, memory: JobState) -> Requeue:
        """Where status cannot be written, an event must tell."""
        self._recorder.event(job, "Warning", "StatusUnwritable", self.crd_message(why))
        return self.block(memory)

    def record_is_later(self, job: ApiObject, why: str, memory: JobState) -> Requeue:
        """Its status is another's: only an event can tell."""
        log.error("the Record is of a later operator", why=why)
        message = (
            f"status.argosy was written by a later operator and cannot be read ({why}); upgrade this one"
        )
        self._recorder.event(job, "Warning", "RecordTooNew", message)
        return self.block(memory)

    def crd_message(self, why: str) -> str:
        """What to say of a definition that does not fit."""
        name = f"{self._resource.plural}.{self._resource.group}"
        log.error("the definition does not fit", crd=name, why=why)
        return (
            f"the CustomResourceDefinition {name} {why}, without which nothing can be done safely; "
            f"upgrade it ({APPLY_CRDS_COMMAND})"
        )

    def block(self, memory: JobState) -> Requeue:
        """Try the job again after a while, or as soon as its definition changes."""
        pause = RETRY_DELAYS_SECONDS[min(memory.block_count, len(RETRY_DELAYS_SECONDS) - 1)]
        memory.block_count += 1
        memory.blocked_until = self._clock.monotonic() + pause
        return Requeue(pause)
