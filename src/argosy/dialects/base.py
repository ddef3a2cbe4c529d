"""Defines what one job API consists of: a dialect, and optional parts that are registered with it.

A dialect translates and does nothing else: an object of its API becomes a `Workload`, and what the engine
remembers and observes becomes that API's status. Whatever an API needs beyond this (defaults that are written
back, adoption of another operator's jobs, events of its own) is a value of `JobApi` with a default that fits
most APIs, so that no dialect implements methods only to do nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import ClassVar, Generic, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from argosy.frameworks.base import Injection
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.plan.actions import ActionResult, EmitEvent
from argosy.plan.children import KubernetesObject
from argosy.workload.model import Json, Problems, Role, Workload
from argosy.workload.observed import Observed
from argosy.workload.plan import Plan
from argosy.workload.record import Record
from argosy.workload.record_encoding import decode
from argosy.workload.scale_request import ScaleRequest

RECORD_FIELD = "argosy"
"""The field of every status that holds the Record."""


class Job(Protocol):
    """An object of a job API. Its status has the field `argosy`, which holds the Record."""

    resource: ClassVar[Resource]

    @property
    def metadata(self) -> ObjectMeta: ...
    @property
    def status(self) -> Struct: ...


T = TypeVar("T", bound=Job)


class StatusInput(Struct, frozen=True):
    """Everything that a status is made from, besides the status before it."""

    workload: Workload | None
    """None while the spec is invalid."""
    record: Record
    observed: Observed


class Dialect(Protocol[T]):
    """Translates the objects of one API. Both methods are pure."""

    kind: type[T]

    def to_workload(self, obj: T) -> Workload | Problems:
        """Return the workload that the object asks for, complete, or everything that is wrong with it.

        Never raises. Of the metadata it reads only what `JobApi.propagated_annotations` names, the name, the
        uid, the generation and the time of deletion.
        """
        ...

    def to_status(self, obj: T, view: StatusInput) -> Struct:
        """Return the whole status to store; `obj` has the last one."""
        ...


class StatusChange(Struct, Generic[T], frozen=True):
    """What was decided about a job, and its object before and after: what status events are made from."""

    before: T
    after: T
    plan: Plan
    workload: Workload | None


class Adoption(Struct, Generic[T], frozen=True):
    """How jobs are recognised that another operator of the same API has worked on."""

    record: Callable[[T], Record | None]
    """Returns the Record that the other operator's status amounts to; asked where there is no Record."""
    replica: Callable[[Mapping[str, str]], tuple[str, int] | None]
    """Returns role and index of a pod that the other operator made, by its labels."""


class TimedPatch(Struct, frozen=True):
    """A merge patch that the stored object needs from a time on, unless it changes before."""

    at: datetime
    patch: Json


class RequestKind(Struct, frozen=True):
    """A kind whose objects ask for a job of the same namespace to be scaled."""

    kind: type[KubernetesObject]
    job_name: Callable[[KubernetesObject], str]
    """Returns the name of the job that an object is for; empty if it is for none."""
    to_request: Callable[[KubernetesObject, Workload], ScaleRequest | None]
    """Returns what the object asks for; None if it asks for nothing, or no longer."""
    asks: Callable[[KubernetesObject], object] = lambda obj: obj.metadata.resource_version
    """Returns what `to_request` depends on in the object: the job is reconciled when it changes. None if the
    object asks for nothing yet."""


Inject = Callable[[Workload, Role, int], Injection | None]
"""Returns what the framework needs in the pod of this replica; None if the framework is not installed."""
PodName = Callable[[Workload, str, int, int, int], str]
"""Returns the name of a pod by role, index, attempt and replacement. Deterministic."""


def history_events(change: StatusChange[T]) -> Sequence[EmitEvent]:
    """Return one event for every new entry of the job's history: what most APIs report."""
    return change.plan.events


def no_action_events(job: T, results: Sequence[ActionResult]) -> Sequence[EmitEvent]:
    """Report no executed actions: the history and the objects themselves show them."""
    del job, results
    return ()


