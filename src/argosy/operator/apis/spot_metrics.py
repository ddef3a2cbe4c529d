"""Metrics of SpotInstanceJobs and of the VMs that are bought, from what is decided about them.

They are counted when a status is written, so that each preemption, recovery and checkpoint counts once,
also if the operator is killed. Only the leader decides, so sums over all replicas are correct. No label
depends on what users or the cloud may invent: what is not known counts as `Other`.
"""

from collections import Counter as Tally
from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from argosy.capacity.reactions import REACTIONS, TRANSIENT_CODES
from argosy.dialects.spot import losses, reasons
from argosy.engine.objects import Key, key_of
from argosy.kinds.spot import RecoveryStatus, SpotInstanceJob, SpotInstanceJobStatus
from argosy.kinds.spot_machines import ProvisionedInstance, ProvisionedInstanceStatus
from argosy.kinds.usage_status import ACTIVITIES, UsageStatus
from argosy.operator.job_metrics import UsageMetrics
from argosy.plan.contract import Decision
from argosy.workload.capacity import parse_hourly_price

OTHER: Final = "Other"
CAUSES: Final = frozenset(
    {
        *(losses.PREEMPTED, losses.MAINTENANCE, losses.HOST_ERROR),
        *(losses.USER_STOPPED, losses.NOT_FOUND, losses.UNKNOWN),
    }
)
STATES: Final = frozenset(
    {
        *("PROVISIONING", "STAGING", "RUNNING", "PENDING", "PENDING_STOP", "STOPPING", "STOPPED"),
        *("SUSPENDING", "SUSPENDED", "REPAIRING", "DEPROVISIONING", "TERMINATED"),
    }
)
CODES: Final = TRANSIENT_CODES | REACTIONS.keys()
CHECKPOINT_RESULTS: Final[Mapping[str, str]] = {
    reasons.CHECKPOINT_COMPLETED: "completed",
    reasons.CHECKPOINT_FAILED: "failed",
    reasons.CHECKPOINT_TIMEOUT: "timed-out",
}
"""By the reason of the event."""

_RECOVERY_BUCKETS = (5, 15, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600)


class SpotMetrics:
    """All of them; `jobs` and `instances` observe the two kinds."""

    def __init__(self, registry: CollectorRegistry, usage: UsageMetrics) -> None:
        self.usage = usage
        self.preemptions = Counter(
            "argosy_spot_preemptions_total",
            "Nodes of replicas, and VMs without a job, that were lost or announced to be.",
            ["cause"],
            registry=registry,
        )
        self.recoveries = Counter(
            "argosy_spot_recoveries_total",
            "Recoveries of replicas that have ended.",
            ["outcome", "start_mode"],
            registry=registry,
        )
        self.recovery_seconds = Histogram(
            "argosy_spot_recovery_seconds",
            "Time from the loss of a replica until its successor ran.",
            buckets=_RECOVERY_BUCKETS,
            registry=registry,
        )
        self.checkpoints = Counter(
            "argosy_spot_checkpoints_total", "Checkpoints that have ended.", ["result"], registry=registry
        )
        self.instances_by_state = Gauge(
            "argosy_spot_instances", "VMs by their status in the cloud.", ["state"], registry=registry
        )
        self.insert_errors = Counter(
            "argosy_spot_insert_errors_total",
            "Requests for VMs that the cloud refused.",
            ["code"],
            registry=registry,
        )
        self.cost = Gauge(
            "argosy_spot_cost_dollars_per_hour", "Price of all VMs whose price is known.", registry=registry
        )
        self.jobs = SpotJobObserver(self)
        self.instances = InstanceObserver(self)


