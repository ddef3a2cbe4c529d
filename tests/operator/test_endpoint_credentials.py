"""Tests that credentials are renewed and rotated without breaking the trust of running pods."""

import ssl
from base64 import b64encode
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from argosy.kinds.kubernetes import Secret
from argosy.kinds.meta import ObjectMeta
from argosy.operator.endpoint import load_certificate, server_tls
from argosy.operator.endpoint_credentials import (
    TOKEN_KEY_DELAY,
    EndpointCredentials,
    endpoint_names,
    issued_credentials,
    make_credentials,
    needs_renewal_for,
    read_secret,
    renew,
    rotate_ca,
    rotate_token_key,
    secret_body,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = endpoint_names("argosy-operator", "argosy-system", "cluster.local")


def handshake(server: ssl.SSLContext, authority: str, name: str) -> None:
    """A TLS handshake in memory; raises if the client does not trust the server under that name."""
    client = ssl.create_default_context(cadata=authority)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname=name)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for side in (client_side, server_side):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
        if len(done) == 2:
            return
    raise AssertionError("the handshake does not end")


def test_pods_trust_the_certificate_for_each_dns_name() -> None:
    trust = make_credentials(NAMES, datetime.now(UTC))
    for name in NAMES:
        handshake(server_tls(trust), trust.ca, name)


def test_renewed_certificate_is_trusted_by_existing_pods() -> None:
    old = make_credentials(NAMES[:1], datetime.now(UTC) - timedelta(days=30))
    new = renew(old, NAMES, datetime.now(UTC))
    assert new.certificate != old.certificate
    handshake(server_tls(new), old.ca, "argosy-operator.argosy-system.svc")


def test_token_is_valid_for_its_own_job_and_key_only() -> None:
    trust, other = make_credentials(NAMES, NOW), make_credentials(NAMES, NOW)
    token = trust.token("uid-1")
    assert trust.verify(token, "uid-1")
    assert not trust.verify(token, "uid-2")
    assert not trust.verify("", "uid-1")
    assert not trust.verify("ü", "uid-1")
    assert not trust.verify(trust.token(""), "")
    assert not other.verify(token, "uid-1")


def test_tokens_of_the_previous_key_are_accepted_until_the_second_rotation() -> None:
    first = make_credentials(NAMES, NOW)
    second = rotate_token_key(first, NOW)
    third = rotate_token_key(second, NOW)
    old = first.token("uid")
    assert first.verify(old, "uid")
    assert second.verify(old, "uid")
    assert not third.verify(old, "uid")
    assert third.verify(second.token("uid"), "uid")


def test_new_token_key_is_used_once_all_replicas_had_time_to_read_it() -> None:
    first = make_credentials(NAMES, NOW)
    second = rotate_token_key(first, NOW)
    assert second.token("uid", NOW + TOKEN_KEY_DELAY / 2) == first.token("uid")
    assert second.token("uid", NOW + TOKEN_KEY_DELAY) == second.token("uid") != first.token("uid")


def test_rotated_authority_is_trusted_by_pods_that_have_the_previous_one() -> None:
    now = datetime.now(UTC)
    first = make_credentials(NAMES, now)
    second = rotate_ca(first, now)
    third = rotate_ca(second, now)
    handshake(server_tls(second), first.ca, NAMES[0])
    handshake(server_tls(renew(second, NAMES, now)), first.ca, NAMES[0])
    handshake(server_tls(first), second.ca, NAMES[0])  # a replica that has not reloaded yet
    handshake(server_tls(third), second.ca, NAMES[0])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_tls(third), first.ca, NAMES[0])


def test_reloaded_certificate_is_used_for_new_connections() -> None:
    now = datetime.now(UTC)
    old, new = make_credentials(NAMES, now), make_credentials(NAMES, now)
    context = server_tls(old)
    load_certificate(context, new)
    handshake(context, new.ca, NAMES[0])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, old.ca, NAMES[0])


def test_secret_of_observers_has_no_private_key_of_the_operator() -> None:
    now = datetime.now(UTC)
    trust = rotate_token_key(make_credentials(NAMES, now), now)
    observer_credentials = issued_credentials(trust, None, ["ares-observer"], now)
    handshake(server_tls(observer_credentials), trust.ca, "ares-observer")
    assert observer_credentials.verify(trust.token("uid"), "uid")
    assert observer_credentials.certificate_key != trust.certificate_key
    body = secret_body("ns", "observers", observer_credentials)
    assert set(_data(body)) == {"tls.crt", "tls.key", "token.key", "token-previous.key", "token-rotated"}
    assert issued_credentials(trust, observer_credentials, ["ares-observer"], now) == observer_credentials
    rotated = rotate_ca(trust, now)
    renewed = issued_credentials(rotated, observer_credentials, ["ares-observer"], now)
    handshake(server_tls(renewed), rotated.ca, "ares-observer")
    handshake(server_tls(renewed), trust.ca, "ares-observer")


def test_credentials_survive_encoding_as_a_secret() -> None:
    trust = make_credentials(NAMES, NOW)
    for stored in (trust, rotate_ca(rotate_token_key(trust, NOW), NOW)):
        assert _read(_data(secret_body("ns", "name", stored))) == stored


DAMAGED: dict[str, dict[str, str]] = {
    "missing value": {"ca.key": ""},
    "value is not base64": {"token.key": "?"},
    "certificate is not PEM": {"tls.crt": b64encode(b"certificate").decode()},
    "key of another certificate": {
        "tls.key": b64encode(make_credentials(NAMES, NOW).certificate_key.encode()).decode()
    },
    "invalid time": {"token-rotated": b64encode(b"yesterday").decode()},
}


@pytest.mark.parametrize("damage", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_secret_is_rejected(damage: dict[str, str]) -> None:
    assert _read({**_data(secret_body("ns", "name", make_credentials(NAMES, NOW))), **damage}) is None


STALE: dict[str, tuple[EndpointCredentials, bool]] = {
    "fresh: kept": (make_credentials(NAMES, NOW), False),
    "rotated authority: kept": (rotate_ca(make_credentials(NAMES, NOW), NOW), False),
    "ends within half a year: renewed": (make_credentials(NAMES, NOW - timedelta(days=365 * 10 - 100)), True),
    "lacks a name: renewed": (make_credentials(NAMES[:1], NOW), True),
    "signed by another authority: renewed": (
        replace(make_credentials(NAMES, NOW), certificate=make_credentials(NAMES, NOW).certificate),
        True,
    ),
}


@pytest.mark.parametrize("case", STALE.values(), ids=STALE.keys())
def test_certificate_renewal(case: tuple[EndpointCredentials, bool]) -> None:
    trust, want = case
    assert needs_renewal_for(trust, NAMES, NOW) is want


def _data(body: dict[str, object]) -> dict[str, str]:
    data = body["data"]
    assert isinstance(data, dict)
    return data


def _read(data: dict[str, str]) -> EndpointCredentials | None:
    return read_secret(Secret(ObjectMeta(name="name"), data))
