"""The certificates and kubeconfigs of the components of a cluster, and serving certificates of nodes.

Components have the user names to which Kubernetes grants rights by default (`system:kube-scheduler`,
`system:node:…`), and no others; only the client of the API server towards nodes is an administrator.
"""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

_LIFE = datetime.timedelta(days=365)


class Identity(Struct, frozen=True):
    user: str
    groups: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    """If not empty, the certificate is also a serving certificate for these addresses."""


def issue(folder: Path, file_name: str, identity: Identity) -> None:
    """Write `file_name`.crt and .key for an identity, signed by the authority in `folder`, if missing."""
    certificate_file, key_file = folder / f"{file_name}.crt", folder / f"{file_name}.key"
    if certificate_file.exists():
        return
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    signer = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(identity))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LIFE)
        .add_extension(x509.ExtendedKeyUsage(_uses(identity)), critical=False)
    )
    if identity.addresses:
        names = [x509.IPAddress(ipaddress.ip_address(address)) for address in identity.addresses]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def kubeconfig(folder: Path, file_name: str, server: str) -> Path:
    """Write the kubeconfig of an issued identity; returns its path."""

    def content(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    user = {
        "client-certificate-data": content(f"{file_name}.crt"),
        "client-key-data": content(f"{file_name}.key"),
    }
    cluster = {"server": server, "certificate-authority-data": content("ca.crt")}
    path = folder / f"{file_name}.kubeconfig"
    path.touch(mode=0o600)
    path.write_bytes(
        msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": file_name, "user": user}],
                "contexts": [{"name": "cluster", "context": {"cluster": "cluster", "user": file_name}}],
                "current-context": "cluster",
            }
        )
    )
    return path


def _subject(identity: Identity) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)])


def _uses(identity: Identity) -> Sequence[x509.ObjectIdentifier]:
    if identity.addresses:
        return [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    return [ExtendedKeyUsageOID.CLIENT_AUTH]
