"""Jobs that cannot be worked on because of how their kind is defined, or of who wrote them last.

Nothing is done for such a job, for it could not be remembered: an event says what is wrong, and it is tried
again after a while, or as soon as its definition changes.
"""

from argosy.engine.clock import Clock
from argosy.engine.controller import Wake
from argosy.engine.events import Recorder
from argosy.engine.logs import Log
from argosy.engine.objects import Fetchable
from argosy.kinds.resource import Resource
from argosy.reconcile.job_state import Memory

log = Log(__name__)

PAUSES = (2.0, 5.0, 20.0, 60.0)
"""Seconds until a job is tried again; a definition that was put right takes a moment to be in force."""


class Unfit:
    def __init__(self, resource: Resource, clock: Clock, recorder: Recorder) -> None:
        self._resource = resource
        self._clock = clock
        self._recorder = recorder

    def status_is_unwritable(self, job: Fetchable, why: str, memory: Memory) -> Wake:
        """Where status cannot be written, an event must tell."""
        self._recorder.event(job, "Warning", "StatusUnwritable", self.definition(why))
        return self.hold(memory)

    def record_is_later(self, job: Fetchable, why: str, memory: Memory) -> Wake:
        """Its status is another's: only an event can tell."""
        log.error("the Record is of a later operator", why=why)
        message = (
            f"status.argosy was written by a later operator and cannot be read ({why}); upgrade this one"
        )
        self._recorder.event(job, "Warning", "RecordTooNew", message)
        return self.hold(memory)

    def definition(self, why: str) -> str:
        """What to say of a definition that does not fit."""
        name = f"{self._resource.plural}.{self._resource.group}"
        log.error("the definition does not fit", crd=name, why=why)
        return (
            f"the CustomResourceDefinition {name} {why}, without which nothing can be done safely; "
            "upgrade it (argosy crds | kubectl apply --server-side -f -)"
        )

    def hold(self, memory: Memory) -> Wake:
        """Try the job again after a while, or as soon as its definition changes."""
        pause = PAUSES[min(memory.pruned_tries, len(PAUSES) - 1)]
        memory.pruned_tries += 1
        memory.pruned_until = self._clock.monotonic() + pause
        return Wake(pause)
