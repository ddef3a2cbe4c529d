"""The face of a dialect: how one API's objects become workloads and what is written back.

A dialect is a translation, not a controller. If it seems to need a third idea, that idea belongs in
`workload/`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from msgspec import Struct

from argosy.frameworks.base import Injection
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.workload.model import Json, Problems, Role, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Deed, Emit, Plan
from argosy.workload.record import Record

T = TypeVar("T")


class Dialect(Protocol[T]):
    """`T` is the struct of the API's kind; it has `metadata`, `spec` and `status`."""

    kind: type[T]
    resource: Resource
    invalid_ends: bool
    """Whether a definition with problems takes away what was made for the job; else that is left as it is."""
    propagated_annotations: tuple[str, ...]
    """Annotations of a job that its pods and its group follow; `lower` looks at no other metadata that can
    change."""

    def to_workload(self, obj: T) -> Workload | Problems:
        """The workload that the object asks for, complete, or everything that is wrong with it. Never
        raises."""
        ...

    def spec_patch(self, obj: T) -> Json | None:
        """A merge patch that the stored object needs before anything else: defaults to be shown, and the
        like."""
        ...

    def minimal_workload(self, obj: T) -> Workload:
        """An object with problems as far as it takes to end it: its identity, and what can be read of its
        cleanup policy and times to live. It has no roles."""
        ...

    def inject(self, workload: Workload, role: Role, index: int) -> Injection | None:
        """What the framework needs in this place; None if there is no such framework."""
        ...

    def placeholder(self, metadata: ObjectMeta, status: object) -> T:
        """An object that could not be read, as far as its status can be projected; its definition is
        empty."""
        ...

    def compact_finished(self, obj: T) -> T:
        """The object as it is kept once its job has finished: without templates, which nobody needs then."""
        ...

    def to_status(self, obj: T, workload: Workload | None, record: Record, seen: Observed) -> Struct:
        """The whole status to store; `workload` is None while the object has problems."""
        ...

    def stamped(self, status: Struct, now: datetime) -> Struct:
        """The status as it is written now."""
        ...

    def status_events(self, before: T, after: T, plan: Plan) -> Sequence[Emit]:
        """What to tell of a pass that brought the object's status from one to the other."""
        ...

    def action_events(self, obj: T, done: Sequence[Deed]) -> Sequence[Emit]:
        """What to tell of what a pass did, which the status in `obj` does not know of yet."""
        ...

    def read_record(self, obj: T) -> Record | None:
        """What the stored status remembers."""
        ...

    def adopted_record(self, obj: T) -> Record | None:
        """What the status of a job tells that another operator of this API has worked on; asked where there
        is no Record."""
        ...

    def adopted_replica(self, labels: Mapping[str, str]) -> tuple[str, int] | None:
        """Role and index of a pod that such an operator made, by its labels."""
        ...

    def pod_name(self, workload: Workload, role: str, index: int, attempt: int, replacement: int) -> str:
        """The name of the pod in this place. Deterministic: the same place gives the same name."""
        ...


def bare_workload(meta: ObjectMeta, resource: Resource) -> Workload:
    """A job of which nothing is known but its name."""
    names = (meta.namespace, meta.name, meta.uid)
    return Workload(resource.kind, resource.api_version, *names, meta.generation, "", {})
