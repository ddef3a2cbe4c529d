"""Pod addresses: handed out in order, remembered in a file, so that a restarted agent never gives one out
twice.

Going round the whole network before an address is used again keeps a late packet for a dead pod from reaching
a new one.
"""

import json
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from argosy.local.node.report import replace


class NoAddressError(Exception):
    """Every address of the pod network is taken."""


class Addresses:
    def __init__(self, network: IPv4Network, path: Path) -> None:
        self._network = network
        self._path = path
        self._last = 1
        self._taken: dict[str, str] = {}
        self._load()

    def of(self, uid: str) -> str:
        """The address of a pod: the one that it has, else the next free one."""
        for address, owner in self._taken.items():
            if owner == uid:
                return address
        size = self._network.num_addresses
        for step in range(1, size):
            number = (self._last + step) % size
            address = str(self._network.network_address + number)
            if number > 1 and number != size - 1 and address not in self._taken:
                self._last = number
                self._taken[address] = uid
                self._save()
                return address
        raise NoAddressError(f"all addresses of {self._network} are taken by pods")

    def release(self, uid: str) -> None:
        for address in [address for address, owner in self._taken.items() if owner == uid]:
            del self._taken[address]
            self._save()

    def _load(self) -> None:
        try:
            saved = json.loads(self._path.read_bytes())
        except (FileNotFoundError, ValueError):
            return
        inside = {a: uid for a, uid in saved["taken"].items() if IPv4Address(a) in self._network}
        self._taken, self._last = inside, saved["last"] % self._network.num_addresses

    def _save(self) -> None:
        replace(self._path, json.dumps({"last": self._last, "taken": self._taken}).encode())
