"""Tells which nodes save and restore processes, by the labels that the node agent sets on them."""

from collections.abc import Iterable

from argosy.engine.cache import Cache
from argosy.kinds.kubernetes import Node
from argosy.kinds.spot import CHECKPOINT_USERS, RESTORE_CAPABILITY, RESTORING
from argosy.reconcile.nodes import AnnouncedEnds

BY_CAPABILITY = "restore-capability"


class RestoringNodes:
    """The nodes with a label that they restore processes."""

    def __init__(self, nodes: Cache[Node], announced: AnnouncedEnds) -> None:
        self._nodes = nodes
        self._announced = announced
        nodes.add_index(BY_CAPABILITY, _capability)

    def dump_nodes(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of these nodes on which processes can be saved, and of which users: `root` or all."""
        nodes = (self._nodes.get("", name) for name in names)
        return {
            node.metadata.name: node.metadata.labels.get(CHECKPOINT_USERS, "")
            for node in nodes
            if node is not None and _can_restore(node)
        }

    def can_restore(self) -> bool:
        """Return True if a node restores processes that takes pods and is not about to end."""
        nodes = (node for value in RESTORING for node in self._nodes.by(BY_CAPABILITY, value))
        return any(
            not node.spec.unschedulable and not self._announced.of({node.metadata.name}, cordons=True)
            for node in nodes
        )


def _capability(node: Node) -> tuple[str, ...]:
    value = node.metadata.labels.get(RESTORE_CAPABILITY)
    return (value,) if value else ()


def _can_restore(node: Node) -> bool:
    return node.metadata.labels.get(RESTORE_CAPABILITY) in RESTORING
