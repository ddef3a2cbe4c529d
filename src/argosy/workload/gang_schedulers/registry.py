"""The back ends by name, in the order in which `auto` looks for one that the cluster serves."""

from collections.abc import Collection, Mapping

from argosy.workload.gang_schedulers.base import GangScheduler
from argosy.workload.gang_schedulers.kubernetes import KUBERNETES
from argosy.workload.gang_schedulers.kueue import KUEUE
from argosy.workload.gang_schedulers.own import BUILTIN
from argosy.workload.gang_schedulers.scheduler_plugins import SCHEDULER_PLUGINS
from argosy.workload.gang_schedulers.volcano import VOLCANO

AUTO, NONE = "auto", "none"

GANG_SCHEDULERS: Mapping[str, GangScheduler] = {
    one.name: one for one in (VOLCANO, KUBERNETES, SCHEDULER_PLUGINS, KUEUE, BUILTIN)
}
CHOICES = (*GANG_SCHEDULERS, AUTO, NONE)
"""What an administrator may choose."""


def candidates(choice: str) -> tuple[GangScheduler, ...]:
    """The back ends that may place gangs under this choice, the best first."""
    if choice == AUTO:
        return tuple(GANG_SCHEDULERS.values())
    return (GANG_SCHEDULERS[choice],) if choice in GANG_SCHEDULERS else ()


def choose(choice: str, served: Collection[str]) -> str:
    """The name of the first that the cluster serves; empty if none."""
    return next((one.name for one in candidates(choice) if one.name in served), "")
