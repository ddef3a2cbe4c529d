"""Reasons and texts of Events, and types and reasons of conditions, of pools of machines."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from argosy.capacity import reasons
from argosy.capacity.machine_plan import event
from argosy.kinds.text import join_names, pluralize
from argosy.plan.actions import EmitEvent
from argosy.workload import reasons as workload_reasons

# Types of conditions.
ACCEPTED: Final = workload_reasons.ACCEPTED
"""The spec is valid."""
READY: Final = reasons.READY
"""All machines are ready nodes. False: the reason is that of a machine's own condition, or one of these."""

# Reasons of Accepted; the first also of Events.
INVALID_SPEC: Final = workload_reasons.INVALID_SPEC
"""The spec is invalid, and nothing is changed until it is valid."""

# Reasons of Ready.
ALL_READY: Final = reasons.ALL_READY
"""All machines are ready nodes."""
PROVISIONING: Final = reasons.PROVISIONING
"""At least one machine is not a ready node yet."""
MACHINE_REJECTED: Final = "MachineRejected"
"""The API server does not accept another ProvisionedInstance, for example because of a quota."""
DELETING: Final = "Deleting"
"""The pool is being deleted, and its machines with it."""

# Reasons of Events.
MACHINE_REQUESTED: Final = "MachineRequested"
"""Machines are requested."""
MACHINE_LOST: Final = "MachineLost"
"""The end of a machine is announced, or it is lost or deleted; another one takes its place."""
MACHINE_DRAINING: Final = "MachineDraining"
"""Machines are not needed any more, or their notice was withdrawn. The message says until when pods may
stay."""
MACHINE_RELEASED: Final = "MachineReleased"
"""A machine is deleted."""
NAME_CONFLICT: Final = reasons.NAME_CONFLICT
"""A name is taken by another machine, node or object; another one is used."""


def requested(machines: Sequence[str]) -> EmitEvent:
    return event(MACHINE_REQUESTED, f"{_machines(machines)} requested")


def lost(machine: str, problem: str) -> EmitEvent:
    return event(MACHINE_LOST, f"{machine}: {problem}; another machine takes its place", warning=True)


def name_taken(machine: str) -> EmitEvent:
    text = f"{machine} is the name of another machine or object; another name is used"
    return event(NAME_CONFLICT, text, warning=True)


def draining(machines: Sequence[str], until: datetime) -> EmitEvent:
    verb = "is" if len(machines) == 1 else "are"
    text = f"{_machines(machines)} {verb} not needed any more; pods have until {until:%H:%M:%S} UTC to leave"
    return event(MACHINE_DRAINING, text)


def released(machine: str) -> EmitEvent:
    return event(MACHINE_RELEASED, f"machine {machine} released")


def _machines(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"machine {names[0]}"
    return f"{pluralize(len(names), 'machine')} ({join_names(names)})"
