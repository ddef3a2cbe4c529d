"""Where everything of a cluster is: addresses, names, folders; decided by its folder and its slot alone.

A slot is a number that no other cluster on the machine has. Each has its own 10.x.0.0/16, its own interface
and its own cgroup, so that clusters stand side by side. A node's files lie in a folder of its own; inside
the node they are seen at the places where a node has them.
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
        """The host's only interface of this cluster."""
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
        """Where nodes and pods find what runs on the host: the API server and the DNS server."""
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
        """The addresses of the pods of one node."""
        return list(self.pods.subnets(new_prefix=24))[self._number(node)]

    def node_folder(self, node: str) -> Path:
        return self.folder / node

    def _number(self, node: str) -> int:
        return self.nodes.index(node) + 1

    def _address(self, offset: int) -> str:
        return str(IPv4Address(f"10.{_FIRST + self.slot}.0.0") + offset)


def interface(slot: int) -> str:
    return f"argosy-k{slot}"
