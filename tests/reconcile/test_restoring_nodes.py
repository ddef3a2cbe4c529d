"""Tests for the nodes that save and restore processes, by label, cordon and announced end."""

import pytest

from argosy.engine.cache import Cache
from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.kubernetes import Node, NodeSpec
from argosy.kinds.meta import ObjectMeta
from argosy.kinds.spot import CHECKPOINT_USERS, RESTORE_CAPABILITY
from argosy.reconcile.nodes import AnnouncedEnds
from argosy.reconcile.restoring_nodes import RestoringNodes
from argosy.workload.announcements import NoticeRules


def restoring(*nodes: Node) -> RestoringNodes:
    cache = Cache(Client(Connection(server="https://127.0.0.1:1")), Node)
    found = RestoringNodes(cache, AnnouncedEnds(cache, NoticeRules()))
    for node in nodes:
        cache.put(node)
    return found


def node(
    name: str, capability: str = "", users: str = "", *, cordoned: bool = False, ends: bool = False
) -> Node:
    labels = {RESTORE_CAPABILITY: capability, CHECKPOINT_USERS: users}
    meta = ObjectMeta(
        name=name,
        uid=name,
        resource_version="7",
        labels={key: value for key, value in labels.items() if value},
        annotations={"argosy.dev/termination-deadline": "2030-01-01T00:00:00Z"} if ends else {},
    )
    return Node(meta, NodeSpec(unschedulable=cordoned))


def test_nodes_on_which_processes_can_be_saved() -> None:
    nodes = restoring(node("a", "image"), node("b", "pod", "root"), node("c", "none"), node("d"))
    assert nodes.dump_nodes(["a", "b", "c", "d", "gone"]) == {"a": "", "b": "root"}


TARGETS = {
    "no node: no restore": ((), False),
    "node without the label: no restore there": ((node("a"),), False),
    "node with the label none: no restore there": ((node("a", "none"),), False),
    "cordoned node: no restore there": ((node("a", "image", cordoned=True),), False),
    "node with an announced end: no restore there": ((node("a", "image", ends=True),), False),
    "node with an announced end and a good one: restore on the good one": (
        (node("a", "image", ends=True), node("b", "pod")),
        True,
    ),
}


@pytest.mark.parametrize(("nodes", "want"), TARGETS.values(), ids=TARGETS.keys())
def test_whether_a_node_can_restore(nodes: tuple[Node, ...], want: bool) -> None:
    assert restoring(*nodes).can_restore() == want
