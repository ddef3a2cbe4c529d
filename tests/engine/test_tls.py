import ssl
from pathlib import Path

import pytest

from argosy.engine.certificates import Certificate, check_authority, check_certificate
from argosy.engine.tls import TlsContexts
from tests.support.certificates import Authority, Key, private_key
from tests.support.manual_clock import ManualClock


def serials(context: ssl.SSLContext) -> set[object]:
    """Of the authorities that a context trusts."""
    return {certificate["serialNumber"] for certificate in context.get_ca_certs()}


def trusted(*authorities: Authority) -> set[object]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata="".join(authority.certificate.decode() for authority in authorities))
    return serials(context)


def test_comments_of_a_bundle_may_be_in_any_encoding() -> None:
    first_ca, second_ca = Authority(), Authority()
    bundle = (
        "# Autorité à Zürich 証明書\n".encode() + first_ca.certificate + b"\xff\xfe\n" + second_ca.certificate
    )
    assert serials(TlsContexts(bundle).current(None)) == trusted(first_ca, second_ca)


def test_an_invalid_certificate_in_a_bundle_is_skipped() -> None:
    authority = Authority()
    bad = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    assert serials(TlsContexts(bad + authority.certificate).current(None)) == trusted(authority)
    for bundle in (bad, b"", b"nothing"):
        with pytest.raises(ssl.SSLError, match="no valid PEM certificate"):
            check_authority(bundle)


def test_a_replaced_ca_is_trusted_after_a_minute(tmp_path: Path) -> None:
    first_ca, second_ca, clock, path = Authority(), Authority(), ManualClock(), tmp_path / "ca.crt"
    path.write_bytes(first_ca.certificate)
    contexts = TlsContexts(first_ca.certificate, path, clock=clock)
    first = contexts.current(None)
    assert serials(first) == trusted(first_ca)
    path.write_bytes(second_ca.certificate)
    assert contexts.current(None) is first
    clock.advance(61)
    assert serials(contexts.current(None)) == trusted(second_ca)


def test_a_replaced_ca_is_read_again_at_once_if_the_server_is_not_trusted(tmp_path: Path) -> None:
    first_ca, second_ca, path = Authority(), Authority(), tmp_path / "ca.crt"
    path.write_bytes(second_ca.certificate)
    contexts = TlsContexts(first_ca.certificate, path, clock=ManualClock())
    assert serials(contexts.current(None)) == trusted(first_ca)
    contexts.expire()
    assert serials(contexts.current(None)) == trusted(second_ca)


UNFIT = {
    "missing file: last CA kept": None,
    "empty file: last CA kept": b"",
    "truncated file: last CA kept": b"-----BEGIN CERTIFICATE-----\nMI",
}


@pytest.mark.parametrize("case", UNFIT)
def test_the_last_ca_is_kept_while_its_file_is_invalid(case: str, tmp_path: Path) -> None:
    first_ca, second_ca, clock, path = Authority(), Authority(), ManualClock(), tmp_path / "ca.crt"
    contexts = TlsContexts(first_ca.certificate, path, clock=clock)
    before = contexts.current(None)
    content = UNFIT[case]
    if content is not None:
        path.write_bytes(content)
    clock.advance(61)
    assert contexts.current(None) is before
    path.write_bytes(second_ca.certificate)
    clock.advance(61)
    assert serials(contexts.current(None)) == trusted(second_ca)


def test_the_context_is_reused_while_ca_and_certificate_are_unchanged(tmp_path: Path) -> None:
    authority, clock, path = Authority(), ManualClock(), tmp_path / "ca.crt"
    path.write_bytes(authority.certificate)
    contexts = TlsContexts(authority.certificate, path, clock=clock)
    mine, other = authority.issue("me"), authority.issue("other")
    before = contexts.current(mine)
    clock.advance(61)
    assert contexts.current(mine) is before
    assert contexts.current(other) is not before


def test_an_encrypted_key_is_rejected_without_a_password_prompt() -> None:
    authority = Authority()
    key: Key = authority.key
    encrypted = Certificate(authority.certificate, private_key(key, b"secret"))
    with pytest.raises(ssl.SSLError, match="encrypted"):
        check_certificate(encrypted)
