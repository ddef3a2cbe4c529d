"""The checks behind `/healthz` and `/readyz`: caches, lease, workers.

An unavailable API server makes a replica unready but not unhealthy: its caches age, and a restart would lose
even those. A replica is unhealthy only if a restart helps: controllers that run without the lease, and
reconciles that do not end. How long a job waits for a worker is not checked: the cluster may simply have much
to do, and a restart would repeat all of it.
"""

from math import inf

from argosy.engine.leader import Leader
from argosy.operator.health import Check, CheckResult
from argosy.operator.manager import DRAIN_SECONDS, Manager

MAX_CACHE_AGE_SECONDS = 300.0
"""Seconds without an event of a watch, which the server sends at least every minute, after which the cache
counts as out of date."""
MAX_LEASE_AGE_SECONDS = 30.0
"""Seconds without a successful read of the lease, which is read every two, after which the leader is
unknown."""
MAX_STALL_SECONDS = 300.0
"""Seconds for which keys may be queued while no reconcile starts or ends, before workers count as stuck."""
MAX_RECONCILE_SECONDS = 1800.0
"""Seconds that a single reconcile may take. Its requests time out after 30 s and it creates pods for a minute
at a time, but it may have to wait for the deletion of very many."""
MAX_LEASE_OVERRUN_SECONDS = DRAIN_SECONDS + 20.0
"""Seconds that controllers may run after the lease was lost; running reconciles may use a part of them."""


def live_checks(serving: Manager, leader: Leader | None) -> tuple[Check, ...]:
    checks = (Check("workers", lambda: _workers(serving)),)
    return checks if leader is None else (*checks, Check("lease", lambda: _lease_overrun(leader)))


def ready_checks(serving: Manager, leader: Leader | None) -> tuple[Check, ...]:
    return (Check("caches", lambda: _caches(serving)), Check("lease", lambda: _lease(leader)))


def _workers(serving: Manager) -> CheckResult:
    stalled, longest = serving.stalled, serving.longest_running
    if stalled > MAX_STALL_SECONDS:
        return CheckResult(False, f"jobs are queued, but no reconcile started or ended for {stalled:.0f} s")
    if longest > MAX_RECONCILE_SECONDS:
        return CheckResult(False, f"a reconcile has been running for {longest:.0f} s")
    return CheckResult(True, f"ok; longest running reconcile: {longest:.0f} s")


def _lease_overrun(leader: Leader) -> CheckResult:
    if leader.lease_overrun > MAX_LEASE_OVERRUN_SECONDS:
        overrun = f"{leader.lease_overrun:.0f} s"
        return CheckResult(False, f"controllers still run {overrun} after the lease was lost")
    return CheckResult(True, "leading" if leader.is_leader else "not leading")


def _caches(serving: Manager) -> CheckResult:
    if missing := serving.not_ready():
        return CheckResult(False, missing)
    kind, age = serving.oldest_cache()
    if age > MAX_CACHE_AGE_SECONDS:
        return CheckResult(False, f"no event of {kind} for {age:.0f} s")
    return CheckResult(True, f"synced; last event {age:.0f} s ago")


def _lease(leader: Leader | None) -> CheckResult:
    if leader is None:
        return CheckResult(True, "leader election is off")
    if leader.is_leader:
        return CheckResult(True, "leading")
    why = f": {leader.last_error}" if leader.last_error else ""
    if leader.seconds_since_contact == inf:
        return CheckResult(False, f"not read yet{why}")
    if leader.seconds_since_contact > MAX_LEASE_AGE_SECONDS:
        return CheckResult(False, f"not read for {leader.seconds_since_contact:.0f} s{why}")
    return CheckResult(True, f"standby; leader is {leader.holder or 'nobody'}")
