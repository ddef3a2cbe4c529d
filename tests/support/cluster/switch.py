"""The network between the nodes and the host: a switch in its own network namespace.

The firewall rules of the host do not apply to traffic between nodes. The host has one interface with its
routes, which are removed with the process that holds the namespace. Creating the interface also claims the
slot of the cluster.

Run as `python -m tests.support.cluster.switch COMMAND…`; prints the pid of the process that holds the switch,
which has become COMMAND with the slot as its last word, and the slot.
"""

import errno
import os
import sys
from pathlib import Path
from typing import Final

from argosy.local.node import kernel
from argosy.local.node.netlink import Netlink
from tests.support.cluster.layout import SLOTS, interface
from tests.support.cluster.machine import become

_HARDWARE_ADDRESS: Final = bytes.fromhex("0a5a00000001")


def main() -> int:
    """Create the switch and the host's link to it, and leave a process that holds them."""
    with Path("/proc/self/ns/net").open() as host:
        kernel.unshare(kernel.NEW_NET)
        with Netlink() as netlink:
            netlink.add_bridge("switch", _HARDWARE_ADDRESS)
            bridge = netlink.links()["switch"]
            netlink.set_up(bridge)
            slot = _claim(netlink, bridge, host.fileno())
    pid = os.fork()
    if pid == 0:
        os.setsid()
        become([*sys.argv[1:], str(slot)], os.open(os.devnull, os.O_WRONLY))
    sys.stdout.write(f"{pid} {slot}\n")
    return 0


def _claim(netlink: Netlink, bridge: int, host: int) -> int:
    for slot in range(SLOTS):
        try:
            netlink.add_veth("host", master=bridge, peer=interface(slot), peer_namespace=host, mtu=1500)
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise
            continue
        return slot
    raise OSError(f"all {SLOTS} places for clusters on this machine are taken")


if __name__ == "__main__":
    sys.exit(main())
