"""Finds machines that were made for objects which do not exist any more, so that they can be deleted.

A machine is one if it has the labels of this cluster and of an object that does not exist, and is older than
`MIN_AGE`. Machines of other clusters, and those without our labels, are left alone.
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
    """Return the machines of a zone whose objects do not exist; `uids` are those of objects that do."""
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
    """Return a Record from which an orphaned machine is deleted: that of its object is gone."""
    return MachineRecord(
        state=MachineState.DELETING, name=machine.name, project=project, zone=zone, credentials=credentials
    )
