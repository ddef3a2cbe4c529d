"""Defines what a reconciler of a kind without a Workload does: it names what it needs, then decides.

Both are pure functions over data. The runner (`reconcile.runner`) resolves the needs from caches, writes the
decided status first, and then executes the actions. Nothing subscribes to anything: a change of a child wakes
its owner, and a change of a needed object wakes those whose last needs named it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from msgspec import Struct, field

from argosy.plan.actions import (
    Action,
    ActionResult,
    CallResult,
    EmitEvent,
    ExecResult,
    SecretRef,
    check_key,
)
from argosy.plan.children import Child, KubernetesObject

K = TypeVar("K", bound=KubernetesObject)
K_co = TypeVar("K_co", bound=KubernetesObject, covariant=True)
T_contra = TypeVar("T_contra", bound=KubernetesObject, contravariant=True)
R = TypeVar("R", bound=Struct)


class Ref(Struct, Generic[K_co], frozen=True):
    """One object, by kind and name. The namespace of a cluster-scoped object is empty."""

    kind: type[K_co]
    name: str
    namespace: str = ""


class Matching(Struct, Generic[K_co], frozen=True):
    """All objects that an index of their kind files under a value."""

    kind: type[K_co]
    index: str
    value: str


class View(Struct, frozen=True):
    """Something outside of Kubernetes, or that is not watched, as a driver fetches it at an interval.

    It is fetched once for all objects of a namespace that need it with the same credentials; without
    credentials, once for all objects.
    """

    driver: str
    """The name under which the driver is registered."""
    scope: str
    """What to fetch, in the driver's terms."""
    interval_seconds: float = 10.0
    credentials: SecretRef | None = None


class ViewState(Struct, frozen=True):
    """What is known of a view. An object is reconciled again when its value or its problem has changed."""

    value: Struct | None = None
    """As it was fetched last; None before the first time."""
    at: datetime | None = None
    """When that fetch began: changes that were made earlier are included."""
    problem: str = ""
    """Why the newest fetch failed; empty if it did not. The value is then an old one."""


ObjectNeed = Ref[KubernetesObject] | Matching[KubernetesObject]
Need = ObjectNeed | View


class Inputs(Struct, frozen=True):
    """What a reconcile looks at besides the object itself and its Record."""

    children: tuple[KubernetesObject, ...] = ()
    found: Mapping[ObjectNeed, tuple[KubernetesObject, ...]] = field(default_factory=dict)
    """The objects that each need names."""
    failures: tuple[ActionResult, ...] = ()
    """Actions of earlier reconciles that were not done and have not been tried since."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The version of each child, by uid, that our last write of it returned; see `children.version_of`."""
    exec_results: Mapping[str, ExecResult] = field(default_factory=dict)
    """Answers to `Exec`s of earlier decisions, by key, until a decision leaves the key out."""
    call_results: Mapping[str, CallResult] = field(default_factory=dict)
    """The same for `Call`s."""
    views: Mapping[View, ViewState] = field(default_factory=dict)
    check_results: Mapping[str, ActionResult] = field(default_factory=dict)
    """Answers to `Check`s of earlier decisions, by their keys."""
    unserved: frozenset[type[KubernetesObject]] = frozenset()
    """Kinds that the cluster does not serve, of those that the reconciler can do without."""

    def get(self, ref: Ref[K]) -> K | None:
        """Return the object, or None if there is none."""
        return next(iter(self.all(ref)), None)

    def all(self, need: Ref[K] | Matching[K]) -> tuple[K, ...]:
        """Return the objects found for a need."""
        objects = self.found[need]
        return tuple(obj for obj in objects if isinstance(obj, need.kind))

    def view(self, view: View) -> ViewState:
        """Return what is known of a view that was named as a need."""
        return self.views[view]

    def checked(self, child: Child) -> ActionResult | None:
        """Return the answer to the `Check` of a child with this content; None if there is none yet."""
        return self.check_results.get(check_key(child))

    def owned(self, kind: type[K]) -> tuple[K, ...]:
        """Return the children of one kind."""
        return tuple(child for child in self.children if isinstance(child, kind))


class Decision(Struct, frozen=True):
    """What a reconciler decided. Status is written first, then events are recorded and actions executed."""

    status: Struct
    """The whole status. What must be remembered is the Record in its field `argosy`."""
    actions: tuple[Action, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    requeue_at: datetime | None = None
    may_wait: bool = False
    """In a burst the status may be written some seconds later, or with the next one: it only shows a step of
    something that is recorded elsewhere."""
    released: bool = False
    """Of an object that is being deleted: once the actions are done, nothing outside is left and the
    finalizer is removed. An `Exec` or a `Call` is not waited for."""


class Reconciler(Protocol[T_contra, R]):
    """Reconciles one kind."""

    @property
    def record(self) -> type[R] | None:
        """The type of `status.argosy`; None if the kind remembers nothing."""

    @property
    def owns(self) -> tuple[type[KubernetesObject], ...]:
        """The kinds of its children. A struct with metadata alone is watched as metadata alone."""

    @property
    def finalizer(self) -> str:
        """Set before the first action is executed; empty if nothing outlives the object."""

    def needs(self, obj: T_contra, record: R | None) -> Iterable[Need]:
        """Name the objects to look at."""

    def decide(self, obj: T_contra, record: R | None, inputs: Inputs, now: datetime) -> Decision:
        """Decide what to remember and what to do."""
