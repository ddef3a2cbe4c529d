"""Defines `Operation`, the recorded state of a scale operation: what is added or removed, and how far it is.

A job has one operation under way at a time. What it adds or removes is chosen once and recorded before
anything is done, so that an operator that is killed at any point continues with the same replicas. A finished
operation stays in the Record until the object that asked for it shows the result.
"""

from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from argosy.workload.index_set import IndexSet

MAX_OPERATIONS = 8
"""Operations in a Record; no other one is begun before a finished one is shown."""


class ScaleStep(StrEnum):
    """How far an operation is."""

    PICKED = "Picked"
    """The replicas to remove are chosen; waits until the request shows them, and then for a checkpoint if the
    job keeps any."""
    ADDING = "Adding"
    """The replicas to add are chosen; waits until the request shows them, then until all new pods run and can
    be attached."""
    RUNNING_SCRIPT = "RunningScript"
    """Waits for the script that updates the hosts instead of the host list."""
    DRAINING = "Draining"
    """The replicas are out of the host list; waits until the launcher has left them."""
    REMOVING = "Removing"
    """Waits until the removed pods are gone."""
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Operation(Struct, frozen=True, omit_defaults=True, rename="camel", dict=True):
    """A scale operation of one role."""

    id: str
    """The uid of the request; `replicas@GENERATION` for a changed number of replicas in the spec."""
    kind: Literal["Out", "In"]
    role: str
    started_at: datetime
    name: str = ""
    """Name of the object that asked for it; empty for a changed number of replicas."""
    indexes: str = ""
    """The chosen indexes, as an encoded `IndexSet`."""
    step: ScaleStep = ScaleStep.PICKED
    step_since: datetime | None = None
    failed_tries: int = 0
    """How often the script has failed."""
    script_done: bool = False
    """The hosts were updated, by the host list or by the script."""
    epoch: int = 0
    """The order to save a checkpoint before replicas are removed; 0: none."""
    drain_timed_out: bool = False
    message: str = ""
    """Why it failed."""

    @property
    def finished(self) -> bool:
        return self.step in (ScaleStep.SUCCEEDED, ScaleStep.FAILED)

    @cached_property
    def index_set(self) -> IndexSet:
        return IndexSet.decode(self.indexes)

    def at(self, step: ScaleStep, now: datetime, message: str = "") -> "Operation":
        """Return the operation at another step."""
        return replace(self, step=step, step_since=now, message=message)
