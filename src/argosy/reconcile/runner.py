"""Runs the reconciler of any kind without a Workload: scalers, SpotInstanceJobs, machines, pools, restores.

1. Take the object from the cache and decode its Record. A Record of a later operator is left alone.
2. Resolve the reconciler's needs from caches, and let it decide.
3. Set the finalizer, if the kind has one, before the first action.
4. Write the status, which holds the Record, at the resourceVersion that was observed. If that is rejected, or
   if the CRD drops the Record, nothing is executed.
5. Record events, start what runs in the background (see `background`) and execute the other actions.
6. Requeue at the earliest time that anything asked for.

An object that is being deleted is reconciled like any other until the reconciler says that it is released;
when the last actions are done, the finalizer is removed. Nothing is executed on a cached object that may lack
what an earlier leader wrote (see `term`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from argosy.engine.cache import Cache, Change
from argosy.engine.client import Client
from argosy.engine.clock import Clock
from argosy.engine.codec import Undecodable
from argosy.engine.controller import Requeue
from argosy.engine.dynamic import dynamic_kind
from argosy.engine.errors import NotFound
from argosy.engine.events import Recorder
from argosy.engine.objects import Key, key_of
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.resource import Resource
from argosy.plan.actions import Call, Exec
from argosy.plan.children import KubernetesObject, Owner
from argosy.plan.contract import Decision, Inputs, Reconciler, View
from argosy.plan.drivers import Driver
from argosy.plan.record import UnsupportedVersionError, decode_record
from argosy.reconcile.action_batch import ActionBatch
from argosy.reconcile.background import BackgroundCalls, background_actions
from argosy.reconcile.bursts import BurstDetectors
from argosy.reconcile.child_executor import ChildExecutor, Generator
from argosy.reconcile.compatibility import Compatibility
from argosy.reconcile.object_state import ObjectState
from argosy.reconcile.object_writer import CONFLICT_SECONDS, GivenUpError, ObjectWriter, T, raw_record
from argosy.reconcile.sources import Index, Kind, NeedIndex, Sources
from argosy.reconcile.term import Term
from argosy.reconcile.views import Views
from argosy.workload import reasons

SYNC_SECONDS = 0.1
"""Until the next reconcile while a cache is not filled yet."""

R = TypeVar("R", bound=Struct)
S = TypeVar("S", contravariant=True)


class DecisionObserver(Protocol[S]):
    """Counts what is decided about the objects of one kind, for metrics."""

    def decided(self, obj: S, decision: Decision) -> None:
        """Take note of a decision whose status was written; `obj` is as it was before."""

    def forget(self, key: Key) -> None:
        """Take note that an object is gone."""

    def clear(self) -> None:
        """Forget all objects: another replica leads from now on."""


class Queue(Protocol):
    """The part of a controller by which objects are queued."""

    def enqueue(self, key: Key, after: float = 0.0) -> None: ...
    def discard(self, key: Key) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ReconciledKind(Generic[T, R]):
    """Registers a kind without a Workload: its type, its reconciler, and what that uses."""

    kind: type[T]
    reconciler: Reconciler[T, R]
    needed: Mapping[Kind, Mapping[str, Index]] = field(default_factory=dict)
    """The kinds that a need may name, each with the indexes by which `Matching` finds their objects."""
    optional: frozenset[Kind] = frozenset()
    """Kinds without which it is reconciled all the same, while the cluster does not serve them."""
    on_demand: frozenset[Kind] = frozenset()
    """Needed kinds that are watched only once there is an object to reconcile, because there are many."""
    generators: Mapping[str, Generator] = field(default_factory=dict)
    """What adds random content to children that name it."""
    drivers: Mapping[str, Driver] = field(default_factory=dict)
    """What makes its calls and fetches its views; see `drivers`."""
    observer: DecisionObserver[T] | None = None


class Runner(Generic[T, R]):
    """Reconciles the objects of one kind."""

    def __init__(
        self,
        kind: ReconciledKind[T, R],
        objects: Cache[T],
        sources: Sources,
        client: Client,
        clock: Clock,
        recorder: Recorder,
        background: BackgroundCalls,
        views: Views,
    ) -> None:
        self._reconciler = kind.reconciler
        self._observer = kind.observer
        self._needed_kinds = tuple(kind.needed)
        self._optional, self._on_demand = kind.optional, kind.on_demand
        self._generators = kind.generators
        self._objects = objects
        self.caches = sources.declare(kind.reconciler.owns, kind.needed)
        """All caches that a reconcile reads besides that of the objects themselves."""
        self._sources = sources
        self._client = client
        self._clock = clock
        self._recorder = recorder
        self._background = background
        self._views = views
        self.is_served: Callable[[Resource], bool] = lambda _resource: True
        """Tells whether the cluster serves a kind, as far as that is known."""
        self._queue: Queue | None = None
        self._states: dict[Key, ObjectState] = {}
        self._needs = NeedIndex()
        self._undecodable: dict[Key, Undecodable] = {}
        self._term = Term(client, objects)
        self._compatibility = Compatibility(objects.kind.resource, clock, recorder)
        self._bursts = BurstDetectors()
        self._writer = ObjectWriter(client, clock, objects, self._compatibility)

    async def reconcile(self, key: Key) -> Requeue | None:
        if key in self._undecodable:
            self._report_undecodable(key)
            return None
        obj = self._objects.get(*key)
        if obj is None or self._is_released(obj.metadata):
            self._forget(key)
            return None
        state = self._state_of(key, obj)
        burst = self._bursts.for_namespace(key.namespace)
        burst.observe_job(state.uid, self._clock.monotonic())
        if seconds := self._compatibility.blocked_for(state.block):
            return Requeue(seconds)
        with burst:
            try:
                return await self._reconcile(key, obj, state)
            except GivenUpError as error:
                return error.requeue

    async def _reconcile(self, key: Key, obj: T, state: ObjectState) -> Requeue | None:
        record = self._record_of(obj, state)
        needs = tuple(self._reconciler.needs(obj, record))
        self._needs.replace(key, needs)
        unserved = self._unserved_kinds()
        if not all(cache.synced or cache.kind in unserved for cache in self.caches):
            return Requeue(SYNC_SECONDS)
        owner = Owner.from_object(obj)
        children = self._sources.children_of(owner, self._reconciler.owns)
        state.written.keep_only({child.metadata.uid for child in children})
        uid = obj.metadata.uid
        inputs = Inputs(
            children,
            {need: self._sources.find(need) for need in needs if not isinstance(need, View)},
            tuple(state.retries.failures.values()),
            dict(state.written.versions),
            self._background.exec_results(key, uid),
            self._background.call_results(key, uid),
            {need: self._views.state(key.namespace, need) for need in needs if isinstance(need, View)},
            dict(state.checks),
            unserved,
        )
        decision = self._reconciler.decide(obj, record, inputs, self._clock.now())
        written = await self._write(obj, decision, state)
        if self._observer is not None:
            self._observer.decided(obj, decision)
        for event in decision.events:
            self._recorder.event(written, event.type, event.reason, event.message)
        actions = [action for action in decision.actions if not isinstance(action, Exec | Call)]
        background = background_actions(decision.actions)
        self._background.update(key, uid, background, recorded=state.flush_at is None)
        executor = ChildExecutor(self._client, owner, state.written, self._put, self._generators)
        done = await ActionBatch(executor, state.retries, self._clock, state.checks).execute(actions)
        if done and decision.released and obj.metadata.deletion_timestamp is not None:
            await self._remove_finalizer(written)
            return None
        return self._next(decision, inputs, state)

    @property
    def required_caches(self) -> tuple[Cache[KubernetesObject], ...]:
        """The caches that must be filled before the first reconcile."""
        late = self._optional | self._on_demand
        return tuple(cache for cache in self.caches if cache.kind not in late)

    def _unserved_kinds(self) -> frozenset[Kind]:
        """Return the optional kinds that the cluster does not serve."""
        missing = (cache for cache in self.caches if cache.kind in self._optional and not cache.synced)
        return frozenset(
            cache.kind
            for cache in missing
            if not self.is_served(cache.kind.resource) or isinstance(cache.watcher.last_error, NotFound)
        )

    async def _write(self, obj: T, decision: Decision, state: ObjectState) -> T:
        """Write finalizer and status, and return the object; afterwards the actions may be executed."""
        meta, finalizer = obj.metadata, self._reconciler.finalizer
        current = obj
        if finalizer and finalizer not in meta.finalizers and decision.actions:
            current = await self._writer.write_finalizers(obj, [*meta.finalizers, finalizer])
        has_record = self._reconciler.record is not None
        in_burst = self._bursts.for_namespace(meta.namespace).in_burst(self._clock.monotonic())
        waits = in_burst or state.flush_at is not None
        written = await self._writer.write_status(
            current,
            decision.status,
            state,
            has_record=has_record,
            may_wait=decision.may_wait and waits,
        )
        if written is obj and decision.actions and not state.current:
            state.current = await self._term.confirm(obj)
            if not state.current:
                raise GivenUpError(Requeue(CONFLICT_SECONDS))  # decided on an old version
        return written

    async def _remove_finalizer(self, obj: T) -> None:
        finalizers = obj.metadata.finalizers
        left = [name for name in finalizers if name != self._reconciler.finalizer]
        await self._writer.write_finalizers(obj, left)

    def _next(self, decision: Decision, inputs: Inputs, state: ObjectState) -> Requeue | None:
        """Tell when to reconcile again though nothing changes."""
        results = tuple(state.retries.failures.values()), state.written.versions, state.checks
        if results != (inputs.failures, inputs.written, inputs.check_results):
            return Requeue(0.0)  # the reconciler has not seen these results yet
        monotonic = self._clock.monotonic()
        times = (state.flush_at, state.retries.next_retry_at())
        delays = [at - monotonic for at in times if at is not None]
        if decision.requeue_at is not None:
            delays.append((decision.requeue_at - self._clock.now()).total_seconds())
        return Requeue(max(min(delays), 0.0)) if delays else None

    def _is_released(self, meta: ObjectMeta) -> bool:
        """Return True if the object is being deleted and does not wait for us."""
        return meta.deletion_timestamp is not None and self._reconciler.finalizer not in meta.finalizers

    def _put(self, obj: KubernetesObject) -> None:
        """Take in an object that the API returned; that of the reconcile itself needs no other one."""
        if isinstance(obj, self._objects.kind):
            self._objects.put(obj, own=True)
        else:
            self._sources.put(obj)

    def _record_of(self, obj: T, state: ObjectState) -> R | None:
        kind = self._reconciler.record
        if kind is None:
            return None
        try:
            return decode_record(raw_record(obj.status), kind)
        except UnsupportedVersionError as error:
            requeue = self._compatibility.record_is_unsupported(obj, str(error), state.block)
            raise GivenUpError(requeue) from None

    def _state_of(self, key: Key, obj: T) -> ObjectState:
        state = self._states.get(key)
        if state is None or state.uid != obj.metadata.uid:
            state = self._states[key] = ObjectState(uid=obj.metadata.uid)
        state.use_generation(obj.metadata.generation)
        return state

    def _report_undecodable(self, key: Key) -> None:
        """Say by an event what is wrong with an object that does not fit its type; editing it cures it."""
        bad = self._undecodable[key]
        obj = dynamic_kind(self._objects.kind.resource)(bad.metadata, {})
        self._recorder.event(obj, "Warning", reasons.INVALID_SPEC, f"{bad.path}: {bad.problem}")

    def _forget(self, key: Key) -> None:
        self._states.pop(key, None)
        if self._observer is not None:
            self._observer.forget(key)
        self._background.forget(key)
        self._needs.replace(key, ())

    async def begin_term(self) -> None:
        """This replica leads from now on."""
        await self._term.begin()

    def end_term(self) -> None:
        """This replica leads no longer: forget what another leader may change."""
        self._states.clear()
        self._background.clear()
        if self._observer is not None:
            self._observer.clear()
        self._term.end()

    def on_crd_changed(self) -> list[Key]:
        """Unblock all objects; return those that were blocked because of the old CRD."""
        unblock = self._compatibility.unblock
        return [key for key, state in self._states.items() if unblock(state.block)]

    def subscribe(self, queue: Queue) -> None:
        """Queue an object whenever it, one of its children, or an object that it needs changes.

        Also when what it has started in the background is answered, or when a view that it needs changes.
        """
        self._background.on_answer(queue.enqueue)
        self._queue = queue
        self._views.subscribe(self)
        self._objects.subscribe(lambda change: self._object_changed(change, queue))
        self._objects.on_undecodable(lambda bad: self._undecodable_found(bad, queue))
        for kind in self._reconciler.owns:
            self._sources.children[kind].subscribe(lambda change: self._child_changed(change, queue))
        for kind in self._needed_kinds:
            self._sources.needed[kind].subscribe(lambda change: self._needed_changed(change, queue))

    def _object_changed(self, change: Change[T], queue: Queue) -> None:
        if change.new is not None:
            self._undecodable.pop(key_of(change.new), None)
            if not change.own:
                queue.enqueue(key_of(change.new))
        elif change.old is not None:
            self._forget(key_of(change.old))
            self._recorder.forget(change.old.metadata.uid)
            queue.discard(key_of(change.old))

    def _child_changed(self, change: Change[KubernetesObject], queue: Queue) -> None:
        for child in (change.old, change.new):
            meta = child.metadata if child is not None else None
            if meta is None or meta.controller is None:
                continue
            owner = self._objects.get(meta.namespace, meta.controller.name)
            if owner is not None and owner.metadata.uid == meta.controller.uid:
                queue.enqueue(key_of(owner))

    def _needed_changed(self, change: Change[KubernetesObject], queue: Queue) -> None:
        for key in self._needs.keys(self._sources.needs_met_by(change)):
            queue.enqueue(key)

    def needs_view(self, view: View, namespace: str) -> bool:
        return any(not namespace or key.namespace == namespace for key in self._needs.keys([view]))

    def view_changed(self, view: View, namespace: str) -> None:
        for key in self._needs.keys([view]):
            if self._queue is not None and (not namespace or key.namespace == namespace):
                self._queue.enqueue(key)

    def _undecodable_found(self, bad: Undecodable, queue: Queue) -> None:
        key = Key(bad.metadata.namespace, bad.metadata.name)
        if bad.deleted:
            self._undecodable.pop(key, None)
            self._forget(key)
            self._recorder.forget(bad.metadata.uid)
            queue.discard(key)
        else:
            self._undecodable[key] = bad
            queue.enqueue(key)
