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
    make_authority,
    needs_renewal,
    split,
)

SECRET = "argosy-operator-trust"  # noqa: S105 - the name of a Secret, not its content
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

    def admits(self, token: str, job_uid: str) -> bool: ...


class Trust(Struct, frozen=True):
    """PEM texts, and the keys that job tokens are made from."""

    authority: str
    """The current authority, then the one before it if there is one. Empty for observers."""
    authority_key: str
    """Of the current authority. Empty for observers."""
    certificate: str
    """The endpoint's, then the current authority as certified by the one before it."""
    certificate_key: str
    token_key: bytes
    previous_token_key: bytes = b""
    rotated: datetime | None = None
    """When the token key took the place of the previous one."""

    def token(self, job_uid: str, now: datetime | None = None) -> str:
        """Return the token for a job's new pods."""
        settling = bool(now and self.rotated and now < self.rotated + TOKEN_KEY_DELAY)
        return _token(self.previous_token_key if settling else self.token_key, job_uid)

    def admits(self, token: str, job_uid: str) -> bool:
        keys = [key for key in (self.token_key, self.previous_token_key) if key]
        return bool(job_uid) and any(
            hmac.compare_digest(token.encode(), _token(key, job_uid).encode()) for key in keys
        )

    @property
    def signer(self) -> KeyPair:
        """The current authority."""
        return KeyPair(split(self.authority)[0], self.authority_key)


def _token(key: bytes, job_uid: str) -> str:
    return hmac.new(key, job_uid.encode(), hashlib.sha256).hexdigest()


def endpoint_names(service: str, namespace: str, cluster_domain: str) -> tuple[str, ...]:
    """Return the names under which pods may reach the endpoint."""
    short = f"{service}.{namespace}"
    return (service, short, f"{short}.svc", f"{short}.svc.{cluster_domain}", "localhost")


def make_trust(names: Sequence[str], now: datetime) -> Trust:
    authority = make_authority(now)
    bare = Trust(authority.certificate, authority.key, "", "", secrets.token_bytes(TOKEN_KEY_BYTES))
    return renew(bare, names, now)


def renew(trust: Trust, names: Sequence[str], now: datetime) -> Trust:
    """Return the same authority and token keys with a fresh certificate for these names."""
    issued = issue(trust.signer, names, now)
    chain = "".join(split(trust.certificate)[1:])
    return replace(trust, certificate=issued.certificate + chain, certificate_key=issued.key)


def is_stale(trust: Trust, names: Sequence[str], now: datetime) -> bool:
    """Return True if the certificate should be renewed."""
    return needs_renewal(split(trust.certificate)[0], trust.signer.certificate, names, now)


def rotate_token_key(trust: Trust, now: datetime) -> Trust:
    """Return trust with a new token key; of the old keys only the current one stays, as the previous."""
    return replace(
        trust,
        token_key=secrets.token_bytes(TOKEN_KEY_BYTES),
        previous_token_key=trust.token_key,
        rotated=now,
    )


def rotate_authority(trust: Trust, now: datetime) -> Trust:
    """Return trust with a new authority and certificate.

    Pods that know the current authority accept the new certificate by the chain that is sent with it. Pods
    created from now on are given both authorities, for replicas that still have the old certificate.
    """
    old, new = trust.signer, make_authority(now)
    issued = issue(new, dns_names(trust.certificate), now)
    return replace(
        trust,
        authority=new.certificate + old.certificate,
        authority_key=new.key,
        certificate=issued.certificate + cross_sign(new, old, now),
        certificate_key=issued.key,
    )


def observer_trust(trust: Trust, existing: Trust | None, names: Sequence[str], now: datetime) -> Trust:
    """Return what observers are given: the token keys and a certificate of their own.

    The existing certificate is kept while it is good.
    """
    served = KeyPair(existing.certificate, existing.certificate_key) if existing else None
    if served is None or needs_renewal(split(served.certificate)[0], trust.signer.certificate, names, now):
        issued = issue(trust.signer, names, now)
        served = KeyPair(issued.certificate + "".join(split(trust.certificate)[1:]), issued.key)
    return replace(
        trust, authority="", authority_key="", certificate=served.certificate, certificate_key=served.key
    )


def secret_body(namespace: str, name: str, trust: Trust, resource_version: str = "") -> dict[str, object]:
    metadata: dict[str, object] = {"name": name, "namespace": namespace, "labels": {MANAGED_BY: MANAGER}}
    if resource_version:
        metadata["resourceVersion"] = resource_version
    content = {
        _AUTHORITY: trust.authority.encode(),
        _AUTHORITY_KEY: trust.authority_key.encode(),
        _CERTIFICATE: trust.certificate.encode(),
        _CERTIFICATE_KEY: trust.certificate_key.encode(),
        _TOKEN_KEY: trust.token_key,
        _PREVIOUS_TOKEN_KEY: trust.previous_token_key,
        _ROTATED: trust.rotated.isoformat().encode() if trust.rotated else b"",
    }
    data = {part: base64.b64encode(value).decode() for part, value in content.items() if value}
    return {"metadata": metadata, "type": "Opaque", "data": data}


def read_secret(secret: Secret, *, observing: bool = False) -> Trust | None:
    """Return what a Secret holds; None if something is missing or cannot be read."""
    if any(not secret.data.get(part) for part in (_OBSERVER_PARTS if observing else _PARTS)):
        return None
    try:
        data = {part: base64.b64decode(text, validate=True) for part, text in secret.data.items()}
        rotated = data.get(_ROTATED, b"").decode()
        trust = Trust(
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
    pairs = [KeyPair(trust.certificate, trust.certificate_key), *([] if observing else [trust.signer])]
    return trust if all(map(is_usable, pairs)) else None
