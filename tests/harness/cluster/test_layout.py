"""Addresses and names of clusters that share a machine."""

from itertools import combinations
from pathlib import Path

from tests.support.cluster.layout import SLOTS, Layout

NODES = ("node-1", "node-2")


def test_networks_of_one_cluster_do_not_overlap() -> None:
    layout = Layout(Path("/c"), 3, NODES)
    networks = [layout.machines, layout.services, *(layout.node_pods(node) for node in NODES)]
    assert not [pair for pair in combinations(networks, 2) if pair[0].overlaps(pair[1])]
    assert all(layout.node_pods(node).subnet_of(layout.pods) for node in NODES)


def test_networks_of_two_clusters_do_not_overlap() -> None:
    layouts = [Layout(Path("/c"), slot, NODES) for slot in range(SLOTS)]
    for left, right in combinations(layouts, 2):
        for first in (left.machines, left.pods, left.services):
            assert not any(first.overlaps(second) for second in (right.machines, right.pods, right.services))
    assert len({layout.interface for layout in layouts}) == SLOTS
    assert len({layout.cgroup for layout in layouts}) == SLOTS
    assert max(len(layout.interface) for layout in layouts) <= 15, "the kernel takes no longer name"


def test_address_of_a_node_is_in_the_machine_network() -> None:
    layout = Layout(Path("/c"), 0, NODES)
    assert [layout.node_address(node) for node in NODES] == ["10.200.0.11", "10.200.0.12"]
    assert layout.host_address == "10.200.0.1"
    assert layout.dns_address == "10.200.128.10"
