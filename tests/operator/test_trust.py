"""Keys: made once, shared by replicas, renewed without breaking what pods already trust."""

import ssl
from datetime import UTC, datetime, timedelta

from argosy.operator.endpoint import server_tls
from argosy.operator.trust import endpoint_names, make_trust, renew

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = endpoint_names("argosy-operator", "argosy-system", "cluster.local")


def handshake(server: ssl.SSLContext, authority: str, name: str) -> None:
    """A TLS handshake in memory; raises if the client does not trust the server under that name."""
    client = ssl.create_default_context(cadata=authority)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = client.wrap_bio(to_client, to_server, server_hostname=name)
    other = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (one, other):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
        if len(done) == 2:
            return
    raise AssertionError("the handshake does not end")


def test_pods_trust_the_certificate_under_every_name() -> None:
    trust = make_trust(NAMES, datetime.now(UTC))
    for name in NAMES:
        handshake(server_tls(trust), trust.authority, name)


def test_a_renewed_certificate_is_trusted_by_pods_that_hold_the_old_authority() -> None:
    old = make_trust(NAMES[:1], datetime.now(UTC) - timedelta(days=30))
    new = renew(old, NAMES, datetime.now(UTC))
    assert new.certificate != old.certificate
    handshake(server_tls(new), old.authority, "argosy-operator.argosy-system.svc")


def test_a_token_is_good_for_its_own_job_and_authority_only() -> None:
    trust, other = make_trust(NAMES, NOW), make_trust(NAMES, NOW)
    token = trust.token("uid-1")
    assert trust.admits(token, "uid-1")
    assert not trust.admits(token, "uid-2")
    assert not trust.admits("", "uid-1")
    assert not trust.admits("ü", "uid-1")
    assert not trust.admits(trust.token(""), "")
    assert not other.admits(token, "uid-1")
