"""The credentials of the endpoint: certificates by which pods trust it, and keys of the tokens of pods.

The operator has a CA of its own, a certificate for its endpoint, and a key from which job tokens are derived.
A token is an HMAC of its job's uid, so nothing is stored per job, and a token is valid for one job only.
Running pods keep the CA and the token that they were created with. A rotation therefore keeps what it
replaces until the next one: tokens of the previous key stay valid, and the new CA is cross-signed by the
previous one.

Other processes that answer pods get a Secret of their own with a certificate and the token keys, but without
the key of the CA.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from msgspec import Struct
from msgspec.structs import replace

from argosy.kinds.kubernetes import Secret
from argosy.kinds.labels import MANAGED_BY, MANAGER
from argosy.operator.certificates import (
    KeyPair,
    cross_sign,
    dns_names,
    is_usable,
    issue,
    make_ca,
    needs_renewal,
    split_bundle,
)

TOKEN_KEY_BYTES: Final = 32
TOKEN_KEY_DELAY: Final = timedelta(seconds=60)
"""How long after a rotation new tokens are still derived from the previous key: until then some replica may
not have read the new key and would reject its tokens."""

_CA, _CA_KEY = "ca.crt", "ca.key"
_CERTIFICATE, _CERTIFICATE_KEY = "tls.crt", "tls.key"
_TOKEN_KEY, _PREVIOUS_TOKEN_KEY, _ROTATED = "token.key", "token-previous.key", "token-rotated"
_ISSUED_PARTS = (_CERTIFICATE, _CERTIFICATE_KEY, _TOKEN_KEY)
_PARTS = (_CA, _CA_KEY, *_ISSUED_PARTS)


class TokenVerifier(Protocol):
    """Verifies the tokens of jobs."""

    def verify(self, token: str, job_uid: str) -> bool: ...


class EndpointCredentials(Struct, frozen=True):
    """PEM texts, and the keys from which job tokens are derived."""

    ca: str
    """The current CA, then the previous one if there is one. Empty if issued to another process."""
    ca_key: str
    """Key of the current CA. Empty if issued to another process."""
    certificate: str
    """The endpoint's certificate, then the current CA as signed by the previous one."""
    certificate_key: str
    token_key: bytes
    previous_token_key: bytes = b""
    rotated_at: datetime | None = None
    """When the token key replaced the previous one."""

    def token(self, job_uid: str, now: datetime | None = None) -> str:
        """Return the token for a job's new pods."""
        delayed = bool(now and self.rotated_at and now < self.rotated_at + TOKEN_KEY_DELAY)
        return _token(self.previous_token_key if delayed else self.token_key, job_uid)

    def verify(self, token: str, job_uid: str) -> bool:
        """Return True if the token is the job's, from the current or the previous key."""
        keys = [key for key in (self.token_key, self.previous_token_key) if key]
        return bool(job_uid) and any(
            hmac.compare_digest(token.encode(), _token(key, job_uid).encode()) for key in keys
        )

    @property
    def signer(self) -> KeyPair:
        """The current CA."""
        return KeyPair(split_bundle(self.ca)[0], self.ca_key)


def _token(key: bytes, job_uid: str) -> str:
    return hmac.new(key, job_uid.encode(), hashlib.sha256).hexdigest()


def endpoint_names(service: str, namespace: str, cluster_domain: str) -> tuple[str, ...]:
    """Return the DNS names under which pods may reach the endpoint."""
    short = f"{service}.{namespace}"
    return (service, short, f"{short}.svc", f"{short}.svc.{cluster_domain}", "localhost")


def make_credentials(names: Sequence[str], now: datetime) -> EndpointCredentials:
    """Return a new CA, token key and certificate for these DNS names."""
    ca = make_ca(now)
    bare = EndpointCredentials(ca.certificate, ca.key, "", "", secrets.token_bytes(TOKEN_KEY_BYTES))
    return renew(bare, names, now)


def renew(credentials: EndpointCredentials, names: Sequence[str], now: datetime) -> EndpointCredentials:
    """Return the same CA and token keys with a new certificate for these DNS names."""
    issued = issue(credentials.signer, names, now)
    chain = "".join(split_bundle(credentials.certificate)[1:])
    return replace(credentials, certificate=issued.certificate + chain, certificate_key=issued.key)


