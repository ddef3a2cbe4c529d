"""The way from the cluster's network to the world, where this machine has the means for it.

As root: a pair of interfaces between the cluster's and the host's network, and masquerading by `nft` or
`iptables` on both sides. Rootless: `pasta`, and masquerading inside. Without these tools pods reach each
other, the control plane and (through the agent) DNS, but not the internet; the node says so.
"""

import hashlib
import os
import shutil
import subprocess
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from argosy.local.node import kernel
from argosy.local.node.netlink import Netlink
from argosy.local.node.network import enable_forwarding

_RANGE = IPv4Network("100.64.0.0/11")


def connect(state: Path, holder: int, pod_network: IPv4Network) -> list[str]:
    """Make the link from the host's side, before the agent enters the cluster's network. Returns notes."""
    if _masquerader() is None:
        return ["pods have no internet: neither nft nor iptables is installed"]
    name, outside, inside = _names(state)
    namespace = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        with Netlink() as host:
            if host.index(name) is None:
                host.add_veth(name, master=0, peer="uplink", peer_namespace=namespace, mtu=1500)
            index = host.index(name)
            if index is not None:
                host.add_address(index, outside, 30)
    finally:
        os.close(namespace)
    notes = [] if enable_forwarding() else ["pods have no internet: net.ipv4.ip_forward cannot be set"]
    problem = _masquerade(f"argosy-{name}", f"{inside}/30")
    _in_namespace(holder, lambda: _finish(inside, outside, pod_network))
    return notes + ([problem] if problem else [])


def start_pasta(holder: int) -> list[str]:
    """Rootless: let pasta carry the cluster's traffic."""
    pasta = shutil.which("pasta")
    if pasta is None:
        return ["pods have no internet: pasta is not installed (Debian package passt)"]
    command = [
        pasta,
        "--config-net",
        "--quiet",
        "-t",
        "none",
        "-u",
        "none",
        "-T",
        "none",
        "-U",
        "none",
        str(holder),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return [] if result.returncode == 0 else [f"pods have no internet: pasta failed: {result.stderr.strip()}"]


def masquerade_inside(pod_network: IPv4Network) -> list[str]:
    enable_forwarding()
    problem = _masquerade("argosy-pods", str(pod_network))
    return [problem] if problem else []


def disconnect(state: Path) -> None:
    name, _, inside = _names(state)
    tool = _masquerader()
    if tool == "nft":
        subprocess.run(["nft", "delete", "table", "ip", f"argosy-{name}"], capture_output=True, check=False)
    elif tool == "iptables":
        subprocess.run(
            ["iptables", "-t", "nat", "-D", *_rule(f"{inside}/30")], capture_output=True, check=False
        )
    with Netlink() as host:
        if host.index(name) is not None:
            host.delete_link(name)


def _finish(inside: str, outside: str, pod_network: IPv4Network) -> None:
    with Netlink() as netlink:
        index = netlink.index("uplink")
        if index is not None:
            netlink.add_address(index, inside, 30)
            netlink.set_up(index)
            netlink.add_default_route(outside)
    masquerade_inside(pod_network)


def _in_namespace(holder: int, action: "object") -> None:
    """In a child process, because a namespace once entered is not left again by accident."""
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:
        descriptor = os.open(f"/proc/{holder}/ns/net", os.O_RDONLY)
        kernel.setns(descriptor, kernel.NEW_NET)
        if callable(action):
            action()
    finally:
        os._exit(0)


def _names(state: Path) -> tuple[str, str, str]:
    """Interface name and the two addresses, from the state folder: the same each time, different for each."""
    digest = hashlib.sha256(str(state).encode()).digest()
    block = int.from_bytes(digest[:4], "big") % (_RANGE.num_addresses // 4)
    base = IPv4Address(int(_RANGE.network_address) + block * 4)
    return f"ayup{digest.hex()[:8]}", str(base + 1), str(base + 2)


def _masquerader() -> str | None:
    return next((tool for tool in ("nft", "iptables") if shutil.which(tool)), None)


def _masquerade(table: str, source: str) -> str:
    tool = _masquerader()
    if tool is None:
        return "pods have no internet: neither nft nor iptables is installed"
    if tool == "nft":
        rules = (
            f"table ip {table} {{}}\ndelete table ip {table}\n"
            f"table ip {table} {{ chain out {{ type nat hook postrouting priority 100; "
            f"ip saddr {source} ip daddr != {source} masquerade; }} }}\n"
        )
        done = subprocess.run(["nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False)
    else:
        check = subprocess.run(
            ["iptables", "-t", "nat", "-C", *_rule(source)], capture_output=True, check=False
        )
        if check.returncode == 0:
            return ""
        done = subprocess.run(
            ["iptables", "-t", "nat", "-A", *_rule(source)], capture_output=True, text=True, check=False
        )
    return "" if done.returncode == 0 else f"pods have no internet: {tool} failed: {done.stderr.strip()}"


def _rule(source: str) -> list[str]:
    return ["POSTROUTING", "-s", source, "!", "-d", source, "-j", "MASQUERADE"]
