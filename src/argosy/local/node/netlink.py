"""A minimal rtnetlink client for links, addresses and routes; no `ip` binary is needed.

A `Netlink` acts on the network namespace in which it was created, even after its process moved to another
one. The shim uses this to create a veth pair with one end on the bridge and the other in its own new
namespace. Standard library only.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Final

_REQUEST: Final = 1
_ACK: Final = 4
_DUMP: Final = 0x300
_CREATE: Final = 0x400
_EXCLUSIVE: Final = 0x200
_REPLACE: Final = 0x100

_NEW_LINK, _DELETE_LINK, _GET_LINK = 16, 17, 18
_NEW_ADDRESS, _DELETE_ADDRESS, _GET_ADDRESS = 20, 21, 22
_NEW_ROUTE = 24
_ERROR, _DONE = 2, 3

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO = 1, 3, 4, 10, 18
_IFLA_NET_NS_FD: Final = 28
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2
_VETH_INFO_PEER: Final = 1
_IFF_UP: Final = 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DESTINATION, _RTA_GATEWAY = 1, 5
_MAIN_TABLE, _PROTOCOL_BOOT, _UNIVERSE, _UNICAST = 254, 3, 0, 1


class Netlink:
    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> "Netlink":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def add_bridge(self, name: str, hardware_address: bytes) -> None:
        """Create a bridge. Its fixed hardware address keeps pods' neighbour tables valid if ports change."""
        info = _attribute(_IFLA_INFO_KIND, b"bridge\0")
        body = (
            _link()
            + _name(name)
            + _attribute(_IFLA_ADDRESS, hardware_address)
            + _attribute(_IFLA_LINKINFO, info)
        )
        self._do(_NEW_LINK, body, _CREATE | _EXCLUSIVE)

    def add_veth(self, name: str, *, master: int, peer: str, peer_namespace: int, mtu: int) -> None:
        """Create a veth pair: one end up and on the bridge `master`, the other in that namespace."""
        ending = (
            _link()
            + _name(peer)
            + _attribute(_IFLA_NET_NS_FD, struct.pack("I", peer_namespace))
            + _attribute(_IFLA_MTU, struct.pack("I", mtu))
        )
        info = _attribute(_IFLA_INFO_KIND, b"veth\0") + _attribute(
            _IFLA_INFO_DATA, _attribute(_VETH_INFO_PEER, ending)
        )
        body = (
            _link(flags=_IFF_UP, change=_IFF_UP)
            + _name(name)
            + _attribute(_IFLA_MTU, struct.pack("I", mtu))
            + _attribute(_IFLA_MASTER, struct.pack("I", master))
            + _attribute(_IFLA_LINKINFO, info)
        )
        self._do(_NEW_LINK, body, _CREATE | _EXCLUSIVE)

    def delete_link(self, name: str) -> None:
        """Delete a link; done if there is none, since the kernel deletes it with the namespace at its other
        end."""
        try:
            self._do(_DELETE_LINK, _link() + _name(name), 0)
        except OSError as error:
            if error.errno != errno.ENODEV:
                raise

    def set_up(self, index: int) -> None:
        self._do(_NEW_LINK, _link(index=index, flags=_IFF_UP, change=_IFF_UP), 0)

    def index(self, name: str) -> int | None:
        """Return the index of the link with this name, or None."""
        return self.links().get(name)

    def links(self) -> dict[str, int]:
        links: dict[str, int] = {}
        for kind, body in self._ask(_GET_LINK, _link(), _DUMP):
            if kind == _NEW_LINK:
                index = struct.unpack_from("i", body, 4)[0]
                links[_attributes(body[16:]).get(_IFLA_IFNAME, b"").rstrip(b"\0").decode()] = index
        return links

    def add_address(self, index: int, address: str, prefix: int) -> None:
        """Add an address to a link, unless it has it."""
        packed = IPv4Address(address).packed
        body = struct.pack("BBBBi", socket.AF_INET, prefix, 0, 0, index)
        body += _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
        self._do(_NEW_ADDRESS, body, _CREATE | _REPLACE)

    def delete_address(self, index: int, address: str, prefix: int) -> None:
        body = struct.pack("BBBBi", socket.AF_INET, prefix, 0, 0, index)
        body += _attribute(_IFA_LOCAL, IPv4Address(address).packed)
        try:
            self._do(_DELETE_ADDRESS, body, 0)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise

    def addresses(self, index: int) -> list[tuple[str, int]]:
        addresses = []
        body = struct.pack("BBBBi", socket.AF_INET, 0, 0, 0, 0)
        for kind, reply in self._ask(_GET_ADDRESS, body, _DUMP):
            _, prefix, _, _, owner = struct.unpack_from("BBBBi", reply)
            local = _attributes(reply[8:]).get(_IFA_LOCAL)
            if kind == _NEW_ADDRESS and owner == index and local:
                addresses.append((str(IPv4Address(local)), prefix))
        return addresses

    def add_default_route(self, gateway: str) -> None:
        self.add_route("0.0.0.0", 0, gateway)  # noqa: S104 - a network, nothing listens

    def add_route(self, network: str, prefix: int, gateway: str) -> None:
        body = struct.pack(
            "BBBBBBBBI",
            socket.AF_INET,
            prefix,
            0,
            0,
            _MAIN_TABLE,
            _PROTOCOL_BOOT,
            _UNIVERSE,
            _UNICAST,
            0,
        )
        if prefix:
            body += _attribute(_RTA_DESTINATION, IPv4Address(network).packed)
        body += _attribute(_RTA_GATEWAY, IPv4Address(gateway).packed)
        self._do(_NEW_ROUTE, body, _CREATE | _REPLACE)

    def _do(self, kind: int, body: bytes, flags: int) -> None:
        for _ in self._ask(kind, body, flags | _ACK):
            pass

    def _ask(self, kind: int, body: bytes, flags: int) -> Iterator[tuple[int, bytes]]:
        self._sequence += 1
        header = struct.pack("IHHII", 16 + len(body), kind, flags | _REQUEST, self._sequence, 0)
        self._socket.send(header + body)
        while True:
            for reply, sequence, content in _messages(self._socket.recv(1 << 18)):
                if sequence != self._sequence:
                    continue
                if reply == _DONE:
                    return
                if reply == _ERROR:
                    code = -struct.unpack_from("i", content)[0]
                    if code:
                        raise OSError(code, f"netlink request {kind}: {os.strerror(code)}")
                    return
                yield reply, content


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    while len(data) >= 16:
        length, kind, _, sequence, _ = struct.unpack_from("IHHII", data)
        yield kind, sequence, data[16:length]
        data = data[(length + 3) & ~3 :]


def _attribute(kind: int, payload: bytes) -> bytes:
    length = 4 + len(payload)
    return struct.pack("HH", length, kind) + payload + b"\0" * (-length % 4)


def _attributes(data: bytes) -> dict[int, bytes]:
    attributes: dict[int, bytes] = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("HH", data)
        if length < 4:
            break
        attributes[kind & 0x3FFF] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return attributes


def _link(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("BxHiII", socket.AF_UNSPEC, 0, index, flags, change)


def _name(name: str) -> bytes:
    return _attribute(_IFLA_IFNAME, name.encode() + b"\0")
