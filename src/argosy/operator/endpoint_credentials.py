"""The credentials by which pods and the operator trust each other, and how they are kept in Secrets.

The operator has a certificate authority of its own, a certificate for its endpoint, and a key that job tokens
are made from. A token is an HMAC of its job's uid: nothing is stored per job, and it is good for exactly one
job. Running pods keep the authority and the token that they were created with, so a rotation keeps what it
replaces: tokens of the previous key are accepted, and the new authority is certified by the previous one. The
next rotation drops it.

Observers have a Secret of their own with what they need to answer pods, and nothing else of the operator's.
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

SECRET = "argosy-operator-tls"  # noqa: S105 - the name of a Secret, not its content
TOKEN_KEY_BYTES: Final = 32
TOKEN_KEY_DELAY: Final = timedelta(seconds=60)
"""How long after a rotation tokens are still made from the previous key: by then every replica and observer
has read the new one, and accepts tokens of it."""

_AUTHORITY, _AUTHORITY_KEY = "ca.crt", "ca.key"
_CERTIFICATE, _CERTIFICATE_KEY = "tls.crt", "tls.key"
_TOKEN_KEY, _PREVIOUS_TOKEN_KEY, _ROTATED = "token.key", "token-previous.key", "token-rotated"
_OBSERVER_PARTS = (_CERTIFICATE, _CERTIFICATE_KEY, _TOKEN_KEY)
_PARTS = (_AUTHORITY, _AUTHORITY_KEY, *_OBSERVER_PARTS)


class TokenVerifier(Protocol):
    """Tells whether a token is that of a job."""

    def verify(self, token: str, job_uid: str) -> bool: ...


class EndpointCredentials(Struct, frozen=True):
    """PEM texts, and the keys that job tokens are made from."""

    ca: str
    """The current authority, then the one before it if there is one. Empty for observers."""
    ca_key: str
    """Of the current authority. Empty for observers."""
    certificate: str
    """The endpoint's, then the current authority as certified by the one before it."""
    certificate_key: str
    token_key: bytes
    previous_token_key: bytes = b""
    rotated_at: datetime | None = None
    """When the token key took the place of the previous one."""

    def token(self, job_uid: str, now: datetime | None = None) -> str:
        """Return the token for a job's new pods."""
        settling = bool(now and self.rotated_at and now < self.rotated_at + TOKEN_KEY_DELAY)
        return _token(self.previous_token_key if settling else self.token_key, job_uid)

    def verify(self, token: str, job_uid: str) -> bool:
        keys = [key for key in (self.token_key, self.previous_token_key) if key]
        return bool(job_uid) and any(
            hmac.compare_digest(token.encode(), _token(key, job_uid).encode()) for key in keys
        )

    @property
    def signer(self) -> KeyPair:
        """The current authority."""
        return KeyPair(split_bundle(self.ca)[0], self.ca_key)


def _token(key: bytes, job_uid: str) -> str:
    return hmac.new(key, job_uid.encode(), hashlib.sha256).hexdigest()


def endpoint_names(service: str, namespace: str, cluster_domain: str) -> tuple[str, ...]:
    """Return the names under which pods may reach the endpoint."""
    short = f"{service}.{namespace}"
    return (service, short, f"{short}.svc", f"{short}.svc.{cluster_domain}", "localhost")


def make_credentials(names: Sequence[str], now: datetime) -> EndpointCredentials:
    authority = make_ca(now)
    bare = EndpointCredentials(
        authority.certificate, authority.key, "", "", secrets.token_bytes(TOKEN_KEY_BYTES)
    )
    return renew(bare, names, now)


def renew(trust: EndpointCredentials, names: Sequence[str], now: datetime) -> EndpointCredentials:
    """Return the same authority and token keys with a fresh certificate for these names."""
    issued = issue(trust.signer, names, now)
    chain = "".join(split_bundle(trust.certificate)[1:])
    return replace(trust, certificate=issued.certificate + chain, certificate_key=issued.key)


