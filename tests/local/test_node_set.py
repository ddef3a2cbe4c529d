"""The set of nodes, and its changes at run time and at the times that were announced."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from argosy.local import node_set
from argosy.local.node_set import MAX_NODES, NodeChangeError, NodeEntry, NodeSet, read_nodes
from argosy.local.processes import write_json

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAST, FUTURE = NOW - timedelta(seconds=5), NOW + timedelta(seconds=5)


def test_up_asks_for_numbered_nodes() -> None:
    nodes = NodeSet.of(3, pretend_gpus=2)
    assert nodes.names == ["node-1", "node-2", "node-3"]
    assert {entry.pretend_gpus for entry in nodes.entries} == {2}
    assert {entry.state for entry in nodes.entries} == {"Running"}


def test_a_node_without_a_name_gets_the_lowest_free_number() -> None:
    nodes = NodeSet.of(3, 0)
    assert node_set.free_name(nodes) == "node-4"
    assert node_set.free_name(nodes.without("node-2")) == "node-2"
    assert node_set.free_name(nodes.with_entry(NodeEntry("gpu"))) == "node-4"
    assert node_set.free_name(NodeSet.of(MAX_NODES, 0)) == f"node-{MAX_NODES + 1}"


def test_changing_a_node_keeps_its_place_among_the_others() -> None:
    nodes = NodeSet.of(3, 0).with_entry(NodeEntry("node-2", state="Silenced"))
    assert nodes.names == ["node-1", "node-2", "node-3"]
    assert [entry.state for entry in nodes.entries] == ["Running", "Silenced", "Running"]


ADVANCE: dict[str, tuple[NodeEntry, NodeEntry | None]] = {
    "reclaim in the future: no change": (
        NodeEntry("a", reclaim_at=FUTURE),
        NodeEntry("a", reclaim_at=FUTURE),
    ),
    "reclaim is due: removed": (NodeEntry("a", reclaim_at=PAST), None),
    "reclaim of a silenced node is due: removed": (NodeEntry("a", state="Silenced", reclaim_at=PAST), None),
    "reclaim is due and the node returns: reclaimed until then": (
        NodeEntry("a", 2, reclaim_at=PAST, back_after=20.0),
        NodeEntry("a", 2, "Reclaimed", back_at=PAST + timedelta(seconds=20)),
    ),
    "reclaim and return are both due: reclaimed first": (
        NodeEntry("a", reclaim_at=PAST, back_after=0.0),
        NodeEntry("a", state="Reclaimed", back_at=PAST),
    ),
    "return of a reclaimed node is due: running": (
        NodeEntry("a", 2, "Reclaimed", back_at=PAST),
        NodeEntry("a", 2),
    ),
    "return of a stopped node is due: running": (
        NodeEntry("a", state="Stopped", back_at=NOW),
        NodeEntry("a"),
    ),
    "return of a stopped node in the future: no change": (
        NodeEntry("a", state="Stopped", back_at=FUTURE),
        NodeEntry("a", state="Stopped", back_at=FUTURE),
    ),
    "stopped node that is reclaimed before it returns: removed": (
        NodeEntry("a", state="Stopped", back_at=FUTURE, reclaim_at=PAST),
        None,
    ),
    "stopped node that returns before it is reclaimed: running, and still announced": (
        NodeEntry("a", state="Stopped", back_at=PAST, reclaim_at=FUTURE),
        NodeEntry("a", reclaim_at=FUTURE),
    ),
    "stopped node without a time: no change": (
        NodeEntry("a", state="Stopped"),
        NodeEntry("a", state="Stopped"),
    ),
}


@pytest.mark.parametrize(("entry", "want"), ADVANCE.values(), ids=ADVANCE.keys())
def test_changes_are_made_when_they_are_due(entry: NodeEntry, want: NodeEntry | None) -> None:
    other = NodeEntry("other")
    advanced = NodeSet(2, (entry, other)).advance(NOW)
    assert advanced.entries == ((other,) if want is None else (want, other))


def test_the_next_change_is_the_earliest_of_all_nodes() -> None:
    assert NodeSet.of(2, 0).next_change_at() is None
    entries = (NodeEntry("a", reclaim_at=FUTURE), NodeEntry("b", state="Stopped", back_at=NOW))
    assert NodeSet(2, entries).next_change_at() == NOW


def test_resume_ends_whatever_was_done_to_a_node() -> None:
    stopped = node_set.stop(node_set.reclaim(NodeEntry("a", 3), FUTURE, 20.0), FUTURE)
    assert node_set.resume(stopped) == NodeEntry("a", 3)
    assert node_set.resume(node_set.silence(NodeEntry("a", 3))) == NodeEntry("a", 3)


def test_a_silenced_node_can_be_announced_and_stopped() -> None:
    silenced = node_set.reclaim(node_set.silence(NodeEntry("a")), FUTURE, None)
    assert (silenced.state, silenced.reclaim_at) == ("Silenced", FUTURE)
    assert node_set.stop(silenced, None).state == "Stopped"


@pytest.mark.parametrize("state", ["Stopped", "Reclaimed"])
def test_a_node_that_is_off_can_only_be_switched_on(state: node_set.NodeState) -> None:
    entry = NodeEntry("a", state=state)
    with pytest.raises(NodeChangeError, match=f"a: the node is {state.lower()}; `argosy nodes resume a`"):
        node_set.silence(entry)
    with pytest.raises(NodeChangeError):
        node_set.stop(entry, None)
    with pytest.raises(NodeChangeError):
        node_set.reclaim(entry, FUTURE, None)


def test_recorded_nodes_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    nodes = NodeSet.of(2, 1).with_entry(NodeEntry("b", 4, "Reclaimed", FUTURE, 1.5, PAST)).without("node-2")
    write_json(path, nodes)
    assert read_nodes(path, 2, 1) == nodes


def test_nodes_recorded_for_another_number_or_damaged_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    assert read_nodes(path, 2, 1) == NodeSet.of(2, 1)
    write_json(path, NodeSet.of(5, 0))
    assert read_nodes(path, 2, 1) == NodeSet.of(2, 1)
    path.write_bytes(b'{"requested": 2')
    assert read_nodes(path, 2, 1) == NodeSet.of(2, 1)
