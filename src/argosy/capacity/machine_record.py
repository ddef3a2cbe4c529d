"""Defines the Record of a machine: enough to find it and to delete it without the object that asked for it.

The Record is written before each request, with the exact name, project, zone and request id. So after a crash
the same request is sent again, or the machine is found by its name; and no machine exists that no Record
names.
"""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid5

import msgspec
from msgspec import Struct, field

from argosy.plan.actions import SecretRef

REQUEST_NAMESPACE = UUID("6f2a1c1e-7c55-4c0b-9f0e-3a4c0f2f8a51")
"""Request ids are made in this namespace."""

MAX_MESSAGE_CHARS = 512
"""Longer messages of a provider are cut."""


class MachineState(StrEnum):
    """How far a machine has come."""

    WANTED = "Wanted"
    """Nothing of this attempt exists at the provider."""
    REQUESTED = "Requested"
    """Its creation is recorded; it exists only if that may have been sent."""
    RUNNING = "Running"
    """It exists at its provider, and is not a node yet."""
    JOINED = "Joined"
    """There is a Node of it."""
    READY = "Ready"
    """Jobs may run on it."""
    LOST = "Lost"
    """The provider has stopped it or is stopping it. What is left of it is deleted."""
    DELETING = "Deleting"
    """It is being deleted by us."""
    FAILED = "Failed"
    """It could not be created, and another try would not help. Nothing exists at the provider."""
    DELETED = "Deleted"
    """Nothing exists at the provider any more, and nothing is created again."""


class Cooldown(Struct, frozen=True, omit_defaults=True):
    """A zone, or a whole region, that is not tried again before a time."""

    scope: str
    until: datetime
    is_region: bool = False


class MachineNotice(Struct, frozen=True, omit_defaults=True):
    """The announced or observed loss of a machine: who reported it first, and why it is lost."""

    source: str
    at: datetime
    deadline: datetime
    cause: str
    on_node: bool = False
    """Whether only the Node announces it: it is then changed and withdrawn there."""


class MachineRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The Record of one machine."""

    version: int = 1
    state: MachineState = MachineState.WANTED
    provider: str = ""
    name: str = ""
    project: str = ""
    zone: str = ""
    attempt: int = 0
    """The number of the creation that is recorded; 0 before the first."""
    spot: bool = True
    """Whether this attempt asks for a spot machine."""
    digest: str = ""
    """Of the specification that this attempt asks for."""
    price: str = ""
    """In $ per hour; empty if it is unknown."""
    on_demand_price: str = ""
    """What the same machine costs on demand."""
    requested_at: datetime | None = None
    """When this attempt was recorded."""
    sent: bool = False
    """Whether the creation may have been sent: recorded before it is, and taken back when it was refused."""
    confirmed: bool = False
    """Whether the provider has shown that the creation had an effect."""
    running_at: datetime | None = None
    tries: int = 0
    """Requests of the present step that failed or are to be repeated."""
    retry_at: datetime | None = None
    """Nothing is requested before."""
    token_id: str = ""
    """The bootstrap token that was made for this attempt and has to be deleted."""
    join_attempts: int = 0
    """Machines that were deleted because they did not become ready in time."""
    spot_failures: int = 0
    """Spot machines that could not be had or did not become ready."""
    refusals: int = 0
    """Creations that were refused, ever."""
    refusal: str = ""
    """The code of the last refusal."""
    no_capacity: int = 0
    """Times in a row that no zone was left."""
    cooldowns: tuple[Cooldown, ...] = ()
    node_uid: str = ""
    """The Node that the machine has become."""
    node: str = ""
    joined_at: datetime | None = None
    silent_since: datetime | None = None
    """Since when its Node has not reported."""
    deletion_reason: str = ""
    """Why it is being deleted."""
    deleting_since: datetime | None = None
    reason: str = ""
    """What it waits for, or why it failed: one word of the conditions."""
    message: str = ""
    blocked_by: str = ""
    """Digest of what was tried, if only a change of it makes sense of another try."""
    notice: MachineNotice | None = None
    credentials: SecretRef | None = None
    """With which the machine was requested, so that it can be deleted with them."""

    @property
    def exists(self) -> bool:
        """Return True if there may be a machine at the provider."""
        if self.state is MachineState.REQUESTED:
            return self.sent
        return self.state not in (MachineState.WANTED, MachineState.FAILED, MachineState.DELETED)

    def request_id(self, uid: str, verb: str = "") -> str:
        """Return the id of a request, the same for each repetition of it."""
        parts = [uid, str(self.attempt), self.zone, *([f"{verb}/{self.tries}"] if verb else [])]
        return str(uuid5(REQUEST_NAMESPACE, "/".join(parts)))


class Gpu(Struct, frozen=True):
    type: str
    count: int


class MachineSpec(Struct, frozen=True, kw_only=True):
    """What machine is wanted, wherever it may be had."""

    project: str
    zone: str
    """The first choice."""
    machine_type: str
    image: str
    gpu: Gpu | None = None
    disk_size_gb: int = 100
    disk_type: str = "pd-standard"
    network_tags: tuple[str, ...] = ()
    service_account: str = ""
    external_ip: bool = True
    startup_script: str = ""
    spot: bool = True
    fallback_zones: tuple[str, ...] | None = None
    """None: all zones of the region that the catalog knows to offer it."""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Return what the specification is compared by."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:16]


def region_of(zone: str) -> str:
    """Return the region of a zone: its name without the last part."""
    return zone.rpartition("-")[0]
