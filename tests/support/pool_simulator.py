"""MachinePools in virtual time: the real reconciler beside that of their ProvisionedInstances.

It reconciles a pool as `reconcile.runner` does, and can be killed at each of its writes too.
"""

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from argosy.capacity.pool_record import PoolRecord
from argosy.dialects.machines.observed import pods_by_node
from argosy.dialects.machines.reconciler import MachinePoolReconciler
from argosy.dialects.spot.pods import ClusterPod
from argosy.kinds.kubernetes import Node, PodStatus, Taint
from argosy.kinds.machinepool import (
    FINALIZER,
    CredentialsReference,
    MachinePool,
    MachinePoolSpec,
    MachinePoolStatus,
    MachineTemplateReference,
)
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot_machines import ProvisionedInstance
from argosy.plan.actions import ActionResult, ActionStatus, Apply, Patch, Remove
from argosy.plan.children import Child, Owner, child_body
from argosy.plan.contract import Inputs, Matching, Ref
from argosy.plan.record import decode_record
from argosy.workload.capacity import PodRequirements
from tests.support.machine_simulator import Operator, World
from tests.support.spot_instances import NAMESPACE

SPEC = MachinePoolSpec(
    template=MachineTemplateReference("SpotInstanceVM", "vm"),
    gcp_credentials_secret_ref=CredentialsReference("gcp-credentials"),
    replicas=2,
)