def needs_renewal_for(trust: EndpointCredentials, names: Sequence[str], now: datetime) -> bool:
    """Return True if the certificate should be renewed."""
    return needs_renewal(split_bundle(trust.certificate)[0], trust.signer.certificate, names, now)


def rotate_token_key(trust: EndpointCredentials, now: datetime) -> EndpointCredentials:
    """Return trust with a new token key; of the old keys only the current one stays, as the previous."""
    return replace(
        trust,
        token_key=secrets.token_bytes(TOKEN_KEY_BYTES),
        previous_token_key=trust.token_key,
        rotated_at=now,
    )


def rotate_ca(trust: EndpointCredentials, now: datetime) -> EndpointCredentials:
    """Return trust with a new authority and certificate.

    Pods that know the current authority accept the new certificate by the chain that is sent with it. Pods
    created from now on are given both authorities, for replicas that still have the old certificate.
    """
    old, new = trust.signer, make_ca(now)
    issued = issue(new, dns_names(trust.certificate), now)
    return replace(
        trust,
        ca=new.certificate + old.certificate,
        ca_key=new.key,
        certificate=issued.certificate + cross_sign(new, old, now),
        certificate_key=issued.key,
    )


def observer_credentials(
    trust: EndpointCredentials, existing: EndpointCredentials | None, names: Sequence[str], now: datetime
) -> EndpointCredentials:
    """Return what observers are given: the token keys and a certificate of their own.

    The existing certificate is kept while it is good.
    """
    served = KeyPair(existing.certificate, existing.certificate_key) if existing else None
    if served is None or needs_renewal(
        split_bundle(served.certificate)[0], trust.signer.certificate, names, now
    ):
        issued = issue(trust.signer, names, now)
        served = KeyPair(issued.certificate + "".join(split_bundle(trust.certificate)[1:]), issued.key)
    return replace(trust, ca="", ca_key="", certificate=served.certificate, certificate_key=served.key)


def secret_body(
    namespace: str, name: str, trust: EndpointCredentials, resource_version: str = ""
) -> dict[str, object]:
    metadata: dict[str, object] = {"name": name, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    content = {
        _AUTHORITY: trust.ca.encode(),
        _AUTHORITY_KEY: trust.ca_key.encode(),
        _CERTIFICATE: trust.certificate.encode(),
        _CERTIFICATE_KEY: trust.certificate_key.encode(),
        _TOKEN_KEY: trust.token_key,
        _PREVIOUS_TOKEN_KEY: trust.previous_token_key,
        _ROTATED: trust.rotated_at.isoformat().encode() if trust.rotated_at else b"",
    }
    data = {part: base64.b64encode(value).decode() for part, value in content.items() if value}
    return {"metadata": metadata, "type": "Opaque", "data": data}


def read_secret(secret: Secret, *, for_observer: bool = False) -> EndpointCredentials | None:
    """Return what a Secret holds; None if something is missing or cannot be read."""
    if any(not secret.data.get(part) for part in (_OBSERVER_PARTS if for_observer else _PARTS)):
        return None
    try:
        data = {part: base64.b64decode(text, validate=True) for part, text in secret.data.items()}
        rotated = data.get(_ROTATED, b"").decode()
        trust = EndpointCredentials(
            data.get(_AUTHORITY, b"").decode(),
            data.get(_AUTHORITY_KEY, b"").decode(),
            data[_CERTIFICATE].decode(),
            data[_CERTIFICATE_KEY].decode(),
            data[_TOKEN_KEY],
            data.get(_PREVIOUS_TOKEN_KEY, b""),
            datetime.fromisoformat(rotated).astimezone(UTC) if rotated else None,
        )
    except ValueError:
        return None
    pairs = [KeyPair(trust.certificate, trust.certificate_key), *([] if for_observer else [trust.signer])]
    return trust if all(map(is_usable, pairs)) else None