def needs_renewal_for(credentials: EndpointCredentials, names: Sequence[str], now: datetime) -> bool:
    """Return True if the certificate should be renewed."""
    certificate = split_bundle(credentials.certificate)[0]
    return needs_renewal(certificate, credentials.signer.certificate, names, now)


def rotate_token_key(credentials: EndpointCredentials, now: datetime) -> EndpointCredentials:
    """Return the credentials with a new token key; the current key becomes the previous one."""
    return replace(
        credentials,
        token_key=secrets.token_bytes(TOKEN_KEY_BYTES),
        previous_token_key=credentials.token_key,
        rotated_at=now,
    )


def rotate_ca(credentials: EndpointCredentials, now: datetime) -> EndpointCredentials:
    """Return the credentials with a new CA and certificate.

    Pods that have the old CA accept the new certificate by the cross-signed CA that is sent with it. Pods
    created from now on get both CAs, for replicas that still present the old certificate.
    """
    old, new = credentials.signer, make_ca(now)
    issued = issue(new, dns_names(credentials.certificate), now)
    return replace(
        credentials,
        ca=new.certificate + old.certificate,
        ca_key=new.key,
        certificate=issued.certificate + cross_sign(new, old, now),
        certificate_key=issued.key,
    )


def issued_credentials(
    credentials: EndpointCredentials,
    existing: EndpointCredentials | None,
    names: Sequence[str],
    now: datetime,
) -> EndpointCredentials:
    """Return what another process that answers pods gets: the token keys and a certificate of its own.

    The existing certificate is kept while it is valid.
    """
    pair = KeyPair(existing.certificate, existing.certificate_key) if existing else None
    ca = credentials.signer
    if pair is None or needs_renewal(split_bundle(pair.certificate)[0], ca.certificate, names, now):
        issued = issue(ca, names, now)
        chain = "".join(split_bundle(credentials.certificate)[1:])
        pair = KeyPair(issued.certificate + chain, issued.key)
    return replace(credentials, ca="", ca_key="", certificate=pair.certificate, certificate_key=pair.key)


def secret_body(
    namespace: str, name: str, credentials: EndpointCredentials, resource_version: str = ""
) -> dict[str, object]:
    """Return the Secret that holds the credentials."""
    metadata: dict[str, object] = {"name": name, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    content = {
        _CA: credentials.ca.encode(),
        _CA_KEY: credentials.ca_key.encode(),
        _CERTIFICATE: credentials.certificate.encode(),
        _CERTIFICATE_KEY: credentials.certificate_key.encode(),
        _TOKEN_KEY: credentials.token_key,
        _PREVIOUS_TOKEN_KEY: credentials.previous_token_key,
        _ROTATED: credentials.rotated_at.isoformat().encode() if credentials.rotated_at else b"",
    }
    data = {part: base64.b64encode(value).decode() for part, value in content.items() if value}
    return {"metadata": metadata, "type": "Opaque", "data": data}


def read_secret(secret: Secret, *, issued: bool = False) -> EndpointCredentials | None:
    """Return the credentials in a Secret; None if a part is missing or damaged."""
    if any(not secret.data.get(part) for part in (_ISSUED_PARTS if issued else _PARTS)):
        return None
    try:
        data = {part: base64.b64decode(text, validate=True) for part, text in secret.data.items()}
        rotated = data.get(_ROTATED, b"").decode()
        credentials = EndpointCredentials(
            data.get(_CA, b"").decode(),
            data.get(_CA_KEY, b"").decode(),
            data[_CERTIFICATE].decode(),
            data[_CERTIFICATE_KEY].decode(),
            data[_TOKEN_KEY],
            data.get(_PREVIOUS_TOKEN_KEY, b""),
            datetime.fromisoformat(rotated).astimezone(UTC) if rotated else None,
        )
    except ValueError:
        return None
    pairs = [KeyPair(credentials.certificate, credentials.certificate_key)]
    if not issued:
        pairs.append(credentials.signer)
    return credentials if all(map(is_usable, pairs)) else None