def no_spec_patch(job: T) -> Json | None:
    """Leave the spec as the user wrote it."""
    del job
    return None


def no_timed_patch(job: T) -> TimedPatch | None:
    """Leave the object as it is, however long it waits."""
    del job
    return None


def keep_whole(job: T) -> T:
    """Keep a finished job in memory as it is."""
    return job


def pod_name_of_replica(workload: Workload, role: str, index: int, attempt: int, replacement: int) -> str:
    """Return one name for all pods of a replica, so that the API server rejects a second one."""
    del attempt, replacement
    return workload.hostname(role, index)


@dataclass(frozen=True, kw_only=True)
class JobApi(Generic[T]):
    """All that is registered for one kind of job."""

    dialect: Dialect[T]
    inject: Inject
    empty: Callable[[ObjectMeta], T]
    """Returns an object with an empty spec, to stand in for one that cannot be decoded."""
    pod_name: PodName = pod_name_of_replica
    status_events: Callable[[StatusChange[T]], Sequence[EmitEvent]] = history_events
    action_events: Callable[[T, Sequence[ActionResult]], Sequence[EmitEvent]] = no_action_events
    """Returns events about executed actions, which the status in the object does not show yet."""
    spec_patch: Callable[[T], Json | None] = no_spec_patch
    """Returns a merge patch that the stored object needs, such as defaults to be shown in its spec."""
    timed_patch: Callable[[T], TimedPatch | None] = no_timed_patch
    """Returns a merge patch that the stored object will need, and when. It is asked after the status was
    written, so that it sees what has been observed until then."""
    requests: tuple[RequestKind, ...] = ()
    """The kinds whose objects ask for jobs to be scaled."""
    adoption: Adoption[T] | None = None
    compact_finished: Callable[[T], T] = keep_whole
    """Returns a finished job without what nobody needs any more, which is kept in memory instead of it."""
    minimal_workload: Callable[[T], Workload] | None = None
    """Set if an invalid spec ends the job. Returns what can be read of such an object: its identity, cleanup
    policy and times to live, without roles. If not set, existing pods are left as they are."""
    propagated_annotations: tuple[str, ...] = ()
    """Annotations of a job that its pods and its pod group follow."""
    child_kinds: tuple[type[KubernetesObject], ...] = ()
    """Kinds of children that are watched for this API only. Structs with metadata only keep their cache
    small."""
    on_demand_children: Mapping[type[KubernetesObject], Callable[[T], bool]] = field(default_factory=dict)
    """Further kinds of children, which are watched once there is a job for which this returns True. The
    cluster may not serve them."""
    write_time_field: str = ""
    """Field of the status that holds the time of its last write, if the API has one."""

    @property
    def kind(self) -> type[T]:
        return self.dialect.kind

    @property
    def resource(self) -> Resource:
        return self.dialect.kind.resource

    def ended_workload(self, job: T) -> Workload:
        """Return the workload of a job of which nothing is left but what must be deleted."""
        if self.minimal_workload is not None:
            return self.minimal_workload(job)
        return bare_workload(job.metadata, self.resource)

    def placeholder(self, metadata: ObjectMeta, status: object) -> T:
        """Return an object that could not be decoded, as far as its status can be written."""
        job = self.empty(metadata)
        try:
            last = msgspec.convert(status or {}, type(job.status))
        except msgspec.ValidationError:
            return job  # the status is rebuilt
        return cast("T", msgspec.structs.replace(cast("Struct", job), status=last))


def read_record(job: Job) -> Record | None:
    """Return the Record in the job's status; None if there is none."""
    return decode(getattr(job.status, RECORD_FIELD))


def bare_workload(metadata: ObjectMeta, resource: Resource) -> Workload:
    """Return a job of which nothing is known but its identity."""
    names = (metadata.namespace, metadata.name, metadata.uid)
    return Workload(resource.kind, resource.api_version, *names, metadata.generation, "", {})
