"""No other scheduler: the operator itself holds all pods back until enough of them fit the free room at once.

Whoever places them then sees ordinary pods. It is a look before the leap and no reservation: pods of others
may still come in between. Jobs of this operator do not; see `workload.room`.
"""

from argosy.workload.gang_schedulers.base import GangScheduler

BUILTIN = GangScheduler(name="own", required_crd="", waits_for_admission=True)
