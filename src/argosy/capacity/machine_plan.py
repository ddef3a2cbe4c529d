"""Defines the input and the output of one decision about a machine."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from argosy.capacity.catalog import Prices
from argosy.capacity.join import JoinPlan
from argosy.capacity.machine_record import (
    MAX_MESSAGE_CHARS,
    MachineRecord,
    MachineSpec,
    MachineState,
)
from argosy.capacity.provider import Identity, ObservedMachine, ObservedOperation, Provider, ZoneState
from argosy.capacity.settings import MachineSettings
from argosy.capacity.zones import ZonePolicy
from argosy.plan.actions import Call, CallResult, EmitEvent, SecretRef
from argosy.plan.contract import View, ViewState


class NodeFacts(Struct, frozen=True):
    """The Node that a machine has become."""

    name: str
    uid: str
    ready: bool
    silent: bool = False
    """It does not report any more."""
    gpus: int = 0
    """GPUs that pods may use."""
    pods_not_ready: tuple[str, ...] | None = ()
    """Pods of DaemonSets on it that are not ready; None if that is not known yet."""
    message: str = ""


NODE_PODS = "node-pods"
"""The driver that shows which pods of DaemonSets on a node are not ready; its scopes are names of nodes."""


class NodePods(Struct, frozen=True):
    """The value of such a view."""

    not_ready: tuple[str, ...] = ()


class NodeAnnouncement(Struct, frozen=True):
    """The end of a machine as its Node announces it."""

    source: str
    cause: str
    deadline: datetime | None
    seconds: float
    """From the first notice to the deadline, if none is announced."""

    def deadline_after(self, noticed: datetime) -> datetime:
        """Return until when the machine exists, if this was first seen at a time."""
        return self.deadline or noticed + timedelta(seconds=self.seconds)


class MachineFacts(Struct, frozen=True, kw_only=True):
    """What is known when it is decided about a machine."""

    name: str
    namespace: str
    """Of the object that the machine is made for."""
    identity: Identity
    now: datetime
    spec: MachineSpec | None = None
    """None: nothing new can be requested, because what describes it is missing or wrong."""
    join: JoinPlan | None = None
    """None: nothing new can be requested, because the join data is not complete."""
    own_token: bool = False
    """Whether the machine gets a bootstrap token of its own."""
    secrets: Mapping[str, SecretRef] = field(default_factory=dict)
    """Secrets that the creation needs besides the credentials."""
    credentials: SecretRef | None = None
    has_credentials: bool = True
    inputs_digest: str = ""
    """Changes whenever something has changed that may let a refused request succeed."""
    results: Mapping[str, CallResult] = field(default_factory=dict)
    zone: ViewState = ViewState()
    """The view of the recorded zone."""
    node: NodeFacts | None = None
    name_taken_by: str = ""
    """What else has the name of the machine, so that nobody could tell whose a Node of it is."""
    announcement: NodeAnnouncement | None = None
    """The end of the Node that somebody has announced there."""
    needs_gpus: int = 0
    """GPUs that the Node must offer before it is ready."""
    policy: ZonePolicy = ZonePolicy()
    offers: Mapping[str, Prices] = field(default_factory=dict)
    on_demand_after: int = 0
    """Failed spot machines after which one is bought on demand; 0: never."""
    deleting: bool = False
    abandon: bool = False
    """The machine is given up if it cannot be deleted."""


class MachinePlan(Struct, frozen=True, kw_only=True):
    """What was decided. The Record is written before any call is made."""

    record: MachineRecord
    calls: tuple[Call, ...] = ()
    events: tuple[EmitEvent, ...] = ()
    requeue_at: datetime | None = None

    @property
    def released(self) -> bool:
        """Return True if nothing of ours is left at the provider."""
        return not self.record.exists and not self.record.token_id


class Context(Struct, frozen=True):
    """One decision about a machine: its facts, and what all decisions share."""

    facts: MachineFacts
    provider: Provider
    settings: MachineSettings

    @property
    def now(self) -> datetime:
        return self.facts.now

    @property
    def uid(self) -> str:
        return self.facts.identity.uid

    def key(self, record: MachineRecord, verb: str) -> str:
        """Return the key of a call of this step."""
        return f"{verb}-{record.attempt}-{record.zone}-{record.tries}"

    def result(self, record: MachineRecord, verb: str) -> CallResult | None:
        return self.facts.results.get(self.key(record, verb))

    def call(
        self,
        record: MachineRecord,
        verb: str,
        request: Struct,
        secrets: Mapping[str, SecretRef] = {},
    ) -> Call:
        """Return the call of a request to the provider."""
        key = self.key(record, verb)
        return Call(key, self.provider.driver, request, record.credentials, dict(secrets))

    def plan(self, record: MachineRecord, *calls: Call, events: Iterable[EmitEvent] = ()) -> MachinePlan:
        """Return a plan that is requeued at the `retry_at` of the Record."""
        requeue_at = record.retry_at if self.waits(record) else None
        return MachinePlan(record=record, calls=calls, events=tuple(events), requeue_at=requeue_at)

    def waits(self, record: MachineRecord) -> bool:
        """Return True if nothing may be requested yet."""
        return record.retry_at is not None and record.retry_at > self.now

    def machine(self, record: MachineRecord) -> ObservedMachine | None:
        """Return the machine as the view shows it."""
        return self._zone(record).machines.get(record.name)

    def operations(self, record: MachineRecord) -> tuple[ObservedOperation, ...]:
        """Return what was done to the machine since it was requested, the oldest first."""
        since = record.requested_at - CLOCK_SKEW if record.requested_at else None
        operations = self._zone(record).operations.get(record.name, ())
        return tuple(item for item in operations if since is None or item.at is None or item.at >= since)

    def is_fresh(self, since: datetime | None) -> bool:
        """Return True if the view was fetched after this time, so that it shows what was done before."""
        at = self.facts.zone.at
        return at is not None and not self.facts.zone.problem and (since is None or at >= since)

    def _zone(self, record: MachineRecord) -> ZoneState:
        value = self.facts.zone.value
        if not isinstance(value, ZoneState) or not self.is_fresh(record.requested_at):
            return ZoneState()
        return value

    def retry(self, record: MachineRecord, reason: str, message: str) -> MachineRecord:
        """Return the Record after a request that is to be repeated after a growing time."""
        return replace(
            record,
            tries=record.tries + 1,
            retry_at=self.now + self.settings.backoff(record.tries),
            reason=reason,
            message=cut(message),
        )


CLOCK_SKEW = timedelta(seconds=60)
"""How much the clocks of the provider and of the operator may differ."""


def machine_view(provider: Provider, record: MachineRecord, settings: MachineSettings) -> View | None:
    """Return the view that shows the machine; None if nothing of it can be outside."""
    if not record.zone or not (record.exists or record.state is MachineState.REQUESTED):
        return None
    settled = record.state in (MachineState.READY, MachineState.LOST)
    seconds = settings.poll_seconds if settled else min(settings.poll_seconds, settings.busy_poll_seconds)
    return View(provider.driver, provider.scope(record), seconds, record.credentials)


def cut(message: str) -> str:
    """Return a message of a provider, which may be long and may have several lines."""
    return " ".join(message.split())[:MAX_MESSAGE_CHARS]


def event(reason: str, message: str, *, warning: bool = False) -> EmitEvent:
    return EmitEvent("Warning" if warning else "Normal", reason, message)
