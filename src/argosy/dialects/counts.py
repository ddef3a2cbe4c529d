"""Adjusts counts of pods for what every API's status shows."""

from msgspec.structs import replace

from argosy.workload.model import Phase
from argosy.workload.phases import Counts
from argosy.workload.record import Record


def fold_running_into_succeeded(counts: Counts, record: Record) -> Counts:
    """Count pods that still ran when their job succeeded as succeeded."""
    if record.phase is not Phase.SUCCEEDED:
        return counts
    return replace(counts, active=0, succeeded=counts.succeeded + counts.active)
