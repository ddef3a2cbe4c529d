"""Reconciles MachinePools: each owns as many ProvisionedInstances as it has replicas.

What is decided about the machines is in `capacity.pool`; how each of them is bought, joins and is deleted is
decided about its ProvisionedInstance. A template or a Secret that may not be used is therefore refused there,
by the same rules as for a machine that a user asks for alone.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from msgspec import Struct

from argosy.capacity import pool_reasons as reasons
from argosy.capacity.machine_plan import event
from argosy.capacity.pool import PoolFacts, PoolPlan, decide, needs_nodes
from argosy.capacity.pool_record import PoolRecord
from argosy.dialects.machines.observed import drain_patch, machine_of, needs_of, nodes_of
from argosy.dialects.machines.pool_spec import CheckedSpec, check_spec, machine_name, machine_object
from argosy.dialects.machines.pool_status import pool_status
from argosy.kinds.kubernetes import Node
from argosy.kinds.machinepool import FINALIZER, MachinePool
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import Action, ActionStatus, EmitEvent, Patch, Remove
from argosy.plan.children import KubernetesObject
from argosy.plan.contract import Decision, Inputs, Need
from argosy.plan.diff import changes
from argosy.workload.announcements import NoticeRules


class MachinePoolReconciler(Struct, frozen=True):
    """Reconciles MachinePools: decides which ProvisionedInstances a pool has."""

    rules: NoticeRules = NoticeRules()
    sees_all_pods: bool = True
    """Whether pods of all namespaces are watched. If not, no node is known to be empty."""

    @property
    def record(self) -> type[PoolRecord]:
        return PoolRecord

    @property
    def owns(self) -> tuple[type[KubernetesObject], ...]:
        return (ProvisionedInstance,)

    @property
    def finalizer(self) -> str:
        return FINALIZER

    def needs(self, obj: MachinePool, record: PoolRecord | None) -> Iterable[Need]:
        current, checked = record or PoolRecord(), check_spec(obj)
        for node in sorted(needs_nodes(current, _wanted(obj, current, checked))):
            yield from needs_of(node)

    def decide(self, obj: MachinePool, record: PoolRecord | None, inputs: Inputs, now: datetime) -> Decision:
        before, checked = record or PoolRecord(), check_spec(obj)
        instances = {instance.metadata.name: instance for instance in inputs.owned(ProvisionedInstance)}
        deleting = obj.metadata.deletion_timestamp is not None
        plan = decide(record, self._facts(obj, before, checked, inputs, now))
        after = plan.record
        problem = "" if deleting else checked.problem
        status = pool_status(obj, after, instances, problem, inputs.failures, now)
        actions = (*_wanted_machines(obj, after, instances, inputs, problem), *_releases(plan, instances))
        needs_changed = set(self.needs(obj, after)) != set(self.needs(obj, before))
        times = [at for at in (plan.requeue_at, now if needs_changed else None) if at is not None]
        return Decision(
            status,
            actions,
            (*_spec_events(obj, problem), *plan.events),
            requeue_at=min(times, default=None),
            released=deleting and plan.released and not instances,
        )

    def _facts(
        self, obj: MachinePool, record: PoolRecord, checked: CheckedSpec, inputs: Inputs, now: datetime
    ) -> PoolFacts:
        wanted = _wanted(obj, record, checked)
        machines = [machine_of(instance) for instance in inputs.owned(ProvisionedInstance)]
        kind = ProvisionedInstance.resource.kind
        taken = (
            failure.name
            for failure in inputs.failures
            if failure.kind == kind and failure.status is ActionStatus.NAME_CONFLICT
        )
        return PoolFacts(
            wanted=wanted,
            now=now,
            drain_seconds=checked.drain_seconds,
            name_of=lambda index, stamp: machine_name(obj, index, stamp),
            machines={machine.name: machine for machine in machines},
            nodes=nodes_of(needs_nodes(record, wanted), obj, inputs, self.rules),
            sees_all_pods=self.sees_all_pods,
            taken=frozenset(taken),
        )


def _wanted(obj: MachinePool, record: PoolRecord, checked: CheckedSpec) -> int:
    """Return how many machines the pool shall have; with an invalid spec, as many as it has."""
    if obj.metadata.deletion_timestamp is not None:
        return 0
    return len(record.slots) if checked.problem else checked.replicas


def _wanted_machines(
    obj: MachinePool,
    record: PoolRecord,
    instances: dict[str, ProvisionedInstance],
    inputs: Inputs,
    problem: str,
) -> Iterator[Action]:
    """Yield the actions that create the recorded machines, and update those that exist to the spec."""
    if problem:
        return
    slots = [slot for slot in record.slots if slot.machine and (slot.machine in instances or not slot.uid)]
    wanted = (machine_object(obj, slot, instances.get(slot.machine)) for slot in slots)
    yield from changes(wanted, inputs)


def _releases(plan: PoolPlan, instances: dict[str, ProvisionedInstance]) -> Iterator[Action]:
    for drain in plan.drains:
        yield Patch(Node, drain.node, "", drain.uid, drain_patch(drain.until))
    for name in plan.removed:
        yield Remove(ProvisionedInstance, name, instances[name].metadata.uid)


def _spec_events(obj: MachinePool, problem: str) -> Iterator[EmitEvent]:
    """Yield an event if the spec is invalid, once for each generation."""
    is_reported = obj.status.observed_generation == obj.metadata.generation
    if problem and not is_reported:
        yield event(reasons.INVALID_SPEC, problem, warning=True)
