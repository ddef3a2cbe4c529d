"""Allocates pod addresses in order, never one that a pod of the state folder still has.

The addresses in use are read from the pods' run specs. Going through the whole network before an address is
reused keeps a late packet for a deleted pod from reaching a new one.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network


class NoAddressError(Exception):
    """Every address of the pod network is in use."""


class AddressPool:
    def __init__(self, network: IPv4Network, taken: Mapping[str, str]) -> None:
        """Start with the addresses of existing pods, by uid."""
        self._network = network
        self._of = {uid: address for uid, address in taken.items() if IPv4Address(address) in network}
        self._taken = set(self._of.values())
        offsets = (int(IPv4Address(a)) - int(network.network_address) for a in self._taken)
        self._last = max(offsets, default=1)

    def allocate(self, uid: str) -> str:
        """Return the address of a pod, allocating the next free one if it has none."""
        if uid in self._of:
            return self._of[uid]
        size = self._network.num_addresses
        for step in range(1, size):
            number = (self._last + step) % size
            address = str(self._network.network_address + number)
            if number > 1 and number != size - 1 and address not in self._taken:
                self._last = number
                self._of[uid] = address
                self._taken.add(address)
                return address
        raise NoAddressError(f"all addresses of {self._network} are taken by pods")

    def release(self, uid: str) -> None:
        address = self._of.pop(uid, None)
        if address:
            self._taken.discard(address)
