"""Makes the operator's certificate authority and the certificates that it signs.

An authority is replaced without breaking clients that know only the old one: the old authority certifies the
new one's key (RFC 4210 calls that certificate *NewWithOld*), and servers send it after their own certificate.
Both authorities have the same name, so that certificate is self-issued and does not count against the old
authority's path length.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:  # loaded only where a certificate is made or read
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

CA_NAME: Final = "argosy-operator-ca"
CA_LIFETIME: Final = timedelta(days=365 * 20)
CERTIFICATE_LIFETIME: Final = timedelta(days=365 * 10)
RENEW_BEFORE: Final = timedelta(days=180)
_BACKDATE: Final = timedelta(hours=1)
"""Clocks of clients may be behind ours."""
_END: Final = "-----END CERTIFICATE-----\n"


class KeyPair(Struct, frozen=True):
    """A certificate, perhaps with the chain that leads to its authority, and its private key, in PEM."""

    certificate: str
    key: str


def make_ca(now: datetime) -> KeyPair:
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    return KeyPair(_certify_ca(key.public_key(), key, now), _pem_key(key))


def cross_sign(authority: KeyPair, by: KeyPair, now: datetime) -> str:
    """Return a certificate by which those who trust the authority `by` trust `authority` too."""
    from cryptography import x509

    public_key = x509.load_pem_x509_certificate(authority.certificate.encode()).public_key()
    return _certify_ca(public_key, _load_key(by.key), now)


def issue(authority: KeyPair, names: Sequence[str], now: datetime) -> KeyPair:
    """Return a server's certificate for these DNS names, with a key of its own."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key, signing_key = ec.generate_private_key(ec.SECP256R1()), _load_key(authority.key)
    certificate = (
        x509.CertificateBuilder(
            x509.load_pem_x509_certificate(authority.certificate.encode()).subject,
            _name(names[0]),
            key.public_key(),
            x509.random_serial_number(),
        )
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + CERTIFICATE_LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
        .sign(signing_key, _sha256())
    )
    return KeyPair(_pem(certificate), _pem_key(key))


def is_usable(pair: KeyPair) -> bool:
    """Return True if certificate and key can be read and belong together."""
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate.encode())
        return certificate.public_key() == _load_key(pair.key).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False


def split_bundle(bundle: str) -> list[str]:
    """Return the certificates of a PEM bundle one by one."""
    return [f"{text}{_END}" for text in bundle.split(_END) if text.strip()]


def dns_names(certificate: str) -> list[str]:
    from cryptography import x509

    loaded = x509.load_pem_x509_certificate(certificate.encode())
    return loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(
        x509.DNSName
    )


def needs_renewal(certificate: str, authority: str, names: Sequence[str], now: datetime) -> bool:
    """Return True if a certificate lacks a name, ends soon, or was signed by another authority."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    loaded = x509.load_pem_x509_certificate(certificate.encode())
    try:
        loaded.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.encode()))
    except (InvalidSignature, ValueError):
        return True
    return bool(set(names) - set(dns_names(certificate))) or loaded.not_valid_after_utc < now + RENEW_BEFORE


def _certify_ca(public_key: object, signing_key: "ec.EllipticCurvePrivateKey", now: datetime) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    if not isinstance(public_key, ec.EllipticCurvePublicKey):
        raise TypeError("the authority's key is not an elliptic-curve key")
    certificate = (
        x509.CertificateBuilder(_name(CA_NAME), _name(CA_NAME), public_key, x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + CA_LIFETIME)
        # One authority may follow another: Go counts the certificate between them, OpenSSL does not.
        .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
        .sign(signing_key, _sha256())
    )
    return _pem(certificate)


def _name(text: str) -> "x509.Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _load_key(text: str) -> "ec.EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = load_pem_private_key(text.encode(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError("the authority's key is not an elliptic-curve key")
    return key


def _usage(signs: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _sha256() -> "hashes.SHA256":
    from cryptography.hazmat.primitives import hashes

    return hashes.SHA256()


def _pem(certificate: "x509.Certificate") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _pem_key(key: "ec.EllipticCurvePrivateKey") -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
