"""Fills ClusterRoles that have an aggregation rule with the rules of the roles they select.

The rules are written into the role, as in Kubernetes, so that its readers see the rights that it grants.
"""

from collections.abc import Iterable

from argosy.engine.cache import Change
from argosy.engine.controller import Controller, Requeue
from argosy.engine.errors import Conflict, NotFound
from argosy.local.controllers.api_types import ClusterRole, PolicyRule
from argosy.local.controllers.informers import ControllerContext
from argosy.local.scheduler.node_affinity import selects


def aggregate_rules(role: ClusterRole, others: Iterable[ClusterRole]) -> list[PolicyRule]:
    """Return the rules that a role should have, without duplicates, by selector and then by name."""
    rules: list[PolicyRule] = []
    ordered = sorted(others, key=lambda other: other.metadata.name)
    for selector in role.aggregation_rule.cluster_role_selectors if role.aggregation_rule else ():
        for other in ordered:
            if other.metadata.name != role.metadata.name and selects(selector, other.metadata.labels):
                rules.extend(rule for rule in other.rules or () if rule not in rules)
    return rules


class AggregationController:
    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._controller: Controller[str] = Controller("aggregation", self._reconcile)
        context.cluster_roles.subscribe(self._role_changed)

    async def run(self) -> None:
        await self._controller.run()

    def _role_changed(self, change: Change[ClusterRole]) -> None:
        """Enqueue all aggregating roles: any role may be part of any of them, and they are few."""
        for role in self._context.cluster_roles:
            if role.aggregation_rule is not None:
                self._controller.enqueue(role.metadata.name)

    async def _reconcile(self, name: str) -> Requeue | None:
        role = self._context.cluster_roles.get("", name)
        if role is None or role.aggregation_rule is None:
            return None
        rules = aggregate_rules(role, self._context.cluster_roles)
        if rules == (role.rules or []):
            return None
        version = role.metadata.resource_version
        try:
            written = await self._context.client.patch(
                ClusterRole, name, {"metadata": {"resourceVersion": version}, "rules": rules}
            )
        except (Conflict, NotFound):
            return None  # the cache's update enqueues the key again
        self._context.cluster_roles.put(written)
        return None
