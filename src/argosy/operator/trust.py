"""What pods trust the operator by: a CA of its own, the endpoint's certificate, the key of the jobs' tokens.

Made once and kept in a Secret beside the operator, so that every replica, and the next one after a restart,
speaks for the same authority. A token is an HMAC of its job's uid: nothing is stored per job, and it is good
for exactly one job for as long as that job exists.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from argosy.engine.client import Client
from argosy.engine.errors import AlreadyExists, Conflict, NotFound
from argosy.kinds.kubernetes import Namespace, Secret
from argosy.kinds.labels import MANAGED_BY, MANAGER

if TYPE_CHECKING:  # loaded only where a certificate is made or read
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec

SECRET = "argosy-operator-trust"  # noqa: S105 - the name of a Secret, not its content
_PARTS = ("ca.crt", "ca.key", "tls.crt", "tls.key", "token.key")
_AUTHORITY_LIFE = timedelta(days=365 * 20)
_CERTIFICATE_LIFE = timedelta(days=365 * 10)
_RENEW_BEFORE = timedelta(days=180)


class Trust(Struct, frozen=True):
    """PEM texts, and the secret that job tokens are made from."""

    authority: str
    authority_key: str
    certificate: str
    certificate_key: str
    token_key: bytes

    def token(self, job_uid: str) -> str:
        return hmac.new(self.token_key, job_uid.encode(), hashlib.sha256).hexdigest()

    def admits(self, token: str, job_uid: str) -> bool:
        return bool(job_uid) and hmac.compare_digest(token.encode(), self.token(job_uid).encode())


def endpoint_names(service: str, namespace: str, cluster_domain: str) -> tuple[str, ...]:
    """The names under which pods may reach the endpoint."""
    short = f"{service}.{namespace}"
    return (service, short, f"{short}.svc", f"{short}.svc.{cluster_domain}", "localhost")


async def found_trust(client: Client, namespace: str, name: str) -> Trust:
    """The trust that another has made; waited for until it is there."""
    while True:
        with suppress(NotFound):
            found = _read(await client.get(Secret, name, namespace))
            if found is not None:
                return found
        await asyncio.sleep(1.0)


async def ensure_trust(
    client: Client, namespace: str, names: Sequence[str], now: datetime, name: str = SECRET
) -> Trust:
    """The trust kept in the cluster: made on first use, its certificate renewed when old or short of a
    name."""
    while True:
        try:
            secret = await client.get(Secret, name, namespace)
        except NotFound:
            trust = make_trust(names, now)
            try:
                await _create(client, namespace, name, trust)
            except AlreadyExists:
                continue  # another replica was first: its trust is the one
            return trust
        found = _read(secret)
        if found is not None and not _stale(found, names, now):
            return found
        trust = renew(found, names, now) if found is not None else make_trust(names, now)
        try:
            await client.replace(
                Secret,
                _body(namespace, name, trust, secret.metadata.resource_version),
                namespace,
            )
        except (Conflict, NotFound):
            continue
        return trust


def make_trust(names: Sequence[str], now: datetime) -> Trust:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "argosy-operator-ca")])
    authority = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, _sha256())
    )
    bare = Trust(_pem(authority), _pem_key(key), "", "", secrets.token_bytes(32))
    return renew(bare, names, now)


def renew(trust: Trust, names: Sequence[str], now: datetime) -> Trust:
    """The same authority and tokens with a fresh certificate for these names."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    authority = x509.load_pem_x509_certificate(trust.authority.encode())
    authority_key = load_pem_private_key(trust.authority_key.encode(), None)
    if not isinstance(authority_key, ec.EllipticCurvePrivateKey):
        raise TypeError(
            f"Secret {SECRET}: ca.key is not an elliptic-curve key; delete the Secret to have it made anew"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder(
            authority.subject,
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])]),
            key.public_key(),
            x509.random_serial_number(),
        )
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _CERTIFICATE_LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
        )
        .sign(authority_key, _sha256())
    )
    return Trust(trust.authority, trust.authority_key, _pem(certificate), _pem_key(key), trust.token_key)


def _stale(trust: Trust, names: Sequence[str], now: datetime) -> bool:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificate(trust.certificate.encode())
    covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    missing = set(names) - set(covered.get_values_for_type(x509.DNSName))
    return bool(missing) or certificate.not_valid_after_utc < now + _RENEW_BEFORE


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


async def _create(client: Client, namespace: str, name: str, trust: Trust) -> None:
    try:
        await client.create(Secret, _body(namespace, name, trust), namespace)
    except NotFound:  # the operator's own namespace is missing: it runs outside of the cluster
        try:
            await client.create(Namespace, {"metadata": {"name": namespace}})
        except AlreadyExists:
            pass
        await client.create(Secret, _body(namespace, name, trust), namespace)


def _body(namespace: str, name: str, trust: Trust, resource_version: str = "") -> dict[str, object]:
    parts = (trust.authority, trust.authority_key, trust.certificate, trust.certificate_key)
    texts = [*(part.encode() for part in parts), trust.token_key]
    metadata: dict[str, object] = {"name": name, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    data = {name: base64.b64encode(text).decode() for name, text in zip(_PARTS, texts, strict=True)}
    return {"metadata": metadata, "type": "Opaque", "data": data}


def _read(secret: Secret) -> Trust | None:
    if any(part not in secret.data for part in _PARTS):
        return None
    authority, authority_key, certificate, key, token = (
        base64.b64decode(secret.data[part]) for part in _PARTS
    )
    return Trust(authority.decode(), authority_key.decode(), certificate.decode(), key.decode(), token)
