"""The commands and configuration files of the components of a cluster."""

import json
from pathlib import Path

import pytest

from tests.support.assets import Programs
from tests.support.cluster import components
from tests.support.cluster.components import Settings
from tests.support.cluster.layout import Layout

NODES = ("node-1", "node-2")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Empty program files."""
    folder = tmp_path / "assets"
    folder.mkdir()
    for name in (
        *("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "coredns"),
        *("containerd", "kubelet", "kube-proxy", "runc", "bridge"),
    ):
        (folder / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(folder))
    return Programs()


def test_authorization_is_on_and_no_port_is_open_outside_the_cluster(programs: Programs) -> None:
    layout = Layout(Path("/c"), 0, NODES)
    flags = components.control_plane(layout, Settings("1.36"), programs, 6443)["kube-apiserver"]
    assert "--authorization-mode=Node,RBAC" in flags
    assert f"--bind-address={layout.host_address}" in flags
    assert not [flag for flag in flags if flag.startswith("--audit")]


def test_audit_log_is_enabled_by_its_setting(programs: Programs, tmp_path: Path) -> None:
    layout, settings = Layout(tmp_path, 0, NODES), Settings("1.36", audit="RequestResponse")
    flags = components.control_plane(layout, settings, programs, 6443)["kube-apiserver"]
    assert f"--audit-log-path={tmp_path}/logs/audit.log" in flags
    components.write_host_files(layout, settings)
    policy = json.loads((tmp_path / "audit-policy.json").read_text())
    assert policy["rules"] == [{"level": "RequestResponse"}]


def test_node_grace_sets_the_node_monitor_grace_period(programs: Programs) -> None:
    layout = Layout(Path("/c"), 0, NODES)
    commands = components.control_plane(layout, Settings("1.36", node_grace=8), programs, 6443)
    assert "--node-monitor-grace-period=8s" in commands["kube-controller-manager"]
    commands = components.control_plane(layout, Settings("1.36"), programs, 6443)
    assert not [flag for flag in commands["kube-controller-manager"] if "grace-period" in flag]


def test_node_leases_are_shorter_than_the_grace_period(programs: Programs, tmp_path: Path) -> None:
    """A kubelet renews its lease four times while that lasts, and is missed when it did not for the grace."""
    layout, settings = Layout(tmp_path, 0, NODES), Settings("1.36", node_grace=8)
    components.write_node_files(layout, settings, "node-1", programs)
    kubelet = json.loads((tmp_path / "node-1" / "kubelet.json").read_text())
    assert kubelet["nodeLeaseDurationSeconds"] / 4 < settings.node_grace


def test_gang_scheduling_is_enabled_from_kubernetes_1_36(programs: Programs) -> None:
    layout = Layout(Path("/c"), 0, NODES)
    for version, want in (("1.36", 3), ("1.35", 0)):
        commands = components.control_plane(layout, Settings(version), programs, 6443)
        gates = [flag for flags in commands.values() for flag in flags if "GenericWorkload=true" in flag]
        assert len(gates) == want


def test_every_node_has_its_own_pod_network(programs: Programs, tmp_path: Path) -> None:
    layout = Layout(tmp_path, 0, NODES)
    ranges = set()
    for node in NODES:
        components.write_node_files(layout, Settings("1.36"), node, programs)
        network = json.loads((tmp_path / node / "cni" / "10-argosy.conflist").read_text())
        ranges.add(network["plugins"][0]["ipam"]["ranges"][0][0]["subnet"])
        kubelet = json.loads((tmp_path / node / "kubelet.json").read_text())
        assert kubelet["address"] == layout.node_address(node)
        assert kubelet["clusterDNS"] == [layout.dns_address]
        assert not kubelet["authentication"]["anonymous"]["enabled"]
    assert ranges == {"10.200.17.0/24", "10.200.18.0/24"}
