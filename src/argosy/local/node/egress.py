"""Connects the cluster's network to the outside, where this machine supports it.

As root: a veth pair between the cluster's and the host's network, and masquerading with `nft` or `iptables`
on both sides. Rootless: `pasta`, and masquerading inside. Without these tools pods reach each other, the
control plane and (through the agent) DNS, but nothing outside, and the node's notes say why. The setup has
two parts: before the agent enters the cluster's network, and after.
"""

import hashlib
import json
import os
import subprocess
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from argosy.local.node import masquerade
from argosy.local.node.netlink import Netlink
from argosy.local.node.network import enable_forwarding
from argosy.local.node.pod_state import replace_file
from argosy.local.procfs import is_alive, process_id

PASTA_FILE: Final = "pasta.json"
_INSIDE: Final = "uplink"
_RANGE = IPv4Network("100.64.0.0/11")


def configure_host(state: Path, holder: int) -> list[str]:
    """Set up the host's side as root. Returns notes about what does not work."""
    if masquerade.find_tool() is None:
        return [_note("neither nft nor iptables is installed")]
    name, outside, inside = link_addresses(state)
    namespace = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Netlink() as host:
            if host.index(name) is None:
                host.add_veth(name, master=0, peer=_INSIDE, peer_namespace=namespace, mtu=1500)
            index = host.index(name)
            if index is not None:
                host.add_address(index, outside, 30)
    finally:
        os.close(namespace)
    if not enable_forwarding():
        return [_note("net.ipv4.ip_forward cannot be set")]
    problem = masquerade.masquerade(_table(name), f"{inside}/30") or masquerade.allow_forwarding(name)
    return [_note(problem)] if problem else []


def start_pasta(folder: Path, holder: int) -> list[str]:
    """Set up the host's side without root, with pasta. Returns notes about what does not work."""
    if _is_pasta_running(folder):
        return []
    pasta = masquerade.find_program("pasta")
    if pasta is None:
        return [_note("pasta is not installed (Debian package passt)")]
    written = folder / "pasta.pid"
    # Pods must not reach ports of the host through it, neither forwarded ones nor by the gateway's address.
    closed = ["--no-map-gw", "-t", "none", "-u", "none", "-T", "none", "-U", "none"]
    command = [pasta, "--config-net", "--quiet", "--ipv4-only", *closed, "--pid", str(written), str(holder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if line.strip() and "syslog" not in line]
        return [_note(f"pasta failed: {errors[-1] if errors else f'exit code {done.returncode}'}")]
    pid = int(written.read_text())
    replace_file(folder / PASTA_FILE, json.dumps(process_id(pid)).encode())
    return []


def configure_cluster(state: Path, pod_network: IPv4Network, *, rootless: bool) -> list[str]:
    """Set up the cluster's side, after the host's. Returns notes about what does not work."""
    if not rootless:
        _, outside, inside = link_addresses(state)
        with Netlink() as netlink:
            index = netlink.index(_INSIDE)
            if index is not None:
                netlink.add_address(index, inside, 30)
                netlink.set_up(index)
                netlink.add_default_route(outside)
    enable_forwarding()
    problem = masquerade.masquerade("argosy-pods", str(pod_network))
    return [_note(problem)] if problem else []


def remove(state: Path) -> None:
    """Remove everything of this cluster from the host's network, as root."""
    name, _, inside = link_addresses(state)
    masquerade.remove(_table(name), f"{inside}/30", name)
    with Netlink() as host:
        host.delete_link(name)


def link_addresses(state: Path) -> tuple[str, str, str]:
    """Return interface name and both addresses, which depend on the path of the state folder only."""
    digest = hashlib.sha256(str(state).encode()).digest()
    block = int.from_bytes(digest[:4], "big") % (_RANGE.num_addresses // 4)
    base = IPv4Address(int(_RANGE.network_address) + block * 4)
    return f"ayup{digest.hex()[:8]}", str(base + 1), str(base + 2)


def _table(link: str) -> str:
    return f"argosy-{link}"


def _note(why: str) -> str:
    return f"pods reach nothing outside the cluster: {why}"


def _is_pasta_running(folder: Path) -> bool:
    try:
        record = json.loads((folder / PASTA_FILE).read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return is_alive(record["pid"], record["start_time"])
