"""The addresses, names and folders of a cluster, which follow from its folder and its slot.

A slot is a number that no other cluster on the machine has. Each slot has its own 10.x.0.0/16, interface and
cgroup, so that clusters can run at the same time. The files of a node are in its own folder and are mounted
at the usual paths inside the node.
"""

from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from msgspec import Struct

SLOTS: Final = 32
_FIRST: Final = 200

DOMAIN: Final = "cluster.local"


class Layout(Struct, frozen=True):
    folder: Path
    slot: int
    nodes: tuple[str, ...]

    @property
    def interface(self) -> str:
        """The only interface of this cluster on the host."""
        return interface(self.slot)

    @property
    def cgroup(self) -> str:
        return f"argosy-kubernetes-{self.slot}"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def host_address(self) -> str:
        """The address at which nodes and pods reach the API server and the DNS server."""
        return self._address(1)

    @property
    def machines(self) -> IPv4Network:
        return IPv4Network((self._address(0), 24))

    @property
    def pods(self) -> IPv4Network:
        return IPv4Network((self._address(16 << 8), 20))

    @property
    def services(self) -> IPv4Network:
        return IPv4Network((self._address(128 << 8), 17))

    @property
    def dns_address(self) -> str:
        return str(self.services.network_address + 10)

    def node_address(self, node: str) -> str:
        return self._address(10 + self._number(node))

    def node_pods(self, node: str) -> IPv4Network:
        """The pod network of a node."""
        return list(self.pods.subnets(new_prefix=24))[self._number(node)]

    def node_folder(self, node: str) -> Path:
        return self.folder / node

    def _number(self, node: str) -> int:
        return self.nodes.index(node) + 1

    def _address(self, offset: int) -> str:
        return str(IPv4Address(f"10.{_FIRST + self.slot}.0.0") + offset)


def interface(slot: int) -> str:
    return f"argosy-k{slot}"
