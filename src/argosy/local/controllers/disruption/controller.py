"""Keeps the status of PodDisruptionBudgets, which evictions are checked against (`apiserver.evictions`).

A status is written conditional on the resourceVersion: an eviction accepted meanwhile makes the write a
conflict, and the status is computed again without that pod.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from argosy.engine.cache import Cache, Change
from argosy.engine.controller import Controller, Key, Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.local.controllers.api_types import BudgetStatus, Pod, PodDisruptionBudget
from argosy.local.controllers.disruption.decide import Outcome, decide, sync_failed_status
from argosy.local.controllers.disruption.scales import Scale, ScaleError, total_scale
from argosy.local.controllers.informers import ControllerContext
from argosy.local.controllers.workloads import Deployment, ReplicaSet
from argosy.local.scheduler.node_affinity import selects

RETRY_SECONDS = 5.0
"""How soon a budget that could not be computed is tried again: nothing need change in between."""


class DisruptionController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._budgets = Cache(context.client, PodDisruptionBudget, indexes={"namespace": _namespace})
        self._controller: Controller[Key] = Controller("disruptions", self._reconcile)
        self._budgets.subscribe(self._budget_changed)
        context.pods.subscribe(self._pod_changed)
        context.replica_sets.subscribe(self._scale_changed)
        context.deployments.subscribe(self._scale_changed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._budgets.run())
            await self._budgets.wait_synced()
            tasks.create_task(self._controller.run())

    def _budget_changed(self, change: Change[PodDisruptionBudget]) -> None:
        if change.new is not None:
            self._controller.enqueue(_key(change.new))

    def _pod_changed(self, change: Change[Pod]) -> None:
        pods = [pod for pod in (change.old, change.new) if pod is not None]
        for budget in self._budgets.by("namespace", pods[0].metadata.namespace):
            if any(selects(budget.spec.selector, pod.metadata.labels) for pod in pods):
                self._controller.enqueue(_key(budget))

    def _scale_changed(self, change: Change[ReplicaSet] | Change[Deployment]) -> None:
        old, new = change.old, change.new
        if new is not None and (old is None or old.spec.replicas != new.spec.replicas):
            for budget in self._budgets.by("namespace", new.metadata.namespace):
                if budget.spec.needs_scale:
                    self._controller.enqueue(_key(budget))

    async def _reconcile(self, key: Key) -> Requeue | None:
        budget = self._budgets.get(*key)
        if budget is None:
            return None
        pods = [
            pod
            for pod in self._context.pods.by("namespace", key.namespace)
            if selects(budget.spec.selector, pod.metadata.labels)
        ]
        now = self._context.clock.now().replace(microsecond=0)
        scale = Scale(0)
        try:
            if budget.spec.needs_scale:
                scale = await total_scale(self._context, pods)
        except ScaleError as error:
            message = f"Failed to calculate the number of expected pods: {error}"
            self._warn_once(budget, "CalculateExpectedPodCountFailed", message)
            await self._write_status(budget, sync_failed_status(budget, str(error), now))
            return Requeue(after=RETRY_SECONDS)
        outcome = decide(budget, pods, scale.replicas, now)
        self._record_events(budget, pods, scale, outcome)
        written = await self._write_status(budget, outcome.status)
        return Requeue(after=outcome.requeue_after) if written else None

    def _record_events(
        self, budget: PodDisruptionBudget, pods: list[Pod], scale: Scale, outcome: Outcome
    ) -> None:
        meta = budget.metadata
        if not pods and budget.status.observed_generation != meta.generation:
            self._context.events.event(budget, "Normal", "NoPods", "No matching pods found")
        if scale.unmanaged:
            message = (
                f"Pods without a controller are not counted: {', '.join(scale.unmanaged[:5])}; "
                "to count them set spec.minAvailable to an integer"
            )
            self._warn_once(budget, "UnmanagedPods", message)
        for pod in outcome.overdue:
            message = f"Pod was expected by PDB {meta.namespace}/{meta.name} to be deleted but it wasn't"
            self._context.events.event(pod, "Warning", "NotDeleted", message)

    def _warn_once(self, budget: PodDisruptionBudget, reason: str, message: str) -> None:
        """Record a warning for a new generation, unless the budget has failed before."""
        has_failed = any(condition.reason == "SyncFailed" for condition in budget.status.conditions)
        if budget.status.observed_generation != budget.metadata.generation and not has_failed:
            self._context.events.event(budget, "Warning", reason, message)

    async def _write_status(self, budget: PodDisruptionBudget, status: BudgetStatus) -> bool:
        """Write the status if it differs; return False if the budget has changed meanwhile."""
        if status == budget.status:
            return True
        meta = budget.metadata
        patch = {
            "metadata": {"resourceVersion": meta.resource_version},
            "status": _status_patch(budget.status, status),
        }
        try:
            written = await self._context.client.patch(
                PodDisruptionBudget, meta.name, patch, meta.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            return False
        self._budgets.put(written)
        return True


def _status_patch(old: BudgetStatus, new: BudgetStatus) -> dict[str, object]:
    """Return the merge patch from one status to the other."""
    status: dict[str, object] = msgspec.to_builtins(new)
    pods = {**dict.fromkeys(old.disrupted_pods), **new.disrupted_pods}
    status["disruptedPods"] = pods if new.disrupted_pods else None
    return status


def _key(budget: PodDisruptionBudget) -> Key:
    return Key(budget.metadata.namespace, budget.metadata.name)


def _namespace(budget: PodDisruptionBudget) -> Iterable[str]:
    return (budget.metadata.namespace,)
