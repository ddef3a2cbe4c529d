import socket

from argosy.local.ports import claim, claim_first


def test_concurrent_claims_get_different_ports() -> None:
    first = claim_first(())
    second = claim_first((first.port,))
    with first.holder, second.holder:
        assert second.port != first.port


def test_a_port_in_use_cannot_be_claimed() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert claim(listener.getsockname()[1]) is None


def test_a_claim_ends_with_its_last_holder() -> None:
    first = claim_first(())
    with first.holder.dup():
        first.holder.close()
        assert claim(first.port) is None
    again = claim(first.port)
    assert again is not None
    again.holder.close()
