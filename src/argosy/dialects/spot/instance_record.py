"""What must be remembered of a ProvisionedInstance."""

from datetime import datetime

from msgspec import Struct

from argosy.capacity.machine_record import MachineRecord
from argosy.plan.actions import SecretRef


class InstanceRecord(Struct, frozen=True, omit_defaults=True, rename="camel"):
    """The Record of a ProvisionedInstance."""

    version: int = 1
    machine: MachineRecord = MachineRecord()
    join_secret: str = ""
    """Name of the Secret with the join data, as the template says it; empty until the template was read."""
    credentials: SecretRef | None = None
    ever_ready: datetime | None = None
    """When the Node was ready for the first time."""
