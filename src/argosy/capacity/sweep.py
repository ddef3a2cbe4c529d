"""Which machines at a provider belong to nobody any more.

A machine is deleted that carries the labels of this cluster and of an object that does not exist, and that is
older than ten minutes. All others are left alone: those of other clusters, and those without our labels.
"""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Final

from argosy.capacity.machine_record import MachineRecord, MachineState
from argosy.capacity.provider import ObservedMachine, ZoneState
from argosy.plan.actions import SecretRef

SWEEP_SECONDS: Final = 600.0
"""Time between two sweeps."""

MIN_AGE: Final = timedelta(minutes=10)
"""A younger machine may belong to an object that is not in the cache yet."""


def find_orphans(
    zone: ZoneState, uids: Collection[str], cluster: str, now: datetime
) -> tuple[ObservedMachine, ...]:
    """Return the machines of a zone whose objects do not exist; `uids` are those that do."""
    return tuple(
        machine
        for name, machine in sorted(zone.machines.items())
        if cluster
        and machine.cluster == cluster
        and machine.uid
        and machine.uid not in uids
        and machine.created is not None
        and now - machine.created >= MIN_AGE
    )


def orphan_record(
    machine: ObservedMachine, project: str, zone: str, credentials: SecretRef | None
) -> MachineRecord:
    """Return the Record by which a machine is deleted that has none."""
    return MachineRecord(
        state=MachineState.DELETING, name=machine.name, project=project, zone=zone, credentials=credentials
    )
