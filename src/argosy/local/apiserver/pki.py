"""Creates the keys and certificates of a local control plane, in its state folder.

Elliptic-curve keys are fast to generate and make handshakes cheap. The certificate of the server is issued
again (by the same CA) when it lacks an address or expires soon; the CA and the signing key are kept, so that
kubeconfigs and tokens stay valid.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from argosy.local.state import State

_YEARS = datetime.timedelta(days=3650)
_MARGIN = datetime.timedelta(days=30)
_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
)


def ensure_pki(state_dir: Path, addresses: Sequence[str] = ()) -> None:
    """Create missing files in `pki/`; the certificate of the server has `addresses` and the usual names."""
    folder = state_dir / "pki"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / "sa.key").exists():
        _write_key(folder / "sa.key", ec.generate_private_key(ec.SECP256R1()))
    if not ((folder / "ca.key").exists() and (folder / "ca.crt").exists()):
        _make_authority(folder)
    names = [*_NAMES, *(address for address in addresses if address not in _NAMES)]
    _ensure_server(folder, "apiserver", "kube-apiserver", names)


def ensure_kubelet_certificate(state_dir: Path, addresses: Sequence[str]) -> None:
    """Create `pki/kubelet.crt`, with which the node agent serves these addresses."""
    certificate = State(state_dir).kubelet_certificate
    _ensure_server(certificate.parent, certificate.stem, "kubelet", addresses)


def _ensure_server(folder: Path, stem: str, subject: str, names: Sequence[str]) -> None:
    if not _is_valid_for(folder / f"{stem}.crt", names):
        _make_server(folder, stem, subject, names)


def _make_authority(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "argosy-local")])
    certificate = (
        _builder(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / "ca.key", key)
    _write(folder / "ca.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _make_server(folder: Path, stem: str, common_name: str, names: Sequence[str]) -> None:
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    authority_key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        _builder(subject, authority.subject, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    _write_key(folder / f"{stem}.key", key)
    _write(folder / f"{stem}.crt", certificate.public_bytes(serialization.Encoding.PEM))


def _is_valid_for(path: Path, names: Sequence[str]) -> bool:
    if not path.exists() or not path.with_suffix(".key").exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    if certificate.not_valid_after_utc - _MARGIN < datetime.datetime.now(datetime.UTC):
        return False
    covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_general(name) in covered for name in names)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YEARS)  # the certificate stays valid if the clock is set back
        .not_valid_after(now + _YEARS)
    )


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    _write(
        path,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, readable by the owner only."""
    partial = path.with_name(path.name + ".new")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
