"""The pod network: one bridge per cluster, one veth pair per pod.

The bridge has the gateway address (where DNS listens) and the addresses of services. A pod's interface is
removed with its network namespace, so nothing must be cleaned up however a pod ends. Standard library only:
shims call `set_up_pod_network`.
"""

import errno
import hashlib
import os
import socket
from pathlib import Path

from argosy.local.node.kernel import NEW_NET, unshare
from argosy.local.node.netlink import Netlink
from argosy.local.node.runspec import NetworkConfig

INTERFACE = "eth0"
_MAC_PREFIX = b"\x0a\x58"
"""Of the bridge's MAC address: a locally administered one, as CNI plugins choose it."""


def ensure_bridge(name: str, gateway: str, prefix: int) -> None:
    """Create the bridge if it does not exist, give it the gateway's address, and bring it up."""
    with Netlink() as netlink:
        if netlink.index(name) is None:
            netlink.add_bridge(name, _MAC_PREFIX + hashlib.sha256(name.encode()).digest()[:4])
        index = netlink.index(name)
        if index is None:
            raise OSError(errno.ENODEV, f"bridge {name} vanished while it was set up")
        netlink.set_up(index)
        netlink.add_address(index, gateway, prefix)


def link_name(uid: str) -> str:
    """Return the name of the host's end of a pod's veth pair: at most 15 characters, derived from the uid."""
    return "ay" + hashlib.sha256(uid.encode()).hexdigest()[:12]


def set_up_pod_network(config: NetworkConfig) -> None:
    """Move this process into a new network namespace that is connected to the bridge."""
    with Netlink() as host:
        bridge = socket.if_nametoindex(config["bridge"])
        unshare(NEW_NET)
        namespace_fd = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _add_veth_pair(host, config, bridge, namespace_fd)
        finally:
            os.close(namespace_fd)
    with Netlink() as inside:
        links = inside.links()
        inside.set_up(links["lo"])
        inside.add_address(links[INTERFACE], config["address"], config["prefix"])
        inside.set_up(links[INTERFACE])
        inside.add_default_route(config["gateway"])


def _add_veth_pair(host: Netlink, config: NetworkConfig, bridge: int, namespace_fd: int) -> None:
    def add() -> None:
        host.add_veth(
            config["link"], master=bridge, peer=INTERFACE, peer_namespace=namespace_fd, mtu=config["mtu"]
        )

    try:
        add()
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
        # The pod's earlier namespace is still being torn down by the kernel.
        host.delete_link(config["link"])
        add()


def bring_up_loopback() -> None:
    with Netlink() as netlink:
        index = netlink.index("lo")
        if index is not None:
            netlink.set_up(index)


def enable_forwarding() -> bool:
    """Enable IP forwarding; return False if that is not permitted."""
    setting = Path("/proc/sys/net/ipv4/ip_forward")
    try:
        if setting.read_text().strip() != "1":
            setting.write_text("1")
    except OSError:
        return False
    return True