@dataclass
class PoolWorld(World):
    """Everything outside of the operator, with pools and pods."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pods: list[ClusterPod] = []
        self.quota: int | None = None
        """How many ProvisionedInstances there may be."""
        self.operator = PoolOperator(self)

    def replace_operator(self) -> None:
        self.kill_at = 0
        self.operator = PoolOperator(self)

    def create_pool(self, name: str = "pool", **spec: Any) -> None:
        meta = ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", generation=1)
        self.pools[name] = MachinePool(meta, replace(SPEC, **spec))

    def change_pool(self, name: str = "pool", **spec: Any) -> None:
        pool = self.pools[name]
        meta = replace(pool.metadata, generation=pool.metadata.generation + 1)
        self.pools[name] = replace(pool, metadata=meta, spec=replace(pool.spec, **spec))

    def delete_pool(self, name: str = "pool") -> None:
        pool = self.pools[name]
        if FINALIZER not in pool.metadata.finalizers:
            del self.pools[name]
            return
        self.pools[name] = replace(pool, metadata=replace(pool.metadata, deletion_timestamp=self.now))

    def pool_status(self, name: str = "pool") -> MachinePoolStatus:
        return self.pools[name].status

    def has(self, ready: int, name: str = "pool") -> bool:
        """Return True if so many machines are ready, and no others are there."""
        status = self.pool_status(name)
        others = status.provisioning + status.noticed + status.draining
        return status.ready == ready and others == 0 and len(self.machines()) == ready

    def run_pod(self, name: str, node: str) -> None:
        status = PodStatus(phase="Running")
        self.pods.append(ClusterPod(ObjectMeta(name=name), PodRequirements(node_name=node), status))

    def set_taints(self, name: str, *keys: str) -> None:
        node = self.nodes[name]
        taints = [Taint(key, effect="NoSchedule") for key in keys]
        self.nodes[name] = replace(node, spec=replace(node.spec, taints=taints))

    def lose_record(self, found: dict[str, object] | None = None, name: str = "pool") -> None:
        """Put something else in the place of the Record; nothing by default."""
        pool = self.pools[name]
        self.pools[name] = replace(pool, status=replace(pool.status, argosy=found or {}))

    def preempt(self, name: str) -> None:
        instance = next(each for each in self.cloud.instances.values() if each.name == name)
        self.cloud.preempt(instance.project, instance.zone, name)

    def pool_reasons(self, name: str = "pool") -> list[str]:
        return [told.reason for who, told in self.events if who == name]


class PoolOperator(Operator):
    """One process that reconciles pools and VMs."""

    def __init__(self, world: PoolWorld) -> None:
        super().__init__(world)
        self.pool_world = world
        self.pool_reconciler = MachinePoolReconciler()
        self.failures: dict[str, ActionResult] = {}

    async def work(self) -> None:
        for _ in range(20):
            changed = [self._reconcile_pool(name) for name in sorted(self.pool_world.pools)]
            await super().work()
            if not any(changed):
                return

    def _reconcile_pool(self, name: str) -> bool:
        """Return True if something has changed."""
        world = self.pool_world
        pool = world.pools[name]
        record = decode_record(pool.status.argosy, PoolRecord)
        decision = self.pool_reconciler.decide(pool, record, self._pool_inputs(pool, record), world.now)
        if decision.actions and FINALIZER not in pool.metadata.finalizers:
            pool = replace(pool, metadata=replace(pool.metadata, finalizers=[FINALIZER]))
            world.request(lambda: world.pools.__setitem__(name, pool))
        status = decision.status
        assert isinstance(status, MachinePoolStatus)
        changed = status != pool.status
        if changed:
            encoded = msgspec.json.decode(msgspec.json.encode(status), type=MachinePoolStatus)
            stored = replace(pool, status=encoded)
            world.request(lambda: world.pools.__setitem__(name, stored))
        world.events += [(name, told) for told in decision.events]
        self.failures.clear()
        for action in decision.actions:
            changed = self._act_for_pool(pool, action) or changed
        if decision.released and pool.metadata.deletion_timestamp is not None:
            world.request(lambda: world.pools.pop(name))
        return changed

    def _pool_inputs(self, pool: MachinePool, record: PoolRecord | None) -> Inputs:
        world, owner = self.pool_world, Owner.from_object(pool)
        children = tuple(obj for obj in world.objects.values() if owner.owns(obj.metadata))
        found: dict[Any, tuple[Any, ...]] = {}
        for need in self.pool_reconciler.needs(pool, record):
            if isinstance(need, Ref):
                node = world.nodes.get(need.name)
                found[need] = (node,) if node is not None else ()
            elif isinstance(need, Matching):
                found[need] = tuple(pod for pod in world.pods if need.value in pods_by_node(pod))
        return Inputs(children, found, tuple(self.failures.values()))

    def _act_for_pool(self, pool: MachinePool, action: object) -> bool:
        world = self.pool_world
        if isinstance(action, Apply):
            return bool(world.request(lambda: self._apply(pool, action.child, action.uid)))
        if isinstance(action, Remove):
            obj = world.objects.get(action.name)
            if obj is None or obj.metadata.uid != action.uid or obj.metadata.deletion_timestamp:
                return False
            world.request(lambda: world.delete(action.name))
        elif isinstance(action, Patch):
            assert action.kind is Node
            world.request(lambda: self._patch_node(action))
        return True

    def _apply(self, pool: MachinePool, child: Child, uid: str) -> bool:
        world = self.pool_world
        existing = world.objects.get(child.name)
        body = child_body(Owner.from_object(pool), child, uid)
        new = msgspec.convert(body, ProvisionedInstance)
        if existing is None and world.quota is not None and len(world.objects) >= world.quota:
            self._fail(child, ActionStatus.FORBIDDEN, "exceeded quota: machines")
            return False
        if existing is None:
            uid = f"uid-{child.name}"
            meta = replace(new.metadata, uid=uid, generation=1, creation_timestamp=world.now)
            world.objects[child.name] = replace(new, metadata=meta)
            return True
        if not Owner.from_object(pool).owns(existing.metadata):
            self._fail(child, ActionStatus.NAME_CONFLICT, f"{child.name} exists")
            return False
        labelled = replace(
            existing.metadata, labels=new.metadata.labels, annotations=new.metadata.annotations
        )
        world.objects[child.name] = replace(existing, metadata=labelled, spec=new.spec)
        return True

    def _fail(self, child: Child, status: ActionStatus, message: str) -> None:
        kind = ProvisionedInstance.resource.kind
        self.failures[child.name] = ActionResult(kind, child.name, status, message)
