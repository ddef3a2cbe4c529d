"""Defines the interface of providers: the machines and operations that they show, and their requests.

A provider is pure: it makes requests from recorded values, and a driver sends them. Drivers translate the
answers of a cloud to the structs of this module.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct, field

from argosy.capacity.join import JoinPlan
from argosy.capacity.machine_record import MachineRecord, MachineSpec
from argosy.plan.contract import View


class Presence(StrEnum):
    """What the status of a machine at its provider means."""

    PENDING = "Pending"
    """It is being created, or its status is one that this operator does not know."""
    RUNNING = "Running"
    NOTICED = "Noticed"
    """It runs, and its end is announced."""
    SUSPENDED = "Suspended"
    """It does not run now, and may come back."""
    LOST = "Lost"
    """It is stopping or has stopped."""


class ObservedMachine(Struct, frozen=True):
    """A machine as its provider shows it."""

    name: str
    status: str
    """As the provider calls it."""
    presence: Presence
    id: str = ""
    zone: str = ""
    internal_ip: str = ""
    external_ip: str = ""
    created: datetime | None = None
    uid: str = ""
    """The uid of the object that it was made for, from its label."""
    cluster: str = ""
    """The uid of the cluster that it was made for, from its label."""
    is_stopped: bool = False
    """It has stopped for good but is not deleted, so that for example its disk still costs something."""


class OperationKind(StrEnum):
    """What was done to a machine, by us, by somebody else or by the provider."""

    INSERT = "Insert"
    DELETE = "Delete"
    STOP = "Stop"
    PREEMPTED = "Preempted"
    HOST_ERROR = "HostError"
    MAINTENANCE = "Maintenance"
    OTHER = "Other"


class ObservedOperation(Struct, frozen=True):
    """Something that was done to a machine, or is being done."""

    id: str
    kind: OperationKind
    machine: str
    """The name of the machine."""
    request_id: str = ""
    """The id that the request had; empty if the provider has started the operation."""
    done: bool = False
    code: str = ""
    """Why it failed; empty if it did not."""
    message: str = ""
    at: datetime | None = None
    """When it was requested or began."""


class ZoneState(Struct, frozen=True):
    """The value of a view of a zone: our machines there, and what was done to them lately."""

    machines: Mapping[str, ObservedMachine] = field(default_factory=dict)
    """By name."""
    operations: Mapping[str, tuple[ObservedOperation, ...]] = field(default_factory=dict)
    """By the name of the machine, the oldest first."""


class ClusterIdentity(Struct, frozen=True):
    """The value of the view of the cluster: its uid distinguishes its machines from those of others."""

    uid: str


CLUSTER_VIEW: Final = View("cluster", "", 3600.0)
"""The uid of a cluster is that of its namespace kube-system, which never changes."""


class Identity(Struct, frozen=True):
    """Whose machine it is, for its labels."""

    uid: str
    """The uid of the object that it is made for."""
    cluster: str = ""
    """The uid of the cluster."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the machine gets besides these."""


class Provider(Protocol):
    """Translates between machines and the requests of one cloud. All methods are pure."""

    @property
    def driver(self) -> str:
        """The name of the driver that sends its requests."""

    def scope(self, record: MachineRecord) -> str:
        """Return the scope of the view that shows the machine, as a `ZoneState`."""

    def find(self, record: MachineRecord) -> Struct:
        """Return the request that gets this machine by its name; its answer is an `ObservedMachine`."""

    def create(self, record: MachineRecord, spec: MachineSpec, identity: Identity, join: JoinPlan) -> Struct:
        """Return the request that creates the recorded machine; its answer is an `ObservedOperation`."""

    def delete(self, record: MachineRecord, uid: str) -> Struct:
        """Return the request that deletes the recorded machine; its answer is an `ObservedOperation`.

        `uid` is that of the machine's object; the id of the request is made from it.
        """


# Codes of refusals, the same for all providers.
NOT_FOUND = "NOT_FOUND"
ALREADY_EXISTS = "ALREADY_EXISTS"
PERMISSION_DENIED = "PERMISSION_DENIED"
INVALID_REQUEST = "INVALID_REQUEST"
INVALID_CREDENTIALS = "INVALID_CREDENTIALS"
JOIN_DATA_MISSING = "JOIN_DATA_MISSING"