class SpotJobObserver:
    """Counts losses, recoveries and checkpoints of SpotInstanceJobs, and the time of their replicas."""

    def __init__(self, metrics: SpotMetrics) -> None:
        self._metrics = metrics

    def decided(self, obj: SpotInstanceJob, decision: Decision) -> None:
        for event in decision.events:
            if result := CHECKPOINT_RESULTS.get(event.reason):
                self._metrics.checkpoints.labels(result).inc()
        status = decision.status
        if not isinstance(status, SpotInstanceJobStatus):
            return
        kind, before_seconds = obj.resource.kind, _seconds(obj.status.usage)
        self._metrics.usage.add_seconds(kind, "", before_seconds, _seconds(status.usage))
        known = {entry.id: entry for entry in obj.status.recoveries}
        for entry in status.recoveries:
            before = known.get(entry.id)
            if before is None:
                self._metrics.preemptions.labels(_one_of(entry.cause, CAUSES)).inc()
            if entry.outcome and (before is None or not before.outcome):
                self._recovered(entry, status)

    def _recovered(self, entry: RecoveryStatus, status: SpotInstanceJobStatus) -> None:
        replicas = (replica for replica in status.job_statuses if replica.index == entry.index)
        replica = next(replicas, None)
        is_successor = replica is not None and replica.incarnation == entry.incarnation
        mode = replica.start_mode if replica is not None and is_successor else ""
        self._metrics.recoveries.labels(entry.outcome, mode).inc()
        if entry.start_time is not None and entry.completion_time is not None:
            seconds = (entry.completion_time - entry.start_time).total_seconds()
            self._metrics.recovery_seconds.observe(max(seconds, 0.0))

    def forget(self, key: Key) -> None: ...
    def clear(self) -> None: ...


class InstanceObserver:
    """Counts VMs by state, what they cost, and what the cloud has refused."""

    def __init__(self, metrics: SpotMetrics) -> None:
        self._metrics = metrics
        self._states: dict[Key, str] = {}
        self._prices: dict[Key, float] = {}
        self._tally: Tally[str] = Tally()

    def decided(self, obj: ProvisionedInstance, decision: Decision) -> None:
        status = decision.status
        if not isinstance(status, ProvisionedInstanceStatus):
            return
        self._set_state(key_of(obj), _one_of(status.state, STATES))
        self._set_price(key_of(obj), status.price_per_hour)
        noticed = status.preemption_notice and not obj.status.preemption_notice
        if noticed and obj.spec.spot_instance_job_ref is None:  # otherwise its job counts the loss
            self._metrics.preemptions.labels(_one_of(status.cause, CAUSES)).inc()
        before, (refusals, code) = _refusals(obj.status)[0], _refusals(status)
        if refusals > before:
            self._metrics.insert_errors.labels(_one_of(code, CODES)).inc(refusals - before)

    def forget(self, key: Key) -> None:
        self._set_state(key, "")
        self._set_price(key, "")

    def clear(self) -> None:
        self._states.clear()
        self._prices.clear()
        self._tally.clear()
        self._metrics.instances_by_state.clear()
        self._metrics.cost.set(0.0)

    def _set_state(self, key: Key, state: str) -> None:
        before = self._states.pop(key, "")
        if state:
            self._states[key] = state
        for name, by in ((before, -1), (state, 1)):
            if name and before != state:
                self._tally[name] += by
                self._metrics.instances_by_state.labels(name).set(self._tally[name])

    def _set_price(self, key: Key, price: str) -> None:
        before = self._prices.pop(key, None)
        if (known := parse_hourly_price(price)) is not None:
            self._prices[key] = float(known)
        if self._prices.get(key) != before:
            self._metrics.cost.set(sum(self._prices.values()))


def _seconds(usage: UsageStatus) -> dict[str, float]:
    """Return the time of all replicas of a job by activity."""
    return {activity: getattr(usage, activity.lower()) for activity in ACTIVITIES}


def _refusals(status: ProvisionedInstanceStatus) -> tuple[int, str]:
    """Return how often the cloud has refused the VM, and the code of the last time."""
    machine = status.argosy.get("machine")
    values = machine if isinstance(machine, dict) else {}
    count, code = values.get("refusals", 0), values.get("refusal", "")
    return count if isinstance(count, int) else 0, str(code)


def _one_of(value: str, known: frozenset[str]) -> str:
    return value if value in known else OTHER
