from ipaddress import IPv4Network
from pathlib import Path

import pytest

from argosy.local.node.addresses import Addresses, NoAddressError


def test_addresses_are_kept_over_a_restart_and_not_reused_soon(tmp_path: Path) -> None:
    network, path = IPv4Network("10.9.0.0/24"), tmp_path / "addresses.json"
    first = Addresses(network, path)
    assert [first.of("a"), first.of("b"), first.of("a")] == ["10.9.0.2", "10.9.0.3", "10.9.0.2"]
    first.release("b")
    again = Addresses(network, path)
    assert again.of("a") == "10.9.0.2"
    assert again.of("c") == "10.9.0.4"


def test_a_full_network_is_said_to_be_full(tmp_path: Path) -> None:
    addresses = Addresses(IPv4Network("10.9.0.0/29"), tmp_path / "addresses.json")
    given = {addresses.of(str(number)) for number in range(5)}
    assert given == {f"10.9.0.{number}" for number in range(2, 7)}
    with pytest.raises(NoAddressError):
        addresses.of("one too many")
    addresses.release("3")
    assert addresses.of("another") in given
