"""A small kind that is not a job, with its reconciler, to test what the runner does for every reconciler.

A Toy owns a ConfigMap with its message and a Secret with a generated key; changes by others are reverted. It
adds an entry to a registry, a ConfigMap that it does not own, and a finalizer makes sure that the entry is
removed again. Its Record contains the registry and the number of times that the message has changed.

If it names a pod, each new message is announced there by a command, and the Record contains the answers. If
it names a counter, each new message is counted by a service outside of Kubernetes, and the status has the
total.
"""

import secrets
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from argosy.kinds.crd_options import PRESERVE_UNKNOWN_FIELDS, CrdOptions
from argosy.kinds.kubernetes import ConfigMap, Pod, SecretMetadata
from argosy.kinds.meta import Json, ObjectMeta
from argosy.kinds.resource import Resource
from argosy.plan.actions import Action, Call, EmitEvent, Exec, Patch, SecretRef
from argosy.plan.children import Child, KubernetesObject
from argosy.plan.contract import Decision, Inputs, Matching, Need, Ref, View
from argosy.plan.diff import changes
from argosy.plan.drivers import Driver
from argosy.reconcile.runner import ReconciledKind
from tests.support.counter import Increment, Total

FINALIZER = "example.com/registry"
PART_OF = "example.com/toy"
"""Label of ConfigMaps, not owned, whose names a Toy lists in its settings."""


class ToySpec(Struct, frozen=True):
    message: str = ""
    registry: str = "registry"
    pod: str = ""
    """Where messages are announced; empty: nowhere."""
    counter: str = ""
    """What counts messages; empty: nothing."""
    counter_namespace: str = ""
    """Where the Secret with the password of the counters is; empty: here."""


class ToyStatus(Struct, frozen=True, rename="camel"):
    phase: str = ""
    message: str = ""
    observed_generation: int = 0
    count: int | None = None
    """The total of the counter."""
    counter_problem: str = ""
    argosy: Annotated[Json, Meta(extra_json_schema={PRESERVE_UNKNOWN_FIELDS: True})] = field(
        default_factory=dict
    )


class Toy(Struct):
    resource: ClassVar[Resource] = Resource("example.com", "v1", "Toy", "toys")
    crd_options: ClassVar[CrdOptions] = CrdOptions()

    metadata: ObjectMeta
    spec: ToySpec = field(default_factory=ToySpec)
    status: ToyStatus = field(default_factory=ToyStatus)


def derive_kind(name: str) -> type[Toy]:
    """Return a kind of this name, in lower case, that is like Toy."""
    resource = Resource("example.com", "v1", name.capitalize(), f"{name}s")
    kind = msgspec.defstruct(name, [], bases=(Toy,), namespace={"resource": resource})
    assert issubclass(kind, Toy)
    return kind


class ToyRecord(Struct, frozen=True, omit_defaults=True):
    registry: str = ""
    """The ConfigMap that may have an entry of the Toy; recorded before the entry is made."""
    message: str = ""
    messages: int = 0
    """The number of times that the message has changed."""
    answers: list[str] = field(default_factory=list)
    """Keys of commands whose answer was received, each time that it was."""
    counted: list[str] = field(default_factory=list)
    """The same for calls."""
    version: int = 1


class ToyReconciler:
    record = ToyRecord
    owns: tuple[type[KubernetesObject], ...] = (ConfigMap, SecretMetadata)
    finalizer = FINALIZER

    def needs(self, obj: Toy, record: ToyRecord | None) -> Iterable[Need]:
        namespace = obj.metadata.namespace
        yield Ref(ConfigMap, obj.spec.registry, namespace)
        if record is not None and record.registry:
            yield Ref(ConfigMap, record.registry, namespace)
        if obj.spec.pod:
            yield Ref(Pod, obj.spec.pod, namespace)
        yield _parts(obj)
        if obj.spec.counter:
            yield _counter_view(obj)

    def decide(self, obj: Toy, record: ToyRecord | None, inputs: Inputs, now: datetime) -> Decision:
        meta, record = obj.metadata, record or ToyRecord()
        if meta.deletion_timestamp is not None:
            status = _status(obj, "Releasing", "", record)
            return Decision(status, _leave(obj, record, inputs), released=True)
        leave = _leave(obj, record, inputs) if record.registry != obj.spec.registry else ()
        if leave:
            return Decision(_status(obj, "Pending", "leaving the old registry", record), leave)
        if record.messages == 0 or record.message != obj.spec.message:
            record = replace(record, message=obj.spec.message, messages=record.messages + 1)
        record = replace(record, registry=obj.spec.registry)
        record, announcements, requeue_at = _announce(obj, record, inputs, now)
        record, calls, problem, retry_at = _count(obj, record, inputs, now)
        requeue_at = requeue_at or retry_at
        execs: tuple[Action, ...] = (*announcements, *calls)
        wanted = changes(_children(obj, inputs), inputs, prune=True, drift=True)
        registry = inputs.get(Ref(ConfigMap, obj.spec.registry, meta.namespace))
        if registry is None:
            status = _status(obj, "Pending", f"no ConfigMap {obj.spec.registry}", record, inputs, problem)
            return Decision(status, (*wanted, *execs), requeue_at=requeue_at)
        entered = registry.data.get(meta.name) == meta.uid
        enter = () if entered else (_patch(registry, {meta.name: meta.uid}),)
        is_announced = not obj.spec.pod or announcement(record) in record.answers
        is_announced &= not obj.spec.counter or count_key(record) in record.counted
        complete = entered and not wanted and len(inputs.children) == len(self.owns) and is_announced
        phase = "Ready" if complete else "Pending"
        message = "; ".join(failure.message for failure in inputs.failures)
        became_ready = phase == "Ready" != obj.status.phase
        events = (EmitEvent("Normal", "Ready", "everything exists"),) if became_ready else ()
        actions = (*wanted, *enter, *execs)
        status = _status(obj, phase, message, record, inputs, problem)
        return Decision(status, actions, events, requeue_at)


