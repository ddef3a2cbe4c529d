"""The face of a dialect: how one API's objects become workloads and what is written back.

A dialect is a translation, not a controller. If it seems to need a third idea, that idea belongs in
`workload/`.
"""

from typing import Protocol, TypeVar

from msgspec import Struct

from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.workload.model import Problems, Workload
from argosy.workload.observed import Observed
from argosy.workload.record import Record

T = TypeVar("T")


class Dialect(Protocol[T]):
    """`T` is the struct of the API's kind; it has `metadata`, `spec` and `status`."""

    kind: type[T]
    resource: Resource

    def lower(self, obj: T) -> Workload | Problems:
        """The workload that the object asks for, complete, or everything that is wrong with it. Never
        raises."""
        ...

    def stand_in(self, metadata: ObjectMeta, status: object) -> T:
        """An object that could not be read, as far as its status can be projected; its definition is
        empty."""
        ...

    def shed(self, obj: T) -> T:
        """The object as it is kept once its job has finished: without templates, which nobody needs then."""
        ...

    def project(self, obj: T, workload: Workload | None, record: Record, seen: Observed) -> Struct:
        """The whole status to store; `workload` is None while the object has problems."""
        ...

    def record(self, obj: T) -> Record | None:
        """What the stored status remembers."""
        ...

    def name(self, workload: Workload, role: str, index: int, attempt: int, replacement: int) -> str:
        """The name of the pod in this place. Deterministic: the same place gives the same name."""
        ...
