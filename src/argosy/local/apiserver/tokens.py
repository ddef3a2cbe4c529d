"""Signs and verifies service account tokens: JWTs with the key of the control plane.

A token can be bound to an object (a pod); it is valid while the account and the object exist with the uids
in the token.
"""

import base64
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from argosy.local.apiserver.http import User
from argosy.local.apiserver.store import Store
from argosy.local.apiserver.timestamps import new_uid
from argosy.local.schema.model import Json
from argosy.local.schema.unstructured import get_map, get_str

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ISSUER = "https://kubernetes.default.svc.cluster.local"


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""


class _Identified(msgspec.Struct, gc=False):
    """Only the uid of an object, because tokens are verified with every request."""

    metadata: _Metadata


_identified = msgspec.json.Decoder(_Identified)


class Signer:
    def __init__(self, key: Path, store: Store, clock: Callable[[], float] = time.time) -> None:
        self._path, self._store, self._clock = key, store, clock
        self._verified: dict[str, Json] = {}

    def sign(self, account: Json, audiences: list[str], seconds: int, bound: Json | None) -> tuple[str, int]:
        """Return a token of a service account and its expiration; `bound` is an object (kind, name, uid)."""
        now = int(self._clock())
        namespace, name = get_str(account, "metadata", "namespace"), get_str(account, "metadata", "name")
        private: Json = {
            "namespace": namespace,
            "serviceaccount": {"name": name, "uid": get_str(account, "metadata", "uid")},
        }
        if bound:
            private[str(bound["kind"]).lower()] = {"name": bound["name"], "uid": bound["uid"]}
            if bound.get("node"):
                private["node"] = bound["node"]
        claims: Json = {
            "aud": audiences or [ISSUER],
            "exp": now + seconds,
            "iat": now,
            "iss": ISSUER,
            "jti": new_uid(),
            "kubernetes.io": private,
            "nbf": now,
            "sub": f"system:serviceaccount:{namespace}:{name}",
        }
        header: Json = {"alg": "ES256", "typ": "JWT", "kid": self.key_id()}
        signed = _encode(msgspec.json.encode(header)) + b"." + _encode(msgspec.json.encode(claims))
        return (signed + b"." + _encode(self._sign(signed))).decode(), now + seconds

    def user(self, token: str, audiences: list[str] | None = None) -> User | None:
        """Return the service account of a token; None if the token is not valid."""
        claims = self.claims(token)
        if claims is None or not self._current(claims):
            return None
        accepted = set(audiences or [ISSUER])
        offered = claims.get("aud")
        if not accepted & set(offered if isinstance(offered, list) else [offered]):
            return None
        private = get_map(claims, "kubernetes.io")
        namespace, account = get_str(private, "namespace"), get_map(private, "serviceaccount")
        name = f"system:serviceaccount:{namespace}:{get_str(account, 'name')}"
        groups = (
            "system:serviceaccounts",
            f"system:serviceaccounts:{namespace}",
            "system:authenticated",
        )
        return User(name, get_str(account, "uid"), groups, _extra(claims, private))

    def claims(self, token: str) -> Json | None:
        """Return the claims of a token with a valid signature."""
        verified = self._verified.get(token)
        if verified is not None:
            return verified
        signed, _, signature = token.rpartition(".")
        try:
            if not self._verify(signed.encode(), _decode(signature)):
                return None
            claims = msgspec.json.decode(_decode(signed.split(".")[1]), type=dict[str, object])
        except (ValueError, IndexError, msgspec.MsgspecError):
            return None
        if len(self._verified) > 10_000:
            self._verified.clear()
        self._verified[token] = claims
        return claims

    def _current(self, claims: Json) -> bool:
        """Return True if a token has not expired and its objects exist.

        `nbf` is ignored, so that tokens stay valid if the clock is set back.
        """
        end = claims.get("exp")
        if not isinstance(end, int) or self._clock() >= end:
            return False
        private = get_map(claims, "kubernetes.io")
        namespace = get_str(private, "namespace")
        return self._exists("serviceaccounts", namespace, get_map(private, "serviceaccount")) and (
            "pod" not in private or self._exists("pods", namespace, get_map(private, "pod"))
        )

    def _exists(self, storage: str, namespace: str, reference: Json) -> bool:
        """Return True if the object of a token exists with the same uid."""
        stored = self._store.collection(storage).get(namespace, get_str(reference, "name"))
        uid = get_str(reference, "uid")
        return stored is not None and bool(uid) and _identified.decode(stored.data).metadata.uid == uid

    def _sign(self, signed: bytes) -> bytes:
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        signature = self._key().sign(signed, ec.ECDSA(hashes.SHA256()))
        r, s = utils.decode_dss_signature(signature)
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")

    def _verify(self, signed: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, utils

        if len(signature) != 64:
            return False
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        try:
            self._key().public_key().verify(
                utils.encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256())
            )
        except InvalidSignature:
            return False
        return True

    def key_id(self) -> str:
        from cryptography.hazmat.primitives import hashes, serialization

        public = self._key().public_key()
        encoded = public.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        digest = hashes.Hash(hashes.SHA256())
        digest.update(encoded)
        return _encode(digest.finalize()).decode()

    def _key(self) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = serialization.load_pem_private_key(self._path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        return key


def _extra(claims: Json, private: Json) -> dict[str, list[str]]:
    extra = {"authentication.kubernetes.io/credential-id": [f"JTI={get_str(claims, 'jti')}"]}
    for kind in ("pod", "node"):
        if kind in private:
            for field in ("name", "uid"):
                extra[f"authentication.kubernetes.io/{kind}-{field}"] = [get_str(private, kind, field)]
    return extra


def _encode(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _decode(text_: str) -> bytes:
    return base64.urlsafe_b64decode(text_ + "=" * (-len(text_) % 4))
