from ipaddress import IPv4Network

import pytest

from argosy.local.node.addresses import AddressPool, NoAddressError


def test_addresses_of_existing_pods_are_kept_and_released_ones_are_not_reused_soon() -> None:
    network = IPv4Network("10.9.0.0/24")
    first = AddressPool(network, {})
    assert [first.allocate("a"), first.allocate("b"), first.allocate("a")] == [
        "10.9.0.2",
        "10.9.0.3",
        "10.9.0.2",
    ]
    first.release("b")
    assert first.allocate("c") == "10.9.0.4"
    again = AddressPool(network, {"a": "10.9.0.2", "c": "10.9.0.4", "other network": "10.8.0.5"})
    assert again.allocate("a") == "10.9.0.2"
    assert again.allocate("d") == "10.9.0.5"


def test_a_full_network_raises_no_address_error() -> None:
    addresses = AddressPool(IPv4Network("10.9.0.0/29"), {})
    allocated = {addresses.allocate(str(number)) for number in range(5)}
    assert allocated == {f"10.9.0.{number}" for number in range(2, 7)}
    with pytest.raises(NoAddressError):
        addresses.allocate("one too many")
    addresses.release("3")
    assert addresses.allocate("another") in allocated