def announcement(record: ToyRecord) -> str:
    """Return the key of the command that announces the current message."""
    return f"announcement-{record.messages}"


def count_key(record: ToyRecord) -> str:
    """Return the key of the call that counts the current message."""
    return f"count-{record.messages}"


def _counter_view(obj: Toy) -> View:
    return View("counter", obj.spec.counter, 0.1, _password(obj))


def _password(obj: Toy) -> SecretRef:
    return SecretRef("counter", obj.spec.counter_namespace)


def _count(
    obj: Toy, record: ToyRecord, inputs: Inputs, now: datetime
) -> tuple[ToyRecord, tuple[Call, ...], str, datetime | None]:
    """Record the answers, and return the call that counts the current message if that has none."""
    key = count_key(record)
    answer = inputs.call_results.get(key)
    if answer is not None and answer.value is not None:
        record = replace(record, counted=[*record.counted, key])
    if not obj.spec.counter or key in record.counted:
        return record, (), "", None
    if answer is not None:
        return record, (), f"{answer.status}: {answer.message}", now + timedelta(seconds=0.1)
    request = Increment(obj.spec.counter, f"{obj.metadata.uid}/{key}")
    return record, (Call(key, "counter", request, _password(obj)),), obj.status.counter_problem, None


def _announce(
    obj: Toy, record: ToyRecord, inputs: Inputs, now: datetime
) -> tuple[ToyRecord, tuple[Exec, ...], datetime | None]:
    """Record the answers, and return the command that announces the current message if that has none.

    A failed one is left out of one decision, so that it is run again.
    """
    key = announcement(record)
    answer = inputs.exec_results.get(key)
    if answer is not None and answer.exit_code == 0:
        record = replace(record, answers=[*record.answers, key])
    pod = inputs.get(Ref(Pod, obj.spec.pod, obj.metadata.namespace)) if obj.spec.pod else None
    if pod is None or key in record.answers:
        return record, (), None
    if answer is not None:
        return record, (), now + timedelta(seconds=0.1)
    script = ANNOUNCE.replace("KEY", key)
    meta = pod.metadata
    return record, (Exec(key, meta.name, meta.uid, "main", ("sh", "-c", script)),), None


ANNOUNCE = """
echo KEY >> /tmp/started
if mkdir /tmp/KEY 2> /dev/null; then
    echo KEY >> /tmp/announced
fi
"""
"""A command that is safe to repeat: of all that run, also at the same time, one creates the folder."""


def toys_by_part(obj: KubernetesObject) -> Iterable[str]:
    """The index by which a Toy finds its parts."""
    meta = obj.metadata
    return (f"{meta.namespace}/{meta.labels[PART_OF]}",) if PART_OF in meta.labels else ()


def random_key() -> Json:
    """The generator of the Secret."""
    return {"stringData": {"key": secrets.token_hex(16)}}


def reconciled_toy(
    kind: type[Toy] = Toy, drivers: Mapping[str, Driver] = {}
) -> ReconciledKind[Toy, ToyRecord]:
    """Return what registers Toys, or a kind derived from them."""
    return ReconciledKind(
        kind=kind,
        reconciler=ToyReconciler(),
        needed={ConfigMap: {"toy": toys_by_part}, Pod: {}},
        generators={"random": random_key},
        drivers=drivers,
    )


def _parts(obj: Toy) -> Matching[ConfigMap]:
    return Matching(ConfigMap, "toy", f"{obj.metadata.namespace}/{obj.metadata.name}")


def _children(obj: Toy, inputs: Inputs) -> tuple[Child, ...]:
    name = obj.metadata.name
    data = {"message": obj.spec.message} if obj.spec.message else {}
    if parts := sorted(part.metadata.name for part in inputs.all(_parts(obj))):
        data["parts"] = ",".join(parts)
    return (
        Child(SecretMetadata, f"{name}-key", {"immutable": True}, generator="random"),
        Child(ConfigMap, f"{name}-settings", {"data": data}, stage=1),
    )


def _leave(obj: Toy, record: ToyRecord, inputs: Inputs) -> tuple[Action, ...]:
    """Remove the entry from the recorded registry, if that still exists."""
    if not record.registry:
        return ()
    registry = inputs.get(Ref(ConfigMap, record.registry, obj.metadata.namespace))
    name = obj.metadata.name
    if registry is None or (name not in registry.data and obj.metadata.deletion_timestamp is None):
        return ()
    return (_patch(registry, {name: None}),)


def _patch(registry: ConfigMap, data: dict[str, str | None]) -> Patch:
    meta = registry.metadata
    return Patch(ConfigMap, meta.name, meta.namespace, meta.uid, {"data": data})


def _status(
    obj: Toy,
    phase: str,
    message: str,
    record: ToyRecord,
    inputs: Inputs | None = None,
    problem: str = "",
) -> ToyStatus:
    view = inputs.view(_counter_view(obj)) if inputs and obj.spec.counter else None
    count = view.value.count if view and isinstance(view.value, Total) else None
    problem = problem or (view.problem if view else "")
    generation = obj.metadata.generation
    return ToyStatus(phase, message, generation, count, problem, msgspec.to_builtins(record))
