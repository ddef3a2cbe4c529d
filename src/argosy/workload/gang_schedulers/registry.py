"""Lists the gang schedulers by name, in the order in which `auto` looks for one that the cluster serves."""

from collections.abc import Collection, Mapping

from argosy.workload.gang_schedulers.base import GangScheduler
from argosy.workload.gang_schedulers.kubernetes import KUBERNETES
from argosy.workload.gang_schedulers.kueue import KUEUE
from argosy.workload.gang_schedulers.scheduler_plugins import SCHEDULER_PLUGINS
from argosy.workload.gang_schedulers.volcano import VOLCANO

AUTO, NONE = "auto", "none"

BUILTIN = GangScheduler(name="builtin", required_crd="", waits_for_admission=True)
"""The operator itself creates no pod until enough pods fit the free capacity at once (`workload.capacity`).

The pods are ordinary pods for any scheduler. Free capacity is not reserved: pods of others may take it in the
meantime. Other jobs of this operator do not.
"""

GANG_SCHEDULERS: Mapping[str, GangScheduler] = {
    scheduler.name: scheduler for scheduler in (VOLCANO, KUBERNETES, SCHEDULER_PLUGINS, KUEUE, BUILTIN)
}
CHOICES = (*GANG_SCHEDULERS, AUTO, NONE)
"""Values that an administrator can choose."""


def candidates(choice: str) -> tuple[GangScheduler, ...]:
    """Return the gang schedulers that may be used under this choice, the preferred one first."""
    if choice == AUTO:
        return tuple(GANG_SCHEDULERS.values())
    return (GANG_SCHEDULERS[choice],) if choice in GANG_SCHEDULERS else ()


def choose(choice: str, served: Collection[str]) -> str:
    """Return the name of the first candidate that the cluster serves; empty if there is none."""
    return next((scheduler.name for scheduler in candidates(choice) if scheduler.name in served), "")
